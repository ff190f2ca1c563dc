"""What the controls have to choose from: a frame's settings as sliders, menus and typed words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..draw.colours import NORMALIZATIONS
from ..draw.mosaic import PAGE
from ..hooking.select import close_names
from ..view.frame import Frame
from ..view.layer import ORDERS
from ..view.settings import CMAPS, INDICES, VERSIONS, heatmap_names

Options = tuple[tuple[str, Any], ...]
"""Labels and values."""

SLIDERS = ("layer", *INDICES, "page", "alpha")
MENUS = ("heatmap", "overlay", "order", "cmap", "normalize", "version")
LABELS = {"alpha": "opacity", "overlay": "shown", "cmap": "colours", "normalize": "range"}
"""Setting -> what its control is called, where that is another word."""

OVERLAY = (("over the input", True), ("heatmap alone", False))
TOP = "top prediction"
"""What is typed for the target None."""


def options(frame: Frame) -> dict[str, Options]:
    """Menu -> its options."""
    cmap = frame.settings.cmap
    return {
        "heatmap": named(heatmap_names()),
        "overlay": OVERLAY,
        "order": named(ORDERS),
        "cmap": named(CMAPS if cmap in CMAPS else (*CMAPS, cmap)),
        "normalize": named(NORMALIZATIONS),
        "version": named(VERSIONS),
    }


def named(values: Sequence[str]) -> Options:
    """Options that are called what they are."""
    return tuple((value, value) for value in values)


def positions(frame: Frame) -> dict[str, tuple[int, int, int]]:
    """Slider -> its least and its largest position, and where it is; opacity is in per cent.

    Sorted channels are counted from 1, as ranks are, and pages, too.
    """
    at, counts = frame.settings, frame.counts
    first = int(at.order != "index")
    found = {name: (0, counts[name] - 1, getattr(at, name)) for name in INDICES}
    found["channel"] = (first, counts["channel"] - 1 + first, frame.position + first)
    layers = frame.layers
    found["layer"] = (0, len(layers) - 1, layers.index(at.layer) if at.layer in layers else 0)
    found["page"] = (1, frame.tiles.pages, frame.tiles.page + 1)
    blended = frame.overlay is not None or frame.strip is not None
    return found | {"alpha": (0, 100 if blended else 0, round(100 * at.alpha))}


def set_to(name: str, position: int, frame: Frame) -> tuple[str, Any]:
    """The setting, and its value, that a slider's position stands for."""
    if name == "layer":
        return name, frame.layers[position]
    if name == "page":
        return "channel", int(frame.channels[(position - 1) * PAGE])
    if name == "channel":
        return name, int(frame.channels[position - int(frame.settings.order != "index")])
    return name, position / 100 if name == "alpha" else position


def place_words(frame: Frame) -> tuple[str, str, str]:
    """Beside the slider: where in the order the channel stands; a class; and all of it."""
    count, order, here = frame.counts["channel"], frame.settings.order, frame.settings.channel
    if order == "index":
        return f"of {count}", "place", f"channel {here} of {count}"
    text = f"{ordinal(frame.position + 1)} of {count} by {order}: channel {here}"
    return text, "place", text


def ordinal(number: int) -> str:
    """For people.

    Examples
    --------
    >>> [ordinal(each) for each in (1, 2, 3, 4, 11, 12, 21, 112)]
    ['1st', '2nd', '3rd', '4th', '11th', '12th', '21st', '112th']
    """
    teen = 10 < number % 100 < 14
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def layer_lines(frame: Frame) -> list[str]:
    """Each layer in a line: its name, type, kernel, channels, size."""
    return [f"{name or '(model)'} · {words.line}" for name, words in frame.words.items()]


def typed_layer(text: str, frame: Frame) -> str:
    """The layer that was chosen or typed: by its line, its name, or the first with all these words.

    Raises
    ------
    ValueError
        There is none.
    """
    lines = layer_lines(frame)
    if text in lines:
        return frame.layers[lines.index(text)]
    if text in frame.layers:
        return text
    words = text.casefold().replace("x", "×").split()
    folded = [line.casefold().replace("x", "×") for line in lines]
    for name, line in zip(frame.layers, folded, strict=True):
        if all(word in line for word in words):
            return name
    raise ValueError(
        f"No layer has {text!r} in its name, type or size; {close_names(text, frame.layers)}."
    )


def typed_target(text: str, frame: Frame) -> Any:
    """The target that was chosen or typed: a class by its name or number, or the top prediction."""
    if text == TOP:
        return None
    if text in frame.classes:
        return frame.classes.index(text)
    return int(text) if text.strip().isdecimal() else text.strip()


def typed_place(text: str, frame: Frame) -> tuple[float, float] | None:
    """The place by its row and column, or by its column alone; none where neither is typed.

    Raises
    ------
    ValueError
        The map has no such place.
    """
    numbers = [int(each) for each in re.findall(r"-?\d+", text)]
    if not numbers:
        return None
    height, width = frame.panels[0].values.shape
    row, column = numbers if len(numbers) == 2 else (0, numbers[0]) if height == 1 else (-1, -1)
    if not (0 <= row < height and 0 <= column < width):
        raise ValueError(
            f"{text!r} is no place of this map: give its row, 0 to {height - 1}, and its column, "
            f"0 to {width - 1}; or nothing but a dash for no place."
        )
    return (row + 0.5) / height, (column + 0.5) / width
