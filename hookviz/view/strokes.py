"""Strokes on the input: edits that fill the painted pixels with the mean, and an eraser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..hooking.edit import LayerEdit
from ..run.inputs import ModelInput
from ..tables import counted


@dataclass(frozen=True, eq=False)
class Fill:
    """Fills a sample with the mean of each channel, ``(C, 1, 1)``."""

    sample: int
    mean: Tensor

    def __call__(self, batch: Tensor) -> Tensor:
        batch[self.sample] = self.mean.to(batch)
        return batch


@dataclass(frozen=True, eq=False)
class Stroke(LayerEdit):
    """An edit of the pixels that a brush or a rectangle covered.

    Examples
    --------
    >>> import torch
    >>> covered = torch.zeros(4, 6, dtype=torch.bool)
    >>> covered[1, 2:4] = True
    >>> print(Stroke("input", 0, None, covered))
    input, 2 pixels: mean
    """

    @property
    def pixels(self) -> Tensor:
        """The covered pixels, bool (H, W)."""
        assert isinstance(self.where, Tensor)
        return self.where

    def merged(self, later: LayerEdit) -> LayerEdit | None:
        """Return one stroke over the pixels of both, so that many strokes run as fast as one."""
        one, other = self.change, later.change
        if not (isinstance(one, Fill) and isinstance(later, Stroke) and isinstance(other, Fill)):
            return None
        same = one.sample == other.sample and torch.equal(one.mean, other.mean)
        return replace(self, where=self.pixels | later.pixels) if same else None

    def __str__(self) -> str:
        return f"{self.layer}, {counted(int(self.pixels.sum()), 'pixel')}: mean"


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
    return (*edits, Stroke("input", Fill(sample, mean), None, pixels))


def erased(edits: Sequence[LayerEdit], inputs: ModelInput, pixels: Tensor) -> tuple[LayerEdit, ...]:
    """Return the edits with these pixels, bool (H, W), taken out of all strokes.

    Raises
    ------
    ValueError
        The input is not a batch of pictures of this size.
    """
    _batch(inputs, pixels)
    left = []
    for edit in edits:
        if isinstance(edit, Stroke):
            edit = replace(edit, where=edit.pixels & ~pixels)
            if not edit.pixels.any():
                continue
        left.append(edit)
    return tuple(left)


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
