"""The result of a survey: layers and their channels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as having
from functools import cached_property
from typing import Any

from torch import nn

from ...files import page_to, read_arrays, write_arrays
from ...hooking.select import close_names
from ...hooking.tables import html_table, text_table
from ...run.inputs import Transform
from ...run.progress import Progress
from ...run.target import class_index
from ..showing import widget
from .channels import HEADER, NONE, SPARE, Key, LayerSurvey, RunningStatistics, layer_row, nan_words
from .file import (
    FORMAT,
    Fingerprint,
    IndexRanges,
    data_marks,
    differences,
    model_marks,
    pack,
    unpack,
)
from .page import PatchMixin, write_page
from .reading import Reader, as_data_set


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
        Layers whose output is no maps of the inputs, with the reason.
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

    def find(self, name: str | int, share: float = 1.0) -> list[tuple[Key, int, int]]:
        """Return the channels whose top inputs are of one class.

        Parameters
        ----------
        name : str or int
            The class, by name or number.
        share : float
            Of the top inputs, how large a part must be of this class, above 0 to 1.

        Returns
        -------
        list of (layer, channel, count)
            Those with the most top inputs of the class first, then in the model's order.

        Raises
        ------
        ValueError
            There is no such class, or the data set came without labels.
        """
        if not 0 < share <= 1:
            raise ValueError(f"share={share} is no part of the top inputs: give 0 < share <= 1.")
        labels = self.channels.data["labels"]
        highest = int(labels.max()) if labels.numel() else -1
        if highest < 0:
            raise ValueError(
                "This survey knows of no classes: the items of the data set must be (input, class "
                "number), or the pictures lie in one folder for each class."
            )
        count = max(highest + 1, len(self.class_names))
        wanted = class_index(name, count, self.class_names)
        found = []
        for key, layer in self.items():
            ranked = (layer.data["indices"] != NONE).sum(0)
            of_it = (layer.data["labels"] == wanted).sum(0)
            good = ((of_it > 0) & (of_it >= share * ranked)).nonzero()[:, 0].tolist()
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
        It is no survey.
    ValueError
        It is of another model, or of other weights.
    """
    if not isinstance(survey, Survey):
        raise TypeError(
            f"A {type(survey).__name__} is no survey: give what hookviz.survey or "
            "hookviz.load returned."
        )
    known = {} if model is None else model_marks(model)
    if why := differences(survey.mark, replace(survey.mark, **known)):
        raise ValueError(f"This survey is not of the shown model: {why}.")
