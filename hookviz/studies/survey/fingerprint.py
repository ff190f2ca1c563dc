"""The fingerprint of a survey, by which parts of other models or data are refused."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...hooking.select import type_name
from ...hooking.tensors import tensors
from ...hooking.weights import numbers_of
from ...run.inputs import ModelInput
from ...run.state import preserved_state


@dataclass(frozen=True)
class Fingerprint:
    """The model, data set and settings of a survey."""

    model: str  #: class of the model
    weights: str  #: checksum of its layers, their settings, parameters and buffers
    data: str  #: class of the data set
    length: int  #: number of inputs
    names: str  #: checksum of the inputs' names, such as those of files; empty without names
    transform: str  #: what makes an input of an item, by its name or repr
    first: str  #: checksum of the first input, as the model takes it; empty if the data have names
    layers: tuple[str, ...]
    k: int  #: number of inputs that are kept for each channel


def model_marks(model: nn.Module) -> dict[str, Any]:
    """Return the model's part of a fingerprint; this reads all weights once."""
    # CRC32 is enough: there is no adversary, and it is five times faster than a hash.
    with preserved_state(model):  # a layer's repr reads its bias, which a parametrization computes
        checksum = zlib.crc32(_bytes(_without_addresses(repr(model))))
    for name, tensor in model.state_dict().items():
        checksum = zlib.crc32(_bytes(name), checksum)
        if isinstance(tensor, Tensor) and not tensor.is_meta:
            checksum = _add(tensor, checksum)
    return {"model": type_name(model), "weights": f"{checksum:08x}"}


def _add(tensor: Tensor, checksum: int) -> int:
    values = numbers_of(tensor).detach()
    # A copy: memory of which numpy has a view can no longer be resized, as by an observer.
    content = values.cpu().flatten().clone().view(torch.uint8)
    return zlib.crc32(content.numpy().data, checksum)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")  # a name may contain half of a surrogate pair


def data_marks(data: Any, transform: Any, first: ModelInput) -> dict[str, Any]:
    """Return the data set's part of a fingerprint; ``first`` is its first input."""
    names, checksum = names_of(data), 0
    # Lists and tensors have no names, only content. Where there are names they are enough: another
    # machine may decode or resize the same file a little differently.
    for tensor in (given := [] if names else tensors(first.args, first.kwargs)):
        checksum = _add(tensor, checksum)
    return {
        "data": type(data).__name__,
        "length": len(data),
        "names": f"{zlib.crc32(json.dumps(names).encode()):08x}" if names else "",
        "transform": _described(transform),
        "first": f"{checksum:08x}" if given else "",
    }


_DATA = "the data sets differ, a {a.data} of {a.length:,} inputs and a {b.data} of {b.length:,}"
_DIFFERENCES = {
    "model": "one is of a {a.model}, the other of a {b.model}",
    "weights": "the two {a.model}s differ in their weights or in the settings of their layers",
    "data": _DATA,
    "length": _DATA,
    "names": "the data sets differ, both of class {a.data}, in the names of their inputs",
    "transform": "the transforms differ, {a.transform!r} and {b.transform!r}",
    "first": "the data sets differ, both of class {a.data}, in their first input as transformed",
    "layers": "they are of different layers",
    "k": "k differs, {a.k} and {b.k}",
}
"""The fields of a fingerprint, in the order in which they are compared, and what is reported."""


def differences(one: Fingerprint, other: Fingerprint) -> str:
    """Describe the first difference between two fingerprints; empty if they are equal."""
    for name, words in _DIFFERENCES.items():
        if getattr(one, name) != getattr(other, name):
            return words.format(a=one, b=other)
    return ""


def names_of(data: Any) -> list[str]:
    """Return the names of the inputs: files of a folder, or those of torchvision's ImageFolder."""
    if names := getattr(data, "names", None):
        return [str(name) for name in names]
    samples = getattr(data, "samples", None)
    if isinstance(samples, list) and samples and isinstance(samples[0], tuple):
        # Without the folder, which may have another name on another machine.
        root = str(getattr(data, "root", ""))
        return [str(path).removeprefix(root) for path, *_ in samples]
    return []


def _described(transform: Any) -> str:
    if hasattr(transform, "__qualname__"):
        return f"{transform.__module__}.{transform.__qualname__}"
    return " ".join(_without_addresses(repr(transform)).split())


def _without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-fA-F]+", "0x…", text)
