"""The layers of a model as one forward connects them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from ...hooking.arguments import is_index
from ...hooking.functions import standing_in
from ...hooking.handles import HookManager
from ...hooking.interrupts import Block
from ...hooking.select import (
    PACKED,
    Layers,
    close_names,
    first_names,
    is_convolution,
    refuse_scripted,
    select_layers,
    type_name,
)
from ...hooking.transforms import TransformError, refuse_transforms
from ...run.errors import first_line
from ...run.inputs import Transform
from ...run.recorder import OperationRecorder
from ...run.session import Session
from ...tables import Tabular, counted, for_terminal, html_table, plain, text_table
from .listener import INPUT, OUTPUT, GraphListener, Node, Place, own_memory
from .page import drawing


def graph(
    model: nn.Module,
    inputs: Any,
    layers: Layers = None,
    *,
    weights: Any = None,
    transform: Transform | None = None,
) -> Graph:
    """Find the layers that run in one forward, and which of them feed which.

    The graph is built from the operations that run, not from the code, so it includes functional
    operations, modules that run several times, several inputs and in-place operations. A layer is
    a source of another if its output reaches the other's input through no third layer.

    Parameters
    ----------
    model : torch.nn.Module
        It runs once, in eval mode, and stays as it is, to the bit.
    inputs
        What the model takes: whatever `hookviz.explore` does.
    layers : optional
        As in `hookviz.capture`; None is every layer that holds a matrix or kernels: convolutions,
        linear, recurrent and embedding layers.
    weights, transform : optional
        As in `hookviz.explore`.

    Returns
    -------
    Graph
        If the forward fails: the graph up to there, with the failing place marked.

    Raises
    ------
    FileNotFoundError, ValueError, TypeError
        As `hookviz.explore`, about the input or ``layers``.

    Notes
    -----
    Each tensor has one set of sources. If a model concatenates the outputs of two layers and
    splits the result again, each part has both layers as sources (as in ShuffleNet). Numbers that
    leave torch, by ``.item()`` or NumPy, and come back count as constants.

    Examples
    --------
    >>> import hookviz, torch
    >>> from torch import nn
    >>> class Residual(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.one, self.two = nn.Conv2d(1, 1, 1), nn.Conv2d(1, 1, 1)
    ...         self.last = nn.Conv2d(1, 1, 1)
    ...
    ...     def forward(self, x):
    ...         y = self.one(x)
    ...         return self.last(y + self.two(y.relu()))
    >>> graph = hookviz.graph(Residual(), torch.ones(1, 1, 4, 4))
    >>> graph.sources("last")
    [('one', 0), ('two', 0)]
    >>> graph.sources("one"), graph.after("one")
    ([('input', 0)], ['relu'])
    """
    session = Session.of(model, inputs, weights=weights, transform=transform, finite=False)
    names = first_names(session.model)
    if layers is None:
        chosen = layers_with_weights(names)
        refuse_scripted(chosen)
    else:
        chosen = {module: known[0] for module, known in select_layers(model, layers).items()}
    return graph_of(session, names, chosen)


def graph_of(session: Session, names: dict[nn.Module, str], chosen: dict[nn.Module, str]) -> Graph:
    """Run a session's forward, with its edits, and return the graph of the chosen layers."""
    listeners: list[GraphListener] = []

    def observe() -> Block:
        listeners.append(GraphListener(chosen))
        recorder = OperationRecorder(listeners[-1], names=names, backward=False)
        return Block([HookManager(own_memory(chosen, recorder)), recorder])

    error = None
    try:
        session.forward(observe, grad=False)
    except TransformError:
        raise
    except Exception as raised:
        if not listeners or not listeners[0].nodes:
            raise
        error = raised
    found = graph_from(session, chosen, listeners[0 if error else -1], error)
    if found.unused and len(found.unused) == len(chosen) and error is None:
        # Within `torch.vmap` a module outside of the model may use the layers' weights.
        session.forward(lambda: standing_in(_within_no_transform), grad=False)
    return found


def _within_no_transform(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    refuse_transforms()
    return function(*args, **kwargs)


def graph_from(
    session: Session,
    chosen: dict[nn.Module, str],
    seen: GraphListener,
    error: Exception | None = None,
) -> Graph:
    """Return the graph that a listener has recorded, up to an error."""
    if error is not None:
        seen.fail(error.__cause__ or error)
    ran = {node.layer for node in seen.nodes}
    # Attention uses the weights of its `out_proj`, and never calls it.
    called = [name for each, name in chosen.items() if not isinstance(each, _ByAttention)]
    unused = [name for name in called if name not in ran]
    nodes, edges = _without_dead_ends(seen.nodes, seen.edges)
    return Graph(session.name, nodes, edges, unused, first_line(error) if error else "")


def layers_with_weights(names: Mapping[nn.Module, str]) -> dict[nn.Module, str]:
    """Return those modules that hold a matrix or kernels, and their names."""
    return {module: name for module, name in names.items() if _has_matrix(module)}


def _has_matrix(module: nn.Module) -> bool:
    if is_convolution(module) or isinstance(module, nn.Linear):
        return True  # parametrized ones, too
    if inner := [name for name, each in module._modules.items() if each is not None]:
        return not PACKED.isdisjoint(inner)
    own = [] if isinstance(module, nn.LayerNorm) else module._parameters.values()
    return type_name(module) == "Linear" or any(each is not None and each.ndim > 1 for each in own)


class Graph(Tabular):
    """The operations of one forward and their connections; `hookviz.graph` makes it.

    Attributes
    ----------
    nodes : list of Node
        In the order in which they ran: layers by call, operations in which several meet, the
        model's inputs and outputs.
    edges : list of (int, int)
        From and to, as indices of ``nodes``.
    unused : list of str
        Layers that did not run.
    error : str
        Why the forward failed; empty if it did not.
    """

    def __init__(
        self,
        model: str,
        nodes: list[Node],
        edges: list[tuple[int, int]],
        unused: Sequence[str] = (),
        error: str = "",
    ) -> None:
        self.model, self.nodes, self.edges = model, nodes, edges
        self.unused, self.error = list(unused), error

    def sources(self, layer: str, call: int = -1) -> list[Place]:
        """List the layers whose outputs reach this layer's input through no other layer.

        Returns
        -------
        list of (str, int)
            A layer's name and which of its calls; ``("input", 0)`` is the model's input. In the
            order in which they ran.

        Raises
        ------
        ValueError
            The layer is unknown, did not run, or not that often.
        """
        calls = [node for node in self.nodes if node.sources is not None]
        return list(self._node(layer, call, calls).sources or ())

    def after(self, layer: str, call: int = -1) -> list[str]:
        """List the operations that a layer's output goes through until a layer takes it.

        Views, which only rearrange numbers, are left out. After the last layer they are all that
        follow.

        Raises
        ------
        ValueError
            As `sources`.
        """
        calls = [node for node in self.nodes if node.after is not None]
        return list(self._node(layer, call, calls).after or ())

    def _node(self, layer: str, call: int, nodes: list[Node]) -> Node:
        calls = sorted((node for node in nodes if node.layer == layer), key=lambda node: node.call)
        if not calls:
            if layer in self.unused:
                raise ValueError(f"Layer {layer!r} did not run: nothing is known of its sources.")
            names = [*(node.layer for node in nodes), *self.unused]
            raise ValueError(
                f"No layer {layer!r} is in this graph; {close_names(str(layer), names)}."
            )
        if not is_index(call, len(calls), from_end=True):
            raise ValueError(
                f"Layer {layer!r} ran {counted(len(calls), 'time')}: call={call!r} is out of range."
            )
        return calls[call]

    @property
    def failed(self) -> Node | None:
        """The node at which the forward ended, in an error."""
        return next((node for node in self.nodes if node.failed), None)

    @property
    def verdict(self) -> str:
        """The graph in one line."""
        ran = [node.layer for node in self.nodes if node.layer not in ("", INPUT)]
        operations = [node.operation for node in self.nodes if not node.layer]
        layers = len(set(ran))
        facts = [counted(sum(node.layer == INPUT for node in self.nodes), "input")]
        facts += [counted(layers, "layer")] + [counted(len(ran), "call")] * (len(ran) != layers)
        facts += [counted(len(operations) - operations.count(OUTPUT), "join")]
        facts += [f"{len(self.unused)} not called"] * bool(self.unused)
        end = f"; the forward failed: {self.error}" if self.error else ""
        return f"{self.model}: {', '.join(facts)}{end}"

    def records(self) -> list[dict[str, Any]]:
        """Make one dict a node, for JSON or ``pandas.DataFrame``.

        Returns
        -------
        list of dict
            ``index name layer call operation module shape failed``, ``inputs`` (the indices of
            the nodes from which edges lead here), ``sources`` (as `sources`, None where the node
            is not a layer) and ``after``.
        """
        keys = ("name", "layer", "call", "operation", "module", "shape", "failed")
        return [
            plain(
                {"index": number}
                | {key: getattr(node, key) for key in keys}
                | {"inputs": inputs, "sources": node.sources, "after": node.after}
            )
            for number, (node, inputs) in enumerate(zip(self.nodes, self._inputs(), strict=True))
        ]

    def _inputs(self) -> list[list[int]]:
        """For each node, return the indices of the nodes from which edges lead to it."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for start, end in self.edges:
            found[end].append(start)
        return found

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Each node as text: its name, operation, shape, and the nodes before it."""
        return [
            (
                f"✗ {node.name}" if node.failed else node.name,
                node.operation,
                "–" if node.shape is None else "×".join(map(str, node.shape)),
                ", ".join(self.nodes[each].name for each in inputs),
            )
            for node, inputs in zip(self.nodes, self._inputs(), strict=True)
        ]

    @for_terminal
    def __repr__(self) -> str:
        return text_table(self.verdict, HEADER, self.rows())

    def _heading(self) -> str:
        return f"Graph of {self.model}"

    def _repr_html_(self) -> str:
        picture = drawing(self.nodes, self.edges, self.verdict)
        scrolled = f'<div style="overflow-x: auto">{picture}</div>'  # wider than a phone
        return scrolled + html_table(self.verdict, HEADER, self.rows())


_ByAttention = nn.modules.linear.NonDynamicallyQuantizableLinear

HEADER = ("node", "operation", "shape", "from")


def _without_dead_ends(
    nodes: list[Node], edges: dict[tuple[int, int], None]
) -> tuple[list[Node], list[tuple[int, int]]]:
    """Leave out operations that lead to no layer and no output, such as those inside a layer."""
    kept = {n for n, node in enumerate(nodes) if node.layer or node.failed}
    kept |= {n for n, node in enumerate(nodes) if node.operation == OUTPUT}
    for start, end in reversed(edges):  # an edge's end is made after its start
        if end in kept:
            kept.add(start)
    order = {old: new for new, old in enumerate(sorted(kept))}
    left = [(order[s], order[e]) for s, e in edges if s in kept and e in kept]
    return [nodes[each] for each in sorted(kept)], left


def graph_payload(graph: Graph, model: nn.Module) -> dict[str, Any]:
    """Return a graph's nodes, edges and modules as JSON values.

    Returns
    -------
    dict
        ``nodes``, in the order in which they ran: ``name layer call operation shape after``,
        ``path`` (the module that the node is, or in whose code it ran), ``sources`` (indices of
        nodes, None where the node is not a layer) and ``failed``; ``edges``, pairs of indices;
        ``modules``, the class by the name of each module that holds a node.

    Examples
    --------
    >>> import hookviz, torch
    >>> model = nn.Sequential(nn.Sequential(nn.Conv2d(1, 2, 1)), nn.Conv2d(2, 1, 1))
    >>> found = graph_payload(hookviz.graph(model, torch.ones(1, 1, 4, 4)), model)
    >>> [node["name"] for node in found["nodes"]], found["modules"]
    (['input', '0.0', '1', 'output'], {'0': 'Sequential', '0.0': 'Conv2d', '1': 'Conv2d'})
    >>> found["edges"], found["nodes"][2]["sources"]
    ([[0, 1], [1, 2], [2, 3]], [1])
    """
    records = graph.records()
    numbers = {(each["layer"], each["call"]): each["index"] for each in records if each["layer"]}
    for each in records:
        each["path"] = each.pop("module")
        each["after"] = each["after"] or []
        sources = each["sources"]
        each["sources"] = sources and [numbers[tuple(source)] for source in sources]
        del each["index"], each["inputs"]
    parts = (each["path"].split(".") for each in records)
    paths = {".".join(path[: n + 1]) for path in parts for n in range(len(path))}
    kinds = {name: type(module).__name__ for name, module in model.named_modules()}
    return {
        "nodes": records,
        "edges": [list(edge) for edge in graph.edges],
        "modules": {name: kinds[name] for name in sorted(paths) if name and name in kinds},
    }
