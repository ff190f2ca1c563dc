"""Attention among the layers of a capture: a channel is a head, a map what one query looks at.

Edits of heads multiply their weights, in fused operations, too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from ..hooking.edit import EditError, LayerEdit, check_change, select_channels
from ..hooking.records import Call, CapturedTensor, FeatureCache, LayerRecord, TensorStore
from ..hooking.select import Layers, is_convolution, module_names, select_layers, unwrapped
from ..run.recorder import ModuleCall, Operation, OperationRecorder
from ..run.session import Addition, Session
from ..run.target import Target
from .attending import HEADS, Attended, AttentionListener, is_fused_backward
from .attention import Attention, AttentionObserver, blocks_of_attention, layer_gradients, prefix_of
from .perturbation import Scorer

MEAN = -1
"""The query that stands for the mean over all."""


@dataclass(eq=False)
class AttentionRecord(LayerRecord):
    """The attention of one module: tensors ``(N, heads, queries, keys)``.

    Attributes
    ----------
    grid : tuple of int or None
        Rows and columns of the model's patches.
    tokens : tuple of str
        Names of the tokens before the patches, such as ``"class token"``.
    attends : str
        The module's name; the record's own ends in ``heads``.
    """

    grid: tuple[int, ...] | None = None
    tokens: tuple[str, ...] = ()
    attends: str = ""

    def prefix(self, call: int = -1) -> int | None:
        """Count the keys before the patches; None if keys are not patches."""
        return prefix_of(self.calls[call].outputs[0].shape[-1], self.grid)

    def query(
        self, place: tuple[float, float] | None, depth: int = 0, call: int = -1
    ) -> int | None:
        """Return the token whose attention is shown.

        Parameters
        ----------
        place : tuple of float, optional
            How far down and right the patch is, 0 to 1; left out, it is the class token, or, where
            there is none, `MEAN`.
        depth : int
            The slice of a volume in which the patch is.

        Returns
        -------
        int or None
            None where keys are not patches: then the matrix is shown.
        """
        before, queries = self.prefix(call), self.calls[call].outputs[0].shape[-2]
        if before is None or self.grid is None:
            return None
        first = queries - math.prod(self.grid)
        if first < 0:  # not the patches: those of a decoder or of a pooling layer
            return 0 if queries == 1 else MEAN
        if place is None:
            return 0 if first else MEAN
        *_, rows, columns = (1, *self.grid)
        row, column = int(place[0] * rows), int(place[1] * columns)
        return first + (depth * rows + min(row, rows - 1)) * columns + min(column, columns - 1)

    def query_words(self, query: int | None, call: int = -1) -> str:
        """Name a query."""
        if query is None:
            return ""
        if query == MEAN:
            return "all queries' mean"
        assert self.grid is not None
        first = self.calls[call].outputs[0].shape[-2] - math.prod(self.grid)
        if first < 0:
            return "the query"
        if query < first:
            return f"the {self.tokens[query]}" if query < len(self.tokens) else f"token {query}"
        row, column = divmod(query - first, self.grid[-1])
        return f"patch ({row}, {column})" if len(self.grid) > 1 else f"patch {column}"

    def seen_from(self, query: int | None) -> LayerRecord:
        """Return the record with what a query looks at as maps ``(N, heads, rows, columns)``."""
        if query is None:
            return self
        calls = [self._cut(number, query) for number in range(len(self.calls))]
        return LayerRecord(self.name, self.module, self.aliases, calls)

    def _cut(self, number: int, query: int) -> Call:
        before, grid, call = self.prefix(number), self.grid, self.calls[number]
        if before is None or grid is None:
            return call

        def cut(tensor: Tensor) -> Tensor:
            return _row(tensor, query)[..., before:].unflatten(-1, grid)

        whole = call.outputs[0]
        value, gradient = cut(whole.value), whole.gradient
        shown = CapturedTensor(self.name, "", value.shape, value.dtype, 0, None)
        shown.keep(value)
        if gradient is not None:
            shown.keep_gradient(cut(gradient))
        return Call((shown,), (), self.name)

    def beside(self, query: int | None, call: int = -1) -> Tensor | None:
        """Return a query's weights at the tokens before the patches, ``(N, heads, tokens)``."""
        before = self.prefix(call)
        if query is None or not before:
            return None
        return _row(self.calls[call].outputs[0].value, query)[..., :before]

    @property
    def beside_names(self) -> list[str]:
        """The names of these tokens."""
        count = self.prefix() or 0
        return [*self.tokens[:count], *(f"token {n}" for n in range(len(self.tokens), count))]


def _row(tensor: Tensor, query: int) -> Tensor:
    return tensor.mean(-2) if query == MEAN else tensor[..., query, :]


# Which layers


Words = Callable[[type], set[str]]


def with_attention(model: nn.Module, layers: Layers) -> Layers:
    """Return the layers of an explorer: with None, a transformer's blocks, too.

    `may_attend` tells by its code if a model attends.
    """
    if layers is not None or not isinstance(model, nn.Module):
        return layers
    core, _ = unwrapped(model)
    names = {module: known[0] for module, known in module_names(core).items()}
    words = lru_cache(None)(_words)
    attending = [name for module, name in names.items() if name and _attends(module, words)]
    if not attending:
        return None
    blocks = {core.get_submodule(name) for name in blocks_of_attention(attending).values()}
    return [module for module in names if is_convolution(module) or module in blocks]


def may_attend(module: nn.Module) -> bool:
    """Return whether the code of a module, or of one in it, looks like attention."""
    words = lru_cache(None)(_words)  # of each class once
    return any(_attends(each, words) or _softens(each, words) for each in module.modules())


def _attends(module: nn.Module, words: Words) -> bool:
    if isinstance(module, nn.MultiheadAttention):
        return True
    if type(module).__module__.startswith("torch.nn."):
        return False
    named = any(part in type(module).__name__.lower() for part in ("attention", "attn"))
    if named and any(isinstance(getattr(module, each, None), int) for each in HEADS):
        return True
    return "scaled_dot_product_attention" in words(type(module))


def _softens(module: nn.Module, words: Words) -> bool:
    """Return whether a module's own code makes a softmax, and two linear layers or more are in it.

    They may be the queries and keys.
    """
    if "softmax" not in words(type(module)):
        return False
    return sum(isinstance(each, nn.Linear) for each in module.children()) > 1


def _words(kind: type) -> set[str]:
    own = [each for each in kind.__mro__ if not each.__module__.startswith("torch.nn.")]
    methods = [each for base in own for each in vars(base).values()]
    return {
        word
        for each in methods
        if isinstance(each, FunctionType)
        for word in each.__code__.co_names
    }


def token_names(model: nn.Module) -> tuple[str, ...]:
    """Name the tokens before the patches by the parameters that they are.

    >>> class Tokens(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.reg_token = nn.Parameter(torch.zeros(1, 2, 8))
    ...         self.cls_token = nn.Parameter(torch.zeros(1, 1, 8))
    >>> token_names(Tokens())
    ('class token', 'register 0', 'register 1')
    """
    counts = {"class token": 0, "distillation token": 0, "register": 0}
    for path, parameter in model.named_parameters():
        name = path.rpartition(".")[2].lower()
        for kind, part in zip(counts, ("cls|class", "dist", "reg"), strict=True):
            known = any(name.startswith(each) for each in part.split("|")) and "emb" in name
            if known or (any(each in name for each in part.split("|")) and "token" in name):
                counts[kind] += parameter.shape[-2] if parameter.ndim > 1 else 1
                break
    found = []
    for kind, count in counts.items():
        found += [kind] if count == 1 else [f"{kind} {n}" for n in range(count)]
    return tuple(found)


def check_token_names(cache: FeatureCache, names: Sequence[str]) -> None:
    """Raise a ``ValueError`` if no attention of a capture has as many queries or keys."""
    records = [each for each in cache.values() if isinstance(each, AttentionRecord)]
    sizes = {size for each in records for size in each.last.outputs[0].shape[-2:]}
    if names and len(names) not in sizes:
        known = (
            f"attention has {', '.join(map(str, sorted(sizes)))}" if sizes else "nothing attends"
        )
        raise ValueError(
            f"token_names has {len(names)} names, but {known}: give one for each token, in order."
        )


# In a run


def attention_beside(
    session: Session, layers: Layers
) -> Callable[[FeatureCache, TensorStore], Addition] | None:
    """Return what `Session.run` takes as ``beside``: None where none of the layers attends."""
    chosen = None if layers is None else set(select_layers(session.given, layers))
    if not any(map(may_attend, [session.model] if chosen is None else chosen)):
        return None
    return partial(AttentionLayers, session.model, chosen)


class AttentionLayers(AttentionObserver):
    """Adds what attends to a capture, as layers; see `attention_beside`.

    Parameters
    ----------
    model : torch.nn.Module
    chosen : set of torch.nn.Module, optional
        As for `AttentionListener`.
    cache : FeatureCache
        The capture's, which fills.
    store : TensorStore
        The capture's.
    """

    def __init__(
        self,
        model: nn.Module,
        chosen: set[nn.Module] | None,
        cache: FeatureCache,
        store: TensorStore,
    ) -> None:
        self._listener = AttentionListener(
            model, chosen, store=store, gradients=True, ran=lambda: len(cache)
        )
        self._model, self._chosen, self._limit = model, chosen, store.max_bytes
        super().__init__(self._listener, model, True)

    def joined(self, cache: FeatureCache) -> FeatureCache:
        """Return the cache with the attention in the order in which all ran."""
        records: dict[str, AttentionRecord] = {}
        places: dict[str, int] = {}
        kept = [each for each in self._listener.found if self._is_chosen(each)]
        taken = {known[0] for known in module_names(self._model).values()}
        for each in kept:
            module = each.module
            attends = each.name.partition("#")[0]
            name = heads_name(attends, taken)
            if name not in records:
                aliases = () if attends in cache or module is None else (attends,)
                records[name] = AttentionRecord(
                    name,
                    self._model if module is None else module,
                    aliases,
                    grid=self._listener.grid,
                    tokens=token_names(self._model),
                    attends=attends,
                )
                places[name] = each.place
            records[name].calls.append(Call((self._tensor(name, each),), (), name))
        ran: dict[str, LayerRecord] = {}
        earlier = list(cache)
        for index in range(len(earlier) + 1):
            ran |= {name: records[name] for name in records if places[name] == index}
            ran |= {name: cache[name] for name in earlier[index : index + 1]}
        return cache.with_records([*records.values()], ran)

    def _is_chosen(self, attended: Attended) -> bool:
        known = attended.weights is not None or attended.over_budget
        return known and (self._chosen is None or attended.module in self._chosen)

    def _tensor(self, name: str, attended: Attended) -> CapturedTensor:
        weights, gradient = attended.weights, attended.gradient
        shape = torch.Size(attended.shape) if weights is None else weights.shape
        dtype = torch.float32 if weights is None else weights.dtype
        needs = math.prod(shape) * dtype.itemsize * 2
        made = CapturedTensor(name, "", shape, dtype, needs, self._limit)
        kept = attended.known if weights is None else weights
        assert kept is not None
        made.keep(kept)
        if gradient is not None:
            made.keep_gradient(gradient)
        return made


def heads_name(attends: str, taken: Collection[str] = ()) -> str:
    """Return the name of a module's attention among the layers.

    >>> heads_name("blocks.3.attn"), heads_name("", {"heads"})
    ('blocks.3.attn.heads', '(heads)')
    """
    name = f"{attends}.heads" if attends else "heads"
    return f"{name[:-5]}(heads)" if name in taken else name


def attention_in(session: Session, cache: FeatureCache, target: Target) -> Attention:
    """Return the attention that a run has kept as an `Attention`, of all layers' last calls."""
    records = [each for each in cache.values() if isinstance(each, AttentionRecord)]
    kept = {each.attends: each.last.outputs[0] for each in records if each.last.outputs[0].kept}
    gradients = {name: each.gradient for name, each in kept.items() if each.gradient is not None}
    return Attention(
        {name: each.value for name, each in kept.items()},
        model=session.name,
        grid=next((each.grid for each in records), None),
        over_budget=[each.attends for each in records if each.attends not in kept],
        gradients=lambda: gradients,
        layer_gradients=partial(layer_gradients, session, target),
    )


@dataclass(frozen=True, eq=False)
class HeadEdit(LayerEdit):
    """An edit that multiplies the weights of heads; 0 silences them.

    Attributes
    ----------
    attends : str
        The name of the module that attends; ``layer`` is that of its `AttentionRecord`.

    Examples
    --------
    >>> print(HeadEdit("blocks.3.attn.heads", 0, 2, attends="blocks.3.attn"))
    blocks.3.attn.heads, head 2: off
    """

    attends: str = ""

    def __post_init__(self) -> None:
        check_change(self.change)
        if self.factor is None or self.where is not None:
            raise ValueError(
                f"Heads of {self.layer!r} can be multiplied by a number, at all positions: give "
                "change=0 to silence them, or edit the layer that attends with hookviz.edit."
            )

    @property
    def of_heads(self) -> bool:
        return True

    def block(self, model: nn.Module) -> HeadScaler:
        """Return the ``with`` block that makes this edit."""
        return HeadScaler(unwrapped(model)[0], self)

    def __str__(self) -> str:
        return super().__str__().replace("channel", "head")


class HeadScaler(OperationRecorder):
    """The block of a `HeadEdit`."""

    def __init__(self, model: nn.Module, edit: HeadEdit) -> None:
        self._scaling, self._edit = _Scaling(model, edit), edit
        super().__init__(self._scaling, model=model)

    def _begin(self) -> None:
        self.exit_stack.push(self._warn)
        # With it a whole encoder layer is one operation.
        self.exit_stack.callback(
            torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled()
        )
        torch.backends.mha.set_fastpath_enabled(False)
        super()._begin()

    def _warn(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None and not self._scaling.count:
            warnings.warn(
                f"The edit of {self._edit.layer} changed nothing: it did not attend within the "
                "block.",
                RuntimeWarning,
                stacklevel=5,
            )


class _Scaling(AttentionListener):
    """Multiplies the weights ``A`` of some heads of one module by a factor ``f``.

    ``O = f A V`` for these. Below autograd, so that the backward has to be told, too: what it has
    kept is ``f A``, or ``f O``.
    """

    def __init__(self, model: nn.Module, edit: HeadEdit) -> None:
        module = model.get_submodule(edit.attends)
        super().__init__(model, set())  # nothing is kept
        self._module, self._edit, self.count = module, edit, 0
        assert edit.factor is not None
        self._factor = edit.factor

    def before(self, operation: Operation) -> None:
        super().before(operation)
        if operation.phase != "backward":
            return
        if operation.name == "softmax_backward_data":
            self._before_backward(operation, "output")
        elif is_fused_backward(operation):
            self._before_backward(operation, "out")

    def _before_backward(self, operation: Operation, name: str) -> None:
        attended = self._results.get(operation.argument[name])
        if attended is None or not self._is_meant(attended.path):
            return
        place = [*operation.argument].index(name)
        args: list[Any] = [*operation.args]
        with self._silent(), torch.no_grad():
            args[0], args[place] = args[0].clone(), args[place].clone()
            if self._factor:
                self._scale(attended, args[place], 1 / self._factor)
            # dS/dO of O = f A V at the one; dS/dA at the other, of which the result is scaled.
            self._scale(attended, args[0], self._factor)
            operation.replace(operation.function(*args, **operation.kwargs))

    def _recall(self, operation: Operation) -> Attended | None:
        attended = super()._recall(operation)
        if attended is not None and self._is_meant(attended.path):
            with self._silent(), torch.no_grad():
                self._scale(attended, operation.outputs[0], self._factor)
        return attended

    def _take_fused(self, operation: Operation) -> None:
        super()._take_fused(operation)
        self._edit_result(operation)

    def _take_softmax(self, operation: Operation) -> None:
        super()._take_softmax(operation)
        self._edit_result(operation)

    def _edit_result(self, operation: Operation) -> None:
        result = operation.outputs[0]
        attended = self._results.get(result)
        call = None if attended is None else self._is_meant(attended.path)
        if attended is None or call is None:
            return
        if not attended.confirmed:
            attended.module, attended.given = call.module, self._given.get(call, ())
        with self._silent(), torch.no_grad():
            self._scale(attended, result, self._factor)
        self.count += not operation.again

    def _is_meant(self, path: tuple[ModuleCall, ...]) -> ModuleCall | None:
        """Return the call of the edited module among those that were running."""
        return next((each for each in path if each.module is self._module), None)

    def _scale(self, attended: Attended, tensor: Tensor, factor: float) -> None:
        """Multiply these heads of a tensor of the weights' or the result's shape, in place."""
        by_head = self._by_head(attended, tensor.movedim(attended.dimension, -1))
        flags = torch.zeros(by_head.shape[-3], dtype=torch.bool)
        try:
            select_channels(flags, self._edit.channels, f"layer {self._edit.layer!r}")
        except EditError as error:
            raise type(error)(str(error).replace("channels", "heads")) from None
        for head in flags.nonzero().flatten().tolist():
            by_head.select(-3, head).mul_(factor)


def head_scores(session: Session, layer: str, attends: str, heads: int, target: Target) -> Tensor:
    """Compute the drop of the score without each head, ``(N, heads)``: a run for each."""
    with session.active(grad=False):
        scorer = Scorer(session, target, 8)
        whole, without = scorer.scores(), []
        for head in range(heads):
            with HeadEdit(layer, 0, head, attends=attends).block(session.given):
                without.append(scorer.scores())
    return whole[:, None] - torch.stack(without, 1)
