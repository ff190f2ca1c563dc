"""The result of a survey: layers and their channels, the pictures of their top inputs, the page."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as having
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from ...draw.document import document, fitting, json_text, script, style
from ...draw.mosaic import Piece, data_url, sheet, strip
from ...draw.overlay import picture_of
from ...files import page_to, read_arrays, write_arrays
from ...hooking.select import close_names
from ...run.inputs import ModelInput, Transform
from ...run.progress import Progress
from ...run.target import class_index
from ...tables import html_table, megabytes, number, text_table
from ..showing import widget
from .channels import (
    HEADER,
    NONE,
    ORDERS,
    RULE,
    SPARE,
    Key,
    LayerSurvey,
    RunningStatistics,
    Top,
    channel_words,
    key_words,
    layer_row,
    nan_words,
)
from .file import (
    FORMAT,
    Fingerprint,
    IndexRanges,
    data_marks,
    differences,
    model_marks,
    names_of,
    pack,
    unpack,
)
from .reading import Reader, as_data_set

NO_PICTURES = (
    "This survey holds only the numbers of its inputs: load it with the data set, "
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
            found = picture, _size(inputs), "" if picture is not None else "it is not a picture"
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
        list of hookviz.draw.mosaic.Piece
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
    packed: Callable[..., dict[str, Any]] | None = None,
) -> str:
    """Write the page, see `Survey.to_html`; ``on_progress`` gets the fraction done, 0 to 1.

    ``packed`` is `channel_of` this survey, with a memory where pages are written again.
    """
    if survey.dataset is None:
        raise ValueError(NO_PICTURES)
    packed = packed or partial(channel_of, survey)
    keys = _chosen(survey, layers)
    every = [(key, channel) for key in keys for channel in range(len(survey[key]))]
    rows = [(_line(survey, *each), survey.patches(*each, 9)) for each in every[:3]]
    named = title or f"Survey of {survey.mark.model}"
    program, css = script("survey"), style("style", "survey")
    still = data_url(sheet(rows), QUALITY)
    fixed = len(program) + len(css) + len(still) + 300 * len(keys) + 4000

    def pages() -> Iterator[str]:
        for side, most in _levels(packed, every, whole, max_bytes - fixed):
            blocks = {}
            for index, key in enumerate(keys):
                channels = range(len(survey[key]))
                made = [packed(key, channel, side, most, whole) for channel in channels]
                blocks[f"layer-{index}"] = json_text(made)
                on_progress((index + 1) / len(keys))
            facts = _facts(survey, keys, named, side, min(most, survey.mark.k), max_bytes, start)
            alt = f"{survey.title}: the top pictures of its channels"
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
    packed: Callable[..., dict[str, Any]],
    every: Sequence[tuple[Key, int]],
    whole: bool,
    room: float,
) -> Iterator[tuple[int, int]]:
    """Those of `LEVELS` of which some channels say that all may fit."""
    some = every[:: max(1, len(every) // SAMPLE)]
    for side, most in LEVELS:
        taken = sum(len(json.dumps(packed(*each, side, most, whole))) for each in some)
        if taken / len(some) * len(every) <= room * 1.05:
            yield side, most


def channel_of(
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


@dataclass(frozen=True, eq=False)
class Survey(PatchMixin):
    """The inputs that every channel responds to most, and the spread of its values.

    Made by `hookviz.survey` or `hookviz.load`. A mapping, layer name -> `LayerSurvey`; a
    layer that runs several times in a forward is there for each run, ``survey["relu", 1]``. What
    two shards found is put together by ``+``.

    Attributes
    ----------
    mark : hookviz.studies.survey.file.Fingerprint
        Which model, data set and settings it is of.
    channels : hookviz.studies.survey.channels.RunningStatistics
        All that is known, as one table.
    done : hookviz.studies.survey.file.IndexRanges
        The indices that have been taken in.
    unread : dict of int to str
        Inputs that could not be read, with the reason.
    left_out : dict of str to str
        Layers whose output is not maps of the inputs, with the reason.
    class_names : list of str
        Empty if none are known.
    fields : dict of str to dict, or None
        Of layers whose receptive field is known to the pixel, the numbers of ``RULE``; none if the
        inputs differ in size, None if nobody has looked.
    reader : hookviz.studies.survey.reading.Reader or None
        Of the data set, whose pictures are shown; it is not in the file.
    """

    mark: Fingerprint
    channels: RunningStatistics
    done: IndexRanges
    unread: dict[int, str] = having(default_factory=dict)
    left_out: dict[str, str] = having(default_factory=dict)
    class_names: list[str] = having(default_factory=list)
    fields: dict[str, dict[str, Any]] | None = None
    reader: Reader | None = having(default=None, repr=False)

    # A mapping of layers

    @cached_property
    def _layers(self) -> dict[Key, LayerSurvey]:
        found: dict[Key, LayerSurvey] = {}
        for column, here in self.channels.slices().items():
            key = (column.name, column.call) if column.call else column.name
            data = {name: each[..., here].cpu() for name, each in self.channels.data.items()}
            shape = self.channels.layout[column]
            field = None if column.call else (self.fields or {}).get(column.name)
            found[key] = LayerSurvey(column, shape, data, self.class_names, field)
        return found

    def __getitem__(self, key: Key) -> LayerSurvey:
        if isinstance(key, tuple) and key[1:] == (0,):
            key = key[0]
        try:
            return self._layers[key]
        except (KeyError, TypeError):
            name = key[0] if isinstance(key, tuple) and key else key
            if name in self.left_out:
                raise KeyError(f"Layer {name!r} was left out: {self.left_out[name]}.") from None
            names = [each if isinstance(each, str) else each[0] for each in self._layers]
            raise KeyError(
                f"This survey has no layer {key!r}; {close_names(str(name), names)}."
            ) from None

    def __iter__(self) -> Iterator[Key]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self.channels.layout)

    def __add__(self, other: Survey) -> Survey:
        """Add two surveys of parts of one data set.

        Raises
        ------
        ValueError
            They are of different models, data sets or settings, or have inputs in common.
        """
        if not isinstance(other, Survey):
            return NotImplemented
        if found := differences(self.mark, other.mark):
            raise ValueError(f"These surveys cannot be added: {found}.")
        if common := self.done & other.done:
            raise ValueError(
                f"These surveys cannot be added: both have the inputs {common}; add shards that "
                "have none in common."
            )
        return replace(
            self,
            channels=self.channels + other.channels,
            done=self.done | other.done,
            unread=dict(sorted((self.unread | other.unread).items())),
            left_out=self.left_out | other.left_out,
            class_names=self.class_names or other.class_names,
            fields=_common(self.fields, other.fields),
            reader=self.reader or other.reader,
        )

    @property
    def complete(self) -> bool:
        """True if the whole data set has been taken in."""
        return len(self.done) == self.mark.length

    @property
    def seen(self) -> int:
        """Number of inputs that the model was given."""
        return len(self.done) - len(self.unread)

    def find(self, name: str | int, fraction: float = 1.0) -> list[tuple[Key, int, int]]:
        """Return the channels whose top inputs are of one class.

        Parameters
        ----------
        name : str or int
            The class, by name or number.
        fraction : float
            Of the top inputs, how large a part must be of this class, above 0 to 1.

        Returns
        -------
        list of (layer, channel, count)
            Those with the most top inputs of the class first, then in the model's order.

        Raises
        ------
        ValueError
            Unknown class, or the data set came without labels.
        """
        if not 0 < fraction <= 1:
            raise ValueError(
                f"fraction={fraction} is not a fraction of the inputs: give 0 < fraction <= 1."
            )
        labels = self.channels.data["labels"]
        highest = int(labels.max()) if labels.numel() else -1
        if highest < 0:
            raise ValueError(
                "This survey has no classes: the items of the data set must be (input, class "
                "number), or the pictures lie in one folder for each class."
            )
        count = max(highest + 1, len(self.class_names))
        wanted = class_index(name, count, self.class_names)
        found = []
        for key, layer in self.items():
            ranked = (layer.data["indices"] != NONE).sum(0)
            of_it = (layer.data["labels"] == wanted).sum(0)
            good = ((of_it > 0) & (of_it >= fraction * ranked)).nonzero()[:, 0].tolist()
            found += [(key, channel, int(of_it[channel])) for channel in good]
        return sorted(found, key=lambda each: -each[2])

    def records(self) -> list[dict[str, Any]]:
        """One flat dict for each channel, as ``pandas.DataFrame`` takes them.

        Returns
        -------
        list of dict
            With the keys of `LayerSurvey.records`.
        """
        return [record for layer in self.values() for record in layer.records()]

    def save(self, path: str | os.PathLike) -> None:
        """Write it as one file, see `hookviz.load`."""
        write_arrays(path, *pack(self), small=True)

    # Shown

    def to_html(
        self,
        path: str | os.PathLike | None = None,
        *,
        layers: Sequence[Key] | None = None,
        whole: bool = False,
        max_bytes: float = 10e6,
        title: str | None = None,
    ) -> str | None:
        """Write all channels with their patches as one file that needs no kernel and no network.

        Channels can be searched and sorted in it, by what is known of them.

        Parameters
        ----------
        path : str or Path, optional
            Where to write; left out, the page is returned.
        layers : sequence of str or (str, int), optional
            Names, with ``*`` for any; None is all.
        whole : bool
            Whole pictures with a box, where patches are cut out else.
        max_bytes : float
            What the page may take. Where all patches do not fit, they are made smaller and fewer;
            the page says so.
        title : str, optional
            Of the page.

        Returns
        -------
        str or None
            The page, where no path is given.

        Raises
        ------
        ValueError
            No such layer, too few bytes for any page, or no data set, see `hookviz.load`.
        """
        with Progress() as bar:
            said = whole, max_bytes, title, bar.update
            page = write_page(self, layers, *said)
        return page_to(path, page)

    def show(self, layer: Key | None = None, **settings: Any) -> Any:
        """Leaf through a layer's channels, each with the pictures that excite it most.

        Parameters
        ----------
        layer : str or (str, int), optional
            Where to begin; the last one if left out.
        **settings
            As the widget has them: ``channel=``, ``order=``, ``whole=``.

        Returns
        -------
        ChannelBrowser
            A widget. Its settings are traits: set them, observe them, link them.

        Raises
        ------
        ValueError
            The survey comes from a file, without its data set; no such layer, channel or order.

        Examples
        --------
        >>> import hookviz
        >>> pictures = hookviz.demo_images()
        >>> survey = hookviz.survey(hookviz.demo_model(), pictures, "layer3.*.conv2")
        >>> browser = survey.show(order="largest value")
        >>> browser.layer, browser.channel
        ('layer3.1.conv2', 35)
        >>> browser.close()
        """
        return widget("browse", self, layer, **settings)

    @property
    def title(self) -> str:
        """The model, the progress and the remarks, in words."""
        of = f"{len(self.done):,} of {self.mark.length:,}"
        facts = [f"Survey of {self.mark.model}: {len(self)} layers, {self.channels.width:,} "]
        facts[0] += f"channels, {f'{self.mark.length:,}' if self.complete else of} inputs"
        if self.unread:
            which = ", ".join(map(str, list(self.unread)[:5])) + ", …" * (len(self.unread) > 5)
            facts.append(f"{len(self.unread)} could not be read ({which})")
        for name, why in list(self.left_out.items())[:3]:
            facts.append(f"{name} was left out ({why})")
        if (more := len(self.left_out)) > 3:
            facts.append(f"and {more - 3} more")
        for layer in self.values():
            if layer.nans.any():
                facts.append(nan_words(layer))
        return "; ".join(facts)

    def __repr__(self) -> str:
        return text_table(self.title, HEADER, [layer_row(layer) for layer in self.values()], SPARE)

    def _repr_html_(self) -> str:
        return html_table(self.title, HEADER, [layer_row(layer) for layer in self.values()])


def _common(one: dict[str, Any] | None, other: dict[str, Any] | None) -> dict[str, Any] | None:
    if one is None or other is None:
        return other if one is None else one
    return {name: rule for name, rule in one.items() if other.get(name) == rule}


def read(path: str | os.PathLike) -> Survey:
    """Read what `Survey.save` wrote."""
    return read_arrays(path, FORMATS, "survey")


FORMATS = {FORMAT: lambda about, arrays: Survey(**unpack(about, arrays))}


def with_data(
    survey: Survey, inputs: Any, model: nn.Module | None, transform: Transform | None
) -> Survey:
    """Return the survey if it has its pictures; otherwise raise."""
    data = as_data_set(inputs)
    reader = Reader(data, model, None, transform)
    known = data_marks(data, reader.rule) | ({} if model is None else model_marks(model))
    reader.check()
    if isinstance(reader.rule, ValueError):  # nobody says what it was, and nothing has need of it
        del known["transform"]
    if why := differences(survey.mark, replace(survey.mark, **known)):
        raise ValueError(f"This is not what the survey is of: {why}.")
    return replace(survey, reader=reader)


def check_survey(survey: Any, model: nn.Module | None = None) -> None:
    """Raise what stands against showing a survey, or showing it beside a model.

    Raises
    ------
    TypeError
        It is not a survey.
    ValueError
        It is of another model, or of other weights.
    """
    if not isinstance(survey, Survey):
        raise TypeError(
            f"A {type(survey).__name__} is not a survey: give what hookviz.survey or "
            "hookviz.load returned."
        )
    known = {} if model is None else model_marks(model)
    if why := differences(survey.mark, replace(survey.mark, **known)):
        raise ValueError(f"This survey is not of the shown model: {why}.")
