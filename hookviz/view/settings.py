"""The explorer's settings: each is declared here, once.

The widget's traits, the plain face's controls, what the browser gets, and the docstrings of
`hookviz.explore` and `Explorer` are made from these declarations. As plain values they are a dict,
see `hookviz.view.written`.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

import matplotlib

from ..attribution.cam import ATTENTION_HEATMAPS, HEATMAPS
from ..attribution.gradients import ATTRIBUTIONS
from ..draw.colours import NORMALIZATIONS
from ..hooking.select import close_names
from ..run.stages import RETURNED, SHOWN_AFTER
from ..run.target import Target, check_target, named_target, sample_scores
from .layer import ORDERS, why_not_shown

CMAPS = ("auto", "viridis", "magma", "cividis", "gray", "RdBu_r", "PuOr_r", "coolwarm")
"""The colormaps in the menu; any of matplotlib's may be set."""

PRODUCT = "activation × gradient"
"""The heatmap of the chosen channel alone."""

NORM = "norm"
"""The heatmap of a transformer's tokens: each one's norm over the channels."""

EFFECTIVE = "effective field"
"""The weight of each pixel for the chosen position, or else for the one in the middle."""

SHOWN_RUNS = ("edited", "original", "difference")
"""The run whose pictures are shown, if there are edits."""

INDICES = ("channel", "call", "sample", "depth")


@dataclass(frozen=True)
class Declaration:
    """The properties of a setting beside its name, type and default.

    Attributes
    ----------
    about : str
        For docstrings.
    label : str
        The control's label; empty for the setting's own name.
    offered : callable, optional
        Returns the values of its menu.
    check : callable, optional
        (name, value, view) -> the value that the setting gets; a ``ValueError`` says what is
        wrong, and how to fix it.
    closed : bool
        True if only the offered values are allowed.
    """

    about: str
    label: str = ""
    offered: Callable[[], Sequence[str]] | None = None
    check: Callable[[str, Any, Any], Any] | None = None
    closed: bool = False


def _declared(about: str, default: Any = ..., **more: Any) -> Any:
    metadata = {"declaration": Declaration(about, **more)}
    if default is ...:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


# The checks


def _captured(name: str, value: Any, view: Any) -> str:
    if value not in view.cache:
        raise ValueError(f"layer={value!r} was not captured; {close_names(value, view.cache)}.")
    record = view.cache[value]
    if why := why_not_shown(record):
        raise ValueError(f"layer={value!r} cannot be shown: {why}")
    return record.name  # its first name


def _in_range(name: str, value: int, view: Any) -> int:
    if value not in (every := range(view.counts()[name])):
        where = f"layer {view.settings.layer!r}"
        raise ValueError(f"{name}={value} is not in {where}: give 0 to {every[-1]}.")
    return value


def _reference(name: str, value: int, view: Any) -> int:
    if value not in (every := range(view.counts()["channel"])):
        where = f"layer {view.settings.layer!r}"
        raise ValueError(
            f"reference_channel={value} is not a channel of {where}: give 0 to {every[-1]}."
        )
    return value


def _goal(name: str, value: Any, view: Any) -> Target:
    names = view.session.class_names
    target, logits = named_target(check_target(value), names), view.run.logits
    if not callable(target) and logits is not None:
        sample_scores(logits, target, names)
    return target


def _colormap(name: str, value: str, view: Any) -> str:
    if value not in (names := ["auto", *matplotlib.colormaps]):
        raise ValueError(
            f"cmap={value!r} is neither 'auto' nor a colormap of matplotlib's; "
            f"{close_names(value, names)}."
        )
    return value


def _known_heatmap(name: str, value: str, view: Any) -> str:
    if value not in (names := list(heatmap_names(view))):
        raise ValueError(
            f"Unknown heatmap {value!r}; {close_names(value, names)}; all are {', '.join(names)}."
        )
    return value


def _opacity(name: str, value: float, view: Any) -> float:
    if not 0 <= value <= 1:  # nor NaN
        raise ValueError(f"alpha={value} is not an opacity: give 0 to 1.")
    return value


def checked_place(value: Any) -> tuple[float, float] | None:
    """Return two fractions, or None; raise a ``ValueError`` for anything else."""
    if value is None:
        return None
    try:
        down, right = map(float, value)
    except (TypeError, ValueError):
        down = right = math.nan
    if not (0 <= down <= 1 and 0 <= right <= 1):
        raise ValueError(
            f"place={value!r} is not a position in a map: give two fractions from 0 to 1, down and "
            "right, or None."
        )
    return down, right


def heatmap_names(view: Any = None) -> tuple[str, ...]:
    """Return all heatmaps of the explorer: with captum, attributions to the input too.

    In a view of a model that attends also those of its attention, and the tokens' norm.
    """
    captum = ATTRIBUTIONS if importlib.util.find_spec("captum") else ()
    attending = (NORM, *ATTENTION_HEATMAPS) if view is not None and view.has_attention else ()
    return (*HEATMAPS, PRODUCT, *attending, EFFECTIVE, *captum)


@dataclass(frozen=True)
class Settings:
    """The explorer's settings at one moment."""

    layer: str = _declared(
        "One of the captured layers. Left out, it is the last one whose maps are larger than 1×1 "
        "and whose Grad-CAM is neither zero nor the same everywhere, and there the channel that "
        "adds most to it.",
        check=_captured,
    )
    # The calls of a layer may differ in their channels, so the channel comes after the call.
    call: int = _declared("Which of the layer's calls, from 0.", 0, check=_in_range)
    sample: int = _declared("Which sample of the batch, from 0.", 0, check=_in_range)
    depth: int = _declared("Which slice of a volume, from 0.", 0, check=_in_range)
    channel: int = _declared(
        "The channel. When the layer changes it is brought into range, as are call, sample and "
        "depth.",
        0,
        check=_in_range,
    )
    target: Target = _declared(
        "None for each picture's top prediction; a class number or name; a tuple of classes, the "
        "first against the others; a number in the output, ``hookviz.output[…]``; a text of these, "
        '``"3 - 5"``; or a function ``output -> scalar``. Setting it runs the model again.',
        None,
        check=_goal,
    )
    order: str = _declared(
        "The order of the channels on the slider and in the mosaic; the first of a new one is "
        'shown. For ``"score drop"``, what the target\'s score loses without each, the model runs '
        'again. At the chosen place: ``"value"``, signed; ``"contrast"``, the value in standard '
        'deviations from the channel\'s mean; ``"contribution"``, activation × gradient. '
        '``"similarity"`` is the cosine of each map with that of ``reference_channel``.',
        "index",
        offered=lambda: ORDERS,
        closed=True,
    )
    reference_channel: int = _declared(
        'The channel that the order ``"similarity"`` compares all with; the shown one when that '
        "order is chosen.",
        0,
        check=_reference,
    )
    cmap: str = _declared(
        '``"auto"`` (viridis, or for signed data RdBu with zero in the middle), or any colormap '
        "of matplotlib.",
        "auto",
        label="colours",
        offered=lambda: CMAPS,
        check=_colormap,
    )
    normalize: str = _declared(
        "What the colours span, see `hookviz.draw.colours.colour_ranges`.",
        "channel",
        label="range",
        offered=lambda: NORMALIZATIONS,
        closed=True,
    )
    heatmap: str = _declared(
        'One of ``hookviz.attribution.HEATMAPS``; ``"activation × gradient"`` of the chosen '
        "channel alone; where the model attends, one of "
        '``hookviz.attribution.ATTENTION_HEATMAPS``, or ``"norm"`` of the tokens; or, running the '
        'model again, ``"effective field"`` or, by captum, one of '
        "``hookviz.attribution.ATTRIBUTIONS``.",
        "gradcam",
        offered=heatmap_names,
        check=_known_heatmap,
    )
    alpha: float = _declared(
        "Opacity of the heatmap over the input where it is largest, 0 to 1.",
        0.8,
        label="opacity",
        check=_opacity,
    )
    over_input: bool = _declared(
        "True for the heatmap over the input, False for the heatmap alone, at its own size.", True
    )
    all_layers: bool = _declared("True to show the heatmaps of all layers in a row.", False)
    shown_after: str = _declared(
        'What the maps are shown after: ``"output"`` as the layer returned them, ``"norm"`` and '
        '``"activation"`` after the normalization or the activation that follows directly, as a '
        "module or as a function. The model runs once more for each layer. Gradients and heatmaps "
        "stay those of the output.",
        RETURNED,
        label="maps after",
        offered=lambda: SHOWN_AFTER,
        closed=True,
    )
    place: tuple[float, float] | None = _declared(
        "The chosen position as fractions, how far down and right, 0 to 1, which hold for maps of "
        "any size. Its receptive field is outlined in the input. See also ``position``.",
        None,
        check=lambda name, value, view: checked_place(value),
    )
    shown_run: str = _declared(
        "The run whose pictures are shown if there are edits.",
        "edited",
        label="run",
        offered=lambda: SHOWN_RUNS,
        closed=True,
    )


DECLARED: dict[str, Declaration] = {
    each.name: each.metadata["declaration"] for each in fields(Settings)
}
SETTINGS = tuple(DECLARED)

POSITION = "position"
"""The setting ``place`` as row and column of the shown layer's maps."""

WRITTEN = (*SETTINGS, POSITION)
"""The names in a dict of settings, see `hookviz.view.written`."""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return str(value)


def _number(value: Any) -> float:
    if isinstance(value, str):
        raise TypeError
    return float(value)


def _truth(value: Any) -> bool:
    if value not in (False, True):
        raise TypeError
    return bool(value)


_KINDS: dict[Any, tuple[Callable[[Any], Any], str]] = {
    int: (operator.index, "a whole number"),
    float: (_number, "a number"),
    bool: (_truth, "True or False"),
    str: (_text, "a text"),
}
"""By the type of the default: a conversion, also of NumPy's and torch's scalars, and its words."""


def check(name: str, value: Any, view: Any) -> Any:
    """Return the value that a setting gets in this view; raise a ``ValueError`` if it has none."""
    declared, default = DECLARED[name], Settings.__dataclass_fields__[name].default
    if known := _KINDS.get(str if default is MISSING else type(default)):
        convert, words = known
        try:
            value = convert(value)
        except (TypeError, ValueError):
            raise ValueError(f"{name}={value!r} is not {words}.") from None
    if declared.closed and declared.offered and value not in declared.offered():
        raise ValueError(f"{name}={value!r} is unknown; {close_names(value, declared.offered())}.")
    return value if declared.check is None else declared.check(name, value, view)


def choices(view: Any = None) -> dict[str, list[str]]:
    """Return the offered values of each setting that has a menu, for a view if it is given.

    Examples
    --------
    >>> choices()["shown_run"]
    ['edited', 'original', 'difference']
    """
    found = {name: list(each.offered()) for name, each in DECLARED.items() if each.offered}
    return found | {"heatmap": list(heatmap_names(view))}


def documented(indent: str = "    ") -> str:
    """Return all settings as the attributes of a numpy docstring."""
    lines = []
    for each in fields(Settings):
        declared = each.metadata["declaration"]
        kind = str(each.type)
        if declared.closed:
            kind = "{" + ", ".join(f'"{value}"' for value in declared.offered()) + "}"
        lines.append(f"{indent}{each.name} : {kind}\n{indent}    {declared.about}")
    return "\n".join(lines)


Function = TypeVar("Function", bound=Callable[..., Any])


def name_settings(function: Function) -> Function:
    """Name each setting in the signature instead of ``**settings``: for help() and completion."""
    signature = inspect.signature(function)
    *named, _ = signature.parameters.values()
    own = {each.name for each in named}
    kinds = {each.name: (each.default, each.type) for each in fields(Settings)}
    kinds[POSITION] = None, "tuple[int, int] | None"
    settings = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if default is MISSING else default,
            annotation=kind,
        )
        for name, (default, kind) in kinds.items()
        if name not in own
    ]
    whole = signature.replace(parameters=[*named, *settings])
    function.__signature__ = whole  # type: ignore[attr-defined]
    return function
