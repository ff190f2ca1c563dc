"""A step of training that is only watched: what it costs little to see."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...hooking.checkpoint import FORWARD, current_backward
from ...hooking.handles import HookManager
from ...hooking.select import module_names, type_name
from ...hooking.tensors import tensors
from ...hooking.transforms import TRANSFORMS, hiding_transform, is_wrapped
from ...run.errors import caller, no_grad_line
from ...run.recorder import Operation, OperationRecorder
from ...run.state import restore_tensor
from .all_checks import new_checks
from .check import Check, LayerCall, RunRecord, overridden
from .checks.loss import PAIRED, WIRED
from .checks.modes import ACTING
from .checks.no_gradient import GraphBreak, NoGradient
from .examination import OperationLog, batch_size
from .records import OperationRecord, range_of
from .step import WatchedStep

CHECK_EVERY = 16
"""After this many calls of the model in one block the sums are read, and what is finite is
released."""
MOST_NODES = 4096
"""The number of nodes of autograd's graph that are looked at."""


@dataclass(eq=False)
class RecordedCall:
    """One call of the whole model: all that is needed to repeat it."""

    args: Any
    kwargs: Any
    versions: list[int]  # of the arguments and the weights
    buffers: list[tuple[Tensor, Tensor]]
    autocast: tuple[str, torch.dtype, bool]
    random: tuple[Any, ...]
    gradients: dict[int, Tensor] = field(default_factory=dict)  # that reached each output
    finished: bool = False

    def restore(self) -> None:
        """Restore buffers and random numbers; within a block that puts them back."""
        for buffer, before in self.buffers:
            restore_tensor(buffer, before)
        python, legacy, cpu, devices = self.random
        random.setstate(python)
        np.random.set_state(legacy)
        torch.set_rng_state(cpu)
        for device, state in devices.items():
            _rng(device).set_rng_state(state, device)

    def score(self, output: Any, *_: object, scale: float = 1.0) -> Tensor | None:
        """Return a score whose gradient at each output is the recorded one, divided by a scale."""
        returned = tensors(output)
        weighted = [(returned[i] * (sent / scale)).sum() for i, sent in self.gradients.items()]
        return sum(weighted[1:], weighted[0]) if weighted else None


@dataclass(frozen=True, eq=False)
class Sum:
    """The sum of a layer's output, or of the gradient that reached it.

    With a ``count`` it is one of absolute values, of this many numbers.
    """

    layer: str
    phase: str
    value: Tensor
    started: RecordedCall | None
    count: int = 0


class LossLog(OperationLog):
    """Records a loss that is computed outside of the model, and its part of the backward."""

    root: Tensor | None = None  #: what backward() was called on
    last: OperationRecord | None = None  #: what made the last single number with a gradient
    ran_backward = False

    def returned(self, outputs: Sequence[Tensor]) -> None:
        """Note which operation made the model's outputs; its layer is not known yet."""
        for tensor in outputs:
            name = title_of(behind_views(tensor.grad_fn))
            extent = range_of(tensor)
            if extent is not None:
                made = name if name in _SOURCES else "output"
                self.makers[tensor] = OperationRecord(-1, made, "", made=(extent,))

    def before(self, operation: Operation) -> None:
        self.ran_backward |= current_backward() != FORWARD
        if operation.phase == "backward" and not operation.labelled:  # the model's part
            operation.notes[self] = None
        else:
            super().before(operation)

    def after(self, operation: Operation) -> None:
        if operation.phase == "forward" and operation.name == "ones_like":
            given = operation.inputs[0]
            if not given.ndim:  # the gradient that backward() begins with
                self.root = given
                return
        super().after(operation)
        outputs = operation.outputs
        graded = any(each.requires_grad for each in operation.inputs)
        if operation.phase == "forward" and outputs and not outputs[0].ndim and graded:
            self.last = self.makers.get(outputs[0]) or self.last

    def release(self) -> None:
        """Release all tensors."""
        self.root = None


_SOURCES = {source for _, source in WIRED}
_LOSSES = {name for name, _ in WIRED} | PAIRED


class StepWatch(HookManager):
    """A block that takes one sum of each layer's output and gradient, and records the loss.

    Convolutions, linear layers and the like are watched: NaN and Inf that arise between them pass
    through them. Watching norms and activations as well would cost twice as much.

    Attributes
    ----------
    run : RunRecord
        The loss, and the calls of the layers that the checks look at.
    step : WatchedStep
    calls : list of RecordedCall
        Those of the model that are not yet known to be finite.
    count : int
        The number of all its calls.
    """

    follows = TRANSFORMS  # a refusal would stop the training

    def __init__(self, model: nn.Module, core: nn.Module, checks: list[Check]) -> None:
        self.core = core
        names = {module: known[0] for module, known in module_names(model).items()}
        self.run = RunRecord(model, names, checks, watched=True)
        self.log = LossLog(self.run)
        self.outside = OperationRecorder(self.log, backward=False, follows=TRANSFORMS)
        self.step = WatchedStep(names)
        self.parameters = dict(core.named_parameters())
        self.step.learning = {name for name, p in self.parameters.items() if p.requires_grad}
        self.layers = self._watched()
        self.calls: list[RecordedCall] = []
        self.count = 0
        self.hidden: dict[str, str] = {}  # layers within a transform of torch.func -> its name
        self.suspected = False  # whether a check suspects what was released
        self._sums: list[Sum] = []
        self._made: dict[Any, Sum] = {}  # autograd's node -> what a layer returned
        self._bounded: list[tuple[str, Sum]] = []
        self._waiting: set[tuple[int, int]] = set()  # outputs that no gradient has reached yet
        self._entering = overridden(checks, "enter")
        super().__init__(self._wanted())

    def _wanted(self) -> Iterator[tuple[nn.Module, str, Callable[..., Any]]]:
        yield self.core, "forward_pre", self._begins
        for module in self.step.names:
            if isinstance(module, ACTING):
                yield module, "forward_pre", self._entered
        for module in self.layers:
            yield module, "forward", self._returned
        yield self.core, "forward", self._ends

    def _watched(self) -> list[nn.Module]:
        inner = [module for module in self.step.names if module is not self.core]
        eager = [module for module in inner if not isinstance(module, torch.jit.ScriptModule)]
        return [m for m in eager if any(p.ndim > 1 for p in _own(m))] or eager

    def _begin(self) -> None:
        super()._begin()
        self.parameters = dict(self.core.named_parameters())
        self.step.learning = {name for name, p in self.parameters.items() if p.requires_grad}
        for name in self.step.learning:
            self.add(self.parameters[name], "tensor", partial(self._arrived, name))
        self.exit_stack.enter_context(self.outside)

    # The hooks

    def _begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self.outside.mute(True)
        self.count += 1
        given = tensors((args, kwargs))
        if self.count == 1:
            self.run.samples = batch_size(given)
        if not torch.is_grad_enabled():
            line = no_grad_line(caller())
            if line[0]:
                record = OperationRecord(0, "no_grad", "", file=line[0], line=line[1])
                self.run.check(NoGradient).breaks.append(GraphBreak(record, 0))
        if len(self.calls) >= CHECK_EVERY and not self.hits():
            self._forget()
        for tensor in given:
            if tensor.requires_grad:
                self.add(tensor, "tensor", partial(self._add, "", "backward"))
        device = next((p.device for p in self.parameters.values()), torch.device("cpu"))
        autocast = device.type, torch.get_autocast_dtype(device.type)
        self.calls.append(
            RecordedCall(
                args,
                kwargs,
                self._versions(args, kwargs),
                [(b, b.detach().clone()) for b in self.core.buffers()],
                (*autocast, torch.is_autocast_enabled(device.type)),
                _random_state(device),
            )
        )

    def _forget(self) -> None:
        """Release what is finite; calls whose gradient has not come yet stay."""
        self.suspected |= self.suspect
        self._sums.clear()
        self.run.operations.clear()
        self.calls = [each for each in self.calls if not each.gradients][-CHECK_EVERY:]

    def _versions(self, args: Any, kwargs: Any) -> list[int]:
        given = tensors((args, kwargs))
        return [0 if t.is_inference() else t._version for t in (*given, *self.parameters.values())]

    def _entered(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self.count == 1 and not hiding_transform():
            call = self._note_call(module)
            for enter in self._entering:
                enter(call, tensors((args, kwargs)), self.run)

    def _note_call(self, module: nn.Module) -> LayerCall:
        name = self.step.names[module]
        call = LayerCall(name, type_name(module), 0, module, (), ())
        self.run.calls.append(call)
        return call

    def _returned(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        name = self.step.names[module]
        if transform := hiding_transform():
            self.hidden[name] = transform
            return
        if self.count == 1:
            self._note_call(module)
        # NaN and Inf that reach a layer are in the gradients of its weights, which are smaller.
        frozen = not any(p.requires_grad for p in _own(module))
        for tensor in tensors(output):
            self._add(name, "forward", tensor, sized=True)
            if self.count == 1 and tensor.grad_fn is not None and self._sums:
                self._made[tensor.grad_fn] = self._sums[-1]
            if frozen and tensor.requires_grad:
                self.add(tensor, "tensor", partial(self._add, name, "backward"))

    def _arrived(self, name: str, gradient: Tensor | None) -> None:
        if gradient is not None:
            self.step.graded.add(name)
            # The gradient of a bias before a norm is next to nothing, and rightly so.
            self._add(name.rpartition(".")[0], "backward", gradient, sized=gradient.ndim > 1)

    def _ends(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        started = self.calls[-1] if self.calls else None
        if started is not None:
            started.finished = True
        returned = tensors(output)
        self.log.returned(returned)
        if self.count == 1:
            self._look_at_graph(returned)
        for index, tensor in enumerate(returned):
            self._add("", "forward", tensor)
            if tensor.requires_grad and started is not None:
                self._waiting.add((id(started), index))
                self.add(tensor, "tensor", partial(self._sent, started, index))
        self.outside.mute(False)

    def _look_at_graph(self, returned: Sequence[Tensor]) -> None:
        """Note the losses, softmaxes, sigmoids and tanhs in the graph of the model's outputs."""
        for tensor in returned:
            title = title_of(tensor.grad_fn)
            if "softmax" in title and tensor.ndim == 2:
                dim = int(getattr(tensor.grad_fn, "_saved_dim", 1))
                self.step.graph.append((title, "", dim if dim < 1 << 63 else dim - (1 << 64)))
        waiting = [each.grad_fn for each in returned if each.grad_fn is not None]
        known, first = set(waiting), {behind_views(each) for each in waiting}
        while waiting and len(known) < MOST_NODES:
            node = waiting.pop()
            behind = node.next_functions
            title = title_of(node)
            if title in _LOSSES and behind:
                for source in (behind[0][0], behind_views(behind[0][0])):
                    self.step.graph.append((title, title_of(source), None))
            if title in ("sigmoid", "tanh") and node not in first and behind:
                made = self._made.get(behind_views(behind[0][0]))
                if made is not None:
                    self._bounded.append((title, made))
            following = {each for each, _ in behind if each is not None} - known
            known |= following
            waiting += following
        self._made = {}

    def _sent(self, started: RecordedCall, index: int, gradient: Tensor | None) -> None:
        if gradient is not None:
            started.gradients[index] = gradient.detach()
            self._add("", "sent", gradient)
            with self.outside.silent():
                self.log.reaches(gradient)
                if gradient.shape[:1] == (self.run.samples,):
                    self.run.output_gradient.add(gradient)
            self._waiting.discard((id(started), index))
            if not self._waiting:  # the loss's part of the backward is over
                self.outside.skip_backward()

    def _add(self, layer: str, phase: str, tensor: Tensor | None, *, sized: bool = False) -> None:
        if tensor is None or not (tensor.is_floating_point() or tensor.is_complex()):
            return
        if is_wrapped(tensor):
            return
        # Half precision would overflow in the sum.
        dtype = torch.float32 if tensor.dtype.itemsize < 4 else None
        with _unseen(tensor):
            tensor = tensor.detach() if tensor.requires_grad else tensor
            if sized and tensor.layout is torch.strided:
                value = torch.linalg.vector_norm(tensor, 1, dtype=dtype)
            else:
                value = tensor.sum(dtype=dtype)
        started = self.calls[-1] if self.calls else None
        self._sums.append(Sum(layer, phase, value, started, tensor.numel() if sized else 0))

    # What the sums say

    def hits(self) -> list[Sum]:
        """Return the sums that are not finite, and note the sizes; all are read at once."""
        devices: dict[torch.device, list[Sum]] = {}
        for each in self._sums:
            devices.setdefault(each.value.device, []).append(each)
        sizes: dict[Sum, float] = {}
        for sums in devices.values():
            values = [s.value.abs() if s.value.is_complex() else s.value for s in sums]
            alike = values if len({v.dtype for v in values}) == 1 else [v.float() for v in values]
            read = torch.stack(alike).float().abs().tolist()
            sizes |= dict(zip(sums, read, strict=True))
        means = {"forward": self.step.activations, "backward": self.step.gradients}
        for each, size in sizes.items():
            if each.count:
                known = means[each.phase]
                known[each.layer] = known.get(each.layer, 0.0) + size / each.count
        self.step.bounded += [
            (title, sizes[each] / each.count) for title, each in self._bounded if each in sizes
        ]
        self._bounded = []
        return [each for each in self._sums if not math.isfinite(sizes[each])]

    @property
    def suspect(self) -> bool:
        """True if a check suspects the step."""
        return self.suspected or any(check.suspects(self.step) for check in new_checks())

    @property
    def looked_at(self) -> str:
        """The layers and calls that the sums cover, in words."""
        layers = f"{len(self.layers)} layers, forward and backward"
        for name, transform in list(self.hidden.items())[:1]:
            layers += f" (but not where they run within {transform}, as {name!r} does)"
        times = "1 call" if self.count == 1 else f"{self.count} calls"
        return f"NaN and Inf in {layers}, in {times}"

    def settle(self) -> None:
        """Complete the record of the step when the block is over."""
        run, last = self.run, self.log.last
        run.backward = bool(self.step.graded)
        # The norms are not known; an optimizer's check reads them off the parameters.
        run.gradient_norms = dict.fromkeys(self.step.graded, 0.0)
        if last is not None and last.made:
            run.score = last.made[0].high
            if not last.finite and last.origin is not None:
                last.origin.reached = "nan" if last.nan else "inf"
        for check in run.checks:
            check.finish(self.log.root, run)

    def changed(self, started: RecordedCall) -> str:
        """Say why a call cannot be repeated; empty if it can."""
        if self._versions(started.args, started.kwargs) != started.versions:
            return "weights or inputs were changed within the block"
        synced = any(isinstance(m, nn.SyncBatchNorm) and m.training for m in self.step.names)
        return "the other processes would have to run it, too" if synced else ""

    def release(self) -> None:
        """Release inputs, the graph and the error: findings need none of them."""
        self._made, self._bounded, self.calls = {}, [], []
        self._sums.clear()
        self.outside.error = None
        self.log.release()


def _unseen(tensor: Tensor) -> AbstractContextManager[Any]:
    """Return a block in which no dispatch mode sees what is done with a plain tensor: it is quick.

    One of a subclass needs the dispatch.
    """
    plain = type(tensor) in (Tensor, nn.Parameter)
    return torch._C._DisableTorchDispatch() if plain else nullcontext()


def _own(module: nn.Module) -> list[nn.Parameter]:
    """Return a module's own parameters, without torch's walk through all modules within."""
    return [each for each in module._parameters.values() if each is not None]


def title_of(node: Any) -> str:
    """Name the operation whose gradient a node of autograd's graph computes."""
    return _title(type(node).__name__) if node is not None else ""


@cache
def _title(name: str) -> str:
    title = re.sub("(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Backward0")).lower()
    return "nll_loss_forward" if title == "nll_loss" else title


def behind_views(node: Any) -> Any:
    """Return the node that made the values of which this one makes a view, as ``squeeze`` does."""
    while node is not None and _VIEW.match(type(node).__name__) and node.next_functions:
        node = node.next_functions[0][0]
    return node


_VIEW = re.compile(
    "(View|UnsafeView|ReshapeAlias|Squeeze|Unsqueeze|Select|Slice|Transpose|Permute|T|Alias)"
    r"Backward\d$"
)


def _rng(device: torch.device) -> Any:
    return getattr(torch, device.type)


def _random_state(device: torch.device) -> tuple[Any, ...]:
    devices = {device: _rng(device).get_rng_state(device)} if device.type == "cuda" else {}
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), devices
