"""A step of training that is only watched: how large outputs and gradients are, and the loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...hooking.handles import HookManager
from ...hooking.select import first_names
from ...hooking.tensors import on_cpu, tensors
from ...hooking.transforms import TRANSFORMS, hiding_transform, is_wrapped
from ...run.errors import caller, no_grad_line
from ...run.recorder import OperationRecorder, graph_nodes
from .check import Check, LayerCall, RunRecord
from .checks.modes import ACTING
from .checks.no_gradient import GraphBreak, NoGradient
from .checks.optimizer import Optimizers, held_by, is_gone
from .examination import batch_size
from .loss_log import LossLog
from .modules import has_weights
from .ranges import real_numbers
from .recorded_call import RecordedCall, recorded_call
from .records import OperationRecord

CHECK_EVERY = 16
"""After this many calls of the model in one block their sizes are read. If all are finite, they are
released."""

UNEVEN, FAR_TOO_LARGE = 1e5, 1e10
"""A step is examined from this ratio of the largest gradients on, between the weights of two
layers, and from this largest value on."""


@dataclass(frozen=True, eq=False)
class Ends:
    """The least and largest value of an output, or of the gradient that reached it or weights."""

    layer: str  # the owner of the weights; empty for an output of the model
    #: "forward", "backward", "bias", "sent" for the gradient of the model's output, or "stored" for
    #: the gradient of weights when the block is over.
    phase: str
    low: Tensor
    high: Tensor
    started: RecordedCall | None

    @property
    def size(self) -> float:
        """The largest absolute value; NaN if there is one."""
        return max(abs(float(self.low)), abs(float(self.high)))


class StepWatch(HookManager):
    """A block that measures outputs and gradients, and records the loss.

    NaN and Inf that arise within the model are in its output, or in the gradients of its weights.

    Attributes
    ----------
    run : RunRecord
        The loss, and the calls of the layers that the checks look at.
    calls : list of RecordedCall
        Those of the model that are not yet known to be finite.
    count : int
        The number of all its calls.
    output : float
        The largest absolute value of an output of the model.
    gradients : dict of str to float
        The largest absolute value of the weights' gradients by layer.
    """

    follows = TRANSFORMS  # a refusal would stop the training

    def __init__(
        self,
        model: nn.Module,
        core: nn.Module,
        checks: list[Check],
        optimizers: Sequence[Any] = (),
    ) -> None:
        self.core, self._optimizers = core, optimizers
        names = first_names(model)
        self.run = RunRecord(model, names, checks, watched=True)
        self.log = LossLog(self.run)
        self.outside = OperationRecorder(self.log, backward=False, follows=TRANSFORMS)
        self.parameters: dict[str, nn.Parameter] = {}
        self.calls: list[RecordedCall] = []
        self.count, self.output = 0, 0.0
        self.gradients: dict[str, float] = {}
        #: The ids of parameters of others from which the first output was computed.
        self.strays: set[int] = set()
        self._measured: list[Ends] = []
        # Those of the gradients that came since the optimizer's last step, by parameter.
        self._came: dict[str, Ends] = {}
        # Calls with NaN or Inf in a weight before the optimizer's step: its name, and which.
        self.broken: dict[RecordedCall | None, tuple[str, str]] = {}
        self._waiting: set[tuple[int, int]] = set()  # outputs that no gradient has reached yet
        super().__init__(self._wanted())

    def _wanted(self) -> Iterator[tuple[nn.Module, str, Callable[..., Any]]]:
        yield self.core, "forward_pre", self._begins
        for module in self.run.names:
            if isinstance(module, ACTING) or has_weights(module):
                yield module, "forward_pre", self._entered
        yield self.core, "forward", self._ends

    def _begin(self) -> None:
        super()._begin()
        self.parameters = dict(self.core.named_parameters())
        for name, parameter in self.parameters.items():
            if parameter.requires_grad:
                self.add(parameter, "tensor", partial(self._arrived, name))
        for optimizer in self._optimizers:
            if hasattr(optimizer, "register_step_pre_hook"):
                self.add(optimizer, "step", self._steps)
        self.exit_stack.enter_context(self.outside)

    # The hooks

    def _begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self.outside.mute(True)
        self.count += 1
        if self.count == 1:
            self.run.samples = batch_size(tensors(args, kwargs))
            self.run.weights = set(map(id, module.parameters()))
        if not torch.is_grad_enabled() and (line := no_grad_line(caller()))[0]:
            record = OperationRecord(0, "no_grad", "", file=line[0], line=line[1])
            self.run.check(NoGradient).breaks.append(GraphBreak(record, 0))
        if len(self.calls) >= CHECK_EVERY and not self.hits():
            self._measured.clear()
            self.run.operations.clear()
            # Calls whose gradient has not come yet stay.
            self.calls = [each for each in self.calls if not each.gradients][-CHECK_EVERY:]
        self.calls.append(recorded_call(self.core, args, kwargs))

    def _entered(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self.count > 1:
            return
        if transform := hiding_transform():
            self.run.hidden_in = transform
        elif isinstance(module, ACTING):
            call = LayerCall(self.run.names[module], 0, module)
            self.run.calls.append(call)
            for check in self.run.checks:
                self.run.show(check.enter, call, tensors(args, kwargs))

    def _arrived(self, name: str, gradient: Tensor | None) -> None:
        if gradient is not None:
            self.run.backward = True
            # The norm is not known; an optimizer's check reads it off the parameter.
            self.run.gradient_norms[name] = 0.0
            # The gradient of a bias before a norm is next to nothing, and rightly so.
            phase = "backward" if gradient.ndim > 1 else "bias"
            ends = self._add(name.rpartition(".")[0], phase, gradient)
            if ends is not None:
                self._came[name] = ends

    def _steps(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note what the step destroys, and gradients that were gone before it."""
        self._note_broken()
        if len(args) > 1 or kwargs.get("closure") is not None:
            return  # the closure runs backward within the step
        names = held_by(optimizer, self.run) & self._came.keys()
        came = {name: self._came.pop(name) for name in names}
        with torch.no_grad(), self.outside.silent():
            gone = all(is_gone(self.parameters[name].grad) for name in names)
            # Gradients with NaN may have been set to zero on purpose.
            if gone and any(0 < each.size < math.inf for each in came.values()):
                self.run.check(Optimizers).gone |= names

    def _note_broken(self) -> None:
        """Find a parameter with NaN or Inf while the weights are still those of the last call."""
        started = self.calls[-1] if self.calls else None
        if started is None or started.changed:
            return
        own = (
            each for each in self._measured if each.started is started and each.phase == "forward"
        )
        if all(math.isfinite(each.size) for each in own):
            return
        for name, parameter in self.parameters.items():
            if not bool(parameter.isfinite().all()):
                self.broken[started] = name, "NaN" if bool(parameter.isnan().any()) else "Inf"
                return

    def _ends(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        started = self.calls[-1]
        started.finished = True
        returned = tensors(output)
        if self.count == 1:
            self.strays = _strays(returned, tensors(args, kwargs), self.parameters.values())
        self.log.returned(returned)
        for index, tensor in enumerate(returned):
            self._add("", "forward", tensor)
            if tensor.requires_grad:
                self._waiting.add((id(started), index))
                self.add(tensor, "tensor", partial(self._sent, started, index))
        self.outside.mute(False)

    def _sent(self, started: RecordedCall, index: int, gradient: Tensor | None) -> None:
        if gradient is None:
            return
        if not is_wrapped(gradient):
            started.gradients[index] = gradient.detach()
            self._add("", "sent", gradient)
            with self.outside.silent():
                self.log.reaches(gradient)
                if gradient.shape[:1] == (self.run.samples,):
                    self.run.output_gradient.add(gradient)
        self._waiting.discard((id(started), index))
        if not self._waiting:  # the loss's part of the backward is over
            self.outside.skip_backward()

    def _add(self, layer: str, phase: str, tensor: Tensor) -> Ends | None:
        numbers = tensor.is_floating_point() or tensor.is_complex()
        if not numbers or is_wrapped(tensor) or not tensor.numel():
            return None
        # Without dispatch modes it is quick; a tensor of a subclass needs them.
        plain = type(tensor) in (Tensor, nn.Parameter)
        with torch._C._DisableTorchDispatch() if plain else nullcontext():
            values = real_numbers(tensor)
            if values.layout is torch.strided:
                low, high = values.aminmax()
            else:
                low = high = values.sum()
        started = self.calls[-1] if self.calls else None
        self._measured.append(Ends(layer, phase, low, high, started))
        return self._measured[-1]

    def measure_stored(self) -> None:
        """Measure the gradients that the block leaves to the optimizer."""
        for name, parameter in self.parameters.items():
            if name in self.run.gradient_norms and parameter.grad is not None:
                self._add(name.rpartition(".")[0], "stored", parameter.grad)

    # Reading the sizes

    def hits(self) -> list[Ends]:
        """Return those that are not finite, and note the sizes of all, which are read together."""
        read = on_cpu([end for each in self._measured for end in (each.low, each.high)])
        self._measured = [
            replace(each, low=low, high=high)
            for each, low, high in zip(self._measured, read[::2], read[1::2], strict=True)
        ]
        for each in self._measured:
            if each.phase == "forward" and math.isfinite(each.size):
                self.output = max(self.output, each.size)
            elif each.phase == "backward" and math.isfinite(each.size):
                self.gradients[each.layer] = max(self.gradients.get(each.layer, 0.0), each.size)
        return [each for each in self._measured if not math.isfinite(each.size)]

    @property
    def suspect(self) -> bool:
        """True if a finite step should be examined.

        Weights lack gradients or are not registered, or sizes are uneven.
        """
        sizes, reached = self.gradients.values(), self.run.gradient_norms
        learning = (name for name, each in self.parameters.items() if each.requires_grad)
        missing = bool(reached) and any(name not in reached for name in learning)
        uneven = not all(sizes) or max(sizes, default=0.0) > UNEVEN * min(sizes, default=0.0)
        return bool(self.strays) or missing or uneven or max((self.output, *sizes)) > FAR_TOO_LARGE

    @property
    def looked_at(self) -> str:
        """The outputs and gradients that were measured, in words."""
        times = "1 call" if self.count == 1 else f"{self.count} calls"
        what = "outputs and gradients" if self.run.scored else "outputs"
        return f"NaN and Inf in {what} of the model, in {times}"

    def settle(self) -> None:
        """Complete the record of the step when the block is over."""
        last = self.log.last
        if last is not None and last.made:
            self.run.score = last.made[0].high
            if not last.finite and last.origin is not None:
                last.origin.reached = "nan" if last.nan else "inf"
        for check in self.run.checks:
            self.run.show(check.finish, self.log.root)

    def changed(self, started: RecordedCall) -> str:
        """Say why a call cannot be repeated; empty if it can."""
        if started.changed:
            return "weights or inputs were changed within the block"
        synced = any(isinstance(m, nn.SyncBatchNorm) and m.training for m in self.run.names)
        return "the other processes would have to run it, too" if synced else ""

    def release(self) -> None:
        """Release inputs, the graph and the error: findings need none of them."""
        self.calls.clear()
        self._measured.clear()
        self.outside.error = self.log.root = None


def _strays(
    outputs: Iterable[Tensor], inputs: Iterable[Tensor], own: Iterable[nn.Parameter]
) -> set[int]:
    """Return the ids of parameters, other than these, from which a model computed its outputs."""
    ends = (each.grad_fn for each in inputs)
    nodes = graph_nodes(*(each.grad_fn for each in outputs), ends=ends)
    variables = (getattr(node, "variable", None) for node in nodes)
    return {id(v) for v in variables if isinstance(v, nn.Parameter)} - set(map(id, own))
