"""The one examination: a forward and a backward of a model, recorded while the checks observe."""

from __future__ import annotations

import math
import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...hooking.interrupts import allow_interrupts, defer_interrupts
from ...hooking.select import first_names
from ...hooking.tensors import tensors
from ...hooking.transforms import TransformError
from ...run.errors import first_line
from ...run.recorder import ModuleCall, OperationRecorder, graph_nodes
from ...run.session import Session
from ...run.target import Target
from .check import Check, LayerCall, RunRecord
from .modules import has_weights, plain_values
from .operation_log import OperationLog
from .ranges import norm_of, range_of
from .records import OperationRecord


class Examination(OperationLog):
    """Records a forward and a backward of a model: operations, calls of layers, gradients.

    Parameters
    ----------
    model : torch.nn.Module
        In its wrappers, or without.
    checks : list of Check
        New ones: they store what they observe.
    begin : callable
        Called when the hooks are on, before the model runs.
    thorough : bool
        As in `OperationLog`.

    Attributes
    ----------
    recorder : OperationRecorder
        The block within which it listens.
    """

    def __init__(
        self,
        model: nn.Module,
        checks: list[Check],
        begin: Callable[[], object] = lambda: None,
        *,
        thorough: bool,
    ) -> None:
        names = first_names(model)
        self.recorder = OperationRecorder(self, names=names)
        super().__init__(RunRecord(model, names, checks), thorough=thorough)
        self._start = begin
        self._calls: dict[ModuleCall, LayerCall] = {}
        self._skips = False
        self._drawn = ""  # the state of Python's and NumPy's random numbers

    def begin(self, recorder: OperationRecorder) -> None:
        self._start()
        self._drawn = _random_states()
        parameters = dict(self.run.root.named_parameters())
        for name, parameter in parameters.items():
            self._parameters[parameter] = [*(self._parameters.get(parameter) or ()), name]
        for kind, named in (
            ("weights", parameters),
            ("buffer", dict(self.run.root.named_buffers())),
        ):
            for name, tensor in named.items():
                self._note_source(kind, name, tensor)
        for module, owner in self.run.names.items():
            for name, tensor in plain_values(module):
                floating = isinstance(tensor, Tensor) and tensor.is_floating_point()
                if floating and tensor not in self.makers:
                    owned = f"{name!r} of {owner!r}" if owner else repr(name)
                    self._stored[tensor] = f"{owned}, shape {tuple(tensor.shape)}"
        # What autocast has cached before would stand in for the weights.
        recorder.exit_stack.callback(
            torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled()
        )
        torch.set_autocast_cache_enabled(False)

    def _note_source(self, kind: str, name: str, tensor: Tensor) -> None:
        """Record weights, buffers and inputs: values that no operation made."""
        if (extent := range_of(tensor)) is not None:
            meant = kind == "buffer" and not extent.nan  # a mask that is stored as a buffer
            layer = name.rpartition(".")[0]
            source = OperationRecord(-1, kind, layer, made=(extent,), constant=meant, title=name)
            self.makers[tensor] = source
            self.run.sources.append(source)

    def end(self) -> None:
        self.run.drew |= self._drawn != _random_states()

    # Calls of layers

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        if again:
            return
        if not self.run.calls:
            self.run.samples = batch_size(given)
            for tensor in given:
                self._note_source("input", "input", tensor)
        made_by = tuple(dict.fromkeys(filter(None, map(self.makers.get, given))))
        shapes = tuple([tuple(tensor.shape) for tensor in given])
        layer = LayerCall(call.layer, call.call, call.module, shapes, made_by)
        self._calls[call] = layer
        self.run.calls.append(layer)
        for check in self.run.checks:
            self.run.show(check.enter, layer, given)

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        layer = self._calls[call]
        root = layer is self.run.calls[0]
        made = [self.reaches(tensor, end=root) for tensor in returned]
        layer.finished = True
        if not again:
            layer.shapes = tuple([tuple(tensor.shape) for tensor in returned])
            layer.made = tuple(filter(None, made))
            layer.tracked = any(tensor.requires_grad for tensor in returned)
            for check in self.run.checks:
                self.run.show(check.leave, layer, returned)
        floating = [t for t in returned if t.is_floating_point() and t.numel()]
        if not floating:
            return
        if root:
            for tensor in floating:
                if tensor.requires_grad and tensor.shape[:1] == (self.run.samples,):
                    self._listen(tensor, self.run.output_gradient.add)
        first = floating[0]
        if has_weights(layer.module):
            layer.size = self._norm(first) / first.numel() ** 0.5
        if first.requires_grad and (layer.leaf or self.thorough):
            # What reaches the input before any weights may be the truth: nothing learns from it.
            learns = bool(self.run.used) or next(self.run.root.parameters(), None) is None
            self._listen(first, partial(self._arrived, layer, learns))

    # Gradients

    def _listen(self, tensor: Tensor, arrived: Callable[[Tensor], object]) -> None:
        """Call a function with the gradient that reaches a tensor, unobserved."""

        def silently(gradient: Tensor | None) -> None:
            if gradient is not None:
                with nullcontext() if self._skips else self.recorder.silent():
                    arrived(gradient)

        self.recorder.add(tensor, "tensor", silently)

    def _arrived(self, layer: LayerCall, learns: bool, gradient: Tensor) -> None:
        if layer.leaf:
            layer.gradient = self._norm(gradient, learns)
        if learns and self.thorough:
            self.reaches(gradient)

    def arrived(self, gradients: Mapping[Tensor, Tensor]) -> None:
        """Record the gradients of the weights."""
        for weights, gradient in gradients.items():
            norm = self._norm(gradient, learns=True)
            names = self._parameters.get(weights) or ()  # none of weights that the forward made
            self.run.gradient_norms |= dict.fromkeys(names, norm)
            self.run.backward |= bool(names)
            if self.thorough:
                self.reaches(gradient)

    def _norm(self, tensor: Tensor, learns: bool = False) -> float:
        """Compute a norm, and note one that is not finite; NaN only where it leads to weights."""
        norm = norm_of(tensor)
        self.run.suspect |= math.isinf(norm) or (learns and math.isnan(norm))
        return norm

    def scored(self, score: Tensor, output: Any) -> None:
        """Record what made the score; if that was not recorded, the outputs in its graph."""
        maker = self.makers.get(score)
        nodes = {*graph_nodes(score.grad_fn)} if maker is None else set[Any]()
        used = (self.makers.get(each) for each in tensors(output) if each.grad_fn in nodes)
        self.run.scored_from = [each for each in (maker, *used) if each is not None]

    def skip_backward(self) -> None:
        """Stop listening before the backward, unless its operations are recorded."""
        self._skips = not self.thorough
        if self._skips:
            self.recorder.mute(True)


def batch_size(given: Sequence[Tensor]) -> int:
    """Return the number of samples, taken from the first floating-point input."""
    several = [each for each in given if each.ndim]
    floating = (each for each in several if each.is_floating_point())
    first = next(floating, several[0] if several else None)
    return 1 if first is None else len(first)


def _random_states() -> str:
    """Identify the state of Python's and NumPy's random numbers."""
    _, keys, position, *_ = np.random.get_state()
    return f"{hash(random.getstate())} {hash(np.asarray(keys).tobytes())} {position}"


def _arose_in_recording(error: Exception) -> bool:
    """Return True if not the model failed, but what records it."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    # In the last frame, the log itself raises what a device would raise too late.
    return any(isinstance(each.f_locals.get("self"), OperationLog) for each in frames[:-1])


def examine(
    session: Session,
    target: Target = None,
    *,
    checks: Callable[[], list[Check]],
    score_of: Callable[..., Tensor | None],
    begin: Callable[[], object] = lambda: None,
    record: bool = True,
) -> RunRecord:
    """Run the model unchanged, forward and backward, and record it.

    ``checks`` makes new ones. ``score_of`` is called with the output, the target and the names of
    the classes, and ``record`` says whether the operations that it runs are recorded, too;
    ``begin`` is called before the model.

    The operations of the backward are recorded only if a gradient is not finite, or something in
    half precision: then the model runs once more.
    """

    def once(thorough: bool) -> RunRecord:
        examinations: list[Examination] = []

        def observe() -> OperationRecorder:
            examinations.append(Examination(session.given, checks(), begin, thorough=thorough))
            return examinations[-1].recorder

        scores: list[Tensor | None] = [None]
        refused: list[Exception] = []  # such as a class that the model does not have

        @defer_interrupts
        def score(*given: Any) -> Tensor | None:
            with nullcontext() if record else examinations[-1].recorder.silent():
                try:
                    scores.append(allow_interrupts(score_of, *given))
                except Exception as error:
                    if target is not None and not callable(target):
                        refused.append(error)
                    raise
            examinations[-1].skip_backward()
            return scores[-1]

        try:
            result = session.forward_backward(
                target, observe, source="parameters", keep_mode=True, score_of=score
            )
        except TransformError:
            raise
        except Exception as error:
            if not examinations:
                raise
            if refused:  # the argument is wrong, not the model
                raise refused[0] from None
            own = error.__cause__
            own = own if isinstance(own, Exception) else error
            if _arose_in_recording(own):
                raise RuntimeError(
                    f"hookviz failed ({type(own).__name__}: {first_line(own)}) while it examined "
                    "the model, which is not to blame: please report this to hookviz."
                ) from own
            failed = (each for each in examinations if each.recorder.error is error)
            run = next(failed, examinations[-1]).run
            run.error = own
        else:
            run = examinations[-1].run
            run.returned = type(result.output)
            examinations[-1].arrived(result.gradients)
            if (last := scores[-1]) is not None:
                run.score = float(last.detach())
                examinations[-1].scored(last, result.output)
                # It may be NaN with a gradient of 0. The sum of masked outputs is rightly −Inf.
                examinations[-1].reaches(last, end=target is not None)
        for check in run.checks:
            run.show(check.finish, scores[-1])
        return run

    run = once(thorough=False)
    again = (run.suspect or run.half) and run.error is None
    return once(thorough=True) if again else run
