"""A survey as one .npz file of plain numbers, without pickle.

The arrays hold the C channels of all layers one after the other, in the order of ``layers``:

============  =================  =================================================================
about         text               JSON: format, fingerprint, layers, unread, left_out, class_names
                                 and fields
covered       (length,) bool     the inputs of the data set that were taken in
values        (C, k) float32     the largest values, largest first; −Inf where there are fewer
indices       (C, k) int64       of the inputs in the data set; 2⁶³ − 1 where there are fewer
positions     (C, k, 3) int32    where in the map; unused dimensions are 0
labels        (C, k) int32       the inputs' classes; −1 if not known
count         (C,) int64         number of finite values
mean          (C,) float64       their mean
squares       (C,) float64       sum of their squared distances from the mean
zeros         (C,) int64         number of zeros
nans, infs    (C,) int64         number of NaN and of infinities
first_nan     (C,) int64         the first input with NaN; 2⁶³ − 1 if there is none
histogram     (C, 388) int32     counts of the bins, see `hookviz.run.statistics.LogBins`
============  =================  =================================================================

``values`` are float64 where those of a layer are. The file has no pictures.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...run.statistics import Moments, TopK
from .fingerprint import Fingerprint
from .running import BINS, LayerStatistics, SurveyedRun

FORMAT = "hookviz survey 3"
_DIMENSIONS = 3


def pack(survey: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description and the arrays of a `Survey`'s file."""
    layers = [
        {"call": list(call), "shape": list(layer.shape), "channels": len(layer)}
        for call, layer in survey.layers.items()
    ]
    about = {
        "format": FORMAT,
        "fingerprint": asdict(survey.fingerprint),
        "layers": layers,
        "unread": list(survey.unread.items()),
        "left_out": survey.left_out,
        "class_names": survey.class_names,
        "fields": survey.fields,
    }
    parts = [_arrays(layer) for layer in survey.layers.values()]
    names = parts[0] if parts else ()
    arrays = {name: torch.cat([part[name] for part in parts]).numpy() for name in names}
    return about, arrays | {"covered": survey.covered.numpy()}


def unpack(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the arguments of `Survey`; raises many kinds of errors if the content is wrong."""
    mark = about["fingerprint"]
    fingerprint = Fingerprint(**mark | {"layers": tuple(mark["layers"])})
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    covered = tensors.pop("covered")
    channels = sum(layer["channels"] for layer in about["layers"])
    if len(covered) != fingerprint.length or any(len(t) != channels for t in tensors.values()):
        raise ValueError("its arrays do not fit its layers")
    layers, start = {}, 0
    for layer in about["layers"]:
        part = slice(start, start + layer["channels"])
        own = {name: tensor[part] for name, tensor in tensors.items()}
        layers[SurveyedRun(*layer["call"])] = _statistics(tuple(layer["shape"]), own, fingerprint.k)
        start = part.stop
    return {
        "fingerprint": fingerprint,
        "layers": layers,
        "covered": covered,
        "unread": {int(index): why for index, why in about["unread"]},
        "left_out": about["left_out"],
        "class_names": about["class_names"],
        "fields": about["fields"],
    }


def _arrays(layer: LayerStatistics) -> dict[str, Tensor]:
    positions = layer.top.more["positions"]
    unused = positions.new_zeros(*positions.shape[:2], _DIMENSIONS - positions.shape[2])
    return {
        "values": layer.top.values,
        "indices": layer.top.indices,
        "positions": torch.cat([positions, unused], 2),
        "labels": layer.labels,
        **layer.moments._asdict(),
        "first_nan": layer.first_nan,
        "histogram": layer.histogram,
    }


def _statistics(shape: tuple[int, ...], arrays: dict[str, Tensor], k: int) -> LayerStatistics:
    if arrays["values"].shape[1] != k or arrays["histogram"].shape[1] != BINS.size:
        raise ValueError("its arrays do not fit its settings")
    positions = arrays["positions"][..., : max(1, len(shape))]
    top = TopK(
        arrays["values"],
        arrays["indices"],
        {"positions": positions, "labels": arrays["labels"]},
    )
    moments = Moments(*(arrays[name] for name in Moments._fields))
    return LayerStatistics(shape, top, moments, arrays["histogram"], arrays["first_nan"])
