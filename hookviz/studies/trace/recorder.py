"""Hooks of every kind on every module, and a list of what they received in the order they fired.

First the modules are found whose tensors are overwritten in place: full backward hooks forbid that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...hooking.checkpoint import FORWARD, ModuleCallStack, Reruns, current_backward
from ...hooking.handles import HookManager
from ...hooking.records import Statistics, statistics
from ...hooking.select import type_name
from ...hooking.tensors import StorageMap, tensors_in
from ...run.errors import first_sentence
from .events import Event, code_for, main_place, sample_of

FULL = ("full_backward_pre", "full_backward")
KINDS = ("forward_pre", "forward", *FULL)

Names = Mapping[nn.Module, Sequence[str]]
Refused = dict[tuple[nn.Module, str], str]
"""Module and kind of hook -> why it cannot be set."""

_RERUN = "run again in the backward, by activation checkpointing"
_NO_INPUT_GRADIENT = "grad_input holds no tensor: no positional argument asks for a gradient"
_NOT_REACHED = "did not fire: the score does not depend on it, or on a view overwritten in place"
_NONE_CAME = "no gradient came: the score does not depend on its {}, as far as autograd sees"


class EventRecorder(HookManager):
    """A block within which all hooks are on; `events` gives what they wrote down."""

    def __init__(self, model: nn.Module, names: Names, refused: Refused) -> None:
        super().__init__()
        self._refused = dict(refused)
        self._names = {module: known[0] for module, known in names.items()}
        # The name under which the model, maybe in a wrapper, finds each module.
        found = dict(model.named_modules(remove_duplicate=False))
        self._code_names = {
            module: next((name for name in known if found.get(name) is module), known[0])
            for module, known in names.items()
        }
        # Tensor hooks that have not fired: module, call and path.
        self._waiting: dict[tuple[nn.Module, int, str], None] = {}
        self._arrived: set[tuple[nn.Module, int, str]] = set()
        self._fired: list[tuple[nn.Module, Event]] = []
        self._why_silent: dict[nn.Module, str] = {}
        self._calls: dict[nn.Module, list[Event]] = {}  # forward_pre events of the forward
        self._reruns: Reruns[Event] = Reruns()
        self._depths: dict[tuple[nn.Module, int], int] = {}
        self._running: ModuleCallStack[int] = ModuleCallStack()
        self._under_way: list[tuple[Any, int]] = []  # grad_output, and place in `_fired`
        self._same_call: dict[int, int] = {}  # full_backward -> its full_backward_pre

    def _begin(self) -> None:
        super()._begin()
        for module in self._names:
            for kind in KINDS:
                if (module, kind) in self._refused:
                    continue
                try:
                    self.add(module, kind, getattr(self, f"_{kind}"))
                except RuntimeError as error:  # a ScriptModule, or one with a hook of the old kind
                    self._refused[module, kind] = first_sentence(error)
        self._began, self._spent = time.perf_counter(), 0.0

    @property
    def missing_gradients(self) -> bool:
        """Whether a tensor hook has not fired."""
        return bool(self._waiting)

    # The hooks

    def _forward_pre(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        again, calls = current_backward() != FORWARD, self._calls.setdefault(module, [])
        event = self._event(module, "forward_pre", (args, kwargs), note=_RERUN if again else "")
        if again:
            first = self._reruns.first(calls, partial(_alike, event))
            call = first.call if first else 0
        else:
            call = len(calls)
            calls.append(replace(event, call=call))
        depth = self._running.begin(module, call)
        if not again:
            self._depths[module, call] = depth
        self._write(module, event, call)

    def _forward(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        again, call = current_backward() != FORWARD, self._running.end(module) or 0
        event = self._event(module, "forward", output, note=_RERUN if again else "")
        self._write(module, event, call)
        if not again:
            self._why_silent[module] = _why_silent(output)
        for path, tensor in tensors_in(output):
            if tensor.requires_grad:
                self._watch(module, call, path, tensor)

    def _watch(self, module: nn.Module, call: int, path: str, tensor: Tensor) -> None:
        key = module, call, path
        if key not in self._arrived:  # else a checkpointed block runs again
            self._waiting[key] = None

        def arrived(gradient: Tensor | None) -> None:
            self._waiting.pop(key, None)
            self._arrived.add(key)
            self._write(module, self._event(module, "tensor", gradient, path), call)

        self.add(tensor, "tensor", arrived)

    # A full backward hook is not told which call it belongs to: -1, until `events` finds out.

    def _full_backward_pre(self, module: nn.Module, grad_output: Any) -> None:
        self._under_way.append((grad_output, len(self._fired)))
        self._write(module, self._event(module, "full_backward_pre", grad_output), -1)

    def _full_backward(self, module: nn.Module, grad_input: Any, grad_output: Any) -> None:
        # The very tuple that the other hook got.
        for place, (given, pre) in enumerate(self._under_way):
            if given is grad_output:
                self._same_call[len(self._fired)] = pre
                del self._under_way[place]
                break
        note = "" if any(True for _ in tensors_in(grad_input)) else _NO_INPUT_GRADIENT
        self._write(module, self._event(module, "full_backward", grad_input, note=note), -1)

    def _event(
        self, module: nn.Module, kind: str, given: Any, path: str = "", note: str = ""
    ) -> Event:
        """What a hook received; to which call it belongs is said by `_write`."""
        now = time.perf_counter()
        tensors = [tensor for _, tensor in tensors_in(given)]
        dtypes = tuple(str(tensor.dtype).removeprefix("torch.") for tensor in tensors)
        numbers, sample = _described(tensors[main_place(dtypes)] if tensors else None)
        event = replace(
            self._unfired(module, kind, -1, note, path),
            time=now - self._began - self._spent,
            shapes=tuple(tuple(tensor.shape) for tensor in tensors),
            dtypes=dtypes,
            statistics=numbers,
            sample=sample,
        )
        self._spent += time.perf_counter() - now
        return event

    def _write(self, module: nn.Module, event: Event, call: int) -> None:
        self._fired.append((module, replace(event, call=call)))

    # What was written down

    @property
    def not_called(self) -> list[str]:
        """Modules with a forward of their own that never ran."""
        return [
            name
            for module, name in self._names.items()
            if module not in self._calls and not isinstance(module, torch.jit.ScriptModule)
            # A ModuleList, say, has none.
            if type(module).forward is not nn.Module.forward
        ]

    def events(self, scored: bool) -> list[Event]:
        """What fired, in order; then what could not be set and, if scored, what did not fire."""
        found = self._with_calls()
        for module in self._names:
            for kind in KINDS:
                if why := self._refused.get((module, kind)):
                    found.append(self._unfired(module, kind, 0, f"cannot be set: {why}"))
        if scored:
            found += self._silent()
        return [replace(event, index=index) for index, event in enumerate(found)]

    def _with_calls(self) -> list[Event]:
        """The calls and depths of backward events.

        The backward goes through a module's calls in some order. The tensor hooks know it, and
        the full_backward_pre hooks fire in the same one.
        """
        order: dict[nn.Module, dict[int, None]] = {}
        for module, event in self._fired:
            if event.kind == "tensor":
                order.setdefault(module, {})[event.call] = None
        left = {module: list(calls) for module, calls in order.items()}
        found: list[Event] = []
        for place, (module, event) in enumerate(self._fired):
            call = event.call
            if event.kind == "full_backward_pre":
                call = left[module].pop(0) if left.get(module) else 0
            elif event.kind == "full_backward":
                call = found[self._same_call[place]].call if place in self._same_call else 0
            depth = self._depths.get((module, call), 0)
            found.append(replace(event, call=call, depth=depth))
        return found

    def _silent(self) -> list[Event]:
        """Backward hooks that were set, in a module that ran, and did not fire."""
        fired = {(module, event.kind) for module, event in self._fired}
        found = []
        for module in self._names:
            for kind in FULL:
                set_in_vain = (module, kind) not in fired and (module, kind) not in self._refused
                if module in self._calls and set_in_vain:
                    side = "input" if (module, "full_backward_pre") in fired else "output"
                    why = self._why_silent.get(module) or _NONE_CAME.format(side)
                    found.append(self._unfired(module, kind, 0, f"did not fire: {why}"))
        for module, call, path in self._waiting:
            found.append(self._unfired(module, "tensor", call, _NOT_REACHED, path))
        return found

    def _unfired(self, module: nn.Module, kind: str, call: int, note: str, path: str = "") -> Event:
        return Event(
            index=-1,
            kind=kind,
            layer=self._names[module],
            type=type_name(module),
            call=call,
            depth=self._depths.get((module, call), 0),
            time=None,
            path=path,
            note=note,
            code=code_for(kind, self._code_names[module], path),
        )


def _described(tensor: Tensor | None) -> tuple[Statistics | None, np.ndarray | None]:
    if tensor is None:
        return None, None
    try:
        return statistics(tensor), sample_of(tensor)
    except (RuntimeError, NotImplementedError, TypeError):  # a meta or nested tensor, and the like
        return None, None


def _why_silent(output: Any) -> str:
    """Why a full backward hook, though set, will not be called for this output; or nothing."""
    if not isinstance(output, (Tensor, tuple)):
        kind = type(output).__name__
        return f"torch calls it only for an output that is a tensor or a tuple, not a {kind}"
    if not any(tensor.requires_grad for _, tensor in tensors_in(output)):
        return "the output does not require a gradient"
    return ""


def _alike(event: Event, other: Event) -> bool:
    """Whether two hooks received the same, as far as was written down."""
    if (event.shapes, event.dtypes) != (other.shapes, other.dtypes):
        return False
    # As text, NaN is equal to itself.
    if repr(event.statistics) != repr(other.statistics):
        return False
    if event.sample is None or other.sample is None:
        return event.sample is other.sample
    return np.array_equal(event.sample, other.sample, equal_nan=True)


# In place


class InplaceTracker(HookManager):
    """Within the block, forward hooks look at the versions of what modules take and return.

    A tensor's version goes up each time it, or what shares its memory, is overwritten.
    """

    def __init__(self, names: Names) -> None:
        # A ScriptModule takes no hooks, full backward ones neither.
        eager = [module for module in names if not isinstance(module, torch.jit.ScriptModule)]
        kinds = (("forward_pre", self._before), ("forward", self._after))
        super().__init__([(module, kind, hook) for module in eager for kind, hook in kinds])
        self._names = names
        self._running: ModuleCallStack[list[tuple[Tensor, int]]] = ModuleCallStack()
        self._returned: list[tuple[nn.Module, Tensor, int]] = []
        self._overwrites_input: set[nn.Module] = set()
        # By memory: version -> the innermost module during which it came to that version.
        self._by: StorageMap[dict[int, nn.Module]] = StorageMap()

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        given = [(tensor, _version(tensor)) for tensor in _graded((args, kwargs))]
        self._running.begin(module, given)

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        for tensor, before in self._running.end(module) or ():
            if _version(tensor) > before:
                self._overwrites_input.add(module)
                by = self._by.get(tensor) or {}
                self._by[tensor] = (
                    dict.fromkeys(range(before + 1, _version(tensor) + 1), module) | by
                )
        for tensor in _graded(output):
            self._returned.append((module, tensor, _version(tensor)))

    def found(self) -> dict[nn.Module, str]:
        """Say for each module what is overwritten."""
        why: dict[nn.Module, str] = {}
        for module, tensor, version in self._returned:
            if _version(tensor) > version:
                by = (self._by.get(tensor) or {}).get(version + 1)
                who = "code (such as out += x)"
                if by is not None:
                    who = f"{self._names[by][0]!r} ({type_name(by)})"
                why.setdefault(module, f"{who} overwrites its output")
        for module in self._overwrites_input:
            why.setdefault(module, "it overwrites its own input")
        return why


def _graded(value: Any) -> list[Tensor]:
    """Only for these does overwriting in place make a full backward hook an error."""
    if not torch.is_grad_enabled():
        return []
    return [tensor for _, tensor in tensors_in(value) if tensor.requires_grad]


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
