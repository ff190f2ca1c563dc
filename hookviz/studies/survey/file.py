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

import os
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from ...files import pack_arrays, read_whole, unpack_arrays, write_whole
from ...run.inputs import Transform
from .batch_statistics import BINS
from .channels import RANKED, Column, RunningStatistics
from .fingerprint import Fingerprint, IndexRanges, data_marks, differences, model_marks
from .reading import Reader, as_data_set
from .survey import Survey

FORMAT = "hookviz survey 1"


def load_survey(
    path: str | os.PathLike,
    dataset: Any = None,
    *,
    model: nn.Module | None = None,
    transform: Transform | None = None,
) -> Survey:
    """Read what `hookviz.survey` or `Survey.save` wrote; its pictures are in the data set only.

    Parameters
    ----------
    path : path
    dataset : optional
        What the survey is of, to see its pictures.
    model, transform : optional
        As in `hookviz.survey`: how the pictures were made inputs. One of both, where the data
        set's items are pictures.

    Raises
    ------
    FileNotFoundError
        No such file.
    ValueError
        It is broken, or no survey; or the survey is of another data set, model or transform.

    Examples
    --------
    >>> import hookviz, tempfile
    >>> pictures, folder = hookviz.demo_images()[:4], tempfile.mkdtemp()
    >>> survey = hookviz.survey(hookviz.demo_model(), pictures, "stem.0", path=f"{folder}/stem.npz")
    >>> again = hookviz.load_survey(f"{folder}/stem.npz")
    >>> again["stem.0"].top(3) == survey["stem.0"].top(3)
    True
    """
    found = read_whole(path, unpack, "survey")
    return found if dataset is None else with_data(found, dataset, model, transform)


def with_data(
    survey: Survey, dataset: Any, model: nn.Module | None, transform: Transform | None
) -> Survey:
    """A survey that has its pictures."""
    data = as_data_set(dataset)
    reader = Reader(data, model, None, transform)
    known = data_marks(data, reader.rule) | ({} if model is None else model_marks(model))
    reader.check()
    if isinstance(reader.rule, ValueError):  # nobody says what it was, and nothing has need of it
        del known["transform"]
    if why := differences(survey.mark, replace(survey.mark, **known)):
        raise ValueError(f"This is not what the survey is of: {why}.")
    return replace(survey, reader=reader)


def check_survey(survey: Any, model: nn.Module | None = None) -> None:
    """Raise what stands against showing a survey, or showing it beside a model.

    Raises
    ------
    TypeError
        It is no survey.
    ValueError
        It is of another model, or of other weights.
    """
    if not isinstance(survey, Survey):
        raise TypeError(
            f"A {type(survey).__name__} is no survey: give what hookviz.survey or "
            "hookviz.load_survey returned."
        )
    known = {} if model is None else model_marks(model)
    if why := differences(survey.mark, replace(survey.mark, **known)):
        raise ValueError(f"This survey is not of the shown model: {why}.")


def write(survey: Survey, path: str | os.PathLike) -> None:
    """Write it whole or not at all: beside the old file, which it then replaces."""
    write_whole(path, pack(survey))


def pack(survey: Survey) -> bytes:
    """The file's content."""
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


def unpack(content: bytes) -> Survey:
    """The survey that a file's content is of; many kinds of errors if it is of none."""
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
    return Survey(
        mark,
        channels,
        IndexRanges((start, stop) for start, stop in about["done"]),
        {int(index): why for index, why in about["unread"]},
        about["left_out"],
        about["class_names"],
        about["fields"],
    )
