"""A listener that finds attention among a run's operations, and keeps its weights.

Attention is a softmax of products of two activations, which then weights a third one:
``softmax(Q K^T) V``. Written out, it is recognised by following products to a softmax, and its
result to the product with the values; scales, masks, biases, dropout, copies and reshapes may lie
between. A fused kernel is all of it in one operation and never makes the weights: they are computed
beside it, in float32 at least.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..hooking.checkpoint import FORWARD, current_backward
from ..hooking.maps import PatchGrid
from ..hooking.records import Statistics, TensorStore, statistics
from ..hooking.storage import StorageMap
from ..hooking.tensors import at_least_float32
from ..run.follow import Follower
from ..run.operations import FACTORS, PROBABILITIES, Kind
from ..run.recorder import ModuleCall, Operation, OperationRecorder


def attention_weights(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Return ``softmax(scale * Q K^T + mask)``, as `scaled_dot_product_attention` computes it.

    Parameters
    ----------
    query, key : torch.Tensor
        ``(..., heads, queries, d)`` and ``(..., heads, keys, d)``. The keys may have fewer heads:
        each of them serves a group of neighbouring query heads.
    mask : torch.Tensor, optional
        Broadcasts to the weights: bool, true where a query may look, or added before the softmax.
    causal : bool
        True if a query looks at no later key.
    scale : float, optional
        ``1 / sqrt(d)`` if left out.

    Returns
    -------
    torch.Tensor
        ``(..., heads, queries, keys)``, float32 at least. A query that may look nowhere has zeros.

    Examples
    --------
    >>> attention_weights(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), causal=True)
    tensor([[[1.0000, 0.0000],
             [0.5000, 0.5000]]])
    """
    query, key = at_least_float32(query), at_least_float32(key)
    logits = query @ _for_each_head(key, query).mT
    logits *= 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if mask is not None and mask.dtype != torch.bool:
        logits = logits + mask
    elif mask is not None:
        logits = logits.masked_fill(~mask, -math.inf)
    if causal:
        seen = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
        logits.masked_fill_(~seen, -math.inf)
    nowhere = (logits == -math.inf).all(-1, keepdim=True)
    return logits.softmax(-1).masked_fill_(nowhere, 0)


def _for_each_head(shared: Tensor, query: Tensor) -> Tensor:
    """Repeat keys or values that a group of query heads shares."""
    if query.ndim < 3 or shared.shape[-3] == query.shape[-3]:
        return shared
    return shared.repeat_interleave(query.shape[-3] // shared.shape[-3], -3)


def _is_fused(operation: Operation) -> bool:
    # The kernels below it, such as flash_attention_forward, have the heads in another dimension.
    return operation.kind is Kind.ATTENTION and operation.name.startswith("scaled_dot_product")


def _fused_weights(operation: Operation) -> Tensor:
    given = operation.argument
    mask = given.get("attn_mask")
    return attention_weights(
        given["query"],
        given["key"],
        given.get("attn_bias") if mask is None else mask,
        causal=bool(given.get("is_causal")),
        scale=given.get("scale"),
    )


def _fused_gradient(operation: Operation) -> Tensor | None:
    """Return ``dS/dA = dS/dO V^T`` of ``O = A V``, from the backward of a fused operation.

    None if the kernel also dropped weights: it does not report which.
    """
    given = operation.argument
    if given.get("dropout_p"):
        return None
    arrived = at_least_float32(operation.args[0])
    return arrived @ _for_each_head(at_least_float32(given["value"]), arrived).mT


Path = tuple[ModuleCall, ...]
"""The calls that were running, the outermost first."""

HEADS = ("num_heads", "n_heads", "num_attention_heads", "nhead", "n_head", "heads", "nheads")


@dataclass(eq=False)
class Attended:
    """One attention.

    Attributes
    ----------
    name, module
        The module that attends.
    weights, gradient : torch.Tensor or None
        ``(N, heads, queries, keys)``, once the run has ended.
    over_budget : bool
        True if there was no room for the weights: then ``statistics`` and ``shape`` are known.
    reduced
        What the listener's ``reduce`` returned for the weights.
    place : int
        How many captured layers had run before.
    projection : str
        The name of the linear layer that takes the heads' results side by side; empty if there is
        none, or if they are not side by side. If ``projection_runs`` is False, the module that
        attends reads that layer's weight and does not call it.
    """

    path: Path  # the calls that its parts have in common
    call: ModuleCall | None  # in which the softmax ran
    dimension: int = -1  # of the softmax
    kept: Tensor | None = None  # the result of the softmax, in its shape
    given: tuple[torch.Size, ...] = ()  # the shapes of the module's inputs
    confirmed: bool = False  # whether it has weighted values
    name: str = ""
    module: nn.Module | None = field(default=None, repr=False)
    weights: Tensor | None = None
    gradient: Tensor | None = None
    over_budget: bool = False
    statistics: Statistics | None = None
    shape: tuple[int, ...] = ()
    reduced: Any = None
    place: int = 0
    projection: str = ""
    projection_runs: bool = True


# The marks of tensors that the listener follows. The fourth is `Attended`, at its softmax's result.


@dataclass(eq=False)
class _Weight:
    """A parameter, or a copy of it such as autocast's."""

    owner: str


@dataclass(eq=False)
class _Product:
    """Products of two activations: perhaps those of queries and keys."""

    path: Path
    sizes: tuple[int, int]


@dataclass(eq=False)
class _Result:
    """The result of an attention, with all heads' values for the first query side by side."""

    attended: Attended
    first: Tensor | None


_Mark = _Weight | _Product | Attended | _Result


class AttentionListener(Follower[_Mark]):
    """Collects the attention weights of a run, and the gradients at them.

    Parameters
    ----------
    model : torch.nn.Module
    chosen : set of torch.nn.Module, optional
        The modules whose weights are kept; all if left out.
    store : TensorStore, optional
        Its budget is for weights and gradients.
    gradients : bool
        True if a backward follows, whose gradients at the weights are kept.
    ran : callable, optional
        Returns the number of captured layers that have run, for the order among them.
    reduce : callable, optional
        Called with an attention and its weights ``(N, heads, queries, keys)``: its result is kept
        as ``reduced`` in place of the weights.

    Attributes
    ----------
    found : list of Attended
        In the order in which they ran; their names are unique.
    """

    def __init__(
        self,
        model: nn.Module,
        chosen: set[nn.Module] | None = None,
        *,
        store: TensorStore | None = None,
        gradients: bool = False,
        ran: Callable[[], int] = int,
        reduce: Callable[[Attended, Tensor], Any] | None = None,
    ) -> None:
        super().__init__()
        self.found: list[Attended] = []
        self._model, self._chosen = model, chosen
        self._store, self._gradients, self._ran = store or TensorStore(), gradients, ran
        self._reduce = reduce
        self._patches = PatchGrid()
        self._running: list[ModuleCall] = []
        self._given: dict[ModuleCall, tuple[torch.Size, ...]] = {}
        self._recorder: OperationRecorder

    @property
    def grid(self) -> tuple[int, ...] | None:
        """Rows and columns of the patches that the model's first layer cuts, if it does."""
        return self._patches.grid

    # The modules

    def begin(self, recorder: OperationRecorder) -> None:
        """Mark the parameters, and let the first layer tell the grid of patches."""
        self._recorder = recorder
        for module, name in recorder.names.items():
            for parameter in module.parameters(recurse=False):
                self.marks[parameter] = _Weight(name)
        for hook in self._patches.hooks(self._model):
            recorder.add(*hook)

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """Note which modules run within which."""
        self._running.append(call)
        self._given.setdefault(call, tuple(each.shape for each in given))

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Note that a module has run."""
        if call in self._running:
            del self._running[self._running.index(call) :]

    def _path(self, call: ModuleCall | None) -> Path:
        if call is None:
            return tuple(self._running[:1])
        if call not in self._running:
            return (call,)
        return tuple(self._running[: self._running.index(call) + 1])

    # The operations

    def mark_of_result(
        self, operation: Operation, made: Tensor, reads: list[tuple[Tensor, _Mark]]
    ) -> _Mark | None:
        """Return the first mark that the operation hands on."""
        if made is not operation.outputs[0]:
            return None
        for tensor, mark in reads:
            if isinstance(mark, _Weight):
                follows = operation.kind is Kind.COPY or operation.mutates
            elif isinstance(mark, _Result):
                follows = operation.kind in (Kind.COPY, Kind.REARRANGEMENT, Kind.DROPOUT)
            else:  # what is scaled or masked keeps its number of values
                finished = isinstance(mark, Attended) and mark.confirmed
                follows = not finished and tensor.numel() == made.numel()
            if follows:
                return mark
        return None

    def mark_of_mixture(self, old: _Mark | None, new: _Mark | None) -> _Mark | None:
        """Keep the mark where a part is overwritten, as masks of scores are."""
        return old or new

    def after(self, operation: Operation) -> None:
        """Follow products to a softmax and on to values; take what fused operations hide."""
        if _is_fused(operation) or operation.name in PROBABILITIES:
            # Only checkpointing runs a forward operation, with a graph, during a backward.
            again = current_backward() != FORWARD and torch.is_grad_enabled()
            with self._recorder.silent(), torch.no_grad():
                if again:
                    self._recall(operation)
                elif _is_fused(operation):
                    self._take_fused(operation)
                else:
                    self._take_softmax(operation)
        elif operation.phase == "backward":
            if self._gradients:
                self._take_gradient(operation)
        elif operation.name not in FACTORS or not self._take_product(operation):
            super().after(operation)

    def _take_fused(self, operation: Operation) -> None:
        weights = _fused_weights(operation)
        attended = Attended(self._path(operation.call), operation.call, kept=weights)
        self._confirm(attended, weights, operation.outputs[0])

    def _take_softmax(self, operation: Operation) -> None:
        product = self.marks.get(operation.argument["self"])
        dimension, result = operation.argument["dim"], operation.output
        if isinstance(product, _Product) and result.shape[dimension] in product.sizes:
            path = _common(product.path, self._path(operation.call))
            # A copy: a dropout in place, for example, overwrites the result.
            kept = at_least_float32(result.detach().clone())
            self.marks[result] = Attended(path, operation.call, dimension, kept)

    def _take_product(self, operation: Operation) -> bool:
        """Return whether the product is a part of attention."""
        first, second = (operation.argument[name] for name in FACTORS[operation.name])
        one, other = map(self.marks.get, (first, second))
        sides = (one, other, first.shape[-1]), (other, one, second.shape[-min(second.ndim, 2)])
        for mark, factor, size in sides:
            if isinstance(mark, Attended) and mark.kept is not None:
                if mark.kept.shape[mark.dimension] != size or isinstance(factor, _Weight):
                    return False  # heads are mixed, as talking heads are
                if not mark.confirmed:
                    mark.path = _common(mark.path, self._path(operation.call))
                    with self._recorder.silent(), torch.no_grad():
                        self._confirm(mark, mark.kept, operation.output)
                return True
        if isinstance(one, _Result) and isinstance(other, _Weight):
            self._take_projection(one, other, first, operation)
            return True
        if operation.name in ("mm", "addmm") and any(isinstance(m, _Weight) for m in (one, other)):
            return False  # a linear layer
        if operation.output.ndim > 1:
            rows, columns = operation.output.shape[-2:]
            self.marks[operation.output] = _Product(self._path(operation.call), (rows, columns))
        return True

    def _take_projection(
        self, result: _Result, weight: _Weight, given: Tensor, operation: Operation
    ) -> None:
        """Note the output projection, if its input has the heads' results side by side."""
        if result.first is None or given.shape[-1] != len(result.first):
            return
        with self._recorder.silent(), torch.no_grad():
            row = given.reshape(-1, given.shape[-1])[0].to(result.first)
            beside, result.first = torch.equal(row, result.first), None
        runs = operation.call is not None and operation.call.layer == weight.owner
        # A weight that is only read is known to have a column for each input value in `nn.Linear`.
        if beside and (runs or isinstance(self._model.get_submodule(weight.owner), nn.Linear)):
            result.attended.projection, result.attended.projection_runs = weight.owner, runs

    def _take_gradient(self, operation: Operation) -> None:
        if operation.name == "softmax_backward_data":
            mark = self.marks.get(operation.argument["output"])
            find: Callable[[], Tensor | None] = operation.args[0].clone
        elif operation.name.startswith("scaled_dot_product"):
            mark = self.marks.get(operation.argument["out"])
            find = lambda: _fused_gradient(operation)  # noqa: E731
        else:
            return
        attended = mark.attended if isinstance(mark, _Result) else mark
        if isinstance(attended, Attended) and attended.confirmed and attended.kept is not None:
            with self._recorder.silent(), torch.no_grad():
                gradient = find()
                if gradient is not None:
                    attended.gradient = self._arranged(attended, at_least_float32(gradient))

    def _recall(self, operation: Operation) -> None:
        """Mark the result of an attention that checkpointing repeats, to get its gradient."""
        fused, result = _is_fused(operation), operation.outputs[0]
        waiting = [e for e in reversed(self.found) if e.kept is not None and e.gradient is None]
        if not self._gradients or not waiting:
            return
        weights = _fused_weights(operation) if fused else at_least_float32(result)
        alike = [each for each in waiting if torch.equal(each.kept, weights)]  # type: ignore[arg-type]
        if alike:  # in the same call, if that runs again; otherwise a backward begins at the end
            again = next((each for each in alike if each.call is operation.call), alike[0])
            self.marks[result] = _Result(again, None) if fused else again

    # One attention

    def _confirm(self, attended: Attended, weights: Tensor, result: Tensor) -> None:
        """Find the module that attends, and keep its weights as far as there is room."""
        attended.confirmed = True
        self._find_module(attended)
        if self._chosen is not None and attended.module not in self._chosen:
            attended.kept = None
            return
        arranged = self._arranged(attended, weights)
        self.marks[result] = _Result(attended, _first_query(result, attended, arranged.shape))
        if self._reduce is not None:
            attended.reduced, attended.kept = self._reduce(attended, arranged), None
        elif not self._store.reserve(weights.nbytes * (1 + self._gradients)):
            attended.statistics, attended.shape = statistics(weights), arranged.shape
            attended.kept, attended.over_budget = None, True

    def _find_module(self, attended: Attended) -> None:
        """Find the module that attends: not the helper that it hands queries and keys to."""
        path = attended.path
        while len(path) > 1 and self._is_helper(path[-1]):
            path = path[:-1]
        if path:
            attended.module, attended.name = path[-1].module, path[-1].layer
            attended.given = self._given.get(path[-1], ())
        attended.place = self._ran()
        self.found.append(attended)

    def _is_helper(self, call: ModuleCall) -> bool:
        given = self._given.get(call, ())
        ready = len(given) > 1 or any(len(size) > 4 for size in given)
        return ready and all(each.ndim < 2 for each in call.module.parameters())

    def _arranged(self, attended: Attended, tensor: Tensor) -> Tensor:
        """Arrange a tensor of the softmax's shape as ``(N, heads, queries, keys)``."""
        tensor = tensor.movedim(attended.dimension, -1)
        heads, shape = _heads_of(attended.module), tensor.shape
        if tensor.ndim == 2:
            return tensor[None, None]
        if tensor.ndim == 3:
            return tensor.unflatten(0, (-1, _heads_among(shape[0], heads, attended.given)))
        if tensor.ndim == 4 and _is_without_heads(shape, attended.given):
            return tensor.transpose(0, 1)
        if tensor.ndim == 4:
            swapped = heads is not None and shape[1] != heads and shape[2] == heads
            return tensor.transpose(1, 2) if swapped else tensor
        # Each window counts as a sample.
        place = next((d for d in range(1, tensor.ndim - 2) if shape[d] == heads), tensor.ndim - 3)
        return tensor.movedim(place, -3).flatten(0, -4)

    def end(self) -> None:
        """Discard the marks, and give each attention a unique name."""
        self.marks = StorageMap()
        counts: dict[str, int] = {}
        for each in self.found:
            number = counts.get(each.name, 0)
            counts[each.name] = number + 1
            if number:
                each.name = f"{each.name}#{number}"
            if each.kept is not None:
                each.weights, each.kept = self._arranged(each, each.kept), None


def _first_query(result: Tensor, attended: Attended, shape: torch.Size) -> Tensor | None:
    """Return all heads' results for the first query, side by side; None if unknown."""
    _, heads, queries, _ = shape
    rows = result if attended.dimension in (-1, result.ndim - 1) else result.mT
    if rows.shape[-2] != queries or rows.shape[:-2].numel() % heads:
        return None
    return rows.reshape(-1, heads, queries, rows.shape[-1])[0, :, 0].flatten().clone()


def _common(one: Path, other: Path) -> Path:
    """Return the calls that both ran in."""
    count = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a is not b), None)
    return one[: min(len(one), len(other)) if count is None else count]


def _heads_of(module: nn.Module | None) -> int | None:
    found = (getattr(module, name, None) for name in HEADS)
    return next((each for each in found if isinstance(each, int) and each > 0), None)


def _is_without_heads(shape: torch.Size, given: tuple[torch.Size, ...]) -> bool:
    """Return whether weights ``(1, N, queries, keys)`` have the batch in the place of the heads.

    Torch puts a dimension before queries ``(N, L, D)``.
    """
    if shape[0] != 1 or not given or len(given[0]) < 3:
        return False
    return shape[1] == given[0][0] and 1 not in given[0][:2]


def _heads_among(rows: int, heads: int | None, given: tuple[torch.Size, ...]) -> int:
    """Return the number of heads in the rows ``N * heads`` of weights."""
    batches = set(given[0][:2]) if given and len(given[0]) > 2 else set()
    if heads is not None:
        whole = rows % heads == 0
        unbatched = rows == heads and bool(given) and len(given[0]) == 2
        return heads if whole and (unbatched or rows // heads in batches or not given) else 1
    if not given or rows in set(given[0][:1]):
        return 1
    batch = given[0][0]
    return rows // batch if rows % batch == 0 else 1
