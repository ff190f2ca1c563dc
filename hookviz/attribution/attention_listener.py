"""A listener that finds attention among a run's operations, and keeps its weights.

Attention is a softmax of products of two activations, which then weights a third one:
``softmax(Q K^T) V``. Written out, it is recognised by following products to a softmax, and its
result to the product with the values; scales, masks, biases, dropout, copies and reshapes may lie
between. A fused kernel is all of it in one operation and never makes the weights: they are computed
beside it, in float32 at least.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..hooking.checkpoint import FORWARD, current_backward
from ..hooking.maps import PatchGrid
from ..hooking.records import CapturedTensor, TensorStore, statistics
from ..hooking.storage import StorageMap
from ..hooking.tensors import at_least_float32
from ..run.follow import Follower
from ..run.operations import FACTORS, LAYER_KINDS, PROBABILITIES, Kind
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


HEADS = ("num_heads", "n_heads", "num_attention_heads", "nhead", "n_head", "heads", "nheads")
"""The attributes in which modules keep their number of heads."""


@dataclass(eq=False)
class Attended:
    """One attention.

    Attributes
    ----------
    name, module
        The module that attends.
    captured : CapturedTensor or None
        Weights and gradient ``(N, heads, queries, keys)``, once the run has ended; only statistics
        if there was no room. None if the module is not a chosen one.
    place : int
        How many captured layers had run before.
    projection : str
        The name of the module that gets the heads' results side by side, usually a linear layer;
        empty if there is none, or if the results are of mixed heads. If ``projection_runs`` is
        False, the module that attends reads that layer's weight and does not call it.
    """

    path: tuple[ModuleCall, ...]  # the calls that its parts have in common, the outermost first
    raw: Tensor | None  # the result of the softmax, keys last; None if it is not needed
    gradient: Tensor | None = None  # the gradient at it
    keys: int = -1  # the dimension of the softmax
    queries: int = -2  # that of the queries in `raw`
    layout: tuple[int, int] | None = None  # heads, and the distance between two of a sample
    first: Tensor | None = None  # (samples * heads, d), their results for the first query
    mixed: bool = False  # True if a layer mixes the heads' weights, as with talking heads
    given: tuple[torch.Size, ...] = ()  # the shapes of the module's inputs
    name: str = ""
    module: nn.Module | None = field(default=None, repr=False)
    captured: CapturedTensor | None = None
    place: int = 0
    projection: str = ""
    projection_runs: bool = True

    def arranged(self, tensor: Tensor) -> Tensor:
        """Arrange a tensor of the shape of ``raw`` as ``(N, heads, queries, keys)``.

        If windows or samples lie between the heads, each window counts as a sample.
        """
        tensor = tensor.movedim(self.queries, -2)
        heads, stride = self.layout or self._usual_layout(tensor.shape[:-2])
        by_head = tensor.reshape(-1, heads, stride, *tensor.shape[-2:])
        return by_head.transpose(1, 2).flatten(0, 1)

    def _usual_layout(self, sizes: torch.Size) -> tuple[int, int]:
        """Return the likely layout if the heads' results do not go side by side into a layer."""
        numbers = (getattr(self.module, name, None) for name in HEADS)
        heads = next((each for each in numbers if isinstance(each, int)), 0)
        given, count = self.given[0] if self.given else torch.Size(), sizes.numel()
        batch = given[0] if len(given) > 2 else 1
        # Queries (N, L, D) without a dimension for heads: torch puts one before them.
        added = len(sizes) == 2 and (1, batch) == sizes
        if len(sizes) < 2 or added:
            heads = heads or count // batch
            return (heads if count == heads * batch else 1), 1
        if heads not in sizes[1:] and sizes[0] == heads * batch:
            return heads, sizes[1:].numel()
        place = sizes.index(heads, 1) if heads in sizes[1:] else len(sizes) - 1
        return sizes[place], sizes[place + 1 :].numel()


# The marks of tensors that the listener follows. The fourth is `Attended`, at its softmax's result.


@dataclass(eq=False)
class _Weight:
    """A parameter, or a copy of it such as autocast's."""

    owner: str


@dataclass(eq=False)
class _Product:
    """Products of two activations: perhaps those of queries and keys."""

    sizes: torch.Size


@dataclass(eq=False)
class _Result:
    """The result of an attention."""

    attended: Attended


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

    Attributes
    ----------
    found : list of Attended
        In the order in which they ran; their names are unique.
    patches : PatchGrid
        The patches that the model's first layer cuts.
    """

    def __init__(
        self,
        model: nn.Module,
        chosen: set[nn.Module] | None = None,
        *,
        store: TensorStore | None = None,
        gradients: bool = False,
        ran: Callable[[], int] = int,
    ) -> None:
        super().__init__()
        self.found: list[Attended] = []
        self.patches = PatchGrid()
        self._model, self._chosen = model, chosen
        self._store, self._gradients, self._ran = store or TensorStore(), gradients, ran
        self._running: list[ModuleCall] = []
        self._given: dict[ModuleCall, tuple[torch.Size, ...]] = {}
        self._unhooked: list[tuple[Tensor, Callable[[Tensor], None]]] = []
        self._recorder: OperationRecorder

    @property
    def captured(self) -> dict[str, CapturedTensor]:
        """The weights and gradients of chosen modules, by the names of `found`."""
        return {each.name: each.captured for each in self.found if each.captured is not None}

    # The modules

    def begin(self, recorder: OperationRecorder) -> None:
        """Mark the parameters, and let the first layer tell the grid of patches."""
        self._recorder = recorder
        for module, name in recorder.names.items():
            for parameter in module.parameters(recurse=False):
                self.marks[parameter] = _Weight(name)
        for hook in self.patches.hooks(self._model):
            recorder.add(*hook)

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """Note which modules run within which, and which get the result of an attention."""
        self._running.append(call)
        self._given.setdefault(call, tuple(each.shape for each in given))
        mark = self.marks.get(given[0]) if len(given) == 1 else None
        # A module without weights, such as a dropout, may run at several places.
        if isinstance(mark, _Result) and any(True for _ in call.module.parameters()):
            _find_projection(mark.attended, given[0], call.layer, runs=True)

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Note that a module has run."""
        if call in self._running:
            del self._running[self._running.index(call) :]

    def end(self) -> None:
        """Discard the marks, give each attention a unique name, and arrange its weights."""
        self.marks = StorageMap()
        counts = Counter[str]()
        for each in self.found:
            counts[each.name] += 1
            if counts[each.name] > 1:
                each.name += f"#{counts[each.name] - 1}"
            if each.captured is None:
                continue
            unarranged = torch.empty(each.captured.shape, device="meta")
            each.captured.shape = each.arranged(unarranged).shape
            if each.raw is not None:
                each.captured.keep(each.arranged(each.raw))
            if each.gradient is not None:
                each.captured.keep_gradient(each.arranged(each.gradient))
            each.raw = each.gradient = None

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
                follows = tensor.numel() == made.numel()
            if follows:
                if isinstance(mark, Attended) and operation.kind in LAYER_KINDS:
                    mark.mixed = True
                return mark
        return None

    def mark_of_mixture(
        self, operation: Operation, old: _Mark | None, new: _Mark | None
    ) -> _Mark | None:
        """Keep the mark where a part is overwritten, as masks of scores are."""
        return old or new

    def before(self, operation: Operation) -> None:
        """Register the hook of the latest result, which autograd has put into its graph by now."""
        for result, hook in self._unhooked:
            if result.requires_grad:
                self._recorder.add(result, "tensor", hook)
        self._unhooked.clear()

    def after(self, operation: Operation) -> None:
        """Follow products to a softmax and on to values; take what fused operations hide."""
        if current_backward() != FORWARD:
            self._recorder.skip_backward()
            return
        taken = False
        if operation.name in PROBABILITIES or operation.name in FACTORS or _is_fused(operation):
            with self._recorder.silent(), torch.no_grad():
                taken = self._take(operation)
        if not taken:
            super().after(operation)

    def _take(self, operation: Operation) -> bool:
        """Return whether the operation is a part of attention."""
        if _is_fused(operation):
            attended = Attended(tuple(self._running), _fused_weights(operation))
            self._watch(attended, operation)
            self._confirm(attended, operation.outputs[0])
        elif operation.name in PROBABILITIES:
            self._take_softmax(operation)
        else:
            return self._take_product(operation)
        return True

    def _take_softmax(self, operation: Operation) -> None:
        product, keys = self.marks.get(operation.inputs[0]), operation.argument["dim"]
        result = operation.outputs[0]
        if isinstance(product, _Product) and result.shape[keys] in product.sizes:
            # A copy: a dropout in place, for example, overwrites the result.
            raw = at_least_float32(result.detach().movedim(keys, -1).clone())
            attended = Attended(tuple(self._running), raw, keys=keys)
            self._watch(attended, operation)
            self.marks[result] = attended

    def _watch(self, attended: Attended, operation: Operation) -> None:
        """Keep the gradient that will arrive at the result of a softmax or a fused operation."""
        if not self._gradients:
            return
        value = operation.argument["value"].detach() if _is_fused(operation) else None
        if value is not None and operation.argument.get("dropout_p"):
            return  # a fused kernel does not report which weights it has dropped

        def hook(gradient: Tensor) -> None:
            if attended.raw is None or attended.captured is None:
                return
            with self._recorder.silent(), torch.no_grad():
                gradient = at_least_float32(gradient)
                if value is None:
                    attended.gradient = gradient.movedim(attended.keys, -1).clone()
                else:  # of A V: the gradient at A is that at the product times V^T
                    each = _for_each_head(at_least_float32(value), gradient)
                    attended.gradient = gradient @ each.mT

        self._unhooked.append((operation.outputs[0], hook))

    def _take_product(self, operation: Operation) -> bool:
        """Return whether the product is a part of attention."""
        output = operation.output
        first, second = (operation.argument[name] for name in FACTORS[operation.name])
        one, other = map(self.marks.get, (first, second))
        for mark, weights, factor in (
            (one, first, other),
            (other, second.mT if second.ndim > 1 else second, one),
        ):
            if isinstance(mark, Attended) and mark.raw is not None:
                if isinstance(factor, _Weight) or not _sums_over_keys(mark, weights):
                    return False
                if mark not in self.found:
                    pairs = zip(mark.path, self._running, strict=False)
                    mark.path = tuple(call for call, running in pairs if call is running)
                    self._confirm(mark, output if mark is one else output.mT)
                return True
        if isinstance(one, _Result) and isinstance(other, _Weight):
            # Not its own parameter: the columns of a linear layer's weight belong to its inputs.
            if isinstance(self._model.get_submodule(other.owner), nn.Linear):
                _find_projection(one.attended, first, other.owner, runs=False)
            return True
        if operation.name in ("mm", "addmm") and any(isinstance(m, _Weight) for m in (one, other)):
            return False  # a linear layer
        if output.ndim > 1:
            self.marks[output] = _Product(output.shape[-2:])
        return True

    def _confirm(self, attended: Attended, result: Tensor) -> None:
        """Find the module that attends, and keep its weights as far as there is room.

        ``result`` is the product with the values, ``(..., queries, d)``.
        """
        weights = attended.raw
        assert weights is not None
        *around, call = attended.path or (None,)
        # Not the helper that it hands queries and keys to.
        while around and call is not None and self._is_helper(call):
            *around, call = around
        if call is not None:
            attended.module, attended.name = call.module, call.layer
            attended.given = self._given[call]
        attended.place = self._ran()
        self.found.append(attended)
        if self._chosen is not None and attended.module not in self._chosen:
            attended.raw = None
            return
        places = (-2, *range(weights.ndim - 2))
        attended.queries = next((n for n in places if weights.shape[n] == result.shape[-2]), -2)
        if result[..., 0].numel() * weights.shape[-1] == weights.numel():
            rows = result.reshape(-1, weights.shape[attended.queries], result.shape[-1])
            attended.first = rows[:, 0].clone()
        self.marks[result] = _Result(attended)
        needs, limit = weights.nbytes * (1 + self._gradients), self._store.max_bytes
        attended.captured = CapturedTensor(
            attended.name, "", weights.shape, weights.dtype, needs, limit
        )
        if not self._store.reserve(needs):
            attended.captured.keep(statistics(weights))
            attended.raw = None

    def _is_helper(self, call: ModuleCall) -> bool:
        given = self._given[call]
        ready = len(given) > 1 or any(len(size) > 4 for size in given)
        return ready and all(each.ndim < 2 for each in call.module.parameters())


def _sums_over_keys(attended: Attended, weights: Tensor) -> bool:
    """Return whether a product of weights with values sums over the softmax's dimension.

    The weights' last dimension is the one that the product sums over.
    """
    raw = attended.raw
    if raw is None or raw.shape[-1] != weights.shape[-1]:
        return False  # heads are mixed, as talking heads are
    if attended.keys in (-1, raw.ndim - 1):
        return True
    # The softmax may have been over the queries, of which there may be as many; and the weights may
    # have been normalized over the keys after it, as in slot attention.
    sums_to_one = ((weights.sum(-1) - 1).abs() < 64 * torch.finfo(weights.dtype).eps).all()
    same = at_least_float32(weights).flatten().sort()[0].equal(raw.flatten().sort()[0])
    return bool(sums_to_one) and same


def _find_projection(attended: Attended, given: Tensor, layer: str, runs: bool) -> None:
    """Note the output projection, if its input has the heads' results side by side."""
    if attended.first is None or not given.ndim:
        return
    row, first = given.detach().reshape(-1, given.shape[-1])[:1], attended.first
    heads, rest = divmod(row.numel(), first.shape[-1])
    if rest or not heads or len(first) % heads:
        return
    between = len(first) // heads
    for stride in (each for each in range(1, between + 1) if between % each == 0):
        beside = first[: heads * stride : stride]
        if torch.equal(beside.flatten(), row.flatten().to(first)):
            attended.layout, attended.first = (heads, stride), None
            if not attended.mixed:
                attended.projection, attended.projection_runs = layer, runs
            return
