"""A survey as one .npz file of plain numbers, without pickle.

The arrays, C being all channels of all layers one after the other, in the order of ``about``'s
layers:

============  =================  =================================================================
about         text               JSON: format, mark (see `fingerprint.Fingerprint`), layers,
                                 done, unread, left_out, class_names, fields
values        (k, C) float32     the largest values, largest first; −Inf where there are fewer
indices       (k, C) int64       of the inputs in the data set; 2⁶³ − 1 where there are fewer
places        (k, C) int64       where in the map: 21 bits a coordinate, the innermost lowest
labels        (k, C) int32       the inputs' classes; −1 if not known
zeros, nans   (C,) int64         how many values were so
first_nan     (C,) int64         the first input with NaN; 2⁶³ − 1 if there is none
bins          (385, C) int32     counts of the sketch, see `batch_statistics.edges`; last NaN
moments       (3, C) float64     count, mean and squares about the mean
============  =================  =================================================================

``values`` are float64 where a layer's are. Indices into the data set, and no pictures.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .channels import Column, RunningStatistics
from .fingerprint import Fingerprint, IndexRanges

FORMAT = "hookviz survey 2"


def pack(survey: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return what a `Survey`'s file is of, and its arrays."""
    channels = survey.channels.to("cpu")
    about = {
        "format": FORMAT,
        "mark": survey.mark.plain(),
        "layers": [[*column, list(shape)] for column, shape in channels.layout.items()],
        "done": survey.done.runs,
        "unread": list(survey.unread.items()),
        "left_out": survey.left_out,
        "class_names": survey.class_names,
        "fields": survey.fields,
    }
    return about, {name: each.numpy() for name, each in channels.data.items()}


def unpack(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return what `Survey` is made of; many kinds of errors if the content is another."""
    mark = Fingerprint(**about["mark"])
    channels = RunningStatistics(mark.k)
    channels.layout = {Column(*each): tuple(shape) for *each, shape in about["layers"]}
    for name, blank in channels.data.items():
        if arrays[name].shape != (*blank.shape[:-1], channels.width):
            raise ValueError(f"{name} has shape {arrays[name].shape}")
        channels.data[name] = torch.from_numpy(arrays[name])
    return {
        "mark": mark,
        "channels": channels,
        "done": IndexRanges((start, stop) for start, stop in about["done"]),
        "unread": {int(index): why for index, why in about["unread"]},
        "left_out": about["left_out"],
        "class_names": about["class_names"],
        "fields": about["fields"],
    }
