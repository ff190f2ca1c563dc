"""The pictures of a survey's top inputs, and all of them as one HTML file, to search and sort."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...draw.document import document, fitting, json_text, script, style
from ...draw.overlay import picture_of
from ...draw.pieces import Piece, data_url, sheet, strip
from ...hooking.select import close_names
from ...hooking.tables import megabytes, number
from ...run.inputs import ModelInput
from .channels import ORDERS, RULE, Key, LayerSurvey, Top, channel_words, key_words
from .file import Fingerprint, names_of
from .reading import Reader

NO_PICTURES = (
    "This survey knows its inputs by their numbers only: load it with the data set, "
    "hookviz.load(path, inputs=…), to see them."
)

MOST = 64_000_000
"""Bytes of pictures that are remembered."""

SHOWN = 12
"""Pictures of a channel in a row."""

WHOLE = (0.0, 0.0, 1.0, 1.0)


class Patches:
    """Cuts pieces out of a data set's pictures, each of which is read once."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self._names = reader, names_of(reader.data)
        # (index, depth) -> the picture, and the size of the input that it is of; or why there is
        # none.
        self._known: OrderedDict[tuple[int, float], tuple[np.ndarray | None, tuple, str]]
        self._known = OrderedDict()
        self._bytes = 0

    def of(self, layer: LayerSurvey, channel: int, count: int | None = None) -> list[Piece]:
        """Make the pieces for a channel's top inputs, the strongest first."""
        labels = layer.data["labels"][:, channel].tolist()
        tops = layer.top(channel, count)
        return [self._piece(layer, *each) for each in zip(tops, labels, strict=False)]

    def _piece(self, layer: LayerSurvey, top: Top, label: int) -> Piece:
        index, value, position, box = top
        depth = position[0] / max(layer.shape[0] - 1, 1) if len(position) == 3 else 0.0
        picture, size, why = self._picture(index, depth)
        named = str(layer.class_of(label)) if label >= 0 else ""
        name = f"{self._names[index]!r}" if self._names else f"input {index}"
        place = ", ".join(map(str, position))
        words = f"{name}{f' ({named})' if named else ''}: {number(value)} at ({place})"
        shares, centre = WHOLE, None
        if len(size) == len(position) and max(layer.shape) > 1:
            middle = [at + 0.5 for at in position]
            centre = _shares(middle, layer.shape, 0.5)
            if box is not None and layer.field is not None:
                half, (sizes, strides, starts) = len(size), (layer.field[n] for n in RULE[:3])
                rule = zip(starts, strides, sizes, position, strict=True)
                middle = [start + stride * at + n / 2 for start, stride, n, at in rule]
                centre = _shares(middle, size, 0.5)
                shares = _shares(box[:half], size, 0.0) + _shares(box[half:], size, 1.0)
        caption = " ".join(filter(None, (number(value), named)))
        return Piece(picture, shares, centre, caption, "; ".join(filter(None, (words, why))))

    def _picture(self, index: int, depth: float) -> tuple[np.ndarray | None, tuple, str]:
        if (index, depth) in self._known:
            self._known.move_to_end((index, depth))
            return self._known[index, depth]
        found: tuple[np.ndarray | None, tuple, str]
        try:
            inputs = self._reader.input(index)
            picture, _ = picture_of(inputs, 0, depth)
            found = picture, _size(inputs), "" if picture is not None else "it is no picture"
        except ValueError as error:
            found = None, (), str(error)
        self._known[index, depth] = found
        self._bytes += 0 if found[0] is None else found[0].nbytes
        while self._bytes > MOST and len(self._known) > 1:
            _, (old, *_) = self._known.popitem(last=False)
            self._bytes -= 0 if old is None else old.nbytes
        return found


def _size(inputs: ModelInput) -> tuple[int, ...]:
    return () if inputs.main is None else tuple(inputs.main.shape[2:])


def _shares(numbers: Sequence[float], size: Sequence[int], row: float) -> tuple[float, float]:
    """Return fractions of a picture's height and width; a signal has one ``row``."""
    found = [min(max(a / n, 0.0), 1.0) for a, n in zip(numbers, size, strict=True)]
    return (found[-2] if len(found) > 1 else row, found[-1])


class PatchMixin(Mapping[Key, LayerSurvey]):
    """A survey as far as it is looked at: its data set and its patches."""

    mark: Fingerprint
    reader: Reader | None

    @property
    def title(self) -> str:
        """The survey in one line."""
        raise NotImplementedError

    @property
    def dataset(self) -> Any:
        """The data set, as it was given; None for a survey from a file that came without it."""
        return None if self.reader is None else self.reader.data

    @cached_property
    def _patches(self) -> Patches:
        if self.reader is None:
            raise ValueError(NO_PICTURES)
        return Patches(self.reader)

    def patches(self, layer: Key, channel: int, count: int | None = None) -> list[Piece]:
        """Return the pictures that a channel responds to most, each with its field's box.

        Parameters
        ----------
        layer : str or (str, int)
        channel : int
        count : int, optional
            How many; all k.

        Returns
        -------
        list of hookviz.draw.pieces.Piece
            The strongest first. ``piece.drawn()`` is what the place sees, as a PIL image,
            ``piece.drawn(whole=True)`` the whole picture with a box around that.

        Raises
        ------
        KeyError, ValueError
            No such layer or channel; or the survey comes from a file, without its data set.
        """
        return self._patches.of(self[layer], channel, count)


# The page

LEVELS = ((64, SHOWN), (48, 9), (40, 3), (34, 1))
"""The side of a patch in pixels, and how many of a channel: each takes less than that before."""


class Start(NamedTuple):
    """The beginning of a page: a channel of a layer, the channels in an order."""

    layer: Key
    channel: int = 0
    order: str = "number"


SAMPLE = 12  # channels by which the size of all is told
QUALITY = 75  # of JPEG


def write_page(
    survey: PatchMixin,
    layers: str | Sequence[Key] | None,
    whole: bool,
    max_bytes: float,
    title: str | None,
    on_progress: Callable[[float], object],
    start: Start | None = None,
) -> str:
    """Write the page, see `Survey.to_html`; ``on_progress`` gets the fraction done, 0 to 1."""
    if survey.dataset is None:
        raise ValueError(NO_PICTURES)
    keys = _chosen(survey, layers)
    every = [(key, channel) for key in keys for channel in range(len(survey[key]))]
    rows = [(_line(survey, *each), survey.patches(*each, 9)) for each in every[:3]]
    named = title or f"Survey of {survey.mark.model}"
    program, css = script("survey"), style("style", "survey")
    still = data_url(sheet(rows), QUALITY)
    fixed = len(program) + len(css) + len(still) + 300 * len(keys) + 4000

    def pages() -> Iterator[str]:
        for side, most in _levels(survey, every, whole, max_bytes - fixed):
            blocks = {}
            for place, key in enumerate(keys):
                channels = range(len(survey[key]))
                made = [_channel(survey, key, channel, side, most, whole) for channel in channels]
                blocks[f"layer-{place}"] = json_text(made)
                on_progress((place + 1) / len(keys))
            facts = _facts(survey, keys, named, side, min(most, survey.mark.k), max_bytes, start)
            alt = f"{survey.title}: what its channels answer to"
            yield document(named, program, css, {"facts": facts, **blocks}, alt, still)

    few = f" for {len(every):,} channels: give more, or fewer layers with layers="
    return fitting(pages(), max_bytes, few)


def _chosen(survey: PatchMixin, layers: str | Sequence[Key] | None) -> list[Key]:
    if layers is None:
        return list(survey)
    wanted: list[Any] = [layers] if isinstance(layers, (str, tuple)) else list(layers)
    found: list[Key] = []
    for each in wanted:
        here = [
            key
            for key in survey
            if key == each
            or (isinstance(each, str) and isinstance(key, str) and fnmatchcase(key, each))
        ]
        if not here:
            names = [key_words(key) for key in survey]
            raise ValueError(f"This survey has no layer {each!r}; {close_names(str(each), names)}.")
        found += [key for key in here if key not in found]
    return found


def _levels(
    survey: PatchMixin, every: Sequence[tuple[Key, int]], whole: bool, room: float
) -> Iterator[tuple[int, int]]:
    """Those of `LEVELS` of which some channels say that all may fit."""
    some = every[:: max(1, len(every) // SAMPLE)]
    for side, most in LEVELS:
        taken = sum(len(json.dumps(_channel(survey, *each, side, most, whole))) for each in some)
        if taken / len(some) * len(every) <= room * 1.05:
            yield side, most


def _channel(
    survey: PatchMixin, key: Key, channel: int, side: int, most: int, whole: bool
) -> dict[str, Any]:
    """Return a channel in the form that `hookviz/static/survey.js` reads."""
    layer = survey[key]
    found = survey.patches(key, channel, most)
    captions = [piece.caption for piece in found]
    return {
        "channel": channel,
        "words": channel_words(layer, channel),
        "captions": captions,
        "purity": round(layer.purity(channel), 3),
        "zeros": _finite(float(layer.zeros[channel])),
        "largest": _finite(float(layer.data["values"][0, channel])),
        "picture": data_url(strip(found, side, whole=whole), QUALITY),
    }


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def _line(survey: PatchMixin, key: Key, channel: int) -> str:
    return f"{key_words(key)}, channel {channel}: {', '.join(channel_words(survey[key], channel))}"


def _facts(
    survey: PatchMixin,
    keys: Sequence[Key],
    title: str,
    side: int,
    most: int,
    max_bytes: float,
    start: Start | None,
) -> str:
    notes = []
    if side < LEVELS[0][0]:
        notes.append(f"To fit {megabytes(int(max_bytes))}, patches are {side} pixels large.")
    if most < survey.mark.k:
        notes.append(f"Of a channel's {survey.mark.k} patches the first {most} are in this page.")
    layers = [
        {"name": key_words(key), "words": f"{survey[key].column.kind}, {len(survey[key])} channels"}
        for key in keys
    ]
    return json_text(
        {
            "title": title,
            "words": survey.title.partition(": ")[2],
            "layers": layers,
            "orders": list(ORDERS),
            "patches": most,
            "notes": notes,
            "start": None
            if start is None
            else {"layer": keys.index(start.layer), "channel": start.channel, "order": start.order},
        }
    )
