"""A model's state, put back to the bit after a run in eval mode."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from operator import is_
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_MAPPINGS = frozenset((dict, OrderedDict, defaultdict, Counter))
_SEQUENCES = (list, deque)
# The most frequent types; weights' values are not kept, since they are as large as the model.
_PLAIN = frozenset((str, int, float, bool, bytes, type(None), nn.Parameter))


@contextmanager
def preserved_state(model: nn.Module, *, keep_mode: bool = False) -> Iterator[None]:
    """Switch to eval mode with gradients within the block; restore the model afterwards.

    With ``keep_mode`` the mode is not switched.

    Restored, also after an exception, are training flags, buffers, all attributes, and their
    content at any depth: tensors, arrays, lists, deques, dicts of all kinds, sets, dataclasses,
    namespaces and random generators; the parameters' ``.grad`` and ``requires_grad``; the random
    number generators of Python, numpy and torch; and the surrounding grad and inference mode.

    The content of other objects is not restored. Nor are parameters' values: a model that
    overwrites its weights in eval mode stays changed.
    """
    # A ScriptModule may list anything as a module.
    modules = [module for module in model.modules() if isinstance(module, nn.Module)]
    sharded = _sharded(modules)
    kept = _Kept(managed=bool(sharded))
    for module in modules:
        kept.look_into(module)
    parameters = list(model.parameters())
    asked = [(p, p.requires_grad, p.grad) for p in parameters]
    with _random_state(parameters), torch.inference_mode(False), torch.enable_grad():
        try:
            for module in [] if keep_mode else modules:
                module.training = False
            yield
        finally:
            for module in sharded:
                if hasattr(module, "reshard"):  # FSDP2's outermost is left whole by a forward alone
                    module.reshard()  # type: ignore[operator]
            kept.put_back()
            for parameter, required, gradient in asked:
                if parameter.requires_grad != required:
                    parameter.requires_grad_(required)
                if parameter.grad is not gradient:
                    parameter.grad = gradient


class _Kept:
    """The content of objects when the block began. No code of the user's runs to find it."""

    def __init__(self, managed: bool) -> None:
        self._managed = managed  # FSDP adds and removes parameters by itself
        self._held: list[tuple[dict, list, list]] = []  # mappings, their keys and values
        self._empty: list[dict] = []
        self._undo: list[Callable[[], object]] = []
        self._seen: dict[int, Any] = {}  # the objects too, so that no id is used again

    def put_back(self) -> None:
        with torch.no_grad():
            for undo in self._undo:
                undo()
        for value in self._empty:
            if value:
                value.clear()
        for value, keys, values in self._held:
            if not (_same(value, keys) and _same(value.values(), values)):
                _hold(value, dict(zip(keys, values, strict=True)))

    def look_into(self, value: Any) -> None:
        kind = type(value)
        if kind in _PLAIN or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if kind in _MAPPINGS:
            self._mapping(value)
        elif isinstance(value, Tensor):
            self._tensor(value)
        elif isinstance(value, nn.Module):
            self._module(value)
        elif kind is SimpleNamespace or (is_dataclass(kind) and hasattr(value, "__dict__")):
            self._mapping(value.__dict__)
        elif kind in _SEQUENCES:
            self._sequence(value)
        elif isinstance(value, tuple):
            if not _PLAIN.issuperset(map(type, tuple.__iter__(value))):
                for each in tuple.__iter__(value):
                    self.look_into(each)
        elif kind is set:
            content = value.copy()
            self._undo.append(lambda: (value.clear(), value.update(content)))
        elif isinstance(value, np.ndarray):
            self._array(value)
        else:
            self._generator(value)

    def _module(self, value: nn.Module) -> None:
        if isinstance(value, torch.jit.ScriptModule):  # its content is not in its __dict__
            flag = value.training
            self._undo.append(lambda: setattr(value, "training", flag))
            for buffer in value.buffers():
                self.look_into(buffer)
        else:
            # FSDP takes its parameters in and out of this dict, and knows which are there.
            self._mapping(value.__dict__, besides=value._parameters if self._managed else None)

    def _mapping(self, value: dict, besides: Any = None) -> None:
        values = list(value.values())
        self._held.append((value, list(value), values))
        for each in values:
            kind = type(each)
            # A module holds many of the first three: a call for each would be most of the work.
            if kind in _PLAIN or (kind is tuple and _PLAIN.issuperset(map(type, each))):
                continue
            if kind in _MAPPINGS and not each:
                self._empty.append(each)
            elif each is not besides:
                self.look_into(each)

    def _sequence(self, value: Any) -> None:
        content = list(value)

        def undo() -> None:
            if not _same(value, content):
                value.clear()
                value.extend(content)

        self._undo.append(undo)
        for each in content:
            self.look_into(each)

    def _tensor(self, value: Tensor) -> None:
        # Weights may be of a subclass, too; other layouts cannot be copied in place.
        if isinstance(value, nn.Parameter) or value.is_meta or value.layout is not torch.strided:
            return
        content = value.detach().clone()
        self._undo.append(lambda: torch.equal(value, content) or value.copy_(content))

    def _array(self, value: np.ndarray) -> None:
        if value.flags.writeable:
            array = value.copy()
            self._undo.append(lambda: np.copyto(value, array))

    def _generator(self, value: Any) -> None:
        if isinstance(value, torch.Generator):
            state = value.get_state()
            self._undo.append(lambda: value.set_state(state))
        elif type(value) is random.Random:
            drawn = value.getstate()
            self._undo.append(lambda: value.setstate(drawn))
        elif type(value) is np.random.Generator:
            bits = value.bit_generator
            held = bits.state
            self._undo.append(lambda: setattr(bits, "state", held))


def _sharded(modules: list[nn.Module]) -> list[nn.Module]:
    """Return the modules managed by ``fully_shard`` (FSDP2) or ``FullyShardedDataParallel``."""
    managers = {"FSDPModule", "FullyShardedDataParallel"}
    kinds = {type(module) for module in modules}
    those = {kind for kind in kinds if managers & {each.__name__ for each in kind.__mro__}}
    return [module for module in modules if type(module) in those]


def _same(those: Collection[Any], held: list) -> bool:
    """Compare two sequences by identity; never call ``__eq__``."""
    return len(those) == len(held) and all(map(is_, those, held))


def _hold(value: dict, held: dict) -> None:
    """Restore a mapping's items, and their order if it has one."""
    for key in [key for key in value if key not in held]:
        del value[key]
    for key, each in held.items():  # a Counter's update would add
        value[key] = each
        if isinstance(value, OrderedDict):
            value.move_to_end(key)


@contextmanager
def _random_state(parameters: list[nn.Parameter]) -> Iterator[None]:
    on = {p.device for p in parameters}
    kind = next((each.type for each in on if each.type not in ("cpu", "meta")), "cuda")
    devices = sorted({each.index or 0 for each in on if each.type == kind})
    python, legacy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices, device_type=kind):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)
