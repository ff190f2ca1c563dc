"""The messages between kernel and browser: a dataclass for each question, answer and event.

* The browser asks a `Question`; the kernel replies with an `Reply` that repeats its key. A handler
  for each question is registered in `hookviz.view.replies`.
* The browser sends a `Request` to change the target, the input or the edits. It carries the
  settings that were changed in the browser since. A handler for each request is registered in
  `hookviz.widgets.requests`.
* The kernel sends facts, settings and notes as traits of the widget.

``web/messages.d.ts`` is generated from this file by ``make messages``.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import (
    Any,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from .health import HealthSummary
from .outputs import Finite, OutputBox
from .predictions import Prediction
from .transform import TransformWords
from .view import Opening

Place = tuple[float, float]
"""A position as fractions of the map: down and right."""

PictureAt = tuple[int, Finite, int]
"""A sample, its relative depth, and the place of its tensor among the inputs."""


Kind = TypeVar("Kind", bound="Message")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Message:
    """A message, or a part of one: a frozen dataclass whose fields are given by name."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


# Questions


class Question(Message):
    """A question of the browser.

    Attributes
    ----------
    key : str
        The run and the question as text; the answer repeats it.
    stops : int
        How often an interrupt had ended an answer, as far as the browser knew.
    """

    key: str
    stops: int | None = None


SHOWN_PLACE = (-1.0, -1.0)
"""Stands for the position that is chosen in the kernel's view; None is no position."""


class LayerPart(Question):
    """A question about a part of a layer; what is left out is the shown one.

    Attributes
    ----------
    shown_run : str, optional
        One of two runs, or their difference, as in `hookviz.view.settings.Settings`.
    """

    layer: str | None = None
    call: int | None = None
    sample: int | None = None
    depth: int | None = None
    place: Place | None = SHOWN_PLACE
    shown_after: str | None = None
    shown_run: str | None = None


class HereQuestion(Question):
    """Asks whether the kernel is there."""


class CodeQuestion(Question):
    """Asks for the view as PyTorch code."""

    settings: dict[str, Any]


class FileQuestion(Question):
    """Asks for the view as a file: a figure ("pdf") or a page ("html")."""

    settings: dict[str, Any]
    ending: str


class PrepareQuestion(Question):
    """Asks the kernel to run the model so that the first `WhyQuestion` is answered quickly."""


class LayerQuestion(LayerPart):
    """Asks for a layer's maps, gradients and statistics."""


class PictureQuestion(Question):
    """Asks for the input as a picture."""

    of: PictureAt | None = None
    shown_run: str | None = None


class HeatmapQuestion(LayerPart):
    """Asks for a layer's heatmap."""

    method: str


class HeatmapsQuestion(LayerPart):
    """Asks for the heatmaps of all layers."""

    method: str


class SidesQuestion(LayerPart):
    """Asks for the heatmaps of both sides of a target that is a difference."""

    method: str


class OutputQuestion(Question):
    """Asks for a map of the output; None is the largest channel at each position."""

    which: int
    channel: int | None = None
    sample: int = 0


class FieldQuestion(LayerPart):
    """Asks for the receptive field of a layer's positions."""


class ValueQuestion(LayerPart):
    """Asks for the exact numbers at one position."""

    channel: int
    row: int
    column: int


class ScoresQuestion(LayerPart):
    """Asks for the scores by which channels are sorted."""

    order: str
    reference_channel: int = 0


class AblationQuestion(LayerPart):
    """Asks for some more of the work of switching off each channel."""


class FlipQuestion(LayerPart):
    """Asks for some more of the search for channels that change the prediction.

    Those that contribute most come first if the list is empty.
    """

    channels: list[int]


class MapQuestion(LayerPart):
    """Asks for the map of the network."""


class WhyQuestion(Question):
    """Asks what makes up a value of a layer, of a class (``output``) or of a written target.

    Attributes
    ----------
    traced : int
        The number of input channels that earlier answers have traced back: the answer goes on from
        there. None asks for the terms alone.
    """

    layer: str | None = None
    call: int | None = None
    channel: int | None = None
    sample: int | None = None
    depth: int | None = None
    position: list[int] | None = None
    place: Place | None = None
    output: int | None = None
    written: str | None = None
    traced: int | None = None


class WeightsQuestion(Question):
    """Asks for a layer's weights."""

    layer: str
    call: int
    channel: int
    sample: int
    depth: int | None = None
    place: Place | None = None


class FeatureQuestion(Question):
    """Asks for pictures that excite a channel most."""

    layer: str
    channel: int


class WithoutQuestion(Question):
    """Asks what a value is without some channels of its layer's input."""

    layer: str
    call: int
    channel: int
    position: list[int]
    sample: int
    channels: list[int]
    target: int | None = None


# Answers: their arrays come beside them, as bytes


class Coding(Message):
    """The encoding of an array, see `hookviz.export.packing`."""

    name: str
    kind: str
    shape: list[int]
    bytes: int
    scale: float | None = None
    delta: bool | None = None
    planes: bool | None = None
    step: int | None = None


class Reply(Message):
    """An answer of the kernel, with the question's ``ask`` and ``key``, and its arrays' codings.

    Attributes
    ----------
    none : str, optional
        Why there is no answer, in a sentence; it may be empty.
    stopped : bool, optional
        True if an interrupt has ended it.
    lost : bool, optional
        True if it may be asked again.
    """

    ask: str = ""
    key: str = ""
    none: str | None = None
    stopped: bool | None = None
    lost: bool | None = None
    arrays: list[Coding] = field(default_factory=list)


class CodeAnswer(Reply):
    """The view as Python source."""

    code: str


class Counts(Message):
    """The numbers of channels, calls, samples and slices of a layer."""

    channel: int
    call: int
    sample: int
    depth: int


class LayerHeader(Message):
    """A layer, call, sample and depth in words."""

    layer: str
    call: int
    sample: int
    depth: int
    counts: Counts
    place: PictureAt | None
    no_picture: str
    parts: bool
    size: list[int]
    signed: bool
    dtype: str
    magnitudes: str
    extent: str
    which: str
    shown_after: str
    word: str | None = None
    query: str | None = None
    beside: list[str] | None = None


class LayerAnswer(Reply):
    """A layer's words; its numbers are in the arrays."""

    header: LayerHeader


class AsFed(Message):
    """The numbers that the network gets, computed from the picture."""

    gain: list[Finite]
    shift: list[Finite]
    words: str


class PictureHeader(Message):
    """The input as a picture, in words."""

    height: int | None = None
    width: int | None = None
    size: list[int] | None = None
    fed: AsFed | None = None
    words: str = ""


class PictureAnswer(Reply):
    """The input's words; its pixels are in the arrays."""

    header: PictureHeader


class SidesAnswer(Reply):
    """The heatmaps of both sides of a difference, by this method."""

    method: str


class ValueAnswer(Reply):
    """The exact numbers at a position as text, since JSON has neither NaN nor infinity."""

    maps: str
    gradients: str | None = None


class FieldEnds(Message):
    """The input positions that the map's positions see along one dimension."""

    along: int | None
    from_: list[Finite]  # "from" in a message: that is a keyword of Python
    to: list[Finite]


class FieldAnswer(Reply):
    """The receptive field of all positions of a layer."""

    status: str
    why: str
    input: list[int] | None = None
    map: list[int] | None = None
    axes: list[str] | None = None
    size: list[int] | None = None
    ends: list[FieldEnds] | None = None


class AblationAnswer(Reply):
    """The fraction of the work that is done; the drops and the order are in the arrays."""

    share: Finite


class FlipAnswer(Reply):
    """The search for channels that change the prediction, as far as it is done."""

    share: Finite
    curve: list[float]
    answer: str
    flipped: str | None
    channels: list[int]


class GraphNode(Message):
    """A node of the network's graph, see `hookviz.studies.graph.graph.graph_payload`."""

    name: str
    layer: str
    call: int
    operation: str
    shape: list[int] | None
    failed: bool
    path: str
    after: list[str]
    sources: list[int] | None


class MapAnswer(Reply):
    """The network's graph, and the sizes of its layers' pictures."""

    nodes: list[GraphNode]
    edges: list[tuple[int, int]]
    modules: dict[str, str]
    sizes: dict[str, list[int]]
    batch: int


class WhyOrigin(Message):
    """An earlier value that an input value was made from, and its part in it."""

    layer: str
    call: int
    channel: int
    sample: int
    position: list[int]
    path: list[str]
    part: str
    cut_off: bool


class WhyTerm(Message):
    """The contribution of an input channel to a value."""

    channel: int
    contribution: str
    window: list[list[int]]
    origins: list[WhyOrigin]
    others: int
    traced: bool
    rest: str | None = None
    remainder: str | None = None
    kind: str | None = None
    bent_by: list[str] | None = None


class WhyAnswer(Reply):
    """A value taken apart, see `hookviz.view.reason.why_answer`. Numbers are text."""

    layer: str
    call: int
    channel: int
    position: list[int]
    sample: int
    value: str
    bias: str
    remainder: str
    rest: str
    others: int
    constant: str
    constants: int
    size: list[int]
    terms: list[WhyTerm]
    after: list[list[str]]
    mixed: str
    sources: list[list[Any]]
    note: str
    edited: str | None
    edits: list[str]


class WeightBins(Message):
    """The distribution of a layer's weights, and of one channel's."""

    low: str
    high: str
    all: list[int]
    own: list[int]


class WeightsAnswer(Reply):
    """A layer's weights, see `hookviz.view.reason.weights_answer`. Numbers are text."""

    layer: str
    channel: int
    words: str
    kind: str
    by: str
    channels: list[int]
    numbers: list[str]
    total: int
    size: list[int]
    facts: list[list[str]]
    bins: WeightBins


class FeatureAnswer(Reply):
    """The pictures that excite a channel, made and natural, as JPEG in data URLs."""

    words: str
    urls: list[str]
    captions: list[str]


class WithoutAnswer(Reply):
    """The change of a value without some inputs, as predicted and as measured. Numbers are text."""

    predicted: str
    true: str
    score: str | None = None


# Requests


class Request(Message):
    """A change that the kernel is to make.

    Attributes
    ----------
    moved : int
        The browser's count of its changes, this one included.
    settings : dict, optional
        The settings that the browser has changed since the kernel last handled a change.
    questions : list of Question
        The browser's next questions about the new run. The kernel answers before it sends the
        facts of that run, with the run's number before each key, so that one frame shows all.
    """

    moved: int = 0
    settings: dict[str, Any] | None = None
    questions: list[Question] = field(default_factory=list)


class TargetRequest(Request):
    """Makes a class the target, by its number or written as in Python; else the prediction is."""

    number: int | None = None
    written: str | None = None


class FactorRequest(Request):
    """Multiplies a channel by a factor."""

    layer: str
    channel: int
    factor: float


class OffRequest(Request):
    """Switches channels of a layer off together."""

    layer: str
    channels: list[int]


class DropRequest(Request):
    """Takes an edit back."""

    key: int


class EditsRequest(Request):
    """Brings the edits back that there were at some time; none takes all back."""

    keys: list[int]


class PaintRequest(Request):
    """Fills pixels of the input with the mean; the bytes say which, of this height and width."""

    shape: tuple[int, int]


class EraseRequest(Request):
    """Takes pixels out of the strokes."""

    shape: tuple[int, int]


class PictureRequest(Request):
    """A part of a picture's file, which is the bytes; the last part shows the picture.

    With ``again`` it replaces the latest picture, if that has the same name: a camera's frames are
    one picture.
    """

    name: str
    part: int
    parts: int
    again: bool = False


class AgainRequest(Request):
    """Shows an earlier picture again."""

    key: int
    sample: int


class BesideRequest(Request):
    """Shows an earlier picture beside the present one; a second time, no longer."""

    key: int
    sample: int


# Facts: what the widget's traits hold


class TargetFacts(Message):
    """The target by its name; as a class's number; and as it is written in Python.

    Attributes
    ----------
    chosen : bool
        False if it is each picture's prediction.
    """

    name: str
    number: int | None
    written: str | None
    chosen: bool


class OutputMap(Message):
    """A part of the output with a value for each position."""

    name: str
    flat: bool
    labels: list[str]
    picture: bool
    size: tuple[int, int]


class OutputFacts(Message):
    """The parts of the output that are pictures, and the map and channel that are shown first."""

    sample: int
    first: tuple[int, int | None]
    maps: list[OutputMap]
    boxes: list[OutputBox]


class ClassFacts(Message):
    """The number of classes, their names, and what one without a name is called.

    ``word`` is ``"output"`` for a model that is not a classifier, whose scores are no logits.
    """

    count: int
    names: list[str]
    word: str


class LayerFacts(Message):
    """A layer's words, and its cell of the ribbon; see `hookviz.view.health.Cell`."""

    name: str
    block: str
    side: int
    activation: float | None
    gradient: float | None
    zeros: float
    nans: int
    infs: int
    channels: int
    silent: int | None
    kind: str
    text: str
    size: str
    attends: bool | None = None
    parts: bool | None = None


class EditFacts(Message):
    """An edit in words; ``channels`` and ``factor`` if it only multiplies some."""

    words: str
    layer: str
    channels: list[int]
    factor: float | None
    key: int = -1


class Choices(Message):
    """The values of each menu."""

    order: list[str]
    cmap: list[str]
    normalize: list[str]
    heatmap: list[str]
    shown_after: list[str]
    shown_run: list[str]


class Overview(Message):
    """The facts of a run that the first pictures do not need, and that take time.

    The layers, the title line, the summary of its health, and the classes to choose from.
    """

    layers: list[LayerFacts]
    summary: list[str]
    verdict: HealthSummary
    classes: ClassFacts


class Facts(Message):
    """The other facts of a run that are the same for all layers."""

    model: str
    target: TargetFacts
    sides: tuple[str, str] | None
    answer: OutputFacts | None
    predictions: list[Prediction]
    scored: bool
    palettes: dict[str, str]
    choices: Choices
    run_names: list[str]
    pair: bool
    methods: list[str]
    method_names: dict[str, str]
    order_names: dict[str, str]
    flat: list[str]
    opened: Opening | None
    product: str
    auto: tuple[str, str, str, str]
    transform: TransformWords | None
    edits: list[EditFacts]
    run: int = 0
    blind: bool = False


class Thumbnail(Message):
    """A small picture of one input's sample; ``url`` holds a JPEG."""

    key: int
    sample: int
    name: str
    now: bool
    url: str


class Moved(Message):
    """The browser's count of its changes, and the names of the settings that it changed."""

    count: int
    names: list[str]


# From and to JSON


def _subclasses(base: type[Kind]) -> list[type[Kind]]:
    return [sub for kind in base.__subclasses__() for sub in (kind, *_subclasses(kind))]


def word_of(kind: type) -> str:
    """Return the word by which a question, an answer or a request is known.

    >>> word_of(LayerQuestion), word_of(EditsRequest)
    ('layer', 'edits')
    """
    for ending in ("Question", "Answer", "Request"):
        if kind.__name__.endswith(ending):
            return kind.__name__.removesuffix(ending).lower()
    raise ValueError(f"{kind.__name__} is not a message.")


QUESTIONS: dict[str, type[Question]] = {
    word_of(kind): kind for kind in _subclasses(Question) if kind is not LayerPart
}
REQUESTS: dict[str, type[Request]] = {word_of(kind): kind for kind in _subclasses(Request)}


def read_question(message: Mapping[str, Any]) -> Question:
    """Return the question in a message of the browser."""
    return read(QUESTIONS[message["ask"]], {n: v for n, v in message.items() if n != "ask"})


def read_request(message: Mapping[str, Any]) -> Request:
    """Return the request in a message of the browser."""
    return read(REQUESTS[message["set"]], {n: v for n, v in message.items() if n != "set"})


def read(kind: type[Kind], values: Mapping[str, Any]) -> Kind:
    """Make a message of values that came as JSON; lists become tuples where it has tuples.

    Raises
    ------
    ValueError
        A field is missing or unknown.

    Examples
    --------
    >>> read(PaintRequest, {"shape": [4, 6]}).shape
    (4, 6)
    """
    declared: dict[str, Any] = {each.name.rstrip("_"): each for each in fields(kind)}  # type: ignore[arg-type]
    needed = {
        name
        for name, each in declared.items()
        if each.default is MISSING and each.default_factory is MISSING
    }
    if wrong := (values.keys() - declared.keys()) | (needed - values.keys()):
        names = ", ".join(sorted(wrong))
        raise ValueError(f"{kind.__name__} has other fields than this message: {names}.")
    hints = _hints_of(kind)  # type: ignore[arg-type]
    return kind(
        **{declared[n].name: _read_value(hints[declared[n].name], v) for n, v in values.items()}
    )


@cache
def _hints_of(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)  # it evaluates each annotation


def _read_value(hint: Any, value: Any) -> Any:
    if value is None or hint is Any:
        return value
    if hint is Question:
        return read_question(value)
    if get_origin(hint) in (Union, types.UnionType):
        return _read_value(next(part for part in get_args(hint) if part is not type(None)), value)
    if get_origin(hint) is tuple:
        return tuple(value)
    if get_origin(hint) is list:
        (part,) = get_args(hint)
        return [_read_value(part, item) for item in value]
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        return read(hint, value)
    return value


def as_json(message: Any) -> Any:
    """Return a message as values of JSON; fields that are None by default are left out.

    NaN and infinities, which JSON lacks, become None.

    Examples
    --------
    >>> as_json(CodeAnswer(ask="code", key="1", code=""))
    {'ask': 'code', 'key': '1', 'arrays': [], 'code': ''}
    """
    if message is None or isinstance(message, (str, int)):  # most values
        return message
    if hasattr(message, "__dataclass_fields__"):
        pairs = ((each, getattr(message, each.name)) for each in fields(message))
        return {
            each.name.rstrip("_"): as_json(value)
            for each, value in pairs
            if not (value is None and each.default is None)
        }
    if isinstance(message, tuple) and hasattr(message, "_asdict"):
        values: dict[str, Any] = getattr(message, "_asdict")()  # noqa: B009 (a NamedTuple)
        return {name: as_json(value) for name, value in values.items()}
    if isinstance(message, Mapping):
        return {name: as_json(value) for name, value in message.items()}
    if isinstance(message, Sequence) and not isinstance(message, bytes):
        return [as_json(item) for item in message]
    if isinstance(message, float) and not math.isfinite(message):
        return None
    return message
