"""A survey as one .npz file of plain numbers, without pickle, and what it is of: to go on with it.

The arrays, C being all channels of all layers one after the other, in the order of ``about``'s
layers:

============  =================  =================================================================
about         text               JSON: format, mark (see `Fingerprint`), layers,
                                 done, unread, left_out, class_names, fields
values        (k, C) float32     the largest values, largest first; −Inf where there are fewer
indices       (k, C) int64       of the inputs in the data set; 2⁶³ − 1 where there are fewer
places        (k, C) int64       where in the map: 21 bits a coordinate, the innermost lowest
labels        (k, C) int32       the inputs' classes; −1 if not known
zeros, nans   (C,) int64         how many values were so
first_nan     (C,) int64         the first input with NaN; 2⁶³ − 1 if there is none
bins          (385, C) int32     counts of the sketch, see `channels.edges`; last NaN
moments       (3, C) float64     count, mean and squares about the mean
============  =================  =================================================================

``values`` are float64 where a layer's are. Indices into the data set, and no pictures.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...hooking.select import type_name
from ...run.session import preserved_state
from .channels import Column, RunningStatistics


@dataclass(frozen=True)
class Fingerprint:
    """The fingerprint of a survey: its model, data set and settings."""

    model: str  #: its class
    structure: str  #: a digest of its layers and their settings
    weights: dict[str, str]  #: each parameter's and buffer's shape and type, and a digest
    data: str  #: the data set's class
    length: int  #: how many inputs it has
    names: str  #: a digest of what its inputs are called; empty where they have no names
    transform: str  #: what makes an input of an item, as it says itself
    layers: list[str]  #: which layers were asked for
    k: int  #: how many of the largest values are kept

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def mark_of(model: nn.Module, data: Any, transform: Any, layers: list[str], k: int) -> Fingerprint:
    """Return the fingerprint of a survey that begins now."""
    return Fingerprint(**model_marks(model), **data_marks(data, transform), layers=layers, k=k)


def model_marks(model: nn.Module) -> dict[str, Any]:
    """Return the model's part of a fingerprint. The weights are read once."""
    weights = {
        name: f"{'×'.join(map(str, each.shape))} {_digest(each)}"
        for name, each in model.state_dict().items()
        if isinstance(each, Tensor) and not each.is_meta
    }
    with preserved_state(model):  # a layer's repr reads its bias, which a parametrization computes
        structure = _digest(_without_addresses(repr(model)))
    return {"model": type_name(model), "structure": structure, "weights": weights}


def data_marks(data: Any, transform: Any) -> dict[str, Any]:
    """Return the data set's part of a fingerprint."""
    names = names_of(data)
    return {
        "data": type(data).__name__,
        "length": len(data),
        "names": _digest(json.dumps(names)) if names else "",
        "transform": described(transform),
    }


def described(function: Any) -> str:
    """Describe a transform: by its code if it is a function, otherwise by its repr.

    What it takes from elsewhere, and files that it reads, are not seen.

    >>> described(lambda x: x + 1) == described(lambda x: x + 2)
    False
    """
    code = getattr(function, "__code__", None)
    if code is None:
        return " ".join(_without_addresses(repr(function)).split())
    constants = [_without_addresses(repr(each)) for each in code.co_consts]
    spelled = repr((code.co_code, constants, code.co_names))
    return f"{function.__module__}.{function.__qualname__} {_digest(spelled)}"


def differences(one: Fingerprint, other: Fingerprint) -> str:
    """Say in words why two surveys cannot be added; empty if they can."""
    if one.model != other.model:
        return f"one is of a {one.model}, the other of a {other.model}"
    if one.weights != other.weights or one.structure != other.structure:
        return f"the models differ, {_first_difference(one.weights, other.weights)}"
    if (one.data, one.length) != (other.data, other.length):
        return (
            f"the data sets differ, a {one.data} of {one.length:,} inputs and a {other.data} of "
            f"{other.length:,}"
        )
    if one.names != other.names:
        return f"the data sets differ, both {one.data}s, in the names of their inputs"
    if one.transform != other.transform:
        return f"the transforms differ, {one.transform!r} and {other.transform!r}"
    if one.layers != other.layers:
        only = sorted(set(one.layers) ^ set(other.layers))
        return f"the layers differ, {', '.join(map(repr, only[:3]))} in only one of them"
    return f"k differs, {one.k} and {other.k}" if one.k != other.k else ""


def _first_difference(one: Mapping[str, str], other: Mapping[str, str]) -> str:
    for name in [*one, *other]:
        if name not in one or name not in other:
            return f"{name!r} is in only one of them"
        if one[name] != other[name]:
            shapes = [each.rpartition(" ")[0] for each in (one[name], other[name])]
            alike = shapes[0] == shapes[1]
            return f"in {'the values' if alike else 'the shape'} of {name!r}" + (
                "" if alike else f", {shapes[0]} and {shapes[1]}"
            )
    return "in the settings of their layers"


def names_of(data: Any) -> list[str]:
    """Return the inputs' names: a folder's files, or those of torchvision's ImageFolder."""
    if names := getattr(data, "names", None):
        return [str(each) for each in names]
    samples = getattr(data, "samples", None)
    if isinstance(samples, list) and samples and isinstance(samples[0], tuple):
        root = str(getattr(data, "root", ""))  # the folder may have moved
        return [str(path).removeprefix(root) for path, *_ in samples]
    return []


def _digest(value: str | Tensor) -> str:
    """Nobody forges weights, so that a checksum will do, which is five times as fast as a hash."""
    if isinstance(value, str):
        return f"{zlib.crc32(value.encode()):08x}"
    plain = value.detach().dequantize() if value.is_quantized else value.detach()
    content = plain.cpu().contiguous().flatten().view(torch.uint8).numpy().data
    return f"{zlib.crc32(content, zlib.crc32(str(value.dtype).encode())):08x}"


def _without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-fA-F]+", "0x…", text)


class IndexRanges:
    """A set of whole numbers from 0, as few runs of neighbours; ``len`` counts the numbers.

    Examples
    --------
    >>> done = IndexRanges([(0, 4), (8, 10)]) | IndexRanges([(4, 6)])
    >>> done, len(done), done & IndexRanges([(5, 9)])
    (0 to 5, 8 to 9, 8, 5, 8)
    >>> list(done.missing(12))
    [(6, 8), (10, 12)]
    """

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        self.runs: list[tuple[int, int]] = []  # (start, stop), ascending, none touches the next
        for start, stop in sorted(runs):
            if self.runs and start <= self.runs[-1][1]:
                self.runs[-1] = self.runs[-1][0], max(stop, self.runs[-1][1])
            elif stop > start:
                self.runs.append((start, stop))

    def __len__(self) -> int:
        return sum(stop - start for start, stop in self.runs)

    def __or__(self, other: IndexRanges) -> IndexRanges:
        return IndexRanges([*self.runs, *other.runs])

    def __and__(self, other: IndexRanges) -> IndexRanges:
        pairs = [(a, b) for a in self.runs for b in other.runs]
        return IndexRanges([(max(a[0], b[0]), min(a[1], b[1])) for a, b in pairs])

    def missing(self, length: int) -> Iterator[tuple[int, int]]:
        """Return the ranges that are missing, of the numbers below ``length``."""
        start = 0
        for run in [*self.runs, (length, length)]:
            if start < run[0]:
                yield start, run[0]
            start = run[1]

    def batches(self, length: int, size: int) -> list[range]:
        """Return the missing indices, cut where whole batches begin: always at the same places."""
        return [
            range(max(start, at), min(stop, at + size))
            for start, stop in self.missing(length)
            for at in range(start // size * size, stop, size)
        ]

    def __repr__(self) -> str:
        said = [str(a) if b - a == 1 else f"{a} to {b - 1}" for a, b in self.runs]
        return ", ".join(said) or "none"


# The file

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
