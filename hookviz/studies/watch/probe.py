"""The probe of a watched training: maps of one input before each recorded step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ...hooking.capture import capture
from ...hooking.maps import as_maps
from ...hooking.select import is_convolution, unwrapped
from ...run.session import Session

CHANNELS, SIDE = 16, 32
"""The number of maps that are stored of a layer, the same ones in all steps, and the most rows and
columns of each: larger maps are averaged."""

Maps = dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Layer -> levels ``(C, H, W)``, see `hookviz.draw.colours.to_levels`, and each map's range."""


class Probe:
    """A model and a picture, or any input of `hookviz.explore`; of a batch, the first sample.

    ``layers`` are names. If convolutions are among them, maps are of these alone.
    """

    def __init__(self, model: nn.Module, given: Any, layers: Sequence[str]) -> None:
        self._session = Session.of(model, given)
        core = unwrapped(model)[0]
        convolved = [name for name in layers if is_convolution(core.get_submodule(name))]
        self._layers = convolved or list(layers)

    def maps(self) -> Maps:
        """Run the model, which stays unchanged, to the bit, and return its maps."""
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
