"""A function of the explorer for each request of the browser.

A function raises what goes wrong; the explorer shows it, since a notebook hides what a callback
raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch

from ..hooking.edit import LayerEdit
from ..run.inputs import ModelInput
from ..run.origins import picture_tensors
from ..view import messages as m
from ..view.attending import edit_in
from ..view.source import input_sample, picture_at
from ..view.strokes import erased, painted
from ..view.view import View
from .gallery import Gallery


class Explored(Protocol):
    """The part of `hookviz.widgets.Explorer` that the browser reads and changes."""

    edits: Any
    target: Any
    image: Any
    gallery: Gallery

    @property
    def inputs(self) -> ModelInput: ...
    def displayed(self) -> View: ...
    def thumbnails(self) -> list[m.Thumbnail]: ...
    def follow(self, settings: Mapping[str, Any]) -> None: ...
    def handle(self, request: m.Request, data: Sequence[Any]) -> None: ...
    def edit_named(self, key: int) -> LayerEdit | None: ...
    def show_beside(self, key: int, sample: int) -> None: ...
    def show_image(
        self, image: Any, sample: int | None = None, *, is_frame: bool = False
    ) -> None: ...
    def code(self) -> str: ...
    def file(self, ending: str) -> bytes: ...


def _target(explorer: Explored, request: m.TargetRequest, data: bytes) -> None:
    explorer.target = request.number if request.written is None else request.written


def _factor(explorer: Explored, request: m.FactorRequest, data: bytes) -> None:
    """Replace the factor of a channel, where it is among the edits; a factor of 1 is none."""
    layer, channel = request.layer, request.channel
    if request.settings is None:
        explorer.follow({"layer": layer, "channel": channel})
    edits = list(explorer.edits)
    edit = edit_in(explorer.displayed(), layer, float(request.factor), channel)
    own = [n for n, one in enumerate(edits) if one.layer == layer and channel in one.multiplied]
    index = own[-1] if own else len(edits)
    rest = [n for one in edits[index : index + 1] for n in one.multiplied if n != channel]
    others = [replace(edits[index], channels=rest)] if rest else []
    edits[index : index + 1] = others if request.factor == 1 else [*others, edit]
    explorer.edits = edits


def _off(explorer: Explored, request: m.OffRequest, data: bytes) -> None:
    edit = edit_in(explorer.displayed(), request.layer, 0, request.channels)
    explorer.edits = (*explorer.edits, edit)


def _drop(explorer: Explored, request: m.DropRequest, data: bytes) -> None:
    edit = explorer.edit_named(request.key)
    explorer.edits = [each for each in explorer.edits if each is not edit]


def _edits(explorer: Explored, request: m.EditsRequest, data: bytes) -> None:
    edits = map(explorer.edit_named, request.keys)
    explorer.edits = [edit for edit in edits if edit is not None]


def _again(explorer: Explored, request: m.AgainRequest, data: bytes) -> None:
    explorer.show_image(explorer.gallery.given(request.key), request.sample)


def _beside(explorer: Explored, request: m.BesideRequest, data: bytes) -> None:
    explorer.show_beside(request.key, request.sample)


def _paint(explorer: Explored, request: m.PaintRequest, data: bytes) -> None:
    pixels = _pixels(explorer, request.shape, data)
    sample = input_sample(explorer.displayed())
    explorer.edits = painted(explorer.edits, explorer.inputs, pixels, sample)


def _erase(explorer: Explored, request: m.EraseRequest, data: bytes) -> None:
    pixels = _pixels(explorer, request.shape, data)
    explorer.edits = erased(explorer.edits, explorer.inputs, pixels)


def _pixels(explorer: Explored, shape: tuple[int, int], data: bytes) -> torch.Tensor:
    """Return the pixels that a stroke covers, bool ``(H, W)``."""
    at = picture_at(explorer.displayed())
    if at is None or at[2] != min(picture_tensors(explorer.inputs)):
        raise ValueError("Only the first input picture can be painted: show a map of it.")
    return torch.from_numpy(np.frombuffer(data, np.uint8).reshape(shape).astype(bool))


def _picture(explorer: Explored, request: m.PictureRequest, data: bytes) -> None:
    part = request.name, request.part, request.parts, data, request.again
    if (file := explorer.gallery.received(*part)) is not None:
        explorer.show_image(file, is_frame=request.again)


HANDLERS: dict[type[m.Request], Callable[[Explored, Any, bytes], None]] = {
    m.TargetRequest: _target,
    m.FactorRequest: _factor,
    m.OffRequest: _off,
    m.DropRequest: _drop,
    m.EditsRequest: _edits,
    m.PaintRequest: _paint,
    m.EraseRequest: _erase,
    m.PictureRequest: _picture,
    m.AgainRequest: _again,
    m.BesideRequest: _beside,
}
"""The function that does what each kind of request says; the bytes are a mask or a file."""
