"""The result of a survey: its layers, the pictures of their top inputs, and its page."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...draw.document import document, fitting, script, style
from ...draw.mosaic import Piece, data_url, sheet, strip
from ...files import page_to, write_arrays
from ...hooking.arguments import check_number
from ...hooking.select import close_names
from ...run.inputs import ModelInput, Transform
from ...run.progress import Progress
from ...run.statistics import NONE
from ...run.target import class_index
from ...tables import Row, Tabular, counted, megabytes, some
from ..showing import widget
from .file import FORMAT, pack, unpack
from .fingerprint import Fingerprint, data_marks, differences, model_marks, names_of
from .layer import (
    HEADER,
    ORDERS,
    SPARE,
    Key,
    LayerSurvey,
    channel_words,
    key_words,
    layer_row,
    nan_words,
)
from .patches import Patches
from .reading import Reader, as_data_set
from .running import LayerStatistics, SurveyedRun

NO_PICTURES = (
    "This survey holds only the numbers of its inputs: load it with the data set, "
    "hookviz.load(path, inputs=…), to see them."
)

SHOWN = 12
"""Pictures of a channel in a row."""


class ClassChannel(NamedTuple):
    """A channel whose top inputs are of one class."""

    layer: Key
    channel: int
    count: int  # type: ignore[assignment]  #: top inputs of the class


@dataclass(frozen=True, eq=False, repr=False)
class Survey(Tabular, Mapping[Key, LayerSurvey]):
    """The inputs that every channel responds to most, and the distribution of its values.

    Made by `hookviz.survey` or `hookviz.load`. A mapping, layer name -> `LayerSurvey`; a layer that
    runs several times in a forward is there for each run, ``survey["relu", 1]``. The surveys of
    parts of a data set are added with ``+``.

    Attributes
    ----------
    fingerprint : hookviz.studies.survey.fingerprint.Fingerprint
        The model, data set and settings.
    layers : dict
        ``SurveyedRun`` -> ``LayerStatistics``, in the order of the model.
    covered : torch.Tensor
        Mask of the data set's inputs that were taken in, ``(length,)``.
    unread : dict of int to str
        Inputs that could not be read, with the reason.
    left_out : dict of str to str
        Layers whose output is not maps of the inputs, with the reason.
    class_names : list of str
        Empty if unknown.
    fields : dict of str to dict
        The receptive fields of the layers where they are known to the pixel; empty if the inputs
        differ in size.
    sources : dict of str to list of int
        For each call of a layer the index of the input tensor that it sees, the first of several;
        −1 for a layer that sees none. Empty if the model has one input.
    reader : hookviz.studies.survey.reading.Reader or None
        Reads the data set, whose pictures are shown; it is not in the file.
    """

    fingerprint: Fingerprint
    layers: dict[SurveyedRun, LayerStatistics]
    covered: Tensor
    unread: dict[int, str]
    left_out: dict[str, str]
    class_names: list[str]
    fields: dict[str, dict[str, Any]]
    sources: dict[str, list[int]] = field(default_factory=dict)
    reader: Reader | None = field(default=None, repr=False)

    @cached_property
    def _layers(self) -> dict[Key, LayerSurvey]:
        return {
            (call.name, call.call) if call.call else call.name: LayerSurvey(
                call,
                layer,
                self.class_names,
                None if call.call else self.fields.get(call.name),
                dict(enumerate(self.sources.get(call.name, ()))).get(call.call),
            )
            for call, layer in self.layers.items()
        }

    def __getitem__(self, key: Key) -> LayerSurvey:
        if isinstance(key, tuple) and key[1:] == (0,):
            key = key[0]
        try:
            return self._layers[key]
        except (KeyError, TypeError):
            name = key[0] if isinstance(key, tuple) and key else key
            if name in self.left_out:
                raise KeyError(f"Layer {name!r} was left out: {self.left_out[name]}.") from None
            names = [known if isinstance(known, str) else known[0] for known in self._layers]
            raise KeyError(
                f"This survey has no layer {key!r}; {close_names(str(name), names)}."
            ) from None

    def __iter__(self) -> Iterator[Key]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __add__(self, other: Survey) -> Survey:
        """Return the survey of both parts of a data set; the order does not matter.

        Raises
        ------
        ValueError
            They are of different models, data sets or settings, or have inputs in common.
        """
        if not isinstance(other, Survey):
            return NotImplemented
        if why := differences(self.fingerprint, other.fingerprint):
            raise ValueError(f"These surveys cannot be added: {why}.")
        common = (self.covered & other.covered).nonzero()[:, 0].tolist()
        if common:
            more = f" and {len(common) - 1:,} more" if len(common) > 1 else ""
            raise ValueError(
                f"These surveys cannot be added: both contain input {common[0]}{more}; add each "
                "part once, made with shard=(0, n) to (n - 1, n)."
            )
        both = dict(self.layers)
        for call, layer in other.layers.items():
            both[call] = both[call] + layer if call in both else layer
        rules = self.fields.items()
        return replace(
            self,
            layers=dict(sorted(both.items())),
            covered=self.covered | other.covered,
            unread=dict(sorted((self.unread | other.unread).items())),
            left_out=self.left_out | other.left_out,
            class_names=self.class_names or other.class_names,
            fields={name: rule for name, rule in rules if other.fields.get(name) == rule},
            sources=self.sources or other.sources,
            reader=self.reader or other.reader,
        )

    @property
    def complete(self) -> bool:
        """True if the survey covers the whole data set."""
        return bool(self.covered.all())

    @property
    def seen(self) -> int:
        """Number of inputs that the model was given."""
        return int(self.covered.sum()) - len(self.unread)

    @property
    def dataset(self) -> Any:
        """The data set; None for a survey that was loaded without it."""
        return None if self.reader is None else self.reader.data

    @cached_property
    def _patches(self) -> Patches:
        if self.reader is None:
            raise ValueError(NO_PICTURES)
        return Patches(self.reader)

    def patches(self, layer: Key, channel: int, count: int | None = None) -> list[Piece]:
        """Return the pictures that a channel responds to most, cut to the receptive field.

        Parameters
        ----------
        layer : str or (str, int)
        channel : int
        count : int, optional
            How many; all k by default.

        Returns
        -------
        list of hookviz.draw.mosaic.Piece
            The strongest first. ``piece.drawn()`` is the receptive field as a PIL image,
            ``piece.drawn(whole=True)`` the whole picture with a box around it.

        Raises
        ------
        KeyError, ValueError
            No such layer or channel; or the survey was loaded without its data set.
        """
        return self._patches.of(self[layer], channel, count)

    def find(self, name: str | int, fraction: float = 1.0) -> list[ClassChannel]:
        """Return the channels whose top inputs are of one class.

        Parameters
        ----------
        name : str or int
            The class, by name or number.
        fraction : float
            The fraction of the top inputs that must be of this class, 0 to 1.

        Returns
        -------
        list of (layer, channel, count)
            Named tuples: those with the most top inputs of the class first, then in the order of
            the model.

        Raises
        ------
        ValueError
            Unknown class, or the data set has no labels.
        """
        check_number("fraction", fraction, 0, 1)
        labels = [layer.labels.flatten() for layer in self.layers.values()]
        highest = max(torch.cat(labels).tolist(), default=-1) if labels else -1
        if highest < 0:
            raise ValueError(
                "This survey has no classes: the items of the data set must be (input, class "
                "number), or the pictures lie in one folder for each class."
            )
        count = max(highest + 1, len(self.class_names))
        wanted = class_index(name, count, self.class_names)
        found = []
        for key, layer in self.items():
            top = layer.statistics.top
            ranked = (top.indices != NONE).sum(1)
            matching = (layer.statistics.labels == wanted).sum(1)
            enough = (matching > 0) & (matching >= fraction * ranked)
            channels = enough.nonzero()[:, 0].tolist()
            found += [ClassChannel(key, channel, int(matching[channel])) for channel in channels]
        return sorted(found, key=lambda channel: -channel.count)

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict for each channel, for ``pandas.DataFrame``.

        Returns
        -------
        list of dict
            With the keys of `LayerSurvey.records`.
        """
        return [record for layer in self.values() for record in layer.records()]

    def save(self, path: str | os.PathLike) -> None:
        """Write the survey as one file, whole or not at all; `hookviz.load` reads it."""
        write_arrays(path, *pack(self), small=True)

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

        In the page, channels can be searched and sorted.

        Parameters
        ----------
        path : str or Path, optional
            Where to write; by default the page is returned.
        layers : sequence of str or (str, int), optional
            Names, with ``*`` for any; None is all.
        whole : bool
            If True, whole pictures with a box around the receptive field, which is cut out by
            default.
        max_bytes : float
            Budget of the page. Patches that do not fit are made smaller and fewer; the page says
            so.
        title : str, optional

        Returns
        -------
        str or None
            The page, if no path is given.

        Raises
        ------
        ValueError
            No such layer, too few bytes for any page, or no data set, see `hookviz.load`.
        """
        with Progress() as bar:
            page = write_page(self, layers, whole, max_bytes, title, bar.update)
        return page_to(path, page)

    def show(
        self,
        layer: Key | None = None,
        *,
        channel: int | None = None,
        order: str = "number",
        whole: bool = False,
    ) -> Any:
        """Browse a layer's channels, each with the pictures that excite it most.

        Parameters
        ----------
        layer : str or (str, int), optional
            Where to begin; the last layer by default.
        channel : int, optional
            Where to begin; the first one in this order by default.
        order : {"number", "largest value", "purity", "zeros"}
            The order of the channels; purity is the fraction of the top inputs of one class.
        whole : bool
            Whole pictures, with a box around the position's receptive field; else the box alone.

        Returns
        -------
        hookviz.widgets.Page
            A widget; layers, channels and orders are chosen in it.

        Raises
        ------
        ValueError
            The survey was loaded without its data set; no such layer, channel or order.

        Examples
        --------
        >>> import hookviz
        >>> pictures = hookviz.demo_images()
        >>> survey = hookviz.survey(hookviz.demo_model(), pictures, "layer3.*.conv2")
        >>> browser = survey.show(order="largest value")
        >>> "channel 35" in repr(browser)
        True
        >>> browser.close()
        """
        return widget("browse", self, layer, channel, order, whole)

    @property
    def title(self) -> str:
        """The model, the inputs and remarks, in one line."""
        length, covered = self.fingerprint.length, int(self.covered.sum())
        channels = sum(map(len, self.layers.values()))
        inputs = f"{covered:,} of {length:,} inputs (partial)"
        if self.complete:
            inputs = counted(length, "input")
        name = self.fingerprint.model
        sizes = f"{counted(len(self), 'layer')}, {counted(channels, 'channel')}"
        facts = [f"Survey of {name}: {sizes}, {inputs}"]
        if self.unread:
            facts.append(f"{len(self.unread)} could not be read ({some(self.unread, 5)})")
        if self.left_out:
            layers = (f"{name} ({why})" for name, why in self.left_out.items())
            facts.append(f"left out: {some(layers)}")
        facts += [nan_words(layer) for layer in self.values() if layer.nans.any()]
        return "; ".join(facts)

    def _title(self) -> str:
        return self.title

    def _as_table(self) -> tuple[Row, Sequence[Row], Sequence[str]]:
        return HEADER, [layer_row(layer) for layer in self.values()], SPARE


FORMATS = {FORMAT: lambda about, arrays: Survey(**unpack(about, arrays))}


def with_data(
    survey: Survey, inputs: Any, model: nn.Module | None, transform: Transform | None
) -> Survey:
    """Return the survey with its data set; raise if the data set is a different one."""
    data = as_data_set(inputs)
    reader = Reader(data, model, None, transform)
    reader.check()
    # Names are enough, and of a folder they cost nothing: the first picture stays closed.
    first = ModelInput(()) if names_of(data) else reader.read(range(1)).inputs
    marks = data_marks(data, reader.rule, first)
    marks |= {} if model is None else model_marks(model)
    if isinstance(reader.rule, ValueError):  # the transform is unknown, and tensors need none
        del marks["transform"]
    if why := differences(survey.fingerprint, replace(survey.fingerprint, **marks)):
        raise ValueError(f"This data set is not the one of the survey: {why}.")
    return replace(survey, reader=reader)


def check_survey(survey: Any, model: nn.Module | None = None) -> None:
    """Raise an error unless this is a survey, and of the model, if one is given.

    Raises
    ------
    TypeError
        It is not a survey.
    ValueError
        It is of another model, or of other weights.
    """
    if not isinstance(survey, Survey):
        raise TypeError(
            f"A value of type {type(survey).__name__} is not a survey: give what hookviz.survey or "
            "hookviz.load returned."
        )
    marks = {} if model is None else model_marks(model)
    if why := differences(survey.fingerprint, replace(survey.fingerprint, **marks)):
        raise ValueError(f"This survey is not of the shown model: {why}.")


# The page

LEVELS = ((64, SHOWN), (48, 9), (40, 3), (34, 1))
"""Side of a patch in pixels, and patches of a channel: each level takes less than the last."""


class Start(NamedTuple):
    """The channel that a page shows first, and the order of its channels."""

    layer: Key
    channel: int = 0
    order: str = "number"


SAMPLE = 12  # channels from which the size of all is estimated
QUALITY = 75  # of JPEG


def write_page(
    survey: Survey,
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
    packed = partial(channel_of, survey)
    keys = _chosen(survey, layers)
    channels = [(key, channel) for key in keys for channel in range(len(survey[key]))]
    still_rows = [
        (_line(survey, *channel), survey.patches(*channel, 9)) for channel in channels[:3]
    ]
    named = title or f"Survey of {survey.fingerprint.model}"
    still = data_url(sheet(still_rows), QUALITY)
    fixed = len(script("survey") + style("survey") + still) + 300 * len(keys) + 4000

    def pages() -> Iterator[str]:
        for side, most in _levels(packed, channels, whole, max_bytes - fixed):
            blocks = {}
            for index, key in enumerate(keys):
                numbers = range(len(survey[key]))
                rows = [packed(key, channel, side, most, whole) for channel in numbers]
                blocks[f"layer-{index}"] = rows
                on_progress((index + 1) / len(keys))
            facts = _facts(
                survey, keys, named, side, min(most, survey.fingerprint.k), max_bytes, start
            )
            alt = f"{survey.title}: the top pictures of its channels"
            yield document(named, "survey", {"facts": facts, **blocks}, alt, still)

    advice = f" for {len(channels):,} channels: give more, or fewer layers with layers="
    return fitting(pages(), max_bytes, advice)


def shown_layers(survey: Survey) -> list[Key]:
    """Return a survey's layers; raise ValueError with the reasons if all are left out."""
    if not survey:
        raise ValueError(f"This survey has no layers to show. {survey.title}.")
    return list(survey)


def _chosen(survey: Survey, layers: str | Sequence[Key] | None) -> list[Key]:
    if layers is None:
        return shown_layers(survey)
    wanted = [layers] if isinstance(layers, (str, tuple)) else list(layers)
    chosen: dict[Key, None] = {}
    for name in wanted:
        matches = [key for key in survey if key == name or fnmatchcase(key_words(key), str(name))]
        if not matches:
            names = [key_words(key) for key in survey]
            raise ValueError(f"This survey has no layer {name!r}; {close_names(str(name), names)}.")
        chosen |= dict.fromkeys(matches)
    return list(chosen)


def _levels(
    packed: Callable[..., dict[str, Any]],
    channels: Sequence[tuple[Key, int]],
    whole: bool,
    room: float,
) -> Iterator[tuple[int, int]]:
    """Yield those of `LEVELS` at which all channels probably fit, judged by a sample of them."""
    sample = channels[:: max(1, len(channels) // SAMPLE)]
    for side, most in LEVELS:
        taken = sum(len(json.dumps(packed(*channel, side, most, whole))) for channel in sample)
        if taken / len(sample) * len(channels) <= room * 1.05:
            yield side, most


def channel_of(
    survey: Survey, key: Key, channel: int, side: int, most: int, whole: bool
) -> dict[str, Any]:
    """Return a channel as `web/survey.tsx` reads it."""
    layer = survey[key]
    pieces = survey.patches(key, channel, most)
    return {
        "channel": channel,
        "words": channel_words(layer, channel),
        "captions": [piece.caption for piece in pieces],
        "purity": round(layer.purity(channel), 3),
        "zeros": _finite(float(layer.zeros[channel])),
        "largest": _finite(float(layer.largest[channel])),
        "picture": data_url(strip(pieces, side, whole=whole), QUALITY),
    }


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def _line(survey: Survey, key: Key, channel: int) -> str:
    return f"{key_words(key)}, channel {channel}: {', '.join(channel_words(survey[key], channel))}"


def _facts(
    survey: Survey,
    keys: Sequence[Key],
    title: str,
    side: int,
    most: int,
    max_bytes: float,
    start: Start | None,
) -> dict[str, Any]:
    notes = []
    if side < LEVELS[0][0]:
        notes.append(f"To fit {megabytes(int(max_bytes))}, patches are {side} pixels large.")
    if most < survey.fingerprint.k:
        notes.append(
            f"Of a channel's {survey.fingerprint.k} patches, the first {most} are in this page."
        )
    layers = [
        {"name": key_words(key), "words": f"{survey[key].run.kind}, {len(survey[key])} channels"}
        for key in keys
    ]
    return {
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
