"""``hookviz.attention``: where each token of a transformer looks, by layer and head.

Heatmaps of the patches are one short function a method.
Every method is a function of an `Attention` alone: of the weights ``A`` of all layers in which all
tokens look at all, ``(N, heads, T, T)``, and of the score's gradients ``G`` at them. Read is what
reaches the class token, the first of all; without one, the mean over the patches. Values are raw,
at the size of the model's grid of patches.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ..draw.document import TablePage
from ..files import write_arrays
from ..hooking.handles import Hook
from ..hooking.maps import MAX_PREFIX_TOKENS
from ..hooking.records import TensorStore
from ..hooking.select import Layers, close_names, select_layers
from ..hooking.tensors import map_tensors, tensors
from ..run.inputs import Transform, prepare_input
from ..run.recorder import OperationRecorder
from ..run.session import Session
from ..run.target import Target, check_target, logits_of
from ..tables import html_table, number, plain, text_table
from .attending import Attended, AttentionListener

if TYPE_CHECKING:
    from ..draw.figures import ShownFigure


def attention(
    model: nn.Module,
    inputs: Any,
    layers: Layers = None,
    target: Target = None,
    *,
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
    max_bytes: int | None = None,
) -> Attention:
    """Return the attention weights of every module that attends, after softmax, before dropout.

    They are read off the operations that run, not off the code: fused kernels, which never make
    the weights, ``nn.MultiheadAttention`` and ``nn.TransformerEncoderLayer``, a softmax of products
    written by hand, windows, masks, grouped heads and cross-attention are right by themselves. The
    model computes what it always does; for a fused operation the weights are computed beside it,
    ``softmax(scale * Q K^T + mask)``, in float32 at least.

    Parameters
    ----------
    model : torch.nn.Module
        It runs once, in eval mode, and stays as it is, to the bit.
    inputs
        What the model takes: whatever `hookviz.explore` does.
    layers : optional
        As in `hookviz.capture`: only of these modules; None is every module that attends.
    target : optional
        As in `hookviz.explore`: the score whose gradient `Attention.gradients` holds. Given, both
        come from one forward and backward; left out, the gradients take a run when they are first
        looked at.
    weights, transform, class_names : optional
        As in `hookviz.explore`.
    max_bytes : int, optional
        A budget for what is kept, in bytes: what has no room is in `Attention.over_budget`.

    Returns
    -------
    Attention
        A mapping from the name of a module to its weights ``(N, heads, queries, keys)``, in the
        order in which they ran. With one head there is a dimension of one. The second time in one
        forward is ``"name#1"``. Where nothing attends the mapping is empty.

    Raises
    ------
    FileNotFoundError, ValueError, TypeError, RuntimeError
        As `hookviz.explore`; and a ``ValueError`` if ``layers`` names modules of which none
        attends, though others do.

    Notes
    -----
    The name is that of the module that attends: not its ``nn.Softmax``, and not a helper without
    weights that is handed queries and keys. Windows (Swin) are samples of their own: N is the
    batch times the windows. A product of weights and values is recognised where it is a product of
    matrices; not seen is attention within compiled or foreign kernels (``flash_attn``,
    ``xformers``, ``flex_attention``), and what never makes a softmax (linear attention).

    Examples
    --------
    >>> import hookviz, torch
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> maps = hookviz.attention(model, torch.rand(1, 5, 8))
    >>> maps["self_attn"].shape
    torch.Size([1, 2, 5, 5])
    >>> bool(torch.allclose(maps["self_attn"].sum(-1), torch.ones(1, 2, 5)))
    True
    """
    chosen = None if layers is None else set(select_layers(model, layers))
    target = check_target(target)
    # Masks may hold −inf.
    prepared = prepare_input(inputs, model, weights=weights, transform=transform, finite=False)
    session = Session(model, prepared, weights=weights, class_names=class_names)

    return attention_of(session, target, chosen=chosen, max_bytes=max_bytes, layers=layers)


def attention_of(
    session: Session,
    target: Target = None,
    *,
    chosen: set[nn.Module] | None = None,
    max_bytes: int | None = None,
    layers: Layers = None,
) -> Attention:
    """Return the attention of a session's model; ``layers`` is said in an error."""

    def run(score: bool) -> AttentionListener:
        return run_attention(session, target, chosen=chosen, max_bytes=max_bytes, gradients=score)

    listener = run(target is not None)
    if chosen is not None and listener.found:
        known = [each.name for each in listener.found]
        if not any(each.module in chosen for each in listener.found):
            raise ValueError(
                f"layers={layers!r} names no module that attends; {close_names('', known)}."
            )
        listener.found = [each for each in listener.found if each.module in chosen]
    known_gradients = None if target is None else _gradients(listener)
    return Attention(
        {each.name: each.weights for each in listener.found if each.weights is not None},
        model=session.name,
        grid=listener.grid,
        over_budget=[each.name for each in listener.found if each.over_budget],
        gradients=lambda: _gradients(run(True)) if known_gradients is None else known_gradients,
        layer_gradients=lambda names: layer_gradients(session, target, names),
    )


def _gradients(listener: AttentionListener) -> dict[str, Tensor]:
    return {each.name: each.gradient for each in listener.found if each.gradient is not None}


def layer_gradients(session: Session, target: Target, names: Sequence[str]) -> dict[str, Tensor]:
    """Return the gradient at each layer's weights, of the score at that same layer."""
    blocks = blocks_of_attention(names)
    if target is None:  # the class is the model's own, not that of a layer halfway
        with session.active(grad=False):
            given = map_tensors((session.inputs.args, session.inputs.kwargs), torch.clone)
            logits = logits_of(session.call(*given[0], **given[1]))
        target = None if logits is None else logits.argmax(1).tolist()
    found: dict[str, Tensor] = {}
    for name, block in blocks.items():
        module, last = map(session.model.get_submodule, (block, [*blocks.values()][-1]))
        hooks = [] if module is last else _shortcut(module, last)
        attends = {session.model.get_submodule(name)}
        listener = run_attention(session, target, chosen=attends, gradients=True, hooks=hooks)
        found |= {each.name: each.gradient for each in listener.found if each.gradient is not None}
    return found


def _shortcut(module: nn.Module, last: nn.Module) -> list[Hook]:
    """Hooks by which the last block hands on what an earlier one returned."""
    kept: list[Tensor] = []

    def keep(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        kept[:] = tensors(output)[:1]

    def instead(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        old = tensors(output)[0]
        return map_tensors(output, lambda tensor: kept[0] if tensor is old else tensor)

    return [(module, "forward", keep), (last, "edit", instead)]


def blocks_of_attention(names: Sequence[str]) -> dict[str, str]:
    """Return the name of the block of each attention: up to the part where the names differ.

    >>> blocks_of_attention(["encoder.0.attn", "encoder.1.attn"])
    {'encoder.0.attn': 'encoder.0', 'encoder.1.attn': 'encoder.1'}
    """
    parts = [name.split(".") for name in names]
    depth = 0
    while len(parts) > 1 and all(len(each) > depth for each in parts):
        if len({each[depth] for each in parts}) > 1:
            break
        depth += 1
    return {name: ".".join(each[: depth + 1]) for name, each in zip(names, parts, strict=True)}


def run_attention(
    session: Session,
    target: Target = None,
    *,
    chosen: set[nn.Module] | None = None,
    max_bytes: int | None = None,
    gradients: bool = False,
    hooks: Sequence[Hook] = (),
) -> AttentionListener:
    """Run a session's model once and record its attention; with gradients, run a backward, too."""
    last: list[AttentionListener] = []

    def observe() -> AttentionObserver:
        last[:] = [
            AttentionListener(
                session.model,
                chosen,
                store=TensorStore(max_bytes=max_bytes),
                gradients=gradients,
            )
        ]
        return AttentionObserver(last[0], session.model, gradients, hooks)

    if gradients:
        session.forward_backward(target, observe)
    else:
        session.forward(observe, grad=False)
    return last[0]


class AttentionObserver(OperationRecorder):
    """The recorder, with the attention that it is on for."""

    def __init__(
        self,
        listener: AttentionListener,
        model: nn.Module,
        backward: bool,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self._attended: list[Attended] = listener.found
        super().__init__(listener, model=model, backward=backward)
        self._hooks += hooks

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        found = [each for each in self._attended if each.weights is not None]
        self.missing_gradients = any(each.gradient is None for each in found)


class Attention(TablePage, Mapping[str, Tensor]):
    """Attention weights by module; `hookviz.attention` makes it.

    Attributes
    ----------
    model : str
        The model's class.
    grid : tuple of int or None
        Rows and columns of the patches into which the model's first layer cuts its input.
    over_budget : list of str
        What attends, too, and had no room.
    gradients : dict of str to torch.Tensor
        The target's gradient at the weights, of the same shapes; a module that no gradient reaches
        is missing, and one whose fused kernel drops weights out.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        *,
        model: str,
        grid: tuple[int, ...] | None = None,
        over_budget: Sequence[str] = (),
        gradients: Callable[[], dict[str, Tensor]] = dict,
        layer_gradients: Callable[[Sequence[str]], dict[str, Tensor]] = lambda names: {},
    ) -> None:
        self._weights = dict(weights)
        self.model, self.grid, self.over_budget = model, grid, list(over_budget)
        self._make_gradients = gradients
        self._make_layer_gradients = layer_gradients
        self._known: dict[str, Tensor] | None = None
        self._known_of_layers: dict[str, Tensor] | None = None

    def __getitem__(self, name: str) -> Tensor:
        if name in self._weights:
            return self._weights[name]
        if name in self.over_budget:
            raise KeyError(f"{name!r} went over max_bytes: name it with layers=, or give more.")
        raise KeyError(f"No module {name!r} attends; {close_names(str(name), self)}.")

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    @property
    def gradients(self) -> dict[str, Tensor]:
        """The target's gradient at the weights, by module; a first look may run the model."""
        if self._known is None:
            self._known = self._make_gradients()
        return self._known

    @property
    def layer_gradients(self) -> dict[str, Tensor]:
        """The gradient at each module's weights of a score that is read off its own block.

        What the block returns is handed to what follows the last one; LeGrad is made of these. A
        first look runs the model once for each block.
        """
        if self._known_of_layers is None:
            square = [n for n, each in self.items() if each.shape[-2] == each.shape[-1]]
            once = [name for name in square if "#" not in name]
            self._known_of_layers = self._make_layer_gradients(once)
        return self._known_of_layers

    # Tokens and patches

    def prefix(self, name: str) -> int | None:
        """Count the keys before the patches, such as the class token; None without patches.

        >>> Attention({"a": torch.ones(1, 1, 5, 5)}, model="ViT", grid=(2, 2)).prefix("a")
        1
        """
        return prefix_of(self[name].shape[-1], self.grid)

    def patches(self, name: str, query: int | tuple[int, int] = 0) -> Tensor:
        """Arrange what a query looks at as maps on the patches.

        Parameters
        ----------
        name : str
        query : int or tuple of int
            A token's index, 0 being the class token where there is one; or the row and column of a
            patch.

        Returns
        -------
        torch.Tensor
            ``(N, heads, rows, columns)``; tokens before the patches are left out, so that it sums
            to less than one.

        Raises
        ------
        ValueError
            The keys are not patches, or the query is unknown.

        Examples
        --------
        >>> maps = Attention({"a": torch.eye(5)[None, None]}, model="ViT", grid=(2, 2))
        >>> maps.patches("a", (0, 1)).tolist()
        [[[[0.0, 1.0], [0.0, 0.0]]]]
        """
        tensor, grid, before = self[name], self.grid, self.prefix(name)
        if grid is None or before is None:
            raise ValueError(
                f"The {tensor.shape[-1]} keys of {name!r} are not the model's patches"
                + ("." if grid is None else f" ({'×'.join(map(str, grid))}).")
            )
        if isinstance(query, tuple):
            row, column = query
            if not (0 <= row < grid[0] and 0 <= column < grid[1]):
                raise ValueError(f"query={query} is not a patch; the grid has {grid[0]}×{grid[1]}.")
            query = tensor.shape[-2] - math.prod(grid) + row * grid[1] + column
        if not -tensor.shape[-2] <= query < tensor.shape[-2]:
            raise ValueError(
                f"query={query} is not one of the {tensor.shape[-2]} tokens of {name!r}."
            )
        return tensor[..., query, before:].unflatten(-1, grid)

    # In words and numbers

    @property
    def verdict(self) -> str:
        """The modules that attend, in one line."""
        if not self and not self.over_budget:
            return f"{self.model}: nothing attends"
        heads = sum(each.shape[1] for each in self._weights.values())
        count = f"{len(self)} module{'s attend' if len(self) != 1 else ' attends'}"
        said = [f"{count} with {heads} head{'s' * (heads != 1)}"]
        if self.over_budget:
            said.append(f"{len(self.over_budget)} went over max_bytes")
        return f"{self.model}: {'; '.join([*said, *self.notes])}"

    @property
    def notes(self) -> list[str]:
        """Heads that look at one token whatever the query, and layers that look everywhere alike.

        A head has collapsed if one key gets 0.95 of all weight, over samples and queries; a layer
        is uniform if each head's entropy is above 0.99 of the largest possible. Heads with fewer
        than four keys are left out.
        """
        rows = [each for each in self.records() if each["keys"] >= 4]
        collapsed = [each for each in rows if has_collapsed(each)]
        spread = {each["layer"]: True for each in rows}
        for each in rows:
            spread[each["layer"]] &= is_uniform(each)
        uniform = [name for name, alike in spread.items() if alike]
        found = [
            f"head {each['head']} of {each['layer'] or 'all'} looks at key {each['key']} alone"
            for each in collapsed[:3]
        ]
        if len(collapsed) > 3:
            found.append(f"so do {len(collapsed) - 3} heads more, each at one key")
        if uniform:
            others = f" and {len(uniform) - 1} more" if len(uniform) > 1 else ""
            found.append(f"all heads of {uniform[0] or 'the model'}{others} look everywhere alike")
        return found

    def records(self) -> list[dict[str, Any]]:
        """Make one dict a head.

        Returns
        -------
        list of dict
            ``layer head samples queries keys``; ``entropy``, the mean of a row's, 1 being all keys
            alike; ``peak``, the mean of a row's largest weight; ``key``, the key that most weight
            goes to, and its ``fraction`` of all.
        """
        return [
            row
            for name, tensor in self._weights.items()
            for row in head_records(name, tensor.detach())
        ]

    def _heading(self) -> str:
        return f"Attention of {self.model}"

    def _rows(self) -> list[tuple[str, ...]]:
        rows = []
        for name, tensor in self._weights.items():
            count, heads, queries, keys = tensor.shape
            own = head_records(name, tensor.detach())
            ranges = [_range([each[what] for each in own]) for what in ("entropy", "peak")]
            size = f"{queries}×{keys}"
            rows.append((name or "(model)", str(count), str(heads), size, *ranges))
        return rows

    def __repr__(self) -> str:
        return text_table(self.verdict, _HEADER, self._rows()) if self else self.verdict

    def _repr_html_(self) -> str:
        return html_table(self.verdict, _HEADER, self._rows())

    def _png(self) -> bytes | None:
        if not self:
            return None
        from ..draw.figures import small_png  # matplotlib

        return small_png(self.figure())

    def figure(
        self,
        layers: Sequence[str] | None = None,
        *,
        query: int | tuple[int, int] = 0,
        sample: int = 0,
    ) -> ShownFigure:
        """Draw a row for each module, a picture for each head.

        Where the keys are patches it is what one query looks at, else the matrix of queries and
        keys.

        Parameters
        ----------
        layers : sequence of str, optional
            Names; left out, up to twelve of all.
        query : int or tuple of int
            As in `patches`.
        sample : int
        """
        from ..draw.figures import draw_heads

        names = list(self) if layers is None else list(layers)
        step = math.ceil(len(names) / 12) if layers is None else 1
        rows = {name: self._pictures(name, query, sample) for name in names[::step]}
        return draw_heads(rows)

    def _pictures(self, name: str, query: int | tuple[int, int], sample: int) -> np.ndarray:
        on_patches = self.grid is not None and self.prefix(name) is not None
        shown = self.patches(name, query) if on_patches else self[name]
        if not 0 <= sample < len(shown):
            raise ValueError(f"sample={sample} is out of range: {name!r} has {len(shown)}.")
        return shown[sample].detach().float().cpu().numpy()

    def save(self, path: str | os.PathLike) -> None:
        """Write weights, and gradients where they are known, as one file for `hookviz.load`."""
        known = self._known or {}
        held = {f"weights{n}": each for n, each in enumerate(self._weights.values())}
        held |= {f"gradient{n}": known[name] for n, name in enumerate(self) if name in known}
        about = {
            "format": FORMAT,
            "model": self.model,
            "names": list(self),
            "grid": self.grid,
            "over_budget": self.over_budget,
        }
        arrays = {key: each.detach().cpu().numpy() for key, each in held.items()}
        write_arrays(path, about, arrays, small=False)


FORMAT = "hookviz attention 1"
_HEADER = ("layer", "samples", "heads", "queries×keys", "entropy", "peak")


def unpack(about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Attention:
    """Make the result of a file again."""
    names = about["names"]
    gradients = {
        name: torch.from_numpy(arrays[f"gradient{n}"])
        for n, name in enumerate(names)
        if f"gradient{n}" in arrays
    }
    return Attention(
        {name: torch.from_numpy(arrays[f"weights{n}"]) for n, name in enumerate(names)},
        model=about["model"],
        grid=about["grid"] and tuple(about["grid"]),
        over_budget=about["over_budget"],
        gradients=lambda: gradients,
    )


def prefix_of(tokens: int, grid: tuple[int, ...] | None) -> int | None:
    """Return the number of tokens before the patches; None if the others are not patches."""
    before = -1 if grid is None else tokens - math.prod(grid)
    return before if 0 <= before <= MAX_PREFIX_TOKENS else None


def head_records(name: str, tensor: Tensor) -> list[dict[str, Any]]:
    """Return a dict for each head of ``(N, heads, queries, keys)``; see `Attention.records`."""
    samples, _, queries, keys = tensor.shape
    total = tensor.sum(-1)
    seen = total > 0  # a query that may look nowhere has no entropy
    count = seen.sum((0, 2)).clamp(min=1)
    entropy = torch.special.entr(tensor).sum(-1) / max(math.log(keys), 1e-9) if keys > 1 else total
    mean = lambda each: plain((each.where(seen, 0).sum((0, 2)) / count).tolist())  # noqa: E731
    fractions = tensor.sum((0, 2)) / total.sum((0, 2))[:, None]  # (heads, keys)
    best = fractions.nan_to_num(-1.0).max(1) if keys else None
    found = zip(mean(entropy), mean(tensor.amax(-1)), strict=True)
    return [
        {
            "layer": name,
            "head": head,
            "samples": samples,
            "queries": queries,
            "keys": keys,
            "entropy": spread,
            "peak": peak,
            "key": None if best is None else int(best.indices[head]),
            "fraction": None if best is None else plain(float(best.values[head])),
        }
        for head, (spread, peak) in enumerate(found)
    ]


def has_collapsed(record: Mapping[str, Any]) -> bool:
    """Return whether a head, by its record, looks at one token whatever the query."""
    return record["fraction"] is not None and record["fraction"] >= 0.95


def is_uniform(record: Mapping[str, Any]) -> bool:
    """Return whether a head, by its record, looks everywhere alike."""
    return record["entropy"] is not None and record["entropy"] >= 0.99


def _range(values: Sequence[float | None]) -> str:
    known = [each for each in values if each is not None]
    if not known:
        return "–"
    low, high = number(min(known)), number(max(known))
    return low if low == high else f"{low} to {high}"


def rollout(maps: Attention) -> Tensor:
    """Attention rollout: how much of each patch has flowed to the class token.

    It is the same for every class.

    The row of the class token in ``Â_L … Â_2 Â_1`` with ``Â = (mean over heads of A + I) / 2``,
    Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3.1.

    Notes
    -----
    Popular code also sets small weights to zero (``discard_ratio``); the paper does not.
    """
    flow: Tensor | None = None
    for weights in _square(maps).values():
        mixed = weights.mean(1)
        mixed = (mixed + torch.eye(mixed.shape[-1]).to(mixed)) / 2
        flow = mixed if flow is None else mixed @ flow
    assert flow is not None
    return _read(maps, flow)


def gradient_attention(maps: Attention) -> Tensor:
    """Gradient × attention: relevance that is passed on from layer to layer, for the target.

    The row of the class token in ``R``, which begins as the identity and takes up ``Ā R`` at each
    layer, with ``Ā = mean over heads of relu(G * A)``; Chefer, Gur and Wolf 2021, "Generic
    Attention-model Explainability for Interpreting Bi-Modal and Encoder-Decoder Transformers",
    equations 5 and 6, for self-attention.
    """
    relevance: Tensor | None = None
    for name, weights in _square(maps).items():
        if name not in maps.gradients:
            continue  # the score does not depend on it
        passed = (maps.gradients[name] * weights).relu().mean(1)
        if relevance is None:
            relevance = torch.eye(passed.shape[-1]).to(passed).expand_as(passed)
        relevance = relevance + passed @ relevance
    if relevance is None:
        raise ValueError("No gradient reaches any attention: give a target that depends on it.")
    return _read(maps, relevance)


def legrad(maps: Attention) -> Tensor:
    """LeGrad: how the score would answer to each patch being looked at more, layer by layer.

    ``mean over layers, heads and queries of relu(dS_l/dA_l)``, where ``S_l`` is the score of what
    layer l returns, handed to what follows the last layer; Bousselham et al. 2024, "LeGrad: An
    Explainability Method for Vision Transformers via Feature Formation Sensitivity", equations 5
    to 8. The model runs once for each layer.

    Notes
    -----
    The model reads ``S_l`` off a layer as it reads its last one: off the class token, or the mean.
    The authors' code for CLIP takes the mean of all tokens, and scales the map to 0..1.
    """
    known = maps.layer_gradients
    found = [known[name].relu().mean((1, 2)) for name in _square(maps) if name in known]
    if not found:
        raise ValueError("No gradient reaches any attention: give a target that depends on it.")
    return _on_patches(maps, torch.stack(found).mean(0))


ATTENTION_HEATMAPS: dict[str, Callable[[Attention], Tensor]] = {
    "rollout": rollout,
    "gradient × attention": gradient_attention,
    "legrad": legrad,
}
"""Method name -> function of an `Attention` -> ``(N, rows, columns)``."""


def _square(maps: Attention) -> dict[str, Tensor]:
    """Return the layers in which all tokens attend to all, in the order in which they ran."""
    found = {
        name: weights
        for name, weights in maps.items()
        if weights.shape[-2] == weights.shape[-1]
        and prefix_of(weights.shape[-1], maps.grid) is not None
    }
    sizes = {(len(each), each.shape[-1]) for each in found.values()}
    if len(sizes) != 1:
        raise ValueError(
            f"In {maps.model} some layers do not attend over all patches: such a heatmap needs the "
            "same tokens in every layer, as in ViT; see one layer with patches() or figure()."
        )
    return found


def _read(maps: Attention, matrix: Tensor) -> Tensor:
    """Return the row of the class token in ``(N, T, T)``, or the mean over the patches."""
    before = prefix_of(matrix.shape[-1], maps.grid)
    return _on_patches(maps, matrix[:, 0] if before else matrix.mean(1))


def _on_patches(maps: Attention, tokens: Tensor) -> Tensor:
    before = prefix_of(tokens.shape[-1], maps.grid)
    assert before is not None and maps.grid is not None
    return tokens[:, before:].unflatten(1, maps.grid)
