"""The modules that attend in a run, and their weights: a listener to the recorder of operations.

Attention is a softmax of products of two activations, of which each row weighs other activations:
``softmax(Q K^T) V``. A fused operation is all of it. Where the parts are operations of their own,
they are recognised by what the numbers went through: products are followed to a softmax, and its
result to the product with the values. Between them may be scales, masks, biases, dropout, copies
and reshapes. Fused kernels go from queries, keys and values to the result at once: their weights,
``softmax(scale * Q K^T + mask)``, are computed beside, in float32 at least.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear

from ..hooking.checkpoint import FORWARD, current_backward
from ..hooking.maps import PatchGrid
from ..hooking.records import Statistics, TensorStore, statistics
from ..hooking.storage import StorageMap
from ..hooking.tensors import at_least_float32
from ..run.follow import Follower
from ..run.operations import FACTORS, PROBABILITIES, Kind
from ..run.recorder import Listener, ModuleCall, Operation, OperationRecorder


def attention_weights(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Return ``softmax(scale * Q K^T + mask)``, as `scaled_dot_product_attention` has it.

    Parameters
    ----------
    query, key : torch.Tensor
        ``(..., heads, queries, d)`` and ``(..., heads, keys, d)``; the keys may have fewer heads,
        each then serves a group of as many neighbouring query heads.
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
    if key.ndim > 2 and key.shape[-3] != query.shape[-3]:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    logits = query @ key.mT
    logits *= 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if mask is not None:
        logits = _masked(logits, mask)
    if causal:
        seen = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
        logits.masked_fill_(~seen, -math.inf)
    if mask is None:  # the diagonal is always seen
        return logits.softmax(-1)
    nowhere = (logits == -math.inf).all(-1, keepdim=True)
    return logits.softmax(-1).masked_fill_(nowhere, 0)


def _masked(logits: Tensor, mask: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return logits.masked_fill(~mask, -math.inf)
    return logits + mask


def is_fused(operation: Operation) -> bool:
    """Return whether an operation is a whole attention."""
    # The kernels below it, such as flash_attention_forward, have the heads in another dimension.
    return operation.kind is Kind.ATTENTION and not operation.name.endswith("attention_forward")


def fused_weights(operation: Operation) -> Tensor | None:
    """Return the weights ``(N, heads, queries, keys)`` of such an operation; None if unknown."""
    if any(each.is_nested for each in operation.inputs):
        return None
    return _WHOLE.get(operation.name, _scaled_dot_product)(operation.argument)


def _scaled_dot_product(given: dict[str, Any]) -> Tensor:
    mask = given.get("attn_mask")
    return attention_weights(
        given["query"],
        given["key"],
        given.get("attn_bias") if mask is None else mask,
        causal=bool(given.get("is_causal")),
        scale=given.get("scale"),
    )


def _encoder_layer(given: dict[str, Any]) -> Tensor:
    """Return the weights of `nn.TransformerEncoderLayer` as one operation."""
    tokens = given["src"]
    if given["norm_first"]:
        weight, bias = given["norm_weight_1"], given["norm_bias_1"]
        tokens = layer_norm(tokens, tokens.shape[-1:], weight, bias, given["eps"])
    return _projected([tokens, tokens], given["num_heads"], given)


def _multi_head(given: dict[str, Any]) -> Tensor:
    """Return the weights of `nn.MultiheadAttention` as one operation."""
    return _projected([given["query"], given["key"]], given["num_head"], given)


def _projected(tokens: list[Tensor], heads: int, given: dict[str, Any]) -> Tensor:
    weights, biases = given["qkv_weight"].chunk(3), given["qkv_bias"].chunk(3)
    query, key = (
        linear(each, weight, bias).unflatten(-1, (heads, -1)).transpose(1, 2)
        for each, weight, bias in zip(tokens, weights, biases, strict=False)
    )
    mask = given["mask"]
    if mask is not None:  # bool, true where a query must not look
        mask = ~mask.bool()
        if given["mask_type"] == _OF_KEYS:
            mask = mask[:, None, None, :]
    return attention_weights(query, key, mask)


_OF_KEYS = 1  # torch's number for a mask (N, keys)
_WHOLE: dict[str, Callable[[dict[str, Any]], Tensor]] = {
    "multi_head_attention": _multi_head,
    "transformer_encoder_layer_fwd": _encoder_layer,
}


def fused_gradient(operation: Operation) -> Tensor | None:
    """Return the score's gradient at the weights, from the backward of such an operation.

    ``dS/dA = dS/dO V^T`` where ``O = A V``; None where dropout, which is not told, lies between.
    """
    given = operation.argument
    if given.get("dropout_p"):
        return None
    arrived, value = at_least_float32(operation.args[0]), at_least_float32(given["value"])
    if value.shape[-3] != arrived.shape[-3]:
        value = value.repeat_interleave(arrived.shape[-3] // value.shape[-3], -3)
    return arrived @ value.mT


def is_fused_backward(operation: Operation) -> bool:
    """Return whether an operation is the backward of a whole attention."""
    return operation.name.startswith("scaled_dot_product") and "backward" in operation.name


M = TypeVar("M")
Path = tuple[ModuleCall, ...]
"""The calls that were running, the outermost first."""

HEADS = ("num_heads", "n_heads", "num_attention_heads", "nhead", "n_head", "heads", "nheads")
# Between the products and the softmax, and between it and the values, numbers keep their count.


@dataclass(eq=False)
class _Product:
    """Products of two activations: perhaps those of queries and keys."""

    path: Path
    sizes: tuple[int, int]


@dataclass(eq=False)
class Attended:
    """One attention: a softmax of such products, whose result weighs values."""

    path: Path  # the calls that its parts have in common
    dimension: int = -1  # of the softmax
    kept: Tensor | None = None  # what the softmax made
    owned: bool = False  # whether the memory is a copy of our own
    given: tuple[torch.Size, ...] = ()  # sizes of what the module was given
    confirmed: bool = False
    name: str = ""
    module: nn.Module | None = field(default=None, repr=False)
    weights: Tensor | None = None  # (N, heads, queries, keys), once the run has ended
    gradient: Tensor | None = None  # of the score, at the weights
    over_budget: bool = False
    reduced: Any = None  # what a listener's ``reduce`` returned for the weights
    known: Statistics | None = None  # of what went over the budget, and its shape
    shape: tuple[int, ...] = ()
    place: int = 0  # how many layers had run


class _Persistent(Follower[M]):
    """Keeps the mark of memory of which a part is overwritten, as masks of scores are."""

    def mark_of_mixture(self, old: M | None, new: M | None) -> M | None:
        """Return the old mark, if there is one."""
        return old or new


class _SameCount(_Persistent[M]):
    """Hands a mark to results with as many values: scaled, masked, copied or reshaped ones."""

    def __init__(self, follows: Callable[[M], bool]) -> None:
        super().__init__()
        self._follows = follows

    def mark_of_result(
        self, operation: Operation, made: Tensor, reads: list[tuple[Tensor, M]]
    ) -> M | None:
        """Return the first mark that is still followed."""
        if made is not operation.outputs[0]:
            return None
        same = (mark for tensor, mark in reads if tensor.numel() == made.numel())
        return next(filter(self._follows, same), None)


class _Copies(_Persistent[bool]):
    """Knows parameters, and copies of them such as autocast's."""

    def mark_of_result(
        self, operation: Operation, made: Tensor, reads: list[tuple[Tensor, bool]]
    ) -> bool | None:
        """Keep the mark where a parameter is copied, or changed in place."""
        return True if operation.kind is Kind.COPY or operation.mutates else None


class AttentionListener(Listener):
    """Collects the attention weights of a run, and the gradients at them.

    Parameters
    ----------
    model : torch.nn.Module
    chosen : set of torch.nn.Module, optional
        The modules whose weights are kept; all if left out.
    store : TensorStore, optional
        Has the budget that weights, and their gradients, are taken from.
    gradients : bool
        True if a backward follows, whose gradients at the weights are kept.
    ran : callable, optional
        Returns the number of captured layers that have run, to tell the order among them.
    reduce : callable, optional
        Called with an attention and its weights ``(N, heads, queries, keys)``: what it returns is
        kept as ``reduced`` in place of the weights.

    Attributes
    ----------
    found : list of Attended
        In the order in which they ran, each with its name.
    grid : tuple of int or None
        Rows and columns of the model's patches.
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
        self.found: list[Attended] = []
        self._model, self._chosen = model, chosen
        self._store, self._gradients, self._ran = store or TensorStore(), gradients, ran
        self._reduce = reduce
        self._patches = PatchGrid()
        self._parameters = _Copies()
        self._running: list[ModuleCall] = []
        self._given: dict[ModuleCall, tuple[torch.Size, ...]] = {}
        self._products = _SameCount[_Product](lambda product: True)
        self._candidates = _SameCount[Attended](lambda attended: not attended.confirmed)
        self._results: StorageMap[Attended] = StorageMap()  # of softmax and fused, for a backward
        self._by_call: dict[ModuleCall, list[Attended]] = {}
        self._repeated: dict[ModuleCall, int] = {}
        self._marks: list[tuple[_Mark, Attended]] = []
        self._recorder: OperationRecorder | None = None

    # The modules

    def begin(self, recorder: OperationRecorder) -> None:
        """Note the weights' memory, and let the first layer tell the grid of patches."""
        self._recorder = recorder
        for parameter in self._model.parameters():
            self._parameters.marks[parameter] = True
        for hook in self._patches.hooks(self._model):
            recorder.add(*hook)

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """Note what runs within what."""
        self._running.append(call)
        self._given.setdefault(call, tuple(each.shape for each in given))

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Note that it has run."""
        if call in self._running:
            del self._running[self._running.index(call) :]

    def _path(self, call: ModuleCall | None) -> Path:
        if call is None:
            return tuple(self._running[:1])
        if call not in self._running:
            return (call,)
        return tuple(self._running[: self._running.index(call) + 1])

    # The operations

    def before(self, operation: Operation) -> None:
        """Copy weights that are about to be overwritten, as by a dropout in place."""
        if operation.mutates:
            for each in operation.written:
                held = self._candidates.marks.get(each) or self._results.get(each)
                if held is not None and held.kept is not None and not held.owned:
                    with self._silent():
                        held.kept, held.owned = held.kept.clone(), True

    def after(self, operation: Operation) -> None:
        """Follow products to a softmax and on to values; take what fused operations hide."""
        if self._is_repeated(operation):
            self._recall(operation)
        elif operation.phase == "backward":
            self._after_backward(operation)
        elif is_fused(operation):
            self._take_fused(operation)
        elif operation.name in PROBABILITIES:
            self._take_softmax(operation)
        elif operation.name in FACTORS and self._take_product(operation):
            pass
        else:
            for follower in (self._parameters, self._products, self._candidates):
                follower.after(operation)

    def _silent(self) -> Any:
        assert self._recorder is not None
        return self._recorder.silent()

    def _is_repeated(self, operation: Operation) -> bool:
        """Return whether checkpointing repeats an attention in a function, not in its module."""
        attends = is_fused(operation) or operation.name in PROBABILITIES
        if not attends or current_backward() == FORWARD or not torch.is_grad_enabled():
            return False
        return operation.call is None or not self._by_call.get(operation.call)

    def _recall(self, operation: Operation) -> Attended | None:
        """Return the attention that an operation repeats, by the numbers that it is given."""
        with self._silent(), torch.no_grad():
            mark = _mark(operation)
            same = (each for known, each in self._marks if _agree(known, mark))
            attended = next(same, None)
        if attended is not None:
            self._results[operation.outputs[0]] = attended
        return attended

    def _note(self, operation: Operation, attended: Attended) -> None:
        if current_backward() == FORWARD:
            with self._silent(), torch.no_grad():
                self._marks.append((_mark(operation), attended))

    def _take_fused(self, operation: Operation) -> None:
        attended = self._next(operation, lambda: Attended(self._path(operation.call)))
        result = operation.outputs[0]
        self._results[result] = attended
        self._note(operation, attended)
        if not attended.confirmed:
            attended.confirmed = True
            self._find_module(attended)
            if self._keeps(attended):
                with self._silent(), torch.no_grad():
                    attended.kept, attended.owned = fused_weights(operation), True
                    self._fit(attended)

    def _take_softmax(self, operation: Operation) -> None:
        given, dimension = operation.argument["self"], operation.argument["dim"]
        product, result = self._products.marks.get(given), operation.output
        if product is None or result.shape[dimension] not in product.sizes:
            return
        path = _common(product.path, self._path(operation.call))
        attended = self._next(operation, lambda: Attended(path, dimension))
        self._results[result] = attended
        self._note(operation, attended)
        if not attended.confirmed:
            self._candidates.marks[result] = attended
            with self._silent():
                attended.kept = result.detach()

    def _take_product(self, operation: Operation) -> bool:
        """Return whether values are weighted, or activations multiplied."""
        first, second = (operation.argument[name] for name in FACTORS[operation.name])
        sides = (
            (first, second, first.shape[-1]),
            (second, first, second.shape[-min(second.ndim, 2)]),
        )
        for each, other, size in sides:
            attended = self._candidates.marks.get(each)
            if attended is None or attended.kept is None:
                continue
            weighs = attended.kept.shape[attended.dimension] == size
            if weighs and other not in self._parameters.marks:
                if not attended.confirmed:
                    self._confirm(attended, operation)
                return True
            return False  # heads that are mixed, as talking heads are
        learned = any(each in self._parameters.marks for each in (first, second))
        if learned and operation.name in ("mm", "addmm"):
            return False  # a linear layer
        if operation.output.ndim > 1:
            rows, columns = operation.output.shape[-2:]
            product = _Product(self._path(operation.call), (rows, columns))
            self._products.marks[operation.output] = product
        return True

    def _confirm(self, attended: Attended, operation: Operation) -> None:
        attended.confirmed = True
        attended.path = _common(attended.path, self._path(operation.call))
        self._find_module(attended)
        if not self._keeps(attended):
            attended.kept = None
            return
        with self._silent(), torch.no_grad():
            kept = attended.kept
            assert kept is not None
            exact = at_least_float32(kept)
            attended.owned |= exact is not kept
            attended.kept = exact
            self._fit(attended)

    def _after_backward(self, operation: Operation) -> None:
        if not self._gradients:
            return
        if operation.name == "softmax_backward_data":
            attended = self._results.get(operation.argument["output"])
            found = operation.args[0]
        elif is_fused_backward(operation):
            attended, found = self._results.get(operation.argument["out"]), None
        else:
            return
        if attended is None or attended.kept is None or not attended.confirmed:
            return
        with self._silent(), torch.no_grad():
            if found is None:
                found = fused_gradient(operation)
            if found is not None:
                found = at_least_float32(found)
                if found is operation.args[0]:
                    found = found.clone()
                attended.gradient = self._arranged(attended, found)

    # One attention

    def _next(self, operation: Operation, make: Any) -> Attended:
        """Return an operation's attention: a new one, or the one that checkpointing repeats."""
        call = operation.call
        if call is None:
            return self._added([], make)
        known = self._by_call.setdefault(call, [])
        if operation.again:
            place = self._repeated.get(call, 0)
            self._repeated[call] = place + 1
            if known:
                return known[place % len(known)]
        return self._added(known, make)

    def _added(self, known: list[Attended], make: Any) -> Attended:
        attended = make()
        known.append(attended)
        return attended

    def _find_module(self, attended: Attended) -> None:
        """Find the module that attends: not the helper that it hands queries and keys to."""
        path = attended.path
        while len(path) > 1 and self._is_helper(path[-1]):
            path = path[:-1]
        if path:
            attended.module, attended.name = path[-1].module, path[-1].layer
            attended.given = self._given.get(path[-1], ())
        if isinstance(attended.module, nn.TransformerEncoderLayer):
            inner = attended.module.self_attn  # it never runs: the whole layer is one operation
            if self._recorder is not None and inner in self._recorder.names:
                attended.module, attended.name = inner, self._recorder.names[inner]
        attended.place = self._ran()
        self.found.append(attended)

    def _is_helper(self, call: ModuleCall) -> bool:
        given = self._given.get(call, ())
        ready = len(given) > 1 or any(len(size) > 4 for size in given)
        return ready and all(each.ndim < 2 for each in call.module.parameters())

    def _keeps(self, attended: Attended) -> bool:
        return self._chosen is None or attended.module in self._chosen

    def _fit(self, attended: Attended) -> None:
        """Keep the weights, if the budget has room, or what they are reduced to."""
        kept = attended.kept
        if kept is None:
            return
        if self._reduce is not None:
            attended.reduced = self._reduce(attended, self._arranged(attended, kept))
            attended.kept = None
            return
        needs = kept.numel() * kept.element_size() * (1 + self._gradients)
        if not self._store.reserve(needs):
            attended.known, attended.shape = statistics(kept), self._arranged(attended, kept).shape
            attended.kept, attended.over_budget = None, True

    def _arranged(self, attended: Attended, tensor: Tensor) -> Tensor:
        """Arrange a tensor of the softmax's shape as ``(N, heads, queries, keys)``."""
        tensor = self._by_head(attended, tensor.movedim(attended.dimension, -1))
        # Windows: each is a sample of its own.
        return tensor if tensor.ndim == 4 else tensor.flatten(0, -4)

    def _by_head(self, attended: Attended, tensor: Tensor) -> Tensor:
        """Return a view ``(..., heads, queries, keys)``."""
        heads = _heads_of(attended.module)
        shape = tensor.shape
        if tensor.ndim == 2:
            return tensor[None, None]
        if tensor.ndim == 3:
            count = _heads_among(shape[0], heads, attended.given)
            return tensor.unflatten(0, (-1, count))
        if tensor.ndim == 4:
            swapped = heads is not None and shape[1] != heads and shape[2] == heads
            return tensor.transpose(1, 2) if swapped else tensor
        place = next((d for d in range(1, tensor.ndim - 2) if shape[d] == heads), tensor.ndim - 3)
        return tensor.movedim(place, -3)

    def end(self) -> None:
        """Let go of what was only followed; give each attention a name of its own."""
        self._products.marks, self._candidates.marks = StorageMap(), StorageMap()
        self._marks = []
        counts: dict[str, int] = {}
        for each in self.found:
            number = counts.get(each.name, 0)
            counts[each.name] = number + 1
            if number:
                each.name = f"{each.name}#{number}"
            if each.kept is not None:
                each.weights, each.kept = self._arranged(each, each.kept), None

    @property
    def grid(self) -> tuple[int, ...] | None:
        """Rows and columns of the patches that the model's first layer cuts, if it does."""
        return self._patches.grid


_Mark = list[tuple[torch.Size, Tensor]]


def _mark(operation: Operation) -> _Mark:
    """Return shapes and some numbers of what is attended with: queries and keys, or products."""
    given = (operation.argument.get(each) for each in ("query", "key", "src", "self"))
    found = []
    for each in given:
        if isinstance(each, Tensor) and each.numel() and not each.is_nested:
            flat = each.detach().reshape(-1)
            found.append((each.shape, flat[:: max(1, len(flat) // 16)].clone()))
    return found


def _agree(one: _Mark, other: _Mark) -> bool:
    pairs = [*zip(one, other, strict=False)]
    alike = len(one) == len(other) and all(a[0] == b[0] for a, b in pairs)
    return alike and all(torch.equal(a[1], b[1]) for a, b in pairs)


def _common(one: Path, other: Path) -> Path:
    """Return the calls that both ran in."""
    pairs = zip(one, other, strict=False)
    count = 0
    for a, b in pairs:
        if a is not b:
            break
        count += 1
    return one[:count]


def _heads_of(module: nn.Module | None) -> int | None:
    found = (getattr(module, name, None) for name in HEADS)
    return next((each for each in found if isinstance(each, int) and each > 0), None)


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
