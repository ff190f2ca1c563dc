"""A guard around a step of one's own: one sum a layer and direction, read when the block ends.

A sum is not finite if a single number in it is not. Only then, or if weights get no gradient, is
the step's forward run again, from what it began with, and examined operation by operation.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from ...hooking.handles import HookManager
from ...hooking.select import module_names, type_name, unwrapped
from ...hooking.tensors import tensors
from ...hooking.transforms import TRANSFORMS, hiding_transform, is_wrapped
from ...hooking.weights import stored_tensor
from ...run.errors import caller, first_sentence, message_of, no_grad_line
from ...run.inputs import ModelInput
from ...run.recorder import OperationRecorder
from ...run.session import Session
from ...run.state import restore_tensor
from ..graph.graph import failing
from ..graph.page import drawing
from .causes import causes_alone
from .checks import findings_in, looked_at
from .findings import Diagnosis, Finding, Ignored, checked, without
from .loss import LOOKED, LossListener, behind_views, held_by, wiring, with_optimizers
from .loss_scale import LossScale, loss_scale, made_half
from .model_error import (
    WRONG_ARGUMENTS,
    no_grad_at,
    no_graph,
    overwritten,
    place_of,
    raised_outside,
)
from .nonfinite import explaining_scale, lost_in_loss
from .observation import Observation, batch_size, examine, plain_values
from .operations import OUTSIDE, OperationRecord, away_from, moments
from .train_eval import modes_apart
from .unused import cut_off, not_learning, set_again
from .values import LINEAR, off_scale, one_under_many_names

_LOST = "nan", "inf"
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
    """The sum of what a layer returned, or of the gradient that reached it.

    Where it tells how large they are, too, it is one of absolute values, of so many numbers.
    """

    layer: str
    phase: str
    value: Tensor
    started: RecordedCall | None
    count: int = 0


class Guard(HookManager, Diagnosis):
    """A `Diagnosis` that fills itself when its block ends; `hookviz.diagnose` makes it."""

    follows = TRANSFORMS  # a refusal would stop the training

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Any] = (),
        scaler: Any = None,
        ignore: Ignored = (),
    ) -> None:
        self._model, self._core = model, unwrapped(model)[0]
        self._optimizers, self._scaler = optimizers, scaler
        self._names = {module: known[0] for module, known in module_names(model).items()}
        self._acting: dict[nn.Module, str] = {
            m: n for m, n in self._names.items() if isinstance(m, (_BatchNorm, _DropoutNd))
        }
        HookManager.__init__(self, self._wanted())
        Diagnosis.__init__(self, type_name(self._core), partial(without, pairs=checked(ignore)))
        self._sums: list[Sum] = []
        self._hidden: dict[str, str] = {}  # layers within a transform of torch.func -> its name
        self._loss = LossListener()
        self._outside = OperationRecorder(self._loss, backward=False, follows=TRANSFORMS)
        self._modes: dict[str, Finding] = {}
        self._scales: dict[nn.Module, tuple[Tensor, int]] = {}  # of the first BatchNorm
        self._first = True  # whether no BatchNorm has run in this call
        self._uneven = False  # whether a layer's numbers are far too large, or than another's
        self._made: dict[Any, Sum] = {}  # what made it in autograd's graph -> what a layer returned
        self._bounded: list[tuple[Sum, float]] = []  # what goes into sigmoids and tanhs, and a size
        self._saturated = False  # whether such a size is reached
        self._samples = 1  # of the first call
        self._idle = False  # whether the gradient of a layer's weights is 0
        self._graded: set[str] = set()  # the parameters that a gradient reached
        self._ungraded = "", 0  # the line of the no_grad() under which the model was called last
        self._parameters: dict[str, nn.Parameter] = {}
        self._waiting: set[tuple[int, int]] = set()  # outputs to which no gradient has come yet
        self._calls: list[RecordedCall] = []
        self._seen = 0  # calls of the model

    def _wanted(self) -> list[tuple[nn.Module, str, Callable[..., Any]]]:
        hooks: list[Any] = [(self._core, "forward_pre", self._begins)]
        norms = [m for m in self._acting if isinstance(m, _BatchNorm)]
        hooks += [(module, "forward_pre", self._normed) for module in norms]
        watched = self._watched()
        self._count = len(watched)
        hooks += [(module, "forward", self._returned) for module in watched]
        return [*hooks, (self._core, "forward", self._ends)]

    def _watched(self) -> list[nn.Module]:
        """Convolutions, linear layers and the like: what arises between them passes through them.

        To sum up what norms and activations return as well would cost twice as much.
        """
        inner = [module for module in self._names if module is not self._core]
        eager = [module for module in inner if not isinstance(module, torch.jit.ScriptModule)]
        return [m for m in eager if any(p.ndim > 1 for p in _own(m))] or eager

    def _begin(self) -> None:
        super()._begin()
        self._parameters = dict(self._core.named_parameters())
        for name, parameter in self._parameters.items():
            if parameter.requires_grad:
                self.add(parameter, "tensor", partial(self._arrived, name))
        self.exit_stack.enter_context(self._outside)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if error[0] is None or issubclass(error[0], Exception):
            self._conclude(error[1])
        self._release()

    def _release(self) -> None:
        """Let go of inputs, the graph and what was raised: who keeps the findings needs none."""
        self._made, self._bounded, self._outside.error = {}, [], None
        self._loss.release()

    # The hooks

    def _begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._outside.mute(True)
        self._seen += 1
        self._first = True
        self._ungraded = ("", 0) if torch.is_grad_enabled() else no_grad_line(caller())
        for each in modes_apart(self._core.training, self._acting):
            self._modes.setdefault(each.message, each)
        if len(self._calls) >= CHECK_EVERY and not self._hits():
            self._sums.clear()
            self._loss.forget()
            self._calls = [each for each in self._calls if not each.gradients][-CHECK_EVERY:]
        for tensor in tensors((args, kwargs)):
            if tensor.requires_grad:
                self.add(tensor, "tensor", partial(self._add, "", "backward"))
        device = next((p.device for p in self._parameters.values()), torch.device("cpu"))
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
        given = tensors((args, kwargs))
        return [0 if t.is_inference() else t._version for t in (*given, *self._parameters.values())]

    def _returned(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        name = self._names[module]
        if transform := hiding_transform():
            self._hidden[name] = transform
            return
        # NaN and Inf that reach a layer are in the gradients of its weights, which are smaller.
        frozen = not any(p.requires_grad for p in _own(module))
        for tensor in tensors(output):
            self._add(name, "forward", tensor, sized=True)
            if self._seen == 1 and tensor.grad_fn is not None and self._sums:
                self._made[tensor.grad_fn] = self._sums[-1]
            if frozen and tensor.requires_grad:
                self.add(tensor, "tensor", partial(self._add, name, "backward"))

    def _normed(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Compare what the first BatchNorm is given with what it has seen in training."""
        mean, variance = module.running_mean, module.running_var
        batch = next(iter(tensors((args, kwargs))), None)
        usual = batch is not None and batch.ndim > 1 and not is_wrapped(batch)
        if self._first and usual and isinstance(mean, Tensor) and isinstance(variance, Tensor):
            assert batch is not None
            with torch.no_grad():
                eps = float(module.eps)  # type: ignore[arg-type]
                away = away_from(*moments(batch), mean, variance, eps)
            if away is not None:
                self._scales[module] = away, len(batch)
        self._first = False

    def _arrived(self, name: str, gradient: Tensor | None) -> None:
        if gradient is not None:
            self._graded.add(name)
            # A bias before a norm gets next to nothing, and rightly.
            self._add(name.rpartition(".")[0], "backward", gradient, sized=gradient.ndim > 1)

    def _ends(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        started = self._calls[-1] if self._calls else None
        if started is not None:
            started.finished = True
        returned = tensors(output)
        self._loss.returned(returned)
        if self._made:
            graded = [tensor.grad_fn for tensor in returned]
            self._bounded, self._made = [*_before_ends(graded, self._made)], {}
        for index, tensor in enumerate(returned):
            self._add("", "forward", tensor)
            if tensor.requires_grad and started is not None:
                self._waiting.add((id(started), index))
                self.add(tensor, "tensor", partial(self._sent, started, index))
        self._outside.mute(False)

    def _sent(self, started: RecordedCall, index: int, gradient: Tensor | None) -> None:
        if gradient is not None:
            started.gradients[index] = gradient.detach()
            self._add("", "sent", gradient)
            self._waiting.discard((id(started), index))
            if not self._waiting:  # the loss's part of the backward is over
                self._outside.skip_backward()

    def _add(self, layer: str, phase: str, tensor: Tensor | None, *, sized: bool = False) -> None:
        if tensor is None or not (tensor.is_floating_point() or tensor.is_complex()):
            return
        if is_wrapped(tensor):
            return
        # Half precision would overflow in the sum.
        kind = torch.float32 if tensor.dtype.itemsize < 4 else None
        with _unseen(tensor):
            tensor = tensor.detach() if tensor.requires_grad else tensor
            if sized and tensor.layout is torch.strided:
                value = torch.linalg.vector_norm(tensor, 1, dtype=kind)
            else:
                value = tensor.sum(dtype=kind)
        started = self._calls[-1] if self._calls else None
        self._sums.append(Sum(layer, phase, value, started, tensor.numel() if sized else 0))

    # When the block is over

    def _hits(self) -> list[Sum]:
        """Return the sums that are not finite, read at once."""
        devices: dict[torch.device, list[Sum]] = {}
        for each in self._sums:
            devices.setdefault(each.value.device, []).append(each)
        found: set[int] = set()
        means: dict[str, dict[str, float]] = {"forward": {}, "backward": {}}
        read: dict[Sum, float] = {}
        for sums in devices.values():
            values = [s.value.abs() if s.value.is_complex() else s.value for s in sums]
            kinds = {value.dtype for value in values}
            alike = values if len(kinds) == 1 else [value.to(torch.float32) for value in values]
            sizes = torch.stack(alike).float().abs().tolist()
            for each, size in zip(sums, sizes, strict=True):
                if not math.isfinite(size):
                    found.add(id(each))
                if each.count:
                    known = means[each.phase]
                    known[each.layer] = known.get(each.layer, 0.0) + size / each.count
                    read[each] = size / each.count
        self._idle = not all(means["backward"].values())
        for known in means.values():
            sizes = [each for each in known.values() if each and math.isfinite(each)]
            large = bool(sizes) and max(sizes) > min(UNEVEN * min(sizes), FAR_TOO_LARGE)
            self._uneven |= large
        self._saturated |= any(read.get(each, 0.0) > size for each, size in self._bounded)
        return [each for each in self._sums if id(each) in found]

    def _conclude(self, error: BaseException | None) -> None:
        if self._loss.last is not None:
            self._add("", "sent", self._loss.last)
        hits = self._hits()
        self._sums.clear()
        calls, self._calls = self._calls, []
        layers = f"{self._count} layers, forward and backward"
        for name, transform in list(self._hidden.items())[:1]:
            layers += f" (but not where they run within {transform}, as {name!r} does)"
        times = "1 call" if self._seen == 1 else f"{self._seen} calls"
        self.set_findings([], [f"NaN and Inf in {layers}, in {times}"] if self._seen else [])
        if error is not None and calls:
            own = [each for each in hits if each.started is calls[-1]]
            self._again(calls[-1], _first(own) if own else None, error)
        elif hits:
            hit = _first(hits)
            self._again(hit.started or (calls[0] if calls else None), hit)
        else:
            self._look(calls)
        if self._optimizers and self._seen:
            slopes, samples = dict.fromkeys(self._graded), self._samples * self._seen
            found = with_optimizers(self, self._core, self._optimizers, slopes, samples)
            self.set_findings(found, [*self.looked_at, LOOKED])
        empty = next((call for call in calls if _is_empty(call.args, call.kwargs)), None)
        if empty is not None:
            others = [each for each in self if each.kind != "nan"]  # a mean over nothing
            self.set_findings([_EMPTY, *others], self.looked_at)
        told = any(each.severity == "error" and each.kind not in _LOST for each in self)
        if error is not None and not told:
            ended = calls and not calls[-1].finished
            within = [type_name(self._core)] if ended else []
            stepped = bool(calls) and bool(self._changed(calls[-1]))
            cut = self._loss.cut
            if calls and "does not require grad" in message_of(error):
                cut = self._cut_at(calls[-1])
            write = None if stepped else self._loss.overwritten(error)
            outside = raised_outside(error, within, cut, stepped=stepped)
            outside = outside if write is None else overwritten(error, *write)
            lost = [each for each in self if each.kind in _LOST]  # what the loss will not take
            others = [each for each in self if each.kind not in _LOST]
            self.set_findings([*lost, outside, *others], self.looked_at)

    def _look(self, calls: list[RecordedCall]) -> None:
        """Tell what is finite and wrong: modes, the input's scale, losses, missing gradients."""
        if not calls:
            return
        known = Observation(self._model, self._names)
        known.operations = self._loss.operations
        given = tensors((calls[0].args, calls[0].kwargs))
        known.samples = batch_size(given)
        self._samples = known.samples
        found = [*self._modes.values(), *self._off_scale(), *wiring(known)]
        found += [*one_under_many_names(known), *set_again(self._model)]
        found += not_learning(self._parameters) if self._graded else ()
        wired = [each.facts["wired"] for each in known.operations if "wired" in each.facts]
        lacking = self._lacking() or self._uneven or self._saturated or _suspicious(self._names)
        if not self._graded and self._loss.cut_off() and self._learns():
            found.append(cut_off(self._cut_at(calls[-1])))
        if (lacking or wired or self._loss.doubtful) and not self._changed(calls[-1]):
            with suppress(Exception):  # what it does only once is not told
                seen = self._examined(calls[-1])
                seen.optimized = [held_by(each, self._core) for each in self._optimizers]
                seen.zeroed = self._loss.zeroed
                for made in wired:
                    _locate(made, seen)
                found = [each for each in found if each.kind != "loss"]
                found += [*wiring(known), *wiring(seen)]
                if lacking:
                    told = {(each.kind, each.layer) for each in found}
                    more = [each for each in findings_in(seen) if each.severity != "note"]
                    found += [each for each in more if (each.kind, each.layer) not in told]
        looked = ["the modes of BatchNorm and dropout", "how losses are wired"]
        looked += ["the scale of the input"] * bool(self._scales)
        looked += ["weights that no gradient reaches"] * bool(self._graded)
        self.set_findings([*self, *causes_alone(found)], [*self.looked_at, *looked])

    def _cut_at(self, started: RecordedCall) -> OperationRecord | None:
        """Return what ends the loss's graph: behind the model, around it, or in it."""
        return self._loss.cut or no_grad_at(self._ungraded) or self._cut_within(started)

    def _cut_within(self, started: RecordedCall) -> OperationRecord | None:
        """Return what keeps the model's output without a graph, if running it again shows it."""
        with suppress(Exception):
            return no_graph(self._examined(started))
        return None

    def _off_scale(self) -> Iterator[Finding]:
        for module, (away, count) in self._scales.items():
            shift, spread = away.tolist()
            yield from off_scale(module, self._names[module], shift, spread, count)

    def _lacking(self) -> bool:
        """Return True if there was a backward and some weights have no part in it."""
        missing = self._learns() - self._graded
        return bool(self._graded) and (self._idle or bool(missing))

    def _learns(self) -> set[str]:
        """Return the names of the parameters that are not frozen."""
        return {name for name, each in self._parameters.items() if each.requires_grad}

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
                if seen.error is not None:
                    self._draw(started)
            except Exception as other:
                why = f"running it again raised {type(other).__name__}: {first_sentence(other)}"
        found = findings_in(seen) if seen is not None else []
        raised = seen is not None and seen.error is not None
        if error is not None and raised:
            there = place_of(error)
            called = there["line"] and WRONG_ARGUMENTS.search(message_of(error))
            found = [replace(e, **there) if called or not e.line else e for e in found]
        elif error is not None:  # a run that went another way, or not so far, says too little
            found = [each for each in found if hit is not None and each.kind in _LOST]
        # What explodes may be too large for its sum alone.
        lost = [e for e in found if e.kind in (*_LOST, "exploding")]
        if hit is not None and not lost and not (error is not None and raised):
            within = self._in_loss() if hit.phase == "sent" else None
            again = why or "it did not come again when the call was repeated"
            found.append(within or _coarse(hit, again, self._scale_of(hit)))
        self.set_findings(found, self.looked_at + (looked_at(seen) if seen is not None else []))

    def _in_loss(self) -> Finding | None:
        """Name the operation of the loss in which NaN or Inf arose, if it was seen."""
        origin, operations = self._loss.lost()
        if origin is None:
            return None
        known = Observation(self._model, self._names, operations=operations)
        known.scale = loss_scale(self._scaler, made_half(origin))
        return lost_in_loss(origin, known)

    def _scale_of(self, hit: Sum) -> LossScale | None:
        """Return the loss scale that may explain a sum that is not finite."""
        if hit.phase == "forward":
            return None
        half = any(each.dtype is torch.float16 for each in self._parameters.values())
        if hit.started is not None:
            _, dtype, enabled = hit.started.autocast
            half |= enabled and dtype is torch.float16
        loss = self._loss.last
        finite = loss is None or bool(loss.isfinite())
        return loss_scale(self._scaler, half and finite)

    def _changed(self, started: RecordedCall) -> str:
        """Why a call cannot be done again; empty if it can."""
        if self._versions(started.args, started.kwargs) != started.versions:
            return "weights or inputs were changed within the block"
        synced = any(isinstance(m, nn.SyncBatchNorm) and m.training for m in self._names)
        return "the other processes would have to run it, too" if synced else ""

    def _draw(self, started: RecordedCall) -> None:
        """Draw the forward up to its error."""
        session = Session(self._model, ModelInput(tuple(started.args), dict(started.kwargs)))
        kind, dtype, enabled = started.autocast
        with torch.autocast(kind, dtype, enabled=enabled):
            ran = failing(session, begin=started.restore)
        if ran is not None:
            self.set_drawing(drawing(ran))

    def _examined(self, started: RecordedCall) -> Observation:
        inputs = ModelInput(tuple(started.args), dict(started.kwargs))
        kind, dtype, enabled = started.autocast
        with torch.autocast(kind, dtype, enabled=enabled):
            session = Session(self._model, inputs)
            again = partial(examine, session, begin=started.restore, record=False)
            seen = again(score_of=started.score)
            seen.scale = explaining_scale(
                seen,
                self._scaler,
                lambda factor: again(score_of=partial(started.score, scale=factor)),
            )
        return seen


def _unseen(tensor: Tensor) -> AbstractContextManager[Any]:
    """Return a block in which no dispatch mode sees what is done with a plain tensor: it is quick.

    One of a subclass needs the dispatch.
    """
    plain = type(tensor) in (Tensor, nn.Parameter)
    return torch._C._DisableTorchDispatch() if plain else nullcontext()


def _own(module: nn.Module) -> list[nn.Parameter]:
    """Return a module's own parameters, without torch's walk through all modules within."""
    return [each for each in module._parameters.values() if each is not None]


_ENDS = {"SigmoidBackward0": 4.0, "TanhBackward0": 2.0}
"""Autograd's names -> the least mean absolute value of the input where nine tenths of the output
are at its ends."""
MOST_NODES = 4096


def _before_ends(outputs: Sequence[Any], made: dict[Any, Sum]) -> Iterator[tuple[Sum, float]]:
    """Yield what layers returned to sigmoids and tanhs that are not the output, and a size."""
    waiting = [each for each in outputs if each is not None]
    known, first = set(waiting), {behind_views(each) for each in waiting}
    while waiting and len(known) < MOST_NODES:
        node = waiting.pop()
        size = _ENDS.get(node.name(), 0.0)
        given = behind_views(node.next_functions[0][0]) if size and node not in first else None
        if given in made:
            yield made[given], size
        behind = {each for each, _ in node.next_functions if each is not None} - known
        known |= behind
        waiting += behind


FAR_TOO_LARGE = 1e10
"""A mean absolute value of what a layer returns, or of its weights' gradient, that is no good."""
UNEVEN = 1e5
"""Between layers whose outputs, or whose weights' gradients, are so many times as large in the mean
a step is examined again."""


def _suspicious(names: dict[nn.Module, str]) -> bool:
    """Return whether weights are alike in two channels, or stand in a list that is not a module."""
    linear = (module for module in names if isinstance(module, LINEAR))
    alike = any(_two_alike(stored_tensor(module, "weight")) for module in linear)
    if alike or any(map(_without_variance, names)):
        return True
    kept = [several for module in names for _, several in plain_values(module)]
    return any(_holds_weights(several, names) for several in kept)


def _without_variance(module: nn.Module) -> bool:
    """Return whether most of the variances by which a BatchNorm divides are next to zero."""
    if not isinstance(module, _BatchNorm) or module.training:
        return False
    variance = module.running_var
    usual = isinstance(variance, Tensor) and variance.numel() > 0 and not variance.is_meta
    return usual and float(variance.median()) < module.eps  # type: ignore[union-attr]


def _two_alike(weight: Any) -> bool:
    """Return whether the first two channels of weights that learn are the same."""
    if type(weight) is not nn.Parameter or is_wrapped(weight) or weight.is_meta:
        return False
    several = weight.requires_grad and weight.ndim > 1 and len(weight) > 1
    two = weight.detach() if several else None
    return two is not None and torch.equal(two[0], two[1])


def _holds_weights(several: Sequence[Any], names: dict[nn.Module, str]) -> bool:
    """Return whether there are weights in it, or it begins with a module without a name."""
    first = several[0] if several else None
    if isinstance(first, nn.Module):
        return first not in names
    if type(first) is nn.Parameter:
        return True
    return any(isinstance(t, Tensor) and t.is_floating_point() and t.ndim > 1 for t in several)


def _locate(made: OperationRecord, seen: Observation) -> None:
    """Find where the operation ran that made what the model returned."""
    ran = [e for e in seen.operations if e.phase == "forward" and e.name == made.name]
    if within := [each for each in ran if each.layer != OUTSIDE]:
        last = within[-1]
        made.index, made.layer, made.call = last.index, last.layer, last.call
        made.file, made.line = last.file, last.line


def _is_empty(args: Any, kwargs: Any) -> bool:
    return any(not tensor.numel() for tensor in tensors((args, kwargs)))


_EMPTY = Finding(
    "empty",
    "error",
    "The model was called with an empty batch: it holds nothing to check.",
    "Leave empty batches out; look at how the data are divided into batches.",
)


def _first(hits: list[Sum]) -> Sum:
    """Return the first non-finite sum, except gradients that the loss itself sent."""
    sent = (h for h in hits if h.phase == "sent" and h.started is hits[0].started)
    return next(sent, hits[0]) if hits[0].phase == "backward" else hits[0]


def _coarse(hit: Sum, why: str, scale: LossScale | None) -> Finding:
    """Describe a sum that is not finite without knowing the operation."""
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
    if scale is not None:
        severity, advice = "note", scale.advice
        message += scale.message
    return Finding(word.lower(), severity, message, advice, hit.layer, phase=phase)


def _rng(device: torch.device) -> Any:
    return getattr(torch, device.type)


def _random_state(device: torch.device) -> tuple[Any, ...]:
    devices = {device: _rng(device).get_rng_state(device)} if device.type == "cuda" else {}
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), devices
