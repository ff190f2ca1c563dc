"""The hooks of one recorded step: they sum up what goes by; and a probe, which keeps a few maps."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ...hooking.capture import capture
from ...hooking.checkpoint import FORWARD, Reruns, current_backward
from ...hooking.handles import Hook, HookManager
from ...hooking.records import is_wrapped
from ...hooking.select import is_convolution, unwrapped
from ...hooking.tensors import PatchGrid, as_maps, channel_dimension, tensors_in
from ...run.errors import first_sentence
from ...run.inputs import prepare_input
from ...run.session import Session
from .measured import Part, Summary, Weights, measured, off_device, summary


class Row(NamedTuple):
    """One tensor that a layer returns in one run of the model."""

    layer: str  #: the module's name, ``""`` for the model itself
    call: int = 0  #: which run of the layer within one of the model, from 0
    path: str = ""  #: where in what it returned, as in ``"[0]"``


@dataclass(eq=False)
class RowSums:
    """The sums of a row in a step."""

    activations: list[Part] = field(default_factory=list)
    gradients: list[Part] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """One call of a layer: what checkpointing may run again in backward."""

    rows: list[tuple[Row, int | None]]  # with the dimension of the channels
    parts: list[Part]
    watched: bool  # whether a gradient can come to what it returned


class StepRecorder(HookManager):
    """A block around one step.

    Runs of the model within the block, as of gradient accumulation, are put together.

    Parameters
    ----------
    model : torch.nn.Module
        As it was given, maybe in a wrapper.
    layers : mapping of str to torch.nn.Module
    weights : bool
        If True, look at their weights, too.
    """

    def __init__(
        self, model: nn.Module, layers: Mapping[str, nn.Module], *, weights: bool = True
    ) -> None:
        self.weights = Weights(layers if weights else {})
        self.left_out: dict[str, str] = {}
        self._seen: dict[Row, RowSums] = {}
        self._calls: Counter[tuple[int, str]] = Counter()
        self._ran: dict[str, list[RecordedRun]] = {}
        self._reruns: Reruns[RecordedRun] = Reruns()
        self._grid = PatchGrid()
        hooks: list[Hook] = [(unwrapped(model)[0], "forward_pre", self._begins)]
        hooks += self._grid.hooks(model)
        hooks += [(m, "forward", partial(self._after, name)) for name, m in layers.items()]
        super().__init__([*hooks, *self.weights.hooks()])

    def _begin(self) -> None:
        self.weights.begin()
        super()._begin()

    # The hooks

    def _begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if current_backward() == FORWARD:
            here = threading.get_ident()  # DataParallel has a thread for each part of the batch
            for key in [key for key in self._calls if key[0] == here]:
                del self._calls[key]

    def _after(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        try:
            if current_backward() == FORWARD:
                self._take(name, module, output)
            else:
                self._take_again(name, output)
        except Exception as error:  # a training does not end for its watcher's sake
            self.left_out[name] = f"{type(error).__name__}: {first_sentence(error)}"

    def _take(self, name: str, module: nn.Module, output: Any) -> None:
        here = (threading.get_ident(), name)
        call = self._calls[here]
        self._calls[here] += 1
        ran = RecordedRun([], [], _asks(output))
        for path, tensor in _plain(output):
            channel = None
            if tensor.ndim > 1:
                channel = channel_dimension(tensor, module, self._grid.of(tensor.shape))
                channel %= tensor.ndim
            row = Row(name, call, path)
            part = measured(tensor, channel)
            self._seen.setdefault(row, RowSums()).activations.append(part)
            ran.rows.append((row, channel))
            ran.parts.append(part)
            self._watch(tensor, row, channel)
        self._ran.setdefault(name, []).append(ran)

    def _take_again(self, name: str, output: Any) -> None:
        """Checkpointing runs a layer again: where the first run had no graph, this one has it."""
        found = _plain(output)
        waiting = [ran for ran in self._ran.get(name, ()) if not ran.watched]

        def same(ran: RecordedRun) -> bool:
            pairs = zip(found, ran.rows, ran.parts, strict=True)
            return all(torch.equal(measured(t, c)[2], part[2]) for (_, t), (_, c), part in pairs)

        ran = self._reruns.first(waiting, same)
        if ran is not None and _asks(output):
            self._ran[name].remove(ran)
            for (_, tensor), (row, channel) in zip(found, ran.rows, strict=False):
                self._watch(tensor, row, channel)

    def _watch(self, tensor: Tensor, row: Row, channel: int | None) -> None:
        if tensor.requires_grad:
            self.add(tensor, "tensor", partial(self._arrived, row, channel))

    def _arrived(self, row: Row, channel: int | None, gradient: Tensor | None) -> None:
        if gradient is not None and _is_plain(gradient):
            try:
                self._seen[row].gradients.append(measured(gradient, channel))
            except Exception as error:
                self.left_out[row.layer] = f"{type(error).__name__}: {first_sentence(error)}"

    # When the block is over

    def taken(
        self, scale: float = 1.0
    ) -> tuple[dict[Row, tuple[Summary, Summary | None]], dict[str, list[float]]]:
        """Activations and gradients of each row, and the weights' norms, in one transfer.

        Gradients are divided by ``scale``.
        """
        both = [part for seen in self._seen.values() for part in seen.activations + seen.gradients]
        rows = [part[2] for part in both] + self.weights.rows()
        moved = iter(off_device(rows))
        found: dict[Row, tuple[Summary, Summary | None]] = {}
        for row, seen in self._seen.items():
            forward = [(n, c, next(moved)) for n, c, _ in seen.activations]
            backward = [(n, c, next(moved)) for n, c, _ in seen.gradients]
            found[row] = summary(forward), summary(backward, scale) if backward else None
        norms = {name: next(moved) for name in self.weights.names}
        return found, {name: [norm, slope / scale] for name, (norm, slope) in norms.items()}


def _plain(output: Any) -> list[tuple[str, Tensor]]:
    return [(path, tensor) for path, tensor in tensors_in(output) if _is_plain(tensor)]


def _is_plain(tensor: Tensor) -> bool:
    """Return True if there are numbers in it, and all of them here."""
    if not (tensor.is_floating_point() or tensor.is_complex() or tensor.is_quantized):
        return False
    wrapped = is_wrapped(tensor)
    strided = tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_nested
    return strided and not wrapped and tensor.numel() > 0 and not hasattr(tensor, "to_local")


def _asks(output: Any) -> bool:
    return any(tensor.requires_grad for _, tensor in _plain(output))


# The probe

CHANNELS, SIDE = 16, 32
"""The first so many maps of a layer are kept, averaged down to so many rows and columns at
most: in all steps the same ones."""

Maps = dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Layer -> levels ``(C, H, W)``, see `hookviz.draw.colours.to_levels`, and each map's ends."""


class Probe:
    """A model and a picture, or whatever `hookviz.explore` takes; of a batch the first is shown.

    ``layers`` are names. If convolutions are among them, maps are of these alone.
    """

    def __init__(self, model: nn.Module, given: Any, layers: Sequence[str]) -> None:
        self._session = Session(model, prepare_input(given, model))
        core = unwrapped(model)[0]
        convolved = [name for name in layers if is_convolution(core.get_submodule(name))]
        self._layers = convolved or list(layers)

    def maps(self) -> Maps:
        """Run the model as it is now; it stays as it is, to the bit."""
        from ...draw.colours import averaged, colour_ranges, to_levels, to_numpy

        inputs, cached = self._session.inputs, torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)  # the step would find its weights there
        try:
            with (
                self._session.active(grad=False),
                capture(self._session.given, self._layers) as cache,
            ):
                self._session.call(*inputs.args, **inputs.kwargs)
        finally:
            torch.set_autocast_cache_enabled(cached)
        found: Maps = {}
        for name, record in cache.items():
            output = record.last.outputs[0] if record.calls and record.last.outputs else None
            if output is None or output.value.ndim < 3:
                continue
            try:
                maps = as_maps(output.value, record.module, record.last.grid)[0, :CHANNELS]
            except ValueError:
                continue  # no maps
            if maps.ndim == 4:
                maps = maps[:, maps.shape[1] // 2]  # a volume's slice
            values = to_numpy(maps if maps.ndim == 3 else maps[:, None])
            values = averaged(values, math.ceil(max(values.shape[1:]) / SIDE))
            finite = np.where(np.isfinite(values), values, np.nan).reshape(len(values), -1)
            low, high = np.fmin.reduce(finite, 1), np.fmax.reduce(finite, 1)
            ends = colour_ranges(values, low, high, "channel", diverging=bool((low < 0).any()))
            found[name] = to_levels(values, *(end[:, None, None] for end in ends)), *ends
        return found
