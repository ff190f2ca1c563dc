"""Restore a model to the bit after a run, whatever its forward changed."""

from __future__ import annotations

import random
import warnings
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import partial
from itertools import chain, islice
from operator import is_
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..hooking.interrupts import Block
from ..hooking.select import all_modules, type_name
from ..hooking.tensors import central_value
from ..tables import some

_MAPPINGS = frozenset((dict, OrderedDict, defaultdict, Counter))
_EMPTIABLE = _MAPPINGS | {set}
# Immutable types, and parameters, whose values are not copied: that would double the model's size.
_SKIPPED = frozenset((str, int, float, bool, bytes, type(None), nn.Parameter))
# Small vectors and numbers of these types, such as a norm's statistics, are copied and compared
# all at once: for each alone, torch takes longer for the call than for the work.
_JOINED = frozenset((torch.float32, torch.float64, torch.int64, torch.int32))


def preserved_state(model: nn.Module, *, keep_mode: bool = False) -> Block:
    """Switch to eval mode with gradients within the block; restore the model afterwards.

    With ``keep_mode`` the mode is not switched.

    Restored, also after an exception, are training flags, buffers, all attributes, and their
    content at any depth: tensors, arrays, lists, deques, dicts of all kinds, sets, dataclasses,
    namespaces and random generators; the parameters' ``.data``, ``.grad`` and ``requires_grad``;
    the random number generators of Python, numpy and torch; and the surrounding grad and inference
    mode.

    The content of other objects is not restored. Nor are parameters' values that the forward
    overwrites in place, as a momentum encoder may do: a warning names them if they are frozen.
    """
    return Block([_preserved_state(model, keep_mode)])


@contextmanager
def _preserved_state(model: nn.Module, keep_mode: bool) -> Iterator[None]:
    modules = all_modules(model)
    sharded = _sharded(modules)
    snapshot = _Snapshot(modules, sharded=bool(sharded))
    # Lists side by side: hundreds of tuples would make Python collect garbage.
    parameters = parameters_of(modules)
    required, gradients = [p.requires_grad for p in parameters], [p.grad for p in parameters]
    # A forward may give a weight another tensor, as a momentum encoder does.
    weights = [p for p in parameters if not sharded and _is_plain(p)]
    contents = [p.data for p in weights]
    frozen = [p for p in weights if not p.requires_grad and p.numel()]
    # Without trained weights there are none that frozen ones could follow.
    follow = len(frozen) < len(weights)
    middles = [(p, p._version, central_value(p).clone()) for p in frozen if follow]
    with (
        preserved_random_state(parameters),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        try:
            for module in [] if keep_mode else modules:
                if module.training:  # setting a module's attribute is slow
                    module.training = False
            yield
        finally:
            for module in sharded:
                if hasattr(module, "reshard"):  # a forward alone leaves FSDP2's root unsharded
                    module.reshard()  # type: ignore[operator]
            snapshot.restore()
            for parameter, requires_grad, gradient in zip(
                parameters, required, gradients, strict=True
            ):
                if parameter.requires_grad != requires_grad:
                    parameter.requires_grad_(requires_grad)
                if parameter.grad is not gradient:
                    parameter.grad = gradient
            for parameter, data in zip(weights, contents, strict=True):
                if parameter.data_ptr() != data.data_ptr():
                    parameter.data = data
            written = [(p, old) for p, version, old in middles if p._version != version]
            if any(central_value(p) != old for p, old in written):
                _warn_overwritten(model, [p for p, _ in written])


def parameters_of(modules: list[nn.Module]) -> list[nn.Parameter]:
    """List the modules' parameters, each once; ``Module.parameters`` takes many times as long."""
    own = chain.from_iterable(module._parameters.values() for module in modules)
    return [*{id(parameter): parameter for parameter in own if parameter is not None}.values()]


def _warn_overwritten(model: nn.Module, weights: list[nn.Parameter]) -> None:
    written = {*weights}  # by identity
    names = [name for name, weight in model.named_parameters() if weight in written]
    warnings.warn(
        f"While {type_name(model)} ran, frozen weights were overwritten in place "
        f"({some(names, 2)}): by its forward, as a momentum encoder may do, or by a training in "
        "another thread. hookviz cannot undo that: look at copy.deepcopy(model) instead.",
        RuntimeWarning,
        stacklevel=2,
    )


def _is_plain(parameter: nn.Parameter) -> bool:
    """Return True for a parameter with a storage."""
    plain = type(parameter) is nn.Parameter and parameter.layout is torch.strided
    return plain and not parameter.is_inference()


@contextmanager
def preserved_random_state(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Restore the random number generators of Python, numpy and torch after the block.

    To be entered in a `Block`. The parameters' devices have generators, too.
    """
    used = {parameter.device for parameter in parameters}
    kind = next((device.type for device in used if device.type not in ("cpu", "meta")), "cuda")
    indices = sorted({device.index or 0 for device in used if device.type == kind})
    python, legacy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(indices, device_type=kind):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)


def restore_tensor(tensor: Tensor, content: Tensor) -> None:
    """Fill a tensor with its old content, in the old shape: a quantization observer resizes."""
    if tensor.shape != content.shape:
        tensor.resize_(content.shape)
    if not torch.equal(tensor, content):
        tensor.copy_(content)


def _sharded(modules: list[nn.Module]) -> list[nn.Module]:
    """Return the modules managed by ``fully_shard`` (FSDP2) or ``FullyShardedDataParallel``."""
    managers = {"FSDPModule", "FullyShardedDataParallel"}
    types = {type(module) for module in modules}
    managed = {kind for kind in types if managers & {base.__name__ for base in kind.__mro__}}
    return [module for module in modules if type(module) in managed]


class _Snapshot:
    """The content of a model's objects, at any depth.

    Reading it runs no user code: containers are recognized by their type, and other objects are
    compared by identity.
    """

    def __init__(self, modules: list[nn.Module], sharded: bool) -> None:
        self._sharded = sharded
        self._undo: list[Callable[[], object]] = []
        # There are many of these: a function for each would be slow, and an object for each would
        # make Python collect garbage.
        self._tensors: list[tuple[Tensor, Tensor]] = []  # with a copy
        self._mappings: list[dict] = []
        self._empty: list[Any] = []
        self._seen: dict[int, Any] = {}  # holds the objects, so that no id is used twice
        self._alike: defaultdict[tuple[Any, ...], list[Tensor]] = defaultdict(list)
        for module in modules:
            self.add(module)
        with torch.no_grad():
            self._joined = [(_sizes(each), _join(each), each) for each in self._alike.values()]
        self._lengths, self._items = _items(self._mappings)

    def restore(self) -> None:
        with torch.no_grad():
            for undo in self._undo:
                undo()
            for sizes, joined, alike in self._joined:
                if sizes != _sizes(alike) or not torch.equal(_join(alike), joined):
                    lengths, vectors = sizes[: len(alike)], sizes[-1]
                    contents = joined.split(lengths) if vectors else joined.unbind()
                    self._tensors += zip(alike, contents, strict=True)
            for tensor, values in self._tensors:
                restore_tensor(tensor, values)
        lengths, items = _items(self._mappings)
        if lengths != self._lengths or not all(map(is_, items, self._items)):
            old = iter(self._items)
            for mapping, length in zip(self._mappings, self._lengths, strict=True):
                _refill_mapping(mapping, [*islice(old, length)], [*islice(old, length)])
        for each in filter(None, self._empty):
            if id(each) not in self._seen:  # the parameters of a sharded module are
                each.clear()

    def add(self, value: Any) -> None:
        kind = type(value)
        if kind in _SKIPPED or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if kind in _MAPPINGS:
            self._add_mapping(value)
        elif isinstance(value, nn.Module):
            self._add_module(value)
        elif isinstance(value, Tensor):
            # Weights may be of a subclass, too; other layouts cannot be copied in place.
            copyable = value.layout is torch.strided and not value.is_meta
            if copyable and not isinstance(value, nn.Parameter):
                if kind is Tensor and _can_be_joined(value):
                    self._alike[value.dtype, value.device, value.dim()].append(value)
                else:
                    self._tensors.append((value, value.detach().clone()))
        elif kind is SimpleNamespace or (is_dataclass(kind) and hasattr(value, "__dict__")):
            self._add_mapping(value.__dict__)
        elif kind in (list, deque):
            self._undo.append(partial(_refill_sequence, value, list(value)))
            for item in value:
                self.add(item)
        elif isinstance(value, tuple):
            for item in tuple.__iter__(value):
                self.add(item)
        elif kind is set:
            self._undo += [value.clear, partial(value.update, value.copy())]
        elif isinstance(value, np.ndarray) and value.flags.writeable:
            self._undo.append(partial(np.copyto, value, value.copy()))
        elif isinstance(value, torch.Generator):
            self._undo.append(partial(value.set_state, value.get_state()))
        elif isinstance(value, random.Random) and kind is random.Random:
            self._undo.append(partial(value.setstate, value.getstate()))
        elif isinstance(value, np.random.Generator) and kind is np.random.Generator:
            bits = value.bit_generator
            self._undo.append(partial(setattr, bits, "state", bits.state))

    def _add_module(self, module: nn.Module) -> None:
        if isinstance(module, torch.jit.ScriptModule):  # its content is not in its __dict__
            self._undo.append(partial(setattr, module, "training", module.training))
            for buffer in module.buffers():
                self.add(buffer)
            return
        # FSDP adds parameters to this dict and removes them, and keeps track of them itself.
        if self._sharded:
            self._seen[id(module._parameters)] = module._parameters
        self._add_mapping(module.__dict__)

    def _add_mapping(self, mapping: dict) -> None:
        self._mappings.append(mapping)
        # A module holds many of these values, and a call of `add` for each would be slow.
        for value in dict.copy(mapping).values():
            kind = type(value)
            if kind in _EMPTIABLE and not value:  # most of a module's, such as those for hooks
                self._empty.append(value)
            elif kind not in _SKIPPED and not (
                kind is tuple and _SKIPPED.issuperset(map(type, value))
            ):
                self.add(value)


def _can_be_joined(tensor: Tensor) -> bool:
    return tensor.dtype in _JOINED and tensor.dim() < 2 and tensor.numel() < 10_000


def _sizes(tensors: list[Tensor]) -> list[int]:
    """Return how many elements the tensors have, and how many dimensions."""
    return [*map(Tensor.numel, tensors), *map(Tensor.dim, tensors)]


def _join(tensors: list[Tensor]) -> Tensor:
    """Return the elements of vectors, or of numbers, as one tensor."""
    return torch.cat(tensors) if tensors[0].dim() else torch.stack(tensors)


def _items(mappings: list[dict]) -> tuple[list[int], list[Any]]:
    """Return the lengths of mappings, and for each its keys and then its values, in one list."""
    lengths: list[int] = []
    items: list[Any] = []
    for mapping in mappings:
        copy = dict.copy(mapping)  # in one step, because a training may run in another thread
        lengths.append(len(copy))
        items += copy
        items += copy.values()
    return lengths, items


def _refill_mapping(mapping: dict, keys: list[Any], values: list[Any]) -> None:
    """Restore a mapping's items, and their order if it has one; call no ``__eq__``."""
    if _same(mapping, keys) and _same(mapping.values(), values):
        return
    mapping.clear()
    for key, value in zip(keys, values, strict=True):  # a Counter's own update would add
        mapping[key] = value


def _refill_sequence(sequence: Any, content: list) -> None:
    if not _same(sequence, content):
        sequence.clear()
        sequence.extend(content)


def _same(ones: Collection[Any], others: Collection[Any]) -> bool:
    """Return whether two collections hold the same objects in the same order."""
    return len(ones) == len(others) and all(map(is_, ones, others))
