"""The only recorder of operations: it reports a run's operations, forward and backward.

A dispatch mode sees each operation on its way through torch's dispatcher. It wraps it in an
`Operation` (its arguments, its layer, the line of the user's code) and calls the listeners before
and after it runs. Properties of an operation are computed only when a listener reads them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, compress
from types import FrameType, MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch._C import DisableTorchFunction, _len_torch_dispatch_stack
from torch.autograd import forward_ad
from torch.autograd.function import BackwardCFunction
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from ..hooking.checkpoint import FORWARD, ModuleCallStack, Reruns, current_backward
from ..hooking.handles import Hook, HookManager
from ..hooking.interrupts import always_defer, defer_interrupts, raise_if_stopped
from ..hooking.tensors import central_value, tensors
from ..hooking.transforms import refuse_transforms
from .errors import no_grad_line, running_module, users_line
from .operations import Kind, is_composite, name_of_hardtanh, operation_type


@dataclass(eq=False)  # not frozen: there is one for each module that runs, and that is slower
class ModuleCall:
    """One call of one module; a second run by activation checkpointing is the same call."""

    layer: str
    call: int
    module: nn.Module = field(repr=False)
    fingerprints: tuple[Any, ...] = field(repr=False)  # of its input tensors


_Running = ModuleCallStack[tuple[ModuleCall, bool]]
V = TypeVar("V")

_FUNCTIONAL = nn.functional.__file__


class _Computed(Generic[V]):
    """A property that is computed when it is first read.

    In Python 3.11 `functools.cached_property` takes a lock, which takes longer than the properties
    of an operation.
    """

    def __init__(self, function: Callable[[Any], V]) -> None:
        self._function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> V:
        if instance is None:
            return self  # type: ignore[return-value]
        value = self._function(instance)
        setattr(instance, self._name, value)  # creates no dict, as `instance.__dict__` would
        return value


class _Label(NamedTuple):
    """The metadata of a node in autograd's graph: the operation that created it."""

    name: str = ""
    call: ModuleCall | None = None
    line: tuple[str, int] = ("", 0)


_LABEL, _NO_LABEL = "hookviz", _Label()


class Operation:
    """One operation that is about to run, or has just run.

    Valid only during a listener's call: it holds tensors and must not be stored.

    Attributes
    ----------
    function : torch._ops.OpOverload
    args, kwargs
    kind : Kind
        The kind in the table of operations.
    mutates : bool
        True if it writes into an input tensor, or changes its shape.
    output
        The result, once it has run.
    call : ModuleCall or None
        The innermost module that was running, of those that a listener needs; in a backward, the
        one whose gradient it computes.
    again : bool
        True if activation checkpointing runs it a second time.
    phase : str
        ``"forward"`` or ``"backward"``.
    known_line : tuple of (str, int)
        The own `line` if a listener has read it.
    notes : dict
        What each listener stored before the operation ran, for use afterwards.
    """

    # Defaults, since setting them for each of hundreds of operations would be slower.
    output: Any = None
    call: ModuleCall | None = None
    again, phase, known_line = False, "forward", ("", 0)
    _forward, _ran = _NO_LABEL, False

    def __init__(self, function: Any, args: Any, kwargs: Any, frame: FrameType | None) -> None:
        self.function, self.args, self.kwargs, self._frame = function, args, kwargs, frame
        self._type = operation_type(function)
        self.kind: Kind = self._type.kind
        self.mutates = self._type.mutates

    @_Computed
    def notes(self) -> dict[Listener, Any]:
        return {}

    @_Computed
    def name(self) -> str:
        """Torch's name without the marks of variants: ``"log"``, ``"convolution"``."""
        name = self._type.name
        if name == "hardtanh":
            return name_of_hardtanh(self.argument["min_val"], self.argument["max_val"])
        return name

    @property
    def title(self) -> str:
        """The name; in a backward that of the operation whose gradient it computes, if known."""
        forward = self._forward.name
        return forward if forward and not self._own_line[0] else self.name

    @_Computed
    def argument(self) -> dict[str, Any]:
        """All arguments by torch's names, defaults included."""
        defaults = self._type.defaults
        return dict(defaults) | dict(zip(defaults, self.args, strict=False)) | self.kwargs

    @_Computed
    def inputs(self) -> list[Tensor]:
        """All input tensors, ``out=`` included."""
        given = compress(self.args, self._type.tensors)
        if self.kwargs or self._type.lists:
            return tensors(*given, self.kwargs)
        return [each for each in given if isinstance(each, Tensor)]  # `tensors` would be slower

    @property
    def reads(self) -> list[Tensor]:
        """The tensors that it may read: all inputs but ``out=``."""
        if not (outs := self._type.outs):
            return self.inputs
        return tensors([v for k, v in self.argument.items() if k not in outs])

    @property
    def values_read(self) -> list[Tensor]:
        """The tensors whose values are in the result.

        ``zeros_like`` uses only the shape of its input, and ``fill_`` keeps none of the old values.
        """
        if self._type.reads_all:
            return self.inputs
        if self._type.forgets:
            return [tensor for tensor in self.reads if tensor is not self.argument.get("self")]
        return [] if self._type.of_shapes else self.reads

    @property
    def written(self) -> list[Tensor]:
        """The input tensors that it overwrites."""
        return tensors([self.argument[name] for name in self._type.writes])

    @_Computed
    def outputs(self) -> list[Tensor]:
        """The tensors that it returned; to be read once it has run."""
        return [self.output] if isinstance(self.output, Tensor) else tensors(self.output)

    @property
    def results(self) -> list[Tensor]:
        """The tensors that it returned, and those that it overwrote; to be read once it has run.

        ``rrelu_with_noise`` returns a new tensor and overwrites the one that holds the noise.
        """
        return [*{id(tensor): tensor for tensor in [*self.outputs, *self.written]}.values()]

    @property
    def is_view(self) -> bool:
        """True if its result shares an input's memory, as with ``view`` and ``detach``."""
        return self.function.is_view

    @property
    def line(self) -> tuple[str, int]:
        """File and line of the user's code, ``("", 0)`` if unknown.

        In a backward it is the line of the forward operation, and known only if a listener has
        read that one: finding a line takes a walk along the stack.
        """
        if self.phase == "backward" and not self._own_line[0]:
            return self._forward.line
        return self._own_line

    @property
    def instruction(self) -> tuple[int, int]:
        """The instruction of Python code that runs it; one instruction may run several."""
        return (id(self._frame), self._frame.f_lasti) if self._frame is not None else (0, 0)

    @property
    def no_grad_line(self) -> tuple[str, int]:
        """File and line of the user's ``torch.no_grad()`` around it; else its own line."""
        line = no_grad_line(self._frame)
        return line if line[0] else self.line

    def module_among(self, modules: Container[nn.Module]) -> nn.Module | None:
        """Return the innermost running module of these, whether or not its calls are reported."""
        return running_module(self._frame, modules)

    @_Computed
    def functional(self) -> str:
        """The name of the function of ``torch.nn.functional`` that calls it, or empty."""
        code = self._frame and self._frame.f_code
        return code.co_name if code and code.co_filename == _FUNCTIONAL else ""

    @property
    def variables(self) -> Mapping[str, Any]:
        """The local variables of that function."""
        return self._frame.f_locals if self.functional and self._frame else {}

    @property
    def labelled(self) -> bool:
        """True in a backward whose forward operation was reported."""
        return bool(self._forward.name)

    @_Computed
    def _own_line(self) -> tuple[str, int]:
        self.known_line = self._find_line()
        return self.known_line

    def _find_line(self) -> tuple[str, int]:
        # A backward has its own line only within a user's autograd.Function.
        if self.phase == "backward":
            node = torch._C._current_autograd_node()
            if not isinstance(node, BackwardCFunction):
                return "", 0
        return users_line(self._frame)

    def run(self) -> Any:
        """Run it, unless it has run or was replaced; return its output."""
        if not self._ran:
            self.output, self._ran = self.function(*self.args, **self.kwargs), True
        return self.output

    def replace(self, output: Any) -> None:
        """Use this output instead of running the operation; to be called in `Listener.before`."""
        self.output, self._ran = output, True

    def run_simpler(self, function: Callable[..., Any], listener: Listener) -> Any:
        """Run a function on the same arguments, and report its operations to one listener."""
        with _Mode([listener]):
            return function(*self.args, **self.kwargs)


class Listener:
    """The interface for listeners of an `OperationRecorder`; subclasses override some methods.

    Attributes
    ----------
    modules : collection of torch.nn.Module, or None
        The modules whose calls it needs beside the model's own; None for all. Hooks on modules
        that nobody asks for would take longer than the operations.
    labels_backward : bool
        True if a backward's operations need the layer, line and name of their forward operation.
    """

    modules: Collection[nn.Module] | None = None
    labels_backward = False

    def begin(self, recorder: OperationRecorder) -> None:
        """Handle the start of the block: the recorder's hooks are on and nothing has run."""

    def end(self) -> None:
        """Handle the end of the block, also after an exception."""

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """Handle the start of a module's call, with its input tensors."""

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
    names : mapping of torch.nn.Module to str
        The modules of a model, itself first, and their names. The calls of those that a listener
        needs are reported too, and each operation has the innermost of them in which it ran.
    backward : bool
        True if a backward may follow, in which checkpointing runs modules again.
    follows : frozenset of str
        The transforms of torch.func that do not raise; operations in forward mode are not reported.

    Attributes
    ----------
    error : BaseException or None
        The exception that ended the block.

    Examples
    --------
    >>> from hookviz.hooking.select import first_names
    >>> class Names(Listener):
    ...     def after(self, operation):
    ...         print(operation.call.layer, operation.name)
    >>> model, x = nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU()), torch.ones(1, 1, 5, 5)
    >>> with torch.no_grad(), OperationRecorder(Names(), names=first_names(model)):
    ...     _ = model(x)
    0 convolution
    1 relu
    """

    missing_gradients = False  # so a session never repeats a run for it

    def __init__(
        self,
        *listeners: Listener,
        names: Mapping[nn.Module, str] = MappingProxyType({}),
        backward: bool = True,
        follows: frozenset[str] = frozenset(),
    ) -> None:
        self.names = names
        self.error: BaseException | None = None
        self._listeners, self._backward = listeners, backward
        self._running: _Running = ModuleCallStack()
        self._calls: dict[nn.Module, list[ModuleCall]] = {}
        self._reruns: Reruns[ModuleCall] = Reruns()
        self.follows = follows
        self._mode = _Mode(listeners, self._running, follows)
        super().__init__(self._hooks_of_modules())

    def _hooks_of_modules(self) -> Iterator[Hook]:
        requested = (listener.modules for listener in self._listeners)
        several = [self.names if modules is None else modules for modules in requested]
        needed = {*[*self.names][:1], *chain(*several)}
        enter, leave = self._enter_module, self._leave_module
        for module in filter(needed.__contains__, self.names):
            if not isinstance(module, torch.jit.ScriptModule):
                yield module, "forward_pre", enter
                yield module, "forward", leave

    def _begin(self) -> None:
        super()._begin()
        for listener in self._listeners:
            listener.begin(self)
            self.exit_stack.callback(listener.end)
        self._mode.__enter__()
        self.exit_stack.push(self._mode.leave)

    def _leave(self, *error: Any) -> None:
        self.error = error[1]
        super()._leave(*error)

    @defer_interrupts
    def mute(self, muted: bool) -> None:
        """Report no operation from now on, or all again."""
        self._mode.silent = muted
        if muted:
            self._mode.suspend()
        else:
            self._mode.resume()

    def skip_backward(self) -> None:
        """Report no further operation of the backward that is running."""
        self._mode.skipped_backward = current_backward()

    def silent(self) -> _Silence:
        """Return a block within which no operation is reported."""
        return _Silence(self._mode)

    def _enter_module(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        with self.silent():
            given = tensors(*args, *kwargs.values())
            prints = tuple(map(_fingerprint, given)) if self._backward else ()
            calls, call = self._calls.setdefault(module, []), None
            if self._backward:
                call = self._reruns.first(calls, lambda one: _is_same(one.fingerprints, prints))
            again = call is not None
            if call is None:
                call = ModuleCall(self.names[module], len(calls), module, prints)
                calls.append(call)
            self._running.begin(module, (call, again))
            for listener in self._listeners:
                listener.enter(call, given, again)

    def _leave_module(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        running = self._running.end(module)
        if running is not None:
            with self.silent():
                returned = tensors(output)
                for listener in self._listeners:
                    listener.leave(running[0], returned, running[1])


def _fingerprint(tensor: Tensor) -> tuple[Any, ...]:
    """Return shape and central value, which identify a checkpoint's second run of a call."""
    if not tensor.numel() or tensor.layout is not torch.strided:
        return tuple(tensor.shape), None
    return tuple(tensor.shape), central_value(tensor).clone()


def _is_same(prints: Iterable[Any], others: Iterable[Any]) -> bool:
    def comparable(fingerprint: tuple[Any, ...]) -> tuple[Any, ...]:
        shape, value = fingerprint
        return shape, None if value is None else repr(value.item())  # NaN is equal to itself

    return [*map(comparable, prints)] == [*map(comparable, others)]


class _Silence:
    """See `OperationRecorder.silent`; there are two for each module's call."""

    def __init__(self, mode: _Mode) -> None:
        self._mode, self._without = mode, DisableTorchFunction()

    def __enter__(self) -> None:
        self._previous, self._mode.silent = self._mode.silent, True
        # Each operation that passes a silent mode takes ten times as long as one without it.
        self._innermost = _get_current_dispatch_mode() is self._mode
        if self._innermost:
            torch._C._pop_torch_dispatch_stack(None)
        self._without.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._without.__exit__(*error)
        if self._innermost:
            torch._C._push_on_torch_dispatch_stack(self._mode)
        self._mode.silent = self._previous


class _Mode(TorchDispatchMode):
    def __init__(
        self,
        listeners: Iterable[Listener],
        running: _Running | None = None,
        follows: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        self.silent, self._follows = False, follows
        self._running: _Running = running or ModuleCallStack()
        self.skipped_backward = FORWARD  # the number of the backward that is not reported
        self._before = _overridden(listeners, "before")
        self._after = _overridden(listeners, "after")
        self._failed = _overridden(listeners, "failed")
        self._labels = any(listener.labels_backward for listener in listeners)
        self._unlabelled: tuple[list[Tensor], _Label] = ([], _NO_LABEL)
        # How many other modes were on when this one was suspended; -1 if it is not.
        self._suspended_at = -1
        self._frame_of_whole: FrameType | None = None  # of the operation that runs in parts

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Skip torch's wrapper, which would import its compiler and take a second."""
        return False  # within the block, compiled code runs eagerly

    # A silent mode that stays on takes a third of a small model's time.

    def suspend(self) -> None:
        """Leave the mode if it is the innermost one; a running backward has its own mode stack."""
        if _get_current_dispatch_mode() is self and current_backward() == FORWARD:
            super().__exit__(None, None, None)
            self._suspended_at = _len_torch_dispatch_stack()

    def resume(self) -> None:
        """Enter the mode again if the mode stack has not changed since `suspend`."""
        if self._suspended_at == _len_torch_dispatch_stack() and current_backward() == FORWARD:
            super().__enter__()
            self._suspended_at = -1

    def leave(self, *error: Any) -> None:
        """Leave the mode for good, suspended or not."""
        if self._suspended_at < 0 or _get_current_dispatch_mode() is self:
            super().__exit__(*error)
        self._suspended_at = -1

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        skipped = self.skipped_backward
        if self.silent or (skipped != FORWARD and skipped == current_backward()):
            return function(*args, **kwargs)
        raise_if_stopped()
        # The mode cannot see vmap or grad, whose operations reach it on plain tensors. In forward
        # mode it gets the operations on tangents, which belong to no layer.
        if forward_ad._current_level >= 0:
            refuse_transforms(self._follows)
            return function(*args, **kwargs)
        with DisableTorchFunction():
            # None in a backward on an accelerator, whose threads begin without Python frames.
            frame = self._frame_of_whole or sys._getframe().f_back
            if torch.is_inference_mode_enabled() and is_composite(function):
                return self._in_parts(function, args, kwargs, frame)
            operation = Operation(function, args, kwargs, frame)
            if self._labels:
                self._label_nodes()
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
                self._unlabelled = operation.outputs, _label_of(operation)
            return operation.output

    always_defer(__torch_dispatch__)  # so that no listener and no block in it is cut short

    def _in_parts(self, function: Any, args: Any, kwargs: Any, frame: FrameType | None) -> Any:
        """Run the operations of which torch composes one, as it does outside of inference mode."""
        before, self._frame_of_whole = self._frame_of_whole, frame
        try:
            with self:
                return function.decompose(*args, **kwargs)
        finally:
            self._frame_of_whole = before

    def _locate(self, operation: Operation) -> None:
        """Set the operation's call and phase."""
        task = current_backward()
        # Checkpointing leaves a module's second run early, as soon as it has its tensors: then the
        # module still looks as if it ran. The backward itself builds no graph.
        if task == FORWARD or torch.is_grad_enabled():
            running = self._running.innermost()
            if running is not None:
                operation.call, operation.again = running
                return
        if task != FORWARD:
            operation.phase = "backward"
            node = torch._C._current_autograd_node()
            label = _metadata(node).get(_LABEL) if node is not None else None
            if label is not None:
                operation._forward, operation.call = label, label.call

    def _label_nodes(self) -> None:
        """Label the nodes of the previous operation: its outputs had no ``grad_fn`` in its time."""
        tensors, label = self._unlabelled
        for tensor in tensors:
            if tensor.grad_fn is not None:
                _metadata(tensor.grad_fn).setdefault(_LABEL, label)
        self._unlabelled = [], label


def _label_of(operation: Operation) -> _Label:
    if operation.phase == "backward":
        return operation._forward
    return _Label(operation.name, operation.call, operation.known_line)


def _metadata(node: Any) -> dict[str, _Label]:
    """Return the metadata dict of a node in autograd's graph."""
    return node.metadata


def graph_nodes(*first: Any, ends: Iterable[Any] = ()) -> Iterator[Any]:
    """Yield the nodes of autograd's graph from some ``grad_fn`` on, the last operation first."""
    waiting, seen = [*first], {None, *ends}
    for node in waiting:  # grows
        if node not in seen:
            seen.add(node)
            yield node
            waiting += [behind for behind, _ in node.next_functions]


def labelled(node: Any) -> Iterator[tuple[Any, _Label]]:
    """Yield the labelled nodes behind a tensor's ``grad_fn``, the last operation first."""
    for each in graph_nodes(node):
        if (label := _metadata(each).get(_LABEL)) is not None:
            yield each, label


def _overridden(listeners: Iterable[Listener], name: str) -> list[Callable[[Operation], None]]:
    """Return the bound methods of the listeners that override this one."""
    default = getattr(Listener, name)
    return [getattr(one, name) for one in listeners if getattr(type(one), name) is not default]
