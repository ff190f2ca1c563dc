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
    autocast: Callable[[], AbstractContextManager[Any]]
    undo: list[Callable[[], object]]  # restore buffers and random numbers
    gradients: dict[int, Tensor] = field(default_factory=dict)  # that reached each output
    finished: bool = False

    def restore(self) -> None:
        """Restore buffers and random numbers; within a block that puts them back."""
        for restore in self.undo:
            restore()

    def score(self, output: Any, *_: object) -> Tensor | None:
        """Return a score whose gradient at each output is the recorded one."""
        returned = tensors(output)
        weighted = [(returned[i] * sent).sum() for i, sent in self.gradients.items()]
        return sum(weighted[1:], weighted[0]) if weighted else None


@dataclass(frozen=True, eq=False)
class Sum:
    """The sum of absolute values of an output, or of the gradient that reached it or weights.

    Attributes
    ----------
    layer : str
        The layer whose weights a gradient reached; empty for an output of the model.
    phase : str
        ``"forward"``, ``"backward"``, or ``"sent"`` for the gradient of an output of the model.
    value : torch.Tensor
    count : int
        The number of values.
    started : RecordedCall or None
    """

    layer: str
    phase: str
    value: Tensor
    count: int
    started: RecordedCall | None


class LossLog(OperationLog):
    """Records a loss that is computed outside of the model, and its part of the backward."""

    root: Tensor | None = None  #: what backward() was called on
    last: OperationRecord | None = None  #: what made the last single number with a gradient

    def returned(self, outputs: Sequence[Tensor]) -> None:
        """Note which operation made the model's outputs; its layer is not known yet."""
        for tensor in outputs:
            name = title_of(behind_views(tensor.grad_fn))
            extent = range_of(tensor)
            if extent is not None:
                made = name if name in _SOURCES else "output"
                self.makers[tensor] = OperationRecord(-1, made, "", made=(extent,))

    def before(self, operation: Operation) -> None:
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


_SOURCES = {source for _, source in WIRED}
_LOSSES = {name for name, _ in WIRED} | PAIRED


class StepWatch(HookManager):
    """A block that sums up outputs and gradients, and records the loss.

    NaN and Inf that arise within the model are in its output, or in the gradients of its weights.

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
        self.step = WatchedStep()
        self.parameters: dict[str, nn.Parameter] = {}
        self.calls: list[RecordedCall] = []
        self.count = 0
        self.suspected = False  # whether a check suspects what was released
        self._sums: list[Sum] = []
        self._waiting: set[tuple[int, int]] = set()  # outputs that no gradient has reached yet
        self._entering = overridden(checks, "enter")
        super().__init__(self._wanted())

    def _wanted(self) -> Iterator[tuple[nn.Module, str, Callable[..., Any]]]:
        yield self.core, "forward_pre", self._begins
        for module in self.run.names:
            if isinstance(module, ACTING):
                yield module, "forward_pre", self._entered
        yield self.core, "forward", self._ends

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
        if not torch.is_grad_enabled() and (line := no_grad_line(caller()))[0]:
            record = OperationRecord(0, "no_grad", "", file=line[0], line=line[1])
            self.run.check(NoGradient).breaks.append(GraphBreak(record, 0))
        if len(self.calls) >= CHECK_EVERY and not self.hits():
            self._forget()
        device = next((p.device for p in self.parameters.values()), torch.device("cpu"))
        kind, dtype = device.type, torch.get_autocast_dtype(device.type)
        enabled = torch.is_autocast_enabled(kind)
        undo: list[Callable[[], object]] = [
            partial(restore_tensor, b, b.detach().clone()) for b in self.core.buffers()
        ]
        undo.append(partial(random.setstate, random.getstate()))
        undo.append(partial(np.random.set_state, np.random.get_state()))
        undo.append(partial(torch.set_rng_state, torch.get_rng_state()))
        if kind == "cuda":
            state = torch.cuda.get_rng_state(device)
            undo.append(partial(torch.cuda.set_rng_state, state, device))
        self.calls.append(
            RecordedCall(
                args,
                kwargs,
                self._versions(args, kwargs),
                partial(torch.autocast, kind, dtype, enabled),
                undo,
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
            call = LayerCall(self.run.names[module], type_name(module), 0, module, (), ())
            self.run.calls.append(call)
            for enter in self._entering:
                enter(call, tensors((args, kwargs)), self.run)

    def _arrived(self, name: str, gradient: Tensor | None) -> None:
        if gradient is not None:
            self.step.graded.add(name)
            # The gradient of a bias before a norm is next to nothing, and rightly so.
            phase = "backward" if gradient.ndim > 1 else "bias"
            self._add(name.rpartition(".")[0], phase, gradient)

    def _ends(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        started = self.calls[-1]
        started.finished = True
        returned = tensors(output)
        self.log.returned(returned)
        if self.count == 1:
            self._look_at_graph(returned)
        for index, tensor in enumerate(returned):
            self._add("", "forward", tensor)
            if tensor.requires_grad:
                self._waiting.add((id(started), index))
                self.add(tensor, "tensor", partial(self._sent, started, index))
        self.outside.mute(False)

    def _look_at_graph(self, returned: Sequence[Tensor]) -> None:
        """Note the losses and softmaxes in the graph of the model's outputs."""
        for tensor in returned:
            title = title_of(tensor.grad_fn)
            if "softmax" in title and tensor.ndim == 2:
                dim = int(getattr(tensor.grad_fn, "_saved_dim", 1))
                self.step.graph.append((title, "", dim if dim < 1 << 63 else dim - (1 << 64)))
        waiting = [each.grad_fn for each in returned if each.grad_fn is not None]
        known = set(waiting)
        while waiting and len(known) < MOST_NODES:
            node = waiting.pop()
            behind = node.next_functions
            if (title := title_of(node)) in _LOSSES and behind:
                for source in (behind[0][0], behind_views(behind[0][0])):
                    self.step.graph.append((title, title_of(source), None))
            following = {each for each, _ in behind if each is not None} - known
            known |= following
            waiting += following

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

    def _add(self, layer: str, phase: str, tensor: Tensor) -> None:
        if not (tensor.is_floating_point() or tensor.is_complex()) or is_wrapped(tensor):
            return
        # Half precision would overflow in the sum.
        dtype = torch.float32 if tensor.dtype.itemsize < 4 else None
        with _unseen(tensor):
            tensor = tensor.detach()
            if tensor.layout is torch.strided:
                value = torch.linalg.vector_norm(tensor, 1, dtype=dtype)
            else:
                value = tensor.sum(dtype=dtype)
        started = self.calls[-1] if self.calls else None
        self._sums.append(Sum(layer, phase, value, tensor.numel(), started))

    # What the sums say

    def hits(self) -> list[Sum]:
        """Return the sums that are not finite, and note the sizes; all are read at once."""
        devices: dict[torch.device, list[Sum]] = {}
        for each in self._sums:
            devices.setdefault(each.value.device, []).append(each)
        found = []
        for sums in devices.values():
            read = torch.stack([each.value.float() for each in sums]).tolist()
            for each, size in zip(sums, read, strict=True):
                if not math.isfinite(size):
                    found.append(each)
                elif each.phase == "forward" and each.count:
                    self.step.output = max(self.step.output, size / each.count)
                elif each.phase == "backward" and each.count:
                    known = self.step.gradients
                    known[each.layer] = known.get(each.layer, 0.0) + size / each.count
        return sorted(found, key=self._sums.index)

    @property
    def suspect(self) -> bool:
        """True if a check suspects the step."""
        return self.suspected or any(check.suspects(self.step) for check in new_checks())

    @property
    def looked_at(self) -> str:
        """The outputs and gradients that the sums cover, in words."""
        times = "1 call" if self.count == 1 else f"{self.count} calls"
        return f"NaN and Inf in outputs and gradients of the model, in {times}"

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
        synced = any(isinstance(m, nn.SyncBatchNorm) and m.training for m in self.run.names)
        return "the other processes would have to run it, too" if synced else ""

    def release(self) -> None:
        """Release inputs, the graph and the error: findings need none of them."""
        self.calls.clear()
        self._sums.clear()
        self.outside.error = self.log.root = None


def _unseen(tensor: Tensor) -> AbstractContextManager[Any]:
    """Return a block in which no dispatch mode sees what is done with a plain tensor: it is quick.

    One of a subclass needs the dispatch.
    """
    plain = type(tensor) in (Tensor, nn.Parameter)
    return torch._C._DisableTorchDispatch() if plain else nullcontext()


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
