"""Why a value of a view's run is what it is, from one forward that is kept beside the run."""

from __future__ import annotations

from collections.abc import Sequence

from ..hooking.interrupts import allow_interrupts
from ..studies.graph.contributions import Contributions, contributions_in
from ..studies.graph.kept import KeptRun
from .view import View


def kept_run(view: View) -> KeptRun:
    """Return the view's forward with all layers' inputs kept; it runs once for each run."""
    return view.memo.get_or_compute("kept", None, lambda: allow_interrupts(KeptRun, view.session))


def chosen_position(view: View, kept: KeptRun, layer: str, call: int) -> tuple[int, ...]:
    """Return the chosen place as a position in a layer's map.

    Raises
    ------
    ValueError
        The layer has a map, and no place is chosen.
    """
    shape = kept.shape(layer, call)
    count = 0 if shape is None else len(shape) - 2
    place = view.settings.place
    if count <= 0:
        return ()
    if place is None:
        raise ValueError("There is no position: choose a place in the map, or give position=.")
    assert shape is not None
    fractions = (*([0.0] if count > 2 else []), *place)[-count:]
    sizes = shape[2:]
    found = [int(part * size) for part, size in zip(fractions, sizes, strict=True)]
    if count > 2:
        found[0] = view.settings.depth
    return tuple(min(max(n, 0), size - 1) for n, size in zip(found, sizes, strict=True))


def contributions_of(
    view: View,
    layer: str | None,
    channel: int | None,
    position: Sequence[int] | None,
    sample: int | None,
    call: int | None,
) -> Contributions:
    """Take a value of the view's run apart; what is left out is the shown one."""
    at, kept = view.settings, kept_run(view)
    layer = at.layer if layer is None else layer
    channel = at.channel if channel is None else channel
    call = at.call if call is None else call
    sample = at.sample if sample is None else sample
    if position is None:
        position = chosen_position(view, kept, layer, call)
    return contributions_in(kept, kept.value(layer, channel, position, sample, call))
