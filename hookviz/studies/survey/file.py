"""A survey as one .npz file of plain numbers, without pickle.

The arrays are those of each layer; their names end with its number in ``layers``, from 0:

============  =================  =================================================================
about         text               JSON: format, fingerprint, layers, unread, left_out, class_names,
                                 fields and sources
covered       (length,) bool     the inputs of the data set that were taken in
values        (C, k) float32     the largest values, largest first; −Inf where there are fewer
indices       (C, k) int64       of the inputs in the data set; 2⁶³ − 1 where there are fewer
positions     (C, k, D) int32    where in the map
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

from .fingerprint import Fingerprint
from .running import BINS, LayerStatistics, SurveyedRun

FORMAT = "hookviz survey 5"
_PLAIN = ("left_out", "class_names", "fields", "sources")


def pack(survey: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description and the arrays of a `Survey`'s file."""
    about = {name: getattr(survey, name) for name in _PLAIN} | {
        "format": FORMAT,
        "fingerprint": asdict(survey.fingerprint),
        "layers": [[run, layer.shape] for run, layer in survey.layers.items()],
        "unread": list(survey.unread.items()),
    }
    arrays = {"covered": survey.covered.numpy()}
    for index, layer in enumerate(survey.layers.values()):
        arrays |= {f"{name} {index}": each.numpy() for name, each in layer.tensors().items()}
    return about, arrays


def unpack(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the arguments of `Survey`; raises many kinds of errors if the content is wrong."""
    about = {"sources": {}, **about}  # files of older versions have none
    mark = about["fingerprint"]
    fingerprint = Fingerprint(**mark | {"layers": tuple(mark["layers"])})
    covered = torch.from_numpy(arrays.pop("covered"))
    parts: list[dict[str, torch.Tensor]] = [{} for _ in about["layers"]]
    for name, array in arrays.items():
        kind, _, index = name.partition(" ")
        parts[int(index)][kind] = torch.from_numpy(array)
    layers = {
        SurveyedRun(*run): LayerStatistics.of_tensors(tuple(shape), tensors)
        for (run, shape), tensors in zip(about["layers"], parts, strict=True)
    }
    for layer, tensors in zip(layers.values(), parts, strict=True):
        sizes = len(covered), layer.top.values.shape[1], layer.histogram.shape[1]
        even = len({len(each) for each in tensors.values()}) == 1
        if sizes != (fingerprint.length, fingerprint.k, BINS.size) or not even:
            raise ValueError("its arrays do not fit its settings")
    return {name: about[name] for name in _PLAIN} | {
        "fingerprint": fingerprint,
        "layers": layers,
        "covered": covered,
        "unread": {int(index): why for index, why in about["unread"]},
    }
