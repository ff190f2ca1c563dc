"""Strokes on the input: edits that fill the painted pixels with the mean, and an eraser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ..hooking.changes import select_positions
from ..hooking.edit import LayerEdit
from ..run.inputs import ModelInput


@dataclass(frozen=True, eq=False)
class Stroke(LayerEdit):
    """An edit of the pixels that a brush or a rectangle covered.

    Examples
    --------
    >>> covered = torch.zeros(4, 6, dtype=torch.bool)
    >>> covered[1, 2:4] = True
    >>> print(Stroke("input", 0, None, covered))
    input, 2 pixels: mean
    """

    def __str__(self) -> str:
        count = int(self.where.sum()) if isinstance(self.where, Tensor) else 0
        return f"{self.layer}, {count:,} pixel{'s' * (count != 1)}: mean"


def painted(
    edits: Sequence[LayerEdit], inputs: ModelInput, pixels: Tensor, sample: int = 0
) -> tuple[LayerEdit, ...]:
    """Return the edits with a stroke that fills pixels with the mean of each channel.

    Parameters
    ----------
    edits : sequence of LayerEdit
        The edits before the stroke.
    inputs : ModelInput
        The input without edits: a batch of pictures, (N, C, H, W).
    pixels : torch.Tensor
        Bool, (H, W): the pixels to fill.
    sample : int
        The sample of the batch to change.

    Raises
    ------
    ValueError
        The input is not a batch of pictures of this size.
    """
    picture = _batch(inputs, pixels)[sample]
    if not pixels.any():
        return tuple(edits)
    # The mean of the picture without edits: a second stroke beside the first has the same colour.
    mean = picture.mean((1, 2), keepdim=True)
    return (*edits, Stroke("input", partial(_filled, mean=mean, sample=sample), None, pixels))


def erased(edits: Sequence[LayerEdit], inputs: ModelInput, pixels: Tensor) -> tuple[LayerEdit, ...]:
    """Return the edits without these pixels, bool (H, W), in all edits of the input.

    Raises
    ------
    ValueError
        The input is not a batch of pictures of this size.
    """
    _batch(inputs, pixels)
    return tuple(left for edit in edits if (left := _without(edit, pixels)) is not None)


def _batch(inputs: ModelInput, pixels: Tensor) -> Tensor:
    main = inputs.main
    if main is None or main.ndim != 4 or main.shape[2:] != pixels.shape:
        shape = "none" if main is None else tuple(main.shape)
        height, width = pixels.shape
        raise ValueError(
            f"Painting {height}×{width} pixels needs an input tensor of shape "
            f"(N, C, {height}, {width}); this one's is {shape}."
        )
    return main


def _filled(batch: Tensor, mean: Tensor, sample: int) -> Tensor:
    batch[sample] = mean.to(batch)
    return batch


def _without(edit: LayerEdit, pixels: Tensor) -> LayerEdit | None:
    """Return an edit without these pixels; None if nothing is left of it."""
    if edit.layer != "input":
        return edit
    changed = torch.zeros_like(pixels)
    if edit.where is None:
        changed[:] = True
    else:
        select_positions(changed, edit.where, "the input")
    if not (changed & pixels).any():
        return edit
    left = changed & ~pixels
    return replace(edit, where=left) if left.any() else None
