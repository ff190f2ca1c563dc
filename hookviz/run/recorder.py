"""The only recorder of operations: it reports a run's operations, forward and backward.

Each operation passes torch's dispatcher, where a dispatch mode wraps it in an `Operation` (its
arguments, its layer, the line of the user's code) and calls the listeners before and after it runs.
Listeners keep their notes in a `StorageMap`, for example the operation that wrote a tensor last.
Properties of an operation are computed only when a listener reads them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _len_torch_dispatch_stack
from torch.autograd import forward_ad
from torch.autograd.function import BackwardCFunction
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from ..hooking.checkpoint import FORWARD, ModuleCallStack, Reruns, current_backward
from ..hooking.handles import Hook, HookManager
from ..hooking.interrupts import raise_if_stopped
from ..hooking.select import module_names
from ..hooking.tensors import tensors
from ..hooking.transforms import refuse_transforms
from .errors import no_grad_line, users_line
from .operations import OVERWRITING, Kind, is_shape_only, operation_type


@dataclass(frozen=True, eq=False)
class ModuleCall:
    """One call of one module; activation checkpointing's second run of it is the same call."""

    layer: str
    call: int
    module: nn.Module = field(repr=False)
    marks: tuple[Any, ...] = field(repr=False)  # of its input tensors


class Operation:
    """One operation that is about to run, or has just run.

    Valid only during a listener's call: it holds tensors and must not be kept.

    Attributes
    ----------
    function : torch._ops.OpOverload
    args, kwargs
        Its arguments.
    output
        Its result, once it has run.
    call : ModuleCall or None
        The innermost module that was running; in a backward, the one whose gradient it computes.
    again : bool
        True if activation checkpointing runs it a second time.
    phase : str
        ``"forward"`` or ``"backward"``.
    notes : dict
        For each listener: its note from before the operation runs, for afterwards.
    """

    def __init__(self, function: Any, args: Any, kwargs: Any, frame: FrameType | None) -> None:
        self.function, self.args, self.kwargs, self._frame = function, args, kwargs, frame
        self._type = operation_type(function)
        self.output: Any = None
        self.call: ModuleCall | None = None
        self.again, self.phase, self._forward = False, "forward", _NO_LABEL
        self.notes: dict[Listener, Any] = {}
        self._ran = False

    @property
    def name(self) -> str:
        """Torch's name without the marks of variants: ``"log"``, ``"convolution"``."""
        return self._type.name

    @property
    def kind(self) -> Kind:
        """Its kind in the table of operations."""
        return self._type.kind

    @property
    def title(self) -> str:
        """Its name; in a backward that of the operation whose gradient it computes, if known."""
        named = self._forward.name
        return named if named and not self._own_line[0] else self.name

    @cached_property
    def argument(self) -> dict[str, Any]:
        """All arguments by torch's names, defaults included."""
        defaults = self._type.defaults
        return dict(defaults) | dict(zip(defaults, self.args, strict=False)) | self.kwargs

    @cached_property
    def inputs(self) -> list[Tensor]:
        """All input tensors, ``out=`` included."""
        return tensors((self.args, self.kwargs))

    @cached_property
    def reads(self) -> list[Tensor]:
        """The tensors that it may read: all inputs but ``out=``."""
        outs = self._type.outs
        if not outs:
            return self.inputs
        return tensors([v for k, v in self.argument.items() if k not in outs])

    @cached_property
    def values_read(self) -> list[Tensor]:
        """The tensors whose values are in the result.

        ``zeros_like`` uses only the shape of its input, and ``fill_`` keeps none of the old values.
        """
        if is_shape_only(self.function):
            return []
        if self.mutates and self.name in OVERWRITING:
            return [each for each in self.reads if each is not self.argument.get("self")]
        return self.reads

    @property
    def mutates(self) -> bool:
        """True if it writes into an input tensor, or changes its shape."""
        return self._type.mutates

    @property
    def written(self) -> list[Tensor]:
        """The input tensors that it overwrites."""
        return tensors([self.argument[name] for name in self._type.writes])

    @property
    def outputs(self) -> list[Tensor]:
        """The tensors that it returned."""
        return self._returned if self._ran else []

    @cached_property
    def _returned(self) -> list[Tensor]:
        return tensors(self.output)

    @property
    def is_view(self) -> bool:
        """True if its result shares an input's memory, as with ``view`` and ``detach``."""
        return self.function.is_view

    @property
    def line(self) -> tuple[str, int]:
        """File and line of the user's code, ``("", 0)`` if unknown; a backward's is its forward's.

        Computed by a walk along the stack. If no listener reads a forward operation's line, the
        backward has none either.
        """
        if self.phase == "backward" and not self._own_line[0]:
            return self._forward.line
        return self._own_line

    @property
    def no_grad_line(self) -> tuple[str, int]:
        """File and line of the user's ``torch.no_grad()`` around it; else its own line."""
        found = no_grad_line(self._frame)
        return found if found[0] else self.line

    @property
    def labelled(self) -> bool:
        """True in a backward whose forward operation was reported."""
        return bool(self._forward.name)

    @cached_property
    def _own_line(self) -> tuple[str, int]:
        # A backward has a line of its own only within a user's autograd.Function.
        node = torch._C._current_autograd_node()
        if self.phase == "backward" and not isinstance(node, BackwardCFunction):
            return "", 0
        return users_line(self._frame)

    def run(self) -> Any:
        """Run it, unless it has run or was replaced; return its output."""
        if not self._ran:
            self.output, self._ran = self.function(*self.args, **self.kwargs), True
        return self.output

    def replace(self, output: Any) -> None:
        """Use this output instead of running it; to be called in `Listener.before`."""
        self.output, self._ran = output, True

    def run_simpler(self, function: Callable[..., Any], listener: Listener) -> Any:
        """Run a function on its arguments, and report its operations to one listener."""
        with _Mode([listener]):
            return function(*self.args, **self.kwargs)


class Listener:
    """The interface for listeners of an `OperationRecorder`; a subclass overrides what it needs.

    Attributes
    ----------
    labels_backward : bool
        True if a backward's operations need the layer, line and name of their forward operation.
    """

    labels_backward = False

    def begin(self, recorder: OperationRecorder) -> None:
        """Prepare; called when the recorder's hooks are on and nothing has run."""

    def end(self) -> None:
        """Finish; called however the block ended."""

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """Handle the begin of a module's call, with its input tensors."""

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Handle the end of a module's call, with its output tensors."""

    def before(self, operation: Operation) -> None:
        """Handle an operation that is about to run."""

    def after(self, operation: Operation) -> None:
        """Handle an operation that has run."""

    def failed(self, operation: Operation) -> None:
        """Handle an operation that has raised."""


class OperationRecorder(HookManager):
    """A ``with`` block that reports each operation to its listeners.

    Parameters
    ----------
    *listeners : Listener
        Called in this order.
    model : torch.nn.Module, optional
        Its modules' calls are reported too, and each operation has the call in which it ran.
    backward : bool
        True if a backward may follow, in which checkpointing runs modules again.
    follows : frozenset of str
        The transforms of torch.func that are no error: operations in forward mode are not reported.

    Attributes
    ----------
    names : dict of torch.nn.Module to str
    error : BaseException or None
        The one that ended the block.

    Examples
    --------
    >>> class Names(Listener):
    ...     def after(self, operation):
    ...         print(operation.call.layer, operation.name)
    >>> model, x = nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU()), torch.ones(1, 1, 5, 5)
    >>> with torch.no_grad(), OperationRecorder(Names(), model=model):
    ...     _ = model(x)
    0 convolution
    1 relu
    """

    missing_gradients = False  # so a session never repeats a run for it

    def __init__(
        self,
        *listeners: Listener,
        model: nn.Module | None = None,
        backward: bool = True,
        follows: frozenset[str] = frozenset(),
    ) -> None:
        known = module_names(model) if model is not None else {}
        self.names = {module: each[0] for module, each in known.items()}
        self.error: BaseException | None = None
        self._listeners, self._backward = listeners, backward
        self._running: ModuleCallStack[tuple[ModuleCall, bool]] = ModuleCallStack()
        self._calls: dict[nn.Module, list[ModuleCall]] = {}
        self._reruns: Reruns[ModuleCall] = Reruns()
        self.follows = follows
        self._mode = _Mode(listeners, self._place, follows)
        super().__init__(self._hooks_of_modules())

    def _hooks_of_modules(self) -> Iterator[Hook]:
        for module in self.names:
            if not isinstance(module, torch.jit.ScriptModule):
                yield module, "forward_pre", self._before
                yield module, "forward", self._after

    def _begin(self) -> None:
        super()._begin()
        for each in self._listeners:
            each.begin(self)
            self.exit_stack.callback(each.end)
        self._mode.__enter__()
        self.exit_stack.push(self._mode.leave)

    def __exit__(self, *error: Any) -> None:
        self.error = error[1]
        super().__exit__(*error)

    def mute(self, muted: bool) -> None:
        """Report no operation from now on, or all again."""
        self._mode.silent = muted
        if muted:
            self._mode.step_aside()
        else:
            self._mode.come_back()

    def skip_backward(self) -> None:
        """Report nothing more of the backward that is running."""
        self._mode.over = current_backward()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Report no operation within the block."""
        before, self._mode.silent = self._mode.silent, True
        try:
            with torch._C.DisableTorchFunction():
                yield
        finally:
            self._mode.silent = before

    # Which module is running

    def _place(self) -> tuple[ModuleCall, bool] | None:
        # Checkpointing leaves a module's second run early, once it has its tensors. The backward
        # itself builds no graph.
        left = current_backward() != FORWARD and not torch.is_grad_enabled()
        return None if left else self._running.innermost()

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        with self.silent():
            given = tensors((args, kwargs))
            marks = tuple(map(_mark, given)) if self._backward else ()
            calls, call = self._calls.setdefault(module, []), None
            if self._backward:
                call = self._reruns.first(calls, lambda each: _same(each.marks, marks))
            again = call is not None
            if call is None:
                call = ModuleCall(self.names[module], len(calls), module, marks)
                calls.append(call)
            self._running.begin(module, (call, again))
            for each in self._listeners:
                each.enter(call, given, again)

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        running = self._running.end(module)
        if running is not None:
            with self.silent():
                returned = tensors(output)
                for each in self._listeners:
                    each.leave(running[0], returned, running[1])


def _mark(tensor: Tensor) -> tuple[Any, ...]:
    """Return shape and central value, which identify a checkpoint's second run of a call."""
    if not tensor.numel() or tensor.layout is not torch.strided:
        return tuple(tensor.shape), None
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    centre = tensor.storage_offset() + sum(size // 2 * stride for size, stride in pairs)
    with torch.no_grad():
        return tuple(tensor.shape), tensor.as_strided((), (), centre).clone()


def _same(marks: Iterable[Any], others: Iterable[Any]) -> bool:
    def said(mark: tuple[Any, ...]) -> tuple[Any, ...]:
        shape, value = mark
        return shape, None if value is None else repr(value.item())  # NaN is equal to itself

    return [*map(said, marks)] == [*map(said, others)]


@dataclass(frozen=True)
class _Label:
    """The metadata of a node of autograd's graph: the operation that made it."""

    name: str = ""
    call: ModuleCall | None = None
    line: tuple[str, int] = ("", 0)


_LABEL, _NO_LABEL = "hookviz", _Label()


class _Mode(TorchDispatchMode):
    def __init__(
        self,
        listeners: Iterable[Listener],
        place: Callable[[], tuple[ModuleCall, bool] | None] = lambda: None,
        follows: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        self.silent, self._place, self._follows = False, place, follows
        self.over = FORWARD  # the backward of which no more is reported
        self._before = _overridden(listeners, "before")
        self._after = _overridden(listeners, "after")
        self._failed = _overridden(listeners, "failed")
        self._labels = any(each.labels_backward for each in listeners)
        self._unlabelled: tuple[list[Tensor], _Label] = ([], _NO_LABEL)
        self._away = -1  # how many modes were on when this one stepped aside

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Say to torch that no wrapper is needed, which would import its compiler: a second."""
        return False  # within the block, compiled code runs eagerly

    # A mode that is silent costs each operation a third of a small model's time.

    def step_aside(self) -> None:
        """Be off, if it is the innermost mode, and no backward runs, which keeps its own list."""
        if _get_current_dispatch_mode() is self and current_backward() == FORWARD:
            super().__exit__(None, None, None)
            self._away = _len_torch_dispatch_stack()

    def come_back(self) -> None:
        """Be on again, where the modes are as they were."""
        if self._away == _len_torch_dispatch_stack() and current_backward() == FORWARD:
            super().__enter__()
            self._away = -1

    def leave(self, *error: Any) -> None:
        """End, whether it is on or not."""
        if self._away < 0 or _get_current_dispatch_mode() is self:
            super().__exit__(*error)
        self._away = -1

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if self.silent or (self.over != FORWARD and self.over == current_backward()):
            return function(*args, **(kwargs or {}))
        raise_if_stopped()
        # A mode does not see that vmap or grad is running, and follows the plain tensors below. In
        # forward mode it gets the operations of the tangents, which belong to nothing.
        if forward_ad._current_level >= 0:
            refuse_transforms(self._follows)
            return function(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunction():
            # None in a backward on an accelerator, whose threads begin without Python frames.
            frame = sys._getframe().f_back
            operation = Operation(function, args, kwargs or {}, frame)
            self._locate(operation)
            for before in self._before:
                before(operation)
            try:
                operation.run()
            except Exception:
                for failed in self._failed:
                    failed(operation)
                raise
            for after in self._after:
                after(operation)
            if self._labels:
                line = operation.__dict__.get("_own_line", ("", 0))
                label = (
                    operation._forward
                    if operation.phase == "backward"
                    else _Label(operation.name, operation.call, line)
                )
                self._unlabelled = operation.outputs, label
            return operation.output

    def _locate(self, operation: Operation) -> None:
        """Set the operation's call and phase."""
        if self._labels:
            self._label_nodes()
        running = self._place()
        if running is not None:
            operation.call, operation.again = running
        elif current_backward() != FORWARD:
            operation.phase = "backward"
            node = torch._C._current_autograd_node()
            label = _carried(node).get(_LABEL) if node is not None else None
            if label is not None:
                operation._forward, operation.call = label, label.call

    def _label_nodes(self) -> None:
        tensors, label = self._unlabelled
        for tensor in tensors:  # by now they have a grad_fn
            if tensor.grad_fn is not None:
                _carried(tensor.grad_fn).setdefault(_LABEL, label)
        self._unlabelled = [], label


def _carried(node: Any) -> dict[str, _Label]:
    """Return the metadata dict of a node of autograd's graph."""
    return node.metadata


def labelled(node: Any, most: int = 20_000) -> Iterator[tuple[Any, _Label]]:
    """Yield the nodes behind a tensor's ``grad_fn``, and their labels, the last operation first."""
    waiting, known = [node], {node}
    while waiting and len(known) < most:
        node = waiting.pop(0)
        if node is None:
            continue
        label = _carried(node).get(_LABEL)
        if label is not None:
            yield node, label
        behind = [each for each, _ in node.next_functions if each not in known]
        known.update(behind)
        waiting += behind


def _overridden(listeners: Iterable[Listener], name: str) -> list[Callable[[Operation], None]]:
    """Return the methods of the listeners that override this one."""
    own = getattr(Listener, name)
    return [getattr(each, name) for each in listeners if getattr(type(each), name) is not own]
