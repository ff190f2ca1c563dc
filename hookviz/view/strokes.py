"""Strokes of a brush on the input: edits of the pixels below it, and their removal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..draw.colours import to_numpy
from ..draw.overlay import undoing
from ..edits import blur
from ..hooking.edit import Change, LayerEdit, changed, select_places
from ..run.inputs import ModelInput

STROKES = ("grey", "mean", "blur", "noise", "draw", "restore")
"""All strokes: grey of half the brightness, each channel's own mean, a blur, noise of all
colours, a colour; or the input as it was."""


@dataclass(frozen=True, eq=False)
class Stroke(LayerEdit):
    """An edit of the pixels that a brush went over.

    Attributes
    ----------
    kind : str
        One of `STROKES`, but the last.

    Examples
    --------
    >>> where = torch.zeros(4, 6, dtype=torch.bool)
    >>> where[1, 2:4] = True
    >>> print(Stroke("input", 0, None, where, kind="grey"))
    input, 2 pixels: grey
    """

    kind: str = ""

    def __str__(self) -> str:
        count = int(self.where.sum()) if isinstance(self.where, Tensor) else 0
        return f"{self.layer}, {count:,} pixel{'s' * (count != 1)}: {self.kind}"


def with_stroke(
    edits: Sequence[LayerEdit],
    inputs: ModelInput,
    kind: str,
    where: Tensor,
    *,
    colour: Sequence[int] = (128, 128, 128),
    sample: int = 0,
) -> tuple[LayerEdit, ...]:
    """Return the edits with another stroke of a brush.

    Parameters
    ----------
    edits : sequence of LayerEdit
        Those before.
    inputs : ModelInput
        The input without edits: a batch of pictures.
    kind : str
        One of `STROKES`. The last takes these pixels out of all edits of the input.
    where : torch.Tensor
        Bool, ``(H, W)``.
    colour : sequence of int
        Red, green and blue, 0 to 255, to draw with.
    sample : int
        Which sample of the batch is changed.

    Raises
    ------
    ValueError
        Unknown kind, or the input is not a batch of pictures of this size.
    """
    main = inputs.main
    if kind not in STROKES:
        raise ValueError(f"Unknown stroke {kind!r}: give one of {', '.join(STROKES)}.")
    if main is None or main.ndim != 4 or main.shape[2:] != where.shape:
        raise ValueError("The brush needs an input of pictures, (N, C, H, W), of its own size.")
    if not where.any():
        return tuple(edits)
    if kind == "restore":
        return tuple(kept for each in edits if (kept := _less(each, where)) is not None)
    change = _change(kind, main[sample], inputs, colour, len(edits))
    if len(main) > 1:
        change = partial(_of_one, change=change, sample=sample)
    return (*edits, Stroke("input", change, None, where, kind=kind))


def _change(
    kind: str, picture: Tensor, inputs: ModelInput, colour: Sequence[int], seed: int
) -> Change:
    """Return the change of a stroke; ``picture``, ``(C, H, W)``, says what grey and colours are."""
    if kind == "mean":
        return "mean"
    if kind == "blur":
        return blur(max(1.0, 0.04 * max(picture.shape[1:])))
    scale, offset, _ = undoing(to_numpy(picture), inputs)
    gain, shift = (torch.as_tensor(each, dtype=torch.float64) for each in (scale, offset))
    if kind == "noise":  # the same in every run
        drawn = torch.rand(picture.shape, generator=torch.Generator().manual_seed(seed))
        return ((drawn.double() - shift) / gain).to(picture)
    shown = torch.tensor((128, 128, 128) if kind == "grey" else tuple(colour)).double() / 255
    shown = shown if len(picture) == 3 else shown.mean().expand(len(picture))
    return ((shown.view(-1, 1, 1) - shift) / gain).to(picture)


def _of_one(tensor: Tensor, change: Change, sample: int) -> Tensor:
    """Change one sample of a batch."""
    one = changed(tensor[sample : sample + 1], change, None, 1, "input")
    if one is not None:
        tensor[sample] = one[0]
    return tensor


def _less(each: LayerEdit, where: Tensor) -> LayerEdit | None:
    """Return an edit without these pixels; None if nothing is left of it."""
    if each.layer != "input":
        return each
    flags = torch.zeros_like(where)
    if each.where is None:
        flags[:] = True
    else:
        select_places(flags, each.where, "the input")
    if not (flags & where).any():
        return each
    left = flags & ~where
    more: dict[str, Any] = {"where": left}
    return replace(each, **more) if left.any() else None
