"""A guard around a step of one's own: one sum a layer and direction, read when the block ends.

A sum is not finite if a single number in it is not. Only then is the step's forward run again, from
what it began with, and examined operation by operation.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...hooking.handles import HookManager
from ...hooking.records import is_wrapped
from ...hooking.select import module_names, type_name, unwrapped
from ...hooking.tensors import tensors_in
from ...run.errors import first_sentence
from ...run.inputs import ModelInput
from ...run.session import Session
from .checks import findings_in, looked_at
from .findings import Diagnosis, Finding
from .ignored import Ignored, checked, without
from .model_error import raised_outside
from .nonfinite import SETTLING, SKIPPED, gradient_scale, nan_and_inf
from .observation import Observation, examine
from .optimizer import LOOKED, optimizers

CHECK_EVERY = 16
"""After so many calls of the model in one block the sums are read, and what is well is let go."""


@dataclass(eq=False)
class RecordedCall:
    """One call of the whole model: all that is needed to do it again."""

    args: Any
    kwargs: Any
    versions: list[int]  # of the arguments and the weights
    buffers: list[tuple[Tensor, Tensor]]
    autocast: tuple[str, torch.dtype, bool]
    random: tuple[Any, ...]
    gradients: dict[int, Tensor] = field(default_factory=dict)  # that came to each output
    finished: bool = False

    def restore(self) -> None:
        """Buffers and random numbers as they were; within a block that puts them back."""
        for buffer, before in self.buffers:
            buffer.copy_(before)
        python, legacy, cpu, devices = self.random
        random.setstate(python)
        np.random.set_state(legacy)
        torch.set_rng_state(cpu)
        for device, state in devices.items():
            _rng(device).set_rng_state(state, device)

    def score(self, output: Any, *_: object, scale: float = 1.0) -> Tensor | None:
        """A score whose gradient at each output is the one that came to it, divided by a scale."""
        tensors = [tensor for _, tensor in tensors_in(output)]
        weighted = [(tensors[i] * (sent / scale)).sum() for i, sent in self.gradients.items()]
        return sum(weighted[1:], weighted[0]) if weighted else None


@dataclass(frozen=True, eq=False)
class Sum:
    """The sum of what a layer returned, or of the gradient that reached it."""

    layer: str
    phase: str
    value: Tensor
    started: RecordedCall | None


class Guard(HookManager, Diagnosis):
    """A `Diagnosis` that fills itself when its block ends; `hookviz.diagnose` makes it."""

    def __init__(self, model: nn.Module, optimizer: Any = None, ignore: Ignored = ()) -> None:
        self._model, self._core = model, unwrapped(model)[0]
        self._optimizer = optimizer
        self._names = {module: known[0] for module, known in module_names(model).items()}
        HookManager.__init__(self, self._wanted())
        Diagnosis.__init__(self, type_name(self._core), partial(without, pairs=checked(ignore)))
        self._sums: list[Sum] = []
        self._calls: list[RecordedCall] = []
        self._seen = 0  # calls of the model

    def _wanted(self) -> list[tuple[nn.Module, str, Callable[..., Any]]]:
        hooks: list[Any] = [(self._core, "forward_pre", self._begins)]
        hooks += [(module, "forward", self._returned) for module in self._watched()]
        return [*hooks, (self._core, "forward", self._ends)]

    def _watched(self) -> list[nn.Module]:
        """Convolutions, linear layers and the like: what arises between them passes through them.

        To sum up what norms and activations return as well would cost twice as much.
        """
        inner = [module for module in self._names if module is not self._core]
        eager = [module for module in inner if not isinstance(module, torch.jit.ScriptModule)]
        return [m for m in eager if any(p.ndim > 1 for p in m.parameters(recurse=False))] or eager

    def _begin(self) -> None:
        super()._begin()
        for name, parameter in self._core.named_parameters():
            if parameter.requires_grad:
                self.add(
                    parameter, "tensor", partial(self._add, name.rpartition(".")[0], "backward")
                )

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if error[0] is None or issubclass(error[0], Exception):
            self._conclude(error[1])

    # The hooks

    def _begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._seen += 1
        if len(self._calls) >= CHECK_EVERY and not self._hits():
            self._sums.clear()
            self._calls = [each for each in self._calls if not each.gradients][-CHECK_EVERY:]
        for _, tensor in tensors_in((args, kwargs)):
            if tensor.requires_grad:
                self.add(tensor, "tensor", partial(self._add, "", "backward"))
        device = next((p.device for p in self._core.parameters()), torch.device("cpu"))
        autocast = device.type, torch.get_autocast_dtype(device.type)
        self._calls.append(
            RecordedCall(
                args,
                kwargs,
                self._versions(args, kwargs),
                [(b, b.detach().clone()) for b in self._core.buffers()],
                (*autocast, torch.is_autocast_enabled(device.type)),
                _random_state(device),
            )
        )

    def _versions(self, args: Any, kwargs: Any) -> list[int]:
        given = [tensor for _, tensor in tensors_in((args, kwargs))]
        return [0 if t.is_inference() else t._version for t in (*given, *self._core.parameters())]

    def _returned(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        name = self._names[module]
        # NaN and Inf that reach a layer are in the gradients of its weights, which are smaller.
        frozen = not any(p.requires_grad for p in module.parameters(recurse=False))
        for _, tensor in tensors_in(output):
            self._add(name, "forward", tensor)
            if frozen and tensor.requires_grad:
                self.add(tensor, "tensor", partial(self._add, name, "backward"))

    def _ends(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        started = self._calls[-1] if self._calls else None
        if started is not None:
            started.finished = True
        for index, (_, tensor) in enumerate(tensors_in(output)):
            self._add("", "forward", tensor)
            if tensor.requires_grad and started is not None:
                self.add(tensor, "tensor", partial(self._sent, started, index))

    def _sent(self, started: RecordedCall, index: int, gradient: Tensor | None) -> None:
        if gradient is not None:
            started.gradients[index] = gradient.detach()
            self._add("", "sent", gradient)

    def _add(self, layer: str, phase: str, tensor: Tensor | None) -> None:
        if tensor is None or not (tensor.is_floating_point() or tensor.is_complex()):
            return
        if is_wrapped(tensor):
            return
        # Half precision would overflow in the sum.
        half = tensor.dtype.itemsize < 4
        value = tensor.detach().sum(dtype=torch.float32 if half else None)
        self._sums.append(Sum(layer, phase, value, self._calls[-1] if self._calls else None))

    # When the block is over

    def _hits(self) -> list[Sum]:
        """The sums that are not finite, read at once."""
        devices: dict[torch.device, list[Sum]] = {}
        for each in self._sums:
            devices.setdefault(each.value.device, []).append(each)
        found: set[int] = set()
        for sums in devices.values():
            fine = torch.stack([s.value.abs().to(torch.float32) for s in sums]).isfinite().tolist()
            found |= {id(each) for each, well in zip(sums, fine, strict=True) if not well}
        return [each for each in self._sums if id(each) in found]

    def _conclude(self, error: BaseException | None) -> None:
        hits = self._hits()
        self._sums.clear()
        calls, self._calls = self._calls, []
        layers = f"{len(self._watched())} layers, forward and backward"
        times = "1 call" if self._seen == 1 else f"{self._seen} calls"
        self.settle([], [f"NaN and Inf in {layers}, in {times}"] if self._seen else [])
        if error is not None and calls:
            self._again(calls[-1], None, error)
        elif hits:
            hit = _first(hits)
            self._again(hit.started or (calls[0] if calls else None), hit)
        if self._optimizer is not None and self._seen:
            found = optimizers(self._core, self._optimizer)
            self.settle([*self, *found], [*self.looked_at, LOOKED])
        empty = next((call for call in calls if _is_empty(call.args, call.kwargs)), None)
        if empty is not None:
            self.settle([*self, _EMPTY], self.looked_at)
        if error is not None and not any(each.severity == "error" for each in self):
            ended = calls and not calls[-1].finished
            within = [type_name(self._core)] if ended else []
            self.settle([raised_outside(error, within), *self], self.looked_at)

    def _again(
        self, started: RecordedCall | None, hit: Sum | None, error: BaseException | None = None
    ) -> None:
        """Do the call again and examine it; what cannot be done again is told by its layer."""
        why = "the model was not called within the block"
        if started is not None:
            why = self._changed(started)
        if hit is not None and hit.phase == "sent":
            why = "it came from outside of the model"
        seen: Observation | None = None
        if not why and started is not None:
            try:
                seen = self._examined(started)
            except Exception as other:
                why = f"running it again raised {type(other).__name__}: {first_sentence(other)}"
        found = findings_in(seen) if seen is not None else []
        if error is not None:  # a run that went another way, or not so far, says too little
            found = [each for each in found if seen is not None and seen.error is not None]
        if hit is not None and not any(each.kind in ("nan", "inf") for each in found):
            found.append(_coarse(hit, why or "it did not come again when the call was repeated"))
        self.settle(found, self.looked_at + (looked_at(seen) if seen is not None else []))

    def _changed(self, started: RecordedCall) -> str:
        """Why a call cannot be done again; empty if it can."""
        if self._versions(started.args, started.kwargs) != started.versions:
            return "weights or inputs were changed within the block"
        synced = any(isinstance(m, nn.SyncBatchNorm) and m.training for m in self._names)
        return "the other processes would have to run it, too" if synced else ""

    def _examined(self, started: RecordedCall) -> Observation:
        inputs = ModelInput(tuple(started.args), dict(started.kwargs))
        kind, dtype, enabled = started.autocast
        with torch.autocast(kind, dtype, enabled=enabled):
            session = Session(self._model, inputs)
            again = partial(examine, session, begin=started.restore, told=False)
            seen = again(score_of=started.score)
            first = next(nan_and_inf(seen), None)
            if first is not None and first.phase == "backward" and (scale := gradient_scale()):
                # Only what is well without the scale is the scale's doing.
                unscaled = again(score_of=partial(started.score, scale=scale))
                seen.scale = scale if next(nan_and_inf(unscaled), None) is None else 0.0
        return seen


def _is_empty(args: Any, kwargs: Any) -> bool:
    return any(not tensor.numel() for _, tensor in tensors_in((args, kwargs)))


_EMPTY = Finding(
    "empty",
    "error",
    "The model was called with an empty batch: there is nothing in it to be looked at.",
    "Leave empty batches out; look at how the data are divided into batches.",
)


def _first(hits: list[Sum]) -> Sum:
    """The first, but for what the loss sent: the hook of the last layer sees that before us."""
    sent = (h for h in hits if h.phase == "sent" and h.started is hits[0].started)
    return next(sent, hits[0]) if hits[0].phase == "backward" else hits[0]


def _coarse(hit: Sum, why: str) -> Finding:
    """What is known of a sum that is not finite without the operation."""
    word = "NaN" if bool(hit.value.isnan()) else "Inf"
    if hit.phase == "sent":
        message = (
            f"The gradient that came from the loss to the model's output holds {word} already: it "
            "arose in the loss."
        )
        advice = "Give the loss to see where: diagnose(model, x, lambda output: loss(output, y))."
    else:
        what = "what" if hit.phase == "forward" else "the gradient of what"
        message = (
            f"{word} stands first in {what} {hit.layer or 'the model'!r} returned; which operation "
            f"made it is not known, since {why}."
        )
        advice = "Put optimizer.step() after the block, or call hookviz.diagnose(model, x, loss)."
    severity, phase = "error", "forward" if hit.phase == "forward" else "backward"
    if phase == "backward" and (scale := gradient_scale()):
        severity, advice = "note", SKIPPED
        message += SETTLING.format(scale)
    return Finding(word.lower(), severity, message, advice, hit.layer, phase=phase)


def _rng(device: torch.device) -> Any:
    return getattr(torch, device.type)


def _random_state(device: torch.device) -> tuple[Any, ...]:
    devices = {device: _rng(device).get_rng_state(device)} if device.type == "cuda" else {}
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), devices
