"""A number between two layers as a sum of parts, by its gradient with respect to earlier layers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from ...hooking.handles import HookManager
from ...hooking.interrupts import Block
from ...run.errors import first_line
from ...run.operations import CLAMPS, RECTIFIERS, STEPS, name_of_hardtanh, plain_name
from .listener import Place

MOST_PARTS = 100
"""The number of parts of a number that are listed; the others are summed."""


@dataclass(frozen=True, eq=False)
class Part:
    """A number of an earlier layer, and what it contributes to a number made of it.

    Attributes
    ----------
    layer, call : str, int
        The layer is ``"input"`` for the model's input, with its number as the call.
    sample, channel, position
        Where in the layer's output. The sample is a row of the layer's batch.
    value, weight : float
        The number, and the derivative with respect to it.
    path : list of str
        The operations in between, in the order in which they ran.
    """

    layer: str
    call: int
    sample: int
    channel: int
    position: tuple[int, ...]
    value: float
    weight: float
    path: list[str] = field(repr=False)

    @property
    def part(self) -> float:
        """The contribution: value times weight."""
        return self.value * self.weight


@dataclass(frozen=True, eq=False)
class Origins:
    """A number as a sum: ``value = Σ part + rest + remainder``.

    Attributes
    ----------
    parts : list of Part
        The largest, in order of size.
    others, rest : int, float
        The number of smaller parts, and their sum.
    remainder : float
    kind : str
        What the remainder is. ``"constant"``: biases and shifts, since the path is piecewise
        linear. ``"linearisation"``: the path is not, and the parts are the first-order terms at
        this input. ``"unexplained"``: autograd does not follow some of the path.
    bent_by : list of str
        The operations that are not piecewise linear, or that autograd does not follow.
    """

    value: float
    parts: list[Part]
    others: int = 0
    rest: float = 0.0
    remainder: float = 0.0
    kind: str = "constant"
    bent_by: list[str] = field(default_factory=list)


def split(
    tensor: Tensor,
    index: tuple[int, ...],
    path: Path,
    sources: Mapping[Place, Sequence[Tensor]],
    address: Callable[[Place, Tensor, tuple[int, ...]], tuple[int, int, tuple[int, ...]]],
    *,
    lost: bool,
    by_weight: bool = False,
) -> Origins:
    """Return a number as the sum of the parts of its sources.

    Parameters
    ----------
    tensor, index
        The number; the tensor has a graph that ends at the leaves.
    path : Path
        The operations in that graph.
    sources : mapping of Place to sequence of torch.Tensor
        The outputs of the layers that it was computed from.
    address : callable
        Returns sample, channel and position of an index in such an output.
    lost : bool
        True if autograd does not follow some of the values.
    by_weight : bool
        True if the parts are in order of their weights: the one that raises the number most first.
    """
    leaves = [(place, leaf) for place, several in sources.items() for leaf in several]
    value = float(tensor.detach()[index])
    if not (tensor.requires_grad and leaves):
        return Origins(value, [], remainder=value, kind="unexplained" if sources else "constant")
    cut_off = list[Any]()
    with _hooked(path.nodes, _UPPER_BOUNDS, partial(_note_cut_off, cut_off)):
        gradients = _slopes(tensor, index, [leaf for _, leaf in leaves])
    pairs = zip(leaves, gradients, strict=True)
    reached = [(place, leaf, slope) for (place, leaf), slope in pairs if slope is not None]
    if not reached:
        return Origins(value, [], remainder=value, kind="unexplained")
    whole = path.from_leaves([leaf for _, leaf, _ in reached])
    # At an upper bound such as that of ReLU6 the slope is 0, as it is where all was cut off by
    # ReLUs. The numbers behind are listed with weight 0.
    slopes = ranks = [slope for _, _, slope in reached]
    spots = [*map(_where_nonzero, ranks)]
    own = [leaf for (_, leaf, _), where in zip(reached, spots, strict=True) if len(where)]
    curved = [*path.from_leaves(own).curved]
    for passes, kinds in ((_pass_above, _UPPER_BOUNDS), (_pass_through, _BOUNDS)):
        if cut_off if passes is _pass_above else not any(map(len, spots)):
            with _hooked(whole.nodes, kinds, passes):
                ranks = _slopes(tensor, index, [leaf for _, leaf, _ in reached])
            spots = [*map(_where_nonzero, ranks)]
            if passes is _pass_above and not all(map(torch.equal, ranks, slopes)):
                curved += dict.fromkeys(map(_operation_of, cut_off))
    candidates, count, total = list[tuple[float, Part]](), 0, 0.0
    for (place, leaf, slope), rank, where in zip(reached, ranks, spots, strict=True):
        if not len(where):
            continue  # as most branches of a concatenation
        values, weights, ranked = (
            each.detach().flatten()[where].double() for each in (leaf, slope, rank)
        )
        order = (weights if by_weight else (values * ranked).abs()).nan_to_num(torch.inf)
        count += len(order) if by_weight else int((order != 0).sum())
        total += float((values * weights).sum())
        names = path.names(leaf)
        sizes, chosen = order.topk(min(len(order), MOST_PARTS))
        for size, number in zip(sizes.tolist(), chosen.tolist(), strict=True):
            at = tuple(int(n) for n in np.unravel_index(int(where[number]), leaf.shape))
            sample, channel, position = address(place, leaf, at)
            numbers = float(values[number]), float(weights[number])
            if size or by_weight:
                part = Part(*place, sample, channel, position, *numbers, names)
                candidates.append((size, part))
    candidates.sort(key=lambda candidate: -candidate[0])
    parts = [part for _, part in candidates[:MOST_PARTS]]
    others = count - len(parts)
    rest = total - sum(part.part for part in parts) if others else 0.0
    kind, by = "constant", whole.unknown
    if lost or whole.unknown or len(reached) < len(leaves):
        kind = "unexplained"
    elif curved:
        kind, by = "linearisation", curved
    return Origins(value, parts, others, rest, value - total, kind, by)


def _slopes(tensor: Tensor, index: tuple[int, ...], leaves: Sequence[Tensor]) -> list[Any]:
    """Return the gradients of one number with respect to leaves; None for those without effect."""
    with Block([torch.inference_mode(False), torch.enable_grad()]):
        try:
            return [
                *torch.autograd.grad(tensor[index], leaves, retain_graph=True, allow_unused=True)
            ]
        except RuntimeError as error:
            reason = first_line(error)
            if "inplace operation" in reason:
                reason = "the weights have changed since the run: run the model again."
            raise ValueError(f"This number cannot be traced back: {reason}") from error


def _where_nonzero(slope: Tensor) -> Tensor:
    """Return where a flattened slope is not zero; in a convnet a number is made of a few."""
    flat = slope.detach().flatten()
    if flat.device.type == "cpu" and flat.dtype in (torch.float32, torch.float64):
        # Torch's own function takes fifteen times as long.
        return torch.from_numpy(np.flatnonzero(flat.numpy().astype(bool)))
    return flat.nonzero().flatten()


def _hooked(
    nodes: Sequence[Any], kinds: Collection[str], passes: Callable[..., Any]
) -> HookManager:
    """Return a block within which a function sees, or changes, the gradients of some nodes."""
    bounds = [node for node in nodes if _operation_of(node) in kinds]
    return HookManager([(node, "tensor", partial(passes, node)) for node in bounds])


def _pass_through(node: Any, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Let an activation's node in autograd's graph pass its gradient on unchanged."""
    return (*outputs, *inputs[1:])


def _pass_above(node: Any, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Let such a node pass its gradient on unchanged where values reach an upper bound."""
    above = _above(node, outputs[0])
    passed = inputs[0].flatten().index_put((above,), outputs[0].flatten()[above])
    return passed.view(inputs[0].shape), *inputs[1:]


def _note_cut_off(
    cut_off: list[Any], node: Any, inputs: tuple[Any, ...], outputs: tuple[Any, ...]
) -> None:
    """Note such a node if an upper bound sets a slope to 0."""
    if len(_above(node, outputs[0])):
        cut_off.append(node)


def _above(node: Any, slope: Tensor) -> Tensor:
    """Return where an activation with a nonzero slope has values that reach its upper bound."""
    high = getattr(node, "_saved_max_val", None) or getattr(node, "_saved_max", None)
    if node.name().startswith("Hardsigmoid"):
        high = 3.0
    where = _where_nonzero(slope)
    # In place, only the result is saved.
    values = getattr(node, "_saved_self", getattr(node, "_saved_result", None))
    if values is None or not isinstance(high, (int, float)):
        return where[:0]
    return where[values.detach().flatten()[where] >= high]


class SameMemory(torch.autograd.Function):
    """The identity, without a copy: it ends a segment of the graph, or remembers a tensor's place.

    Autograd does not take the result for a view. So it keeps its place in the graph when the model
    overwrites the original tensor.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        """Return another tensor with the same memory."""
        at = tensor.storage_offset(), tensor.size(), tensor.stride()
        return tensor.new_empty(0).set_(tensor.untyped_storage(), *at)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:  # pyright: ignore
        """Pass the gradient on."""
        return slope


class Path:
    """The operations between a tensor and the leaves that it was made of, in autograd's graph.

    Questions about numbers of one tensor share it: each keeps what it has found.
    """

    def __init__(self, tensor: Tensor) -> None:
        root: Any = tensor.grad_fn
        self._onward: dict[Any, list[Any]] = {root: []}  # the nearest to the root first
        self._ends: dict[int, Any] = {}
        self._names: dict[int, list[str]] = {}
        self._segments: dict[tuple[int, ...], _Segment] = {}
        self.nodes = waiting = [root]
        for node in waiting if tensor.requires_grad else ():  # grows
            self._ends[id(getattr(node, "variable", None))] = node
            for behind in (each for each, _ in node.next_functions if each is not None):
                if behind not in self._onward:
                    waiting.append(behind)
                self._onward.setdefault(behind, []).append(node)

    def names(self, leaf: Tensor) -> list[str]:
        """List the operations on a shortest path from a leaf, in order, without views."""
        if id(leaf) not in self._names:
            names, node = [], self._ends[id(leaf)]
            while self._onward[node]:
                node = self._onward[node][0]
                names.append(_operation_of(node))
            self._names[id(leaf)] = [name for name in names if name not in _VIEWS]
        return self._names[id(leaf)]

    def from_leaves(self, leaves: Sequence[Tensor]) -> _Segment:
        """Return all paths from some leaves."""
        key = tuple(map(id, leaves))
        if key not in self._segments:
            found = dict.fromkeys(self._ends[each] for each in key)
            waiting = [*found]
            for node in waiting:  # grows
                new = [each for each in self._onward[node] if each not in found]
                found |= dict.fromkeys(new)
                waiting += new
            self._segments[key] = _Segment(waiting)
        return self._segments[key]


class _Segment:
    """Some nodes of a path.

    Attributes
    ----------
    curved : list of str
        The operations that are not piecewise linear.
    unknown : list of str
        The operations whose derivative says nothing about their values, such as ``round``.
    """

    def __init__(self, nodes: list[Any]) -> None:
        self.nodes = nodes
        names = {node: _operation_of(node) for node in nodes}
        self.curved = [*dict.fromkeys(names[node] for node in nodes if _is_curved(node, names))]
        by_user = {n for n in nodes if isinstance(n, BackwardCFunction) and names[n] not in _VIEWS}
        unknown = (name for n, name in names.items() if name in _FLAT or n in by_user)
        self.unknown = [*dict.fromkeys(unknown)]


def _is_curved(node: Any, names: Mapping[Any, str]) -> bool:
    """Return True if a node, one of these, is not piecewise linear."""
    name = names[node]
    several = sum(behind in names for behind, _ in node.next_functions) > 1
    own_statistics = "batch_norm" in name and getattr(node, "_saved_training", False)
    scaled = name in _PRODUCTS and not several and not own_statistics
    return not scaled and name not in _PIECEWISE_LINEAR


def _operation_of(node: Any) -> str:
    """Return the name of the operation that made a node of autograd's graph.

    Examples
    --------
    >>> x = torch.ones(1, 2, 4, 4, requires_grad=True)
    >>> _operation_of(torch.nn.functional.max_pool2d(x, 2).grad_fn)
    'max_pool2d_with_indices'
    """
    name = _operation_named(node.name())
    if name == "hardtanh":
        return name_of_hardtanh(node._saved_min_val, node._saved_max_val)
    return name


@cache
def _operation_named(name: str) -> str:
    """Return the name of an operation, from that of its node's class."""
    name = re.sub(r"Backward\d*$", "", name)
    name = re.sub(r"(?<=\d)D", "d", name)
    return plain_name(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())


_VIEWS = frozenset(
    """view reshape_alias unsafe_view as_strided alias expand permute transpose t select slice split
    split_with_sizes chunk unbind unsqueeze squeeze diagonal unfold clone to_copy copy_slices
    copy_backwards contiguous view_as_real same_memory torch::autograd::accumulate_grad
    torch::autograd::copy_slices torch::autograd::copy_backwards""".split()  # noqa: SIM905
)

_PIECEWISE_LINEAR = _VIEWS | frozenset(
    """add sub rsub neg sum mean cat stack index index_select gather masked_select masked_fill
    masked_scatter scatter scatter_add where flip roll repeat pixel_shuffle pixel_unshuffle
    channel_shuffle constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d
    replication_pad1d replication_pad2d replication_pad3d cumsum tril triu trace im2col col2im
    relu relu6 threshold leaky_relu hardtanh clamp clamp_min clamp_max hardshrink softshrink rrelu
    hardsigmoid abs maximum minimum max min amax amin sort topk kthvalue median max_pool2d
    max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d
    fractional_max_pool2d avg_pool2d avg_pool3d adaptive_avg_pool2d adaptive_avg_pool3d
    dropout fused_dropout upsample_nearest1d upsample_nearest2d
    upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d
    upsample_trilinear3d""".split()  # noqa: SIM905
)

_PRODUCTS = frozenset(
    """mul div mm bmm addmm baddbmm addmv mv dot matmul linear convolution prelu
    prelu_kernel lerp addcmul batch_norm""".split()  # noqa: SIM905
)
"""Linear in one of their inputs, as long as the others depend on no layer."""

_UPPER_BOUNDS = CLAMPS | {"hardsigmoid"}

_BOUNDS = RECTIFIERS | _UPPER_BOUNDS | {"hardshrink", "softshrink", "hardswish"}

_FLAT = STEPS | {"fake_quantize_per_tensor_affine_cachemask", "fmod", "remainder"}
"""Operations whose derivative is 0 or 1 whatever they do."""
