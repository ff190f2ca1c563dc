"""A function of the explorer for each request of the browser.

A function raises what goes wrong; the explorer shows it, since a notebook hides what a callback
raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

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


class Changeable(Protocol):
    """The part of `hookviz.widgets.Explorer` that requests change, or need to know."""

    edits: Any
    target: Any
    image: Any
    gallery: Gallery
    inputs: ModelInput

    def displayed(self) -> View: ...
    def follow(self, settings: Mapping[str, Any]) -> None: ...
    def undo(self) -> None: ...
    def reset(self) -> None: ...
    def edit_named(self, key: int) -> LayerEdit | None: ...
    def show_beside(self, key: int, sample: int) -> None: ...


HANDLERS: dict[type[m.Request], Callable[[Changeable, Any, Sequence[Any]], None]] = {}

Handler = TypeVar("Handler", bound=Callable[..., None])


def handles(kind: type[m.Request]) -> Callable[[Handler], Handler]:
    """Register the function that does what a kind of request says; it also gets the bytes."""

    def register(function: Handler) -> Handler:
        HANDLERS[kind] = function
        return function

    return register


@handles(m.TargetRequest)
def _target(explorer: Changeable, request: m.TargetRequest, data: Sequence[Any]) -> None:
    explorer.target = request.number if request.written is None else request.written


# Edits


@handles(m.FactorRequest)
def _factor(explorer: Changeable, request: m.FactorRequest, data: Sequence[Any]) -> None:
    """Replace the factor of a channel, where it is among the edits; a factor of 1 is none."""
    layer, channel = request.layer, request.channel
    if request.settings is None:
        explorer.follow({"layer": layer, "channel": channel})
    edits = list(explorer.edits)
    own = [index for index, edit in enumerate(edits) if edit.is_of(layer, channel)]
    index = own[-1] if own else len(edits)
    view = explorer.displayed()
    edit = edit_in(view, layer, float(request.factor), channel)
    edits[index : index + 1] = [] if request.factor == 1 else [edit]
    explorer.edits = edits


@handles(m.OffRequest)
def _off(explorer: Changeable, request: m.OffRequest, data: Sequence[Any]) -> None:
    edit = edit_in(explorer.displayed(), request.layer, 0, request.channels)
    explorer.edits = (*explorer.edits, edit)


@handles(m.DropRequest)
def _drop(explorer: Changeable, request: m.DropRequest, data: Sequence[Any]) -> None:
    edit = explorer.edit_named(request.key)
    explorer.edits = [each for each in explorer.edits if each is not edit]


@handles(m.UndoRequest)
def _undo(explorer: Changeable, request: m.UndoRequest, data: Sequence[Any]) -> None:
    explorer.undo()


@handles(m.RestoreRequest)
def _restore(explorer: Changeable, request: m.RestoreRequest, data: Sequence[Any]) -> None:
    explorer.reset()


@handles(m.PaintRequest)
def _paint(explorer: Changeable, request: m.PaintRequest, data: Sequence[Any]) -> None:
    pixels = _pixels(explorer, request.shape, data)
    sample = input_sample(explorer.displayed())
    explorer.edits = painted(explorer.edits, explorer.inputs, pixels, sample)


@handles(m.EraseRequest)
def _erase(explorer: Changeable, request: m.EraseRequest, data: Sequence[Any]) -> None:
    pixels = _pixels(explorer, request.shape, data)
    explorer.edits = erased(explorer.edits, explorer.inputs, pixels)


def _pixels(explorer: Changeable, shape: tuple[int, int], data: Sequence[Any]) -> torch.Tensor:
    """Return the pixels that a stroke covers, bool ``(H, W)``."""
    at = picture_at(explorer.displayed())
    if at is None or at[2] != min(picture_tensors(explorer.inputs)):
        raise ValueError("Only the first input picture can be painted: show a map of it.")
    return torch.from_numpy(np.frombuffer(data[0], np.uint8).reshape(shape).astype(bool))


# Pictures


@handles(m.PictureRequest)
def _picture(explorer: Changeable, request: m.PictureRequest, data: Sequence[Any]) -> None:
    part = request.name, request.part, request.parts, bytes(data[0]), request.again
    if (file := explorer.gallery.received(*part)) is not None:
        explorer.image = file


@handles(m.AgainRequest)
def _again(explorer: Changeable, request: m.AgainRequest, data: Sequence[Any]) -> None:
    explorer.image = explorer.gallery.given(request.key)


@handles(m.BesideRequest)
def _beside(explorer: Changeable, request: m.BesideRequest, data: Sequence[Any]) -> None:
    explorer.show_beside(request.key, request.sample)
