"""Attention among the explorer's layers: a channel is a head, a map what one query looks at."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from ..hooking.changes import Change, Channels, Where, check_change, select_channels
from ..hooking.edit import LayerEdit, edit
from ..hooking.handles import HookManager
from ..hooking.records import Call, CapturedTensor, FeatureCache, LayerRecord, TensorStore
from ..hooking.select import (
    Layers,
    all_modules,
    first_names,
    is_convolution,
    select_layers,
    unwrapped,
)
from ..run.session import Addition, Session
from ..run.target import Target
from .attention import (
    Attention,
    AttentionRecorder,
    attention_of,
    blocks_of_attention,
    prefix_of,
)
from .attention_listener import HEADS
from .scorer import Scorer

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
    projection, projection_runs
        As in `Attended`.
    """

    grid: tuple[int, ...] | None = None
    tokens: tuple[str, ...] = ()
    attends: str = ""
    projection: str = ""
    projection_runs: bool = True

    def edit(self, change: Change, channels: Channels, where: Where = None) -> HeadEdit:
        """Return the edit that multiplies heads by a number."""
        if not self.projection:
            raise ValueError(
                f"Heads of {self.name!r} cannot be scaled: a layer mixes them, or their results do "
                "not go side by side into a layer. Edit the layer that attends with hookviz.edit."
            )
        of = self.attends, self.last.outputs[0].shape[1], self.projection, self.projection_runs
        return HeadEdit(self.name, change, channels, where, *of)

    def prefix(self, call: int = -1) -> int | None:
        """Return the number of keys before the patches; None if keys are not patches."""
        return prefix_of(self.calls[call].outputs[0].shape[-1], self.grid)

    def query(
        self, place: tuple[float, float] | None, depth: int = 0, call: int = -1
    ) -> int | None:
        """Return the token whose attention is shown.

        Parameters
        ----------
        place : tuple of float, optional
            The patch's position as fractions of height and width, 0 to 1. If left out, the class
            token or, without one, `MEAN`.
        depth : int
            The slice of a volume in which the patch is.

        Returns
        -------
        int or None
            None if keys are not patches: then the matrix is shown.
        """
        first = self._first_patch(call)
        if first is None or self.grid is None:
            return None
        if first < 0 or (place is None and first == 0):
            return MEAN
        if place is None:
            return 0
        *_, rows, columns = (1, *self.grid)
        row, column = min(int(place[0] * rows), rows - 1), min(int(place[1] * columns), columns - 1)
        return first + (depth * rows + row) * columns + column

    def _first_patch(self, call: int) -> int | None:
        """Return the index of the first patch among the queries; None if keys are not patches.

        It is negative if the queries are not, as in a decoder or in a pooling layer.
        """
        if self.grid is None or self.prefix(call) is None:
            return None
        return self.calls[call].outputs[0].shape[-2] - math.prod(self.grid)

    def query_words(self, query: int | None, call: int = -1) -> str:
        """Return a query's name; empty for None."""
        first = self._first_patch(call)
        if query is None or first is None or self.grid is None:
            return ""
        if query == MEAN:
            return "all queries' mean"
        if query < first:
            return f"the {self.beside_names[query]}"
        row, column = divmod(query - first, self.grid[-1])
        return f"patch ({row}, {column})" if len(self.grid) > 1 else f"patch {column}"

    def seen_from(self, query: int | None) -> LayerRecord:
        """Return a record of one query's attention as maps ``(N, heads, rows, columns)``."""
        grid = self.grid
        if query is None or grid is None:
            return self

        def maps_of(call: Call) -> Call:
            whole = call.outputs[0]
            before = prefix_of(whole.shape[-1], grid)
            if before is None:
                return call
            maps = lambda tensor: _row(tensor, query)[..., before:].unflatten(-1, grid)  # noqa: E731
            value = maps(whole.value)
            shown = replace(whole, shape=value.shape)
            shown.keep(value)
            shown.keep_gradient(None if whole.gradient is None else maps(whole.gradient))
            return Call((shown,), (), self.name)

        return LayerRecord(self.name, self.module, self.aliases, [*map(maps_of, self.calls)])

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


def with_attention(model: nn.Module, layers: Layers) -> Layers:
    """Return the layers of an explorer: with None, a transformer's blocks, too."""
    if layers is not None or not isinstance(model, nn.Module):
        return layers
    core, _ = unwrapped(model)
    found = [*_attending(all_modules(core))]
    names = first_names(core) if found else {}
    attending = [names[module] for module in found if names.get(module)]
    if not attending:
        return None
    blocks = {core.get_submodule(name) for name in blocks_of_attention(attending).values()}
    return [module for module in names if is_convolution(module) or module in blocks]


def may_attend(*models: nn.Module) -> bool:
    """Return whether the code of a module in these models looks like attention."""
    parts = (module for model in models for module in model.modules())
    return next(_attending(parts), None) is not None


def _attending(modules: Iterable[nn.Module]) -> Iterator[nn.Module]:
    """Yield the modules whose class looks like attention: by its name and its code."""
    words_of = cache(_words_of)  # cached for this call only, since methods may change later
    for module in modules:
        kind: Any = type(module)  # mypy thinks that module classes are unhashable
        if isinstance(module, nn.MultiheadAttention):
            yield module
            continue
        name, words = kind.__name__.lower(), words_of(kind)
        if "scaled_dot_product_attention" in words:
            yield module
            continue
        is_own = not kind.__module__.startswith("torch.nn.")
        likely = is_own and ("attention" in name or "attn" in name)
        if not (likely or "softmax" in words):  # most modules: reading attributes of each is slow
            continue
        parts = module.children()
        projects = sum(isinstance(part, nn.Linear) or is_convolution(part) for part in parts) > 1
        if projects or any(isinstance(getattr(module, each, None), int) for each in HEADS):
            yield module


def _words_of(kind: type) -> set[str]:
    """Return the names in the methods of a class and of its bases, except for torch's own."""
    own = [base for base in kind.__mro__ if not base.__module__.startswith("torch.nn.")]
    methods = [each for base in own for each in vars(base).values()]
    return {
        word
        for each in methods
        if isinstance(each, FunctionType)
        for word in each.__code__.co_names
    }


def token_names(model: nn.Module) -> tuple[str, ...]:
    """Name the first token by the parameter that it is; registers and others have no name.

    >>> class Tokens(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.cls_token = nn.Parameter(torch.zeros(1, 1, 8))
    >>> token_names(Tokens())
    ('class token',)
    """
    names = (path.rpartition(".")[2] for path, _ in model.named_parameters())
    matches = (re.match("(cls|class).*(token|emb)", name, re.IGNORECASE) for name in names)
    return ("class token",) if any(matches) else ()


# In a run


def attention_beside(
    session: Session, layers: Layers
) -> Callable[[FeatureCache, TensorStore], Addition] | None:
    """Return the argument ``beside`` of `Session.run`; None if none of the layers attends."""
    chosen = None if layers is None else set(select_layers(session.given, layers))
    if not may_attend(*([session.model] if chosen is None else chosen)):
        return None
    return partial(AttentionLayers, session, chosen)


class AttentionLayers(AttentionRecorder):
    """Adds what attends to a capture, as layers; see `attention_beside`.

    Parameters
    ----------
    session : Session
    chosen : set of torch.nn.Module, optional
        As for `AttentionListener`.
    cache : FeatureCache
        The capture's, which fills.
    store : TensorStore
        The capture's.
    """

    def __init__(
        self,
        session: Session,
        chosen: set[nn.Module] | None,
        cache: FeatureCache,
        store: TensorStore,
    ) -> None:
        self._session = session
        ran = lambda: len(cache)  # noqa: E731
        super().__init__(session.model, chosen=chosen, store=store, gradients=True, ran=ran)

    def joined(self, cache: FeatureCache) -> FeatureCache:
        """Return the cache with the attention in the order in which all ran."""
        model, listener = self._session.model, self.listener
        records: dict[str, AttentionRecord] = {}
        names = set(first_names(model).values())
        places: list[tuple[float, LayerRecord]] = [*enumerate(cache.values())]
        for attended in listener.found:
            if attended.captured is None:
                continue  # not chosen
            attends = attended.name.partition("#")[0]
            name = attended.captured.layer = heads_name(attends, names)
            if name not in records:
                records[name] = AttentionRecord(
                    name,
                    attended.module or model,
                    () if attends in cache or attended.module is None else (attends,),
                    grid=listener.patches.grid,
                    tokens=token_names(model),
                    attends=attends,
                    projection=attended.projection,
                    projection_runs=attended.projection_runs,
                )
                places.append((attended.place - 0.5, records[name]))
            records[name].calls.append(Call((self._edited(attended.captured),), (), name))
        ran = {each.name: each for _, each in sorted(places, key=lambda place: place[0])}
        return cache.with_records([*records.values()], ran)

    def _edited(self, captured: CapturedTensor) -> CapturedTensor:
        """Scale the weights as edits scale the heads' results."""
        for each in self._session.edits:
            if isinstance(each, HeadEdit) and each.layer == captured.layer and captured.kept:
                captured.keep(each.scaled(captured.value.movedim(1, -1)).movedim(-1, 1))
        return captured


def heads_name(attends: str, taken: Collection[str] = ()) -> str:
    """Return the name of a module's attention among the layers.

    >>> heads_name("blocks.3.attn"), heads_name("", {"heads"})
    ('blocks.3.attn.heads', '(heads)')
    """
    name = f"{attends}.heads" if attends else "heads"
    return f"{name[:-5]}(heads)" if name in taken else name


def attention_in(session: Session, cache: FeatureCache, target: Target) -> Attention:
    """Return the attention that a run has captured, of all layers' last calls."""
    records = [each for each in cache.values() if isinstance(each, AttentionRecord)]
    captured = {each.attends: each.last.outputs[0] for each in records}
    if not all(each.kept for each in captured.values()):
        raise ValueError(
            "Heatmaps of attention need the weights of every layer, and some went over max_bytes: "
            "give more."
        )
    grid = records[0].grid if records else None
    return attention_of(session, target, captured, grid, lambda: captured)


# Edits


@dataclass(frozen=True, eq=False)
class HeadEdit(LayerEdit):
    """An edit that multiplies the results of heads by a number; 0 silences them.

    ``f * (A V)`` is ``(f * A) V``, so it scales the weights. A head's results are a slice of the
    input of the output projection, which is what the edit changes.

    Attributes
    ----------
    attends, heads
        The name of the module that attends, and its number of heads; ``layer`` is the name of its
        `AttentionRecord`.
    projection, projection_runs
        As in `Attended`.

    Examples
    --------
    >>> print(HeadEdit("blocks.3.attn.heads", 0, 2))
    blocks.3.attn.heads, head 2: off
    """

    attends: str = ""
    heads: int = 1
    projection: str = ""
    projection_runs: bool = True

    def __post_init__(self) -> None:
        check_change(self.change)
        if self.factor is None or self.where is not None:
            raise ValueError(
                f"Heads of {self.layer!r} can be multiplied by a number, at all positions: give "
                "change=0 to silence them, or edit the layer that attends with hookviz.edit."
            )

    def changed_modules(self, model: nn.Module) -> Iterable[nn.Module]:
        """Return the output projection, or the module that reads its weight."""
        name = self.projection if self.projection_runs else self.attends
        return [unwrapped(model)[0].get_submodule(name)]

    def block(self, model: nn.Module) -> HookManager:
        """Return the ``with`` block that makes this edit."""
        self._flags()  # an unknown head is an error before the model runs
        core, _ = unwrapped(model)
        projection = core.get_submodule(self.projection)
        if not self.projection_runs:
            return _ScaledWeight(core.get_submodule(self.attends), projection, self.scaled)
        made = edit(projection, "input", self.scaled)
        made.names = [self.layer]
        return made

    def scaled(self, tensor: Tensor) -> Tensor:
        """Multiply the chosen heads of a tensor ``(..., heads * size)``."""
        assert self.factor is not None
        chosen = self._flags().to(tensor.device).repeat_interleave(tensor.shape[-1] // self.heads)
        return torch.where(chosen, tensor * self.factor if self.factor else 0, tensor)

    def _flags(self) -> Tensor:
        flags = torch.zeros(self.heads, dtype=torch.bool)
        select_channels(flags, self.channels, f"attention {self.layer!r}")
        return flags

    def __str__(self) -> str:
        return super().__str__().replace("channel", "head")


class _ScaledWeight(HookManager):
    """Changes the weight of a linear layer that is read by another module, and never called.

    So do `torch.nn.MultiheadAttention` and torchvision's Swin. The changed weight is an attribute
    of the instance, which hides the parameter until the block ends; gradients still reach it.
    """

    def __init__(
        self, reader: nn.Module, owner: nn.Module, change: Callable[[Tensor], Tensor]
    ) -> None:
        def hide(module: nn.Module, args: Any, kwargs: Any) -> None:
            vars(owner)["weight"] = change(owner._parameters["weight"])  # type: ignore[arg-type]

        super().__init__([(reader, "forward_pre", hide)])
        self._owner = owner

    def _begin(self) -> None:
        self.exit_stack.callback(vars(self._owner).pop, "weight", None)
        super()._begin()


def head_scores(session: Session, record: AttentionRecord, target: Target) -> Tensor:
    """Compute the drop of the score without each head, ``(N, heads)``: a run for each."""
    with session.active(grad=False):
        scorer = Scorer(session, target, 8)
        whole, without = scorer.scores(), []
        for head in range(record.last.outputs[0].shape[1]):
            with record.edit(0, head).block(session.given):
                without.append(scorer.scores())
    return whole[:, None] - torch.stack(without, 1)
