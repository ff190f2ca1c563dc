"""The explorer's settings: each is declared here, once.

The widget's traits, the plain face's controls, what the browser gets, and the docstrings of
`hookviz.explore` and `Explorer` are made from these declarations. As plain values they are a dict,
see `hookviz.view.written`.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from typing import Any, TypeVar

from ..attribution.cam import ATTENTION_HEATMAPS, HEATMAPS
from ..attribution.gradients import ATTRIBUTIONS
from ..attribution.heads import AttentionRecord
from ..draw.colours import NORMALIZATIONS
from ..run.target import Target
from ..studies.graph.stages import RETURNED, SHOWN_AFTER
from .layer import ORDERS

CMAPS = ("auto", "viridis", "magma", "cividis", "gray", "RdBu_r", "PuOr_r", "coolwarm")
"""The colormaps in the menu; any of matplotlib's may be set."""

PRODUCT = "activation × gradient"
"""The heatmap of the chosen channel alone."""

NORM = "norm"
"""The heatmap of a transformer's tokens: each one's norm over the channels."""

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
    closed : bool
        True if only the offered values are allowed.
    """

    about: str
    label: str = ""
    offered: Callable[[], Sequence[str]] | None = None
    closed: bool = False


def _declared(about: str, default: Any = ..., **more: Any) -> Any:
    metadata = {"declaration": Declaration(about, **more)}
    if default is ...:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


def has_attention(view: Any) -> bool:
    """Return whether attention is among the layers."""
    return any(isinstance(record, AttentionRecord) for record in view.cache.values())


def heatmap_names(view: Any = None) -> tuple[str, ...]:
    """Return all heatmaps of the explorer: with captum, attributions to the input too.

    In a view of a model that attends also those of its attention, and the tokens' norm.
    """
    captum = ATTRIBUTIONS if importlib.util.find_spec("captum") else ()
    attending = (NORM, *ATTENTION_HEATMAPS) if view is not None and has_attention(view) else ()
    return (*HEATMAPS, PRODUCT, *attending, *captum)


@dataclass(frozen=True)
class Settings:
    """The explorer's settings at one moment."""

    layer: str = _declared(
        "One of the captured layers. Left out, it is the last one whose maps are larger than 1×1 "
        "and whose Grad-CAM is neither zero nor the same everywhere, and there the channel that "
        "adds most to it.",
    )
    # The calls of a layer may differ in their channels, so the channel comes after the call.
    call: int = _declared("Which of the layer's calls, from 0; −1 is the last.", 0)
    sample: int = _declared("Which sample of the batch, from 0.", 0)
    depth: int = _declared("Which slice of a volume, from 0.", 0)
    channel: int = _declared(
        "The channel. When the layer changes it is brought into range, as are call, sample and "
        "depth.",
        0,
    )
    target: Target = _declared(
        "None for each picture's top prediction; a class number or name; a tuple of classes, the "
        "first against the others; a number in the output, ``hookviz.output[…]``; a text of these, "
        '``"3 - 5"``; or a function ``output -> scalar``. Setting it runs the model again.',
        None,
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
    )
    cmap: str = _declared(
        '``"auto"`` (viridis, or for signed data RdBu with zero in the middle), or any colormap '
        "of matplotlib.",
        "auto",
        label="colours",
        offered=lambda: CMAPS,
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
        "model again, by captum, one of ``hookviz.attribution.ATTRIBUTIONS``.",
        "gradcam",
        offered=heatmap_names,
    )
    alpha: float = _declared(
        "Opacity of the heatmap over the input where it is largest, 0 to 1. Where it is smallest, "
        "it is transparent.",
        0.8,
        label="opacity",
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


def choices(view: Any = None) -> dict[str, list[str]]:
    """Return the offered values of each setting that has a menu, for a view if it is given.

    Examples
    --------
    >>> choices()["shown_run"]
    ['edited', 'original', 'difference']
    """
    offered = {name: each.offered for name, each in DECLARED.items() if each.offered}
    offered["heatmap"] = partial(heatmap_names, view)
    return {name: list(names()) for name, names in offered.items()}


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
