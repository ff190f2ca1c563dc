"""The settings of a view as plain values: what `Explorer.settings`, links, steps and JSON hold."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from ..run.output import Output
from ..run.target import write_target
from .checks import check, checked_place
from .maps import fitted, layer_name, layer_of, map_size, place_of
from .settings import POSITION, SETTINGS
from .view import View


def written_settings(view: View) -> dict[str, Any]:
    """Return all settings as values of JSON, with ``position`` for ``place``.

    A target that is a function cannot be written, and is left out.
    """
    at, logits = view.settings, view.run.logits
    found: dict[str, Any] = {name: getattr(at, name) for name in SETTINGS}
    del found["place"], found["target"]
    if not callable(at.target) or isinstance(at.target, Output):
        count = 0 if logits is None else logits.shape[1]
        found["target"] = write_target(at.target, count, view.session.class_names)
    position = position_of(view)
    return found | {POSITION: position and list(position)}


def position_of(view: View) -> tuple[int, int] | None:
    """Return row and column of the chosen position; None if none is chosen."""
    return None if view.settings.place is None else place_of(view)


def place_at(view: View, position: Sequence[int] | None) -> tuple[float, float] | None:
    """Return the middle of a position as fractions; a ``ValueError`` if the maps do not have it."""
    if position is None:
        return None
    height, width = layer_of(view).maps.shape[-2:]
    try:
        row, column = map(operator.index, position)
    except (TypeError, ValueError):
        row = column = -1
    if not (0 <= row < height and 0 <= column < width):
        raise ValueError(
            f"position={position!r} is not in layer {layer_name(view)!r}, whose maps are "
            f"{map_size(layer_of(view).maps)}: give row and column, up to "
            f"{height - 1} and {width - 1}."
        )
    return (row + 0.5) / height, (column + 0.5) / width


def at_written(view: View, settings: Mapping[str, Any]) -> View:
    """Return the view at these settings; raise ``ValueError`` with the name of an impossible one.

    The target stays: for another one the model would have to run.
    """
    for name in SETTINGS:  # the layer first: it sets the ranges of others
        if name == "target" or name not in settings:
            continue
        if settings[name] != getattr(view.settings, name):
            view = fitted(view.with_settings(**{name: check(name, settings[name], view)}))
    if POSITION in settings:
        if "place" in settings:
            raise ValueError("place= and position= are the same: give only one of them.")
        view = view.with_settings(place=place_at(view, settings[POSITION]))
    return view


def at_browsed(view: View, settings: Mapping[str, Any]) -> View:
    """Return the view at settings that the browser has chosen, brought into range.

    A channel among them may be one of a layer that the browser has left in the meantime.
    """
    names = [name for name in SETTINGS if name in settings and name != "target"]
    chosen = {name: settings[name] for name in names}
    if chosen.get("layer", view.settings.layer) not in view.cache:
        del chosen["layer"]
    if "place" in chosen:
        chosen["place"] = checked_place(chosen["place"])
    return fitted(view.with_settings(**chosen))
