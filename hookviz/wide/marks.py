"""Of which model, data set and transform something is: what must be the same to go on with it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..hooking.select import type_name


@dataclass(frozen=True)
class Mark:
    """What a survey is of."""

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


def mark_of(model: nn.Module, data: Any, transform: Any, layers: list[str], k: int) -> Mark:
    """The mark of a survey that begins now. The weights are read once: a second for 1 GB."""
    weights = {
        name: f"{'×'.join(map(str, each.shape))} {_digest(each)}"
        for name, each in model.state_dict().items()
        if isinstance(each, Tensor) and not each.is_meta
    }
    return Mark(
        type_name(model),
        _digest(_without_addresses(repr(model))),
        weights,
        type(data).__name__,
        len(data),
        _digest(json.dumps(_names(data))) if _names(data) else "",
        described(transform),
        layers,
        k,
    )


def described(function: Any) -> str:
    """What a transform does, as far as it says: its code if it is a function, else its repr.

    What it takes from elsewhere, and files that it reads, are not seen.

    >>> described(lambda x: x + 1) == described(lambda x: x + 2)
    False
    """
    code = getattr(function, "__code__", None)
    if code is None:
        return _without_addresses(repr(function))
    constants = [_without_addresses(repr(each)) for each in code.co_consts]
    spelled = repr((code.co_code, constants, code.co_names))
    return f"{function.__module__}.{function.__qualname__} {_digest(spelled)}"


def differences(one: Mark, other: Mark) -> str:
    """What keeps two surveys apart, in words; empty if nothing does."""
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


def _names(data: Any) -> list[str]:
    """What the inputs are called: a folder's files, or those of torchvision's ImageFolder."""
    if names := getattr(data, "names", None):
        return [str(each) for each in names]
    samples = getattr(data, "samples", None)
    if isinstance(samples, list) and samples and isinstance(samples[0], tuple):
        return [str(path) for path, *_ in samples]
    return []


def _digest(value: str | Tensor) -> str:
    if isinstance(value, str):
        return hashlib.sha256(value.encode()).hexdigest()[:16]
    plain = value.detach().dequantize() if value.is_quantized else value.detach()
    content = plain.cpu().contiguous().flatten().view(torch.uint8).numpy()
    return hashlib.sha256(str(value.dtype).encode() + content.tobytes()).hexdigest()[:16]


def _without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-fA-F]+", "0x…", text)
