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
nodes         (B, 3, C) float64  count, mean and squares about the mean of a branch of the tree
places_in     (B, 2) int64       the level and position of each branch; one in all if complete
============  =================  =================================================================

``values`` are float64 where a layer's are. Indices into the data set, and no pictures.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...files import pack_arrays, unpack_arrays
from .batch_statistics import BINS
from .channels import RANKED, Column, RunningStatistics
from .fingerprint import Fingerprint, IndexRanges

FORMAT = "hookviz survey 1"


def pack(survey: Any) -> bytes:
    """Write the content of a `Survey`'s file."""
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
    nodes = sorted(channels.nodes.items())
    arrays = {name: each.numpy() for name, each in channels.data.items()}
    arrays["places_in"] = np.array([at for at, _ in nodes], np.int64).reshape(-1, 2)
    blank = torch.zeros(0, 3, channels.width, dtype=torch.float64)
    arrays["nodes"] = torch.stack([node for _, node in nodes]).numpy() if nodes else blank.numpy()
    return pack_arrays(about, arrays, small=True)


def unpack(content: bytes) -> dict[str, Any]:
    """Read what `Survey` is made of; many kinds of errors if the content is another."""
    about, held = unpack_arrays(content, FORMAT)
    mark = Fingerprint(**about["mark"])
    channels = RunningStatistics(mark.k, mark.length)
    channels.layout = {Column(*each): tuple(shape) for *each, shape in about["layers"]}
    for name in channels.data:
        channels.data[name] = torch.from_numpy(held[name])
        rows = {**dict.fromkeys(RANKED, (mark.k,)), "bins": (BINS + 1,)}.get(name, ())
        if held[name].shape != (*rows, channels.width):
            raise ValueError(f"{name} has shape {held[name].shape}")
    nodes = torch.from_numpy(held["nodes"])
    if nodes.shape != (len(held["places_in"]), 3, channels.width):
        raise ValueError(f"nodes has shape {tuple(nodes.shape)}")
    for (level, position), node in zip(held["places_in"].tolist(), nodes, strict=True):
        channels.nodes[level, position] = node.clone()
    return {
        "mark": mark,
        "channels": channels,
        "done": IndexRanges((start, stop) for start, stop in about["done"]),
        "unread": {int(index): why for index, why in about["unread"]},
        "left_out": about["left_out"],
        "class_names": about["class_names"],
        "fields": about["fields"],
    }
