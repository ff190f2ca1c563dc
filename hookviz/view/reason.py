"""Why a value of a view's run is what it is, from one more forward; and a layer's weights."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from torch import Tensor

from ..hooking.interrupts import allow_interrupts
from ..run.output import read_output
from ..run.target import logits_of, score_of
from ..studies.graph.contributions import Contributions, contributions_in
from ..studies.graph.cut import CutRun, Value
from ..studies.graph.kernels import falling, layer_weights
from ..studies.graph.origins import Part
from ..studies.graph.terms import largest_tap
from .view import View


def cut_run(view: View) -> CutRun:
    """Return the view's forward, cut at every layer; it runs once for each run."""
    return view.memo.get_or_compute("cut", None, lambda: allow_interrupts(CutRun, view.session))


def chosen_position(view: View, run: CutRun, layer: str, call: int) -> tuple[int, ...]:
    """Return the chosen place as a position in a layer's map.

    Raises
    ------
    ValueError
        The layer has a map, and no place is chosen.
    """
    sizes = run.sizes(layer, call)
    place = view.settings.place
    if not sizes:
        return ()
    if place is None:
        raise ValueError("No position is chosen: choose a place in the map, or give position=.")
    fractions = (*([0.0] if len(sizes) > 2 else []), *place)[-len(sizes) :]
    found = [int(part * size) for part, size in zip(fractions, sizes, strict=True)]
    if len(sizes) > 2:
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
    at, run = view.settings, cut_run(view)
    layer = at.layer if layer is None else layer
    channel = at.channel if channel is None else channel
    call = at.call if call is None else call
    sample = at.sample if sample is None else sample
    if position is None:
        position = chosen_position(view, run, layer, call)
    return contributions_in(run, run.value(layer, channel, position, sample, call))


SHOWN = 8
"""The number of largest terms that the panel shows one by one."""

BRANCHES = 4
"""The number of largest parts of a term's input that the panel shows one by one."""


def reason_payload(
    view: View, question: dict[str, Any], traced: int = SHOWN
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Answer the panel's question about one value.

    Parameters
    ----------
    view : View
    question : dict
        ``layer channel sample call`` and ``position``, a list, or ``place``, fractions of the
        map; or in place of a layer ``output``, the number of a class, or ``written``, a target as
        it is typed.
    traced : int
        The number of largest terms that are traced back.

    Returns
    -------
    dict, dict
        The words, with numbers as text, which has NaN and infinity; and the arrays: for each of
        the `SHOWN` largest terms its input channel's ``maps`` ``(n, H, W)``, and ``kernel`` and
        ``patch`` ``(n, taps)`` in float64. No maps where the layer's input has no two dimensions.

    Raises
    ------
    ValueError
        As `hookviz.contributions`; or the output cannot be followed back to a layer.
    """
    run, sample = cut_run(view), int(question.get("sample", 0))
    layer, call = question.get("layer", ""), int(question.get("call", -1))
    channel, position = int(question.get("channel", 0)), question.get("position")
    note, first = "", None  # where the question names a layer
    if "written" in question:
        target = read_output(question["written"])
        first, note = _beginning(run, score_of(run.output, target), str(target))
    elif "output" in question:
        logits, number = logits_of(run.output), int(question["output"])
        score = None if logits is None else logits[sample, number]
        first, note = _beginning(run, score, f"output {number}")
    if first is not None:
        layer, call, sample = first.layer, first.call, first.sample
        channel, position = first.channel, first.position
    if position is None:
        at = view.with_settings(place=tuple(question["place"]))
        position = chosen_position(at, run, layer, call)
    value = run.value(layer, channel, position, sample, call)
    why = contributions_in(run, value)
    shown, constants, others = _sorted_terms(run, value, why)
    passed = run.graph.after(layer, call)[len(why.after) :]
    payload = {
        "layer": why.layer,
        "call": why.call,
        "channel": why.channel,
        "position": list(why.position or ()),
        "sample": sample,
        "value": str(why.value),
        "bias": str(why.bias),
        "remainder": str(why.remainder),
        "rest": str(float(why.by_channel[others].sum())),
        "others": len(others),
        "constant": str(float(why.by_channel[constants].sum())),
        "constants": len(constants),
        "size": list(why.kernel.shape[1:]),
        "terms": [_term(run, value, why, n, place < traced) for place, n in enumerate(shown)],
        "after": [[name, str(number)] for name, number in why.after],
        "mixed": passed[0] if passed else "",
        "sources": [list(place) for place in why.sources],
        "note": note or run.problem,
        "edited": None if why.edited is None else str(why.edited),
        "edits": [str(edit).rpartition(": ")[2] for edit in run.edits_of(layer)],
    }
    if not shown:
        return payload, {}
    tensors = {"kernel": why.kernel[shown], "patch": why.patch[shown]}
    arrays = {name: each.reshape(len(shown), -1).numpy() for name, each in tensors.items()}
    given = run.input_of(value)
    if given.ndim == 3 and why.kernel.ndim == 3 and why.kernel[0].numel() > 1:
        arrays["maps"] = given[shown].float().cpu().numpy()
    return payload, arrays


def _beginning(run: CutRun, score: Tensor | None, target: str) -> tuple[Part, str]:
    """Return the layer's number that a target comes from, and what to say about it.

    Where the target is not a layer's own number, as after a softmax, a resize or a choice of boxes,
    it is the number whose growth raises it most, among those of the layers that feed it.

    Raises
    ------
    ValueError
        The target cannot be traced back to a layer with kernels.
    """
    parts: list[Part] = []
    if score is not None and score.numel() == 1:
        parts = run.origins_of_output(score).parts
    if score is not None and len(parts) == 1 and parts[0].value == float(score.detach()):
        return parts[0], ""
    for part in parts:
        with suppress(ValueError):  # not a layer with kernels
            run.value(part.layer, part.channel, part.position, part.sample, part.call)
            note = (
                f"{target} is not a layer's own number. Of the layers' numbers that it is made of, "
                f"this one raises it most: by {part.weight:.3g} for each 1."
            )
            return part, note
    reason = run.problem or f"{target} comes from no layer with kernels."
    raise ValueError(f"{reason} Walk from a layer instead.")


def _sorted_terms(
    run: CutRun, value: Value, why: Contributions
) -> tuple[list[int], list[int], list[int]]:
    """Return the input channels shown, those before them that only carry biases, and the rest."""
    rest, shown, constants = falling(why.by_channel), list[int](), list[int]()
    while rest and len(shown) < SHOWN and (why.kernel[rest[0]].any() or why.patch[rest[0]].any()):
        channel = rest.pop(0)
        tap = largest_tap(why.products[channel])
        still = not run.problem and run.is_constant(value, channel, tap)
        (constants if still else shown).append(channel)
    return shown, constants, rest


def _term(
    run: CutRun, value: Value, why: Contributions, channel: int, traced: bool
) -> dict[str, Any]:
    """Return an input channel's term, with the numbers that its largest product came from."""
    products = why.products[channel]
    tap = largest_tap(products)
    ends = [[0] * len(tap), [size - 1 for size in products.shape]]
    term = {
        "channel": channel,
        "contribution": str(float(why.by_channel[channel])),
        "tap": list(tap),
        "window": [run.tap(value, end) for end in ends] if tap else [],
    }
    found = run.origins(value, channel, tap) if traced and not run.problem else None
    if found is None:
        return term | {"origins": [], "others": 0, "traced": traced}
    shown = found.parts[:BRANCHES]
    rest = found.rest + sum(part.part for part in found.parts[BRANCHES:])
    origins = [
        {
            "layer": part.layer,
            "call": part.call,
            "channel": part.channel,
            "sample": part.sample,
            "position": list(part.position),
            "path": part.path,
            "part": str(part.part),
            "cut_off": part.weight == 0,
        }
        for part in shown
    ]
    return term | {
        "origins": origins,
        "traced": True,
        "others": found.others + len(found.parts) - len(shown),
        "rest": str(rest),
        "remainder": str(found.remainder),
        "kind": found.kind,
        "bent_by": found.bent_by,
    }


def without_payload(view: View, question: dict[str, Any]) -> dict[str, Any]:
    """Switch input channels of a layer off, and compare with what its terms predict.

    The model runs once more with these channels of the layer's input set to zero.

    Parameters
    ----------
    question : dict
        ``layer call channel position sample``, and ``channels``, those that are switched off.

    Returns
    -------
    dict
        As text: ``predicted`` and ``true``, the changes of the value; ``target`` and ``score``, the
        change of the score whose gradient is shown, where it is a class.
    """
    run = cut_run(view)
    layer, call, sample = question["layer"], int(question["call"]), int(question["sample"])
    place = int(question["channel"]), tuple(question["position"])
    shown = run.value(layer, *place, sample, call)
    why = contributions_in(run, shown)
    channels = [int(each) for each in question["channels"]]
    value, output = allow_interrupts(run.without, shown, channels)
    said = {
        "predicted": str(-float(why.by_channel[channels].sum())),
        "true": str(value - why.value),
    }
    number = question.get("target")
    before, after = view.run.logits, logits_of(output)
    if number is not None and before is not None and after is not None:
        changed = after[sample, int(number)] - before[sample, int(number)]
        said["score"] = str(float(changed))
    return said


TILES, BARS, BINS = 64, 24, 40
"""The numbers of kernels or slices, of bars of a row, and of bins in the panel of weights."""


def weights_payload(view: View, question: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Answer with a layer's kernels.

    Parameters
    ----------
    view : View
    question : dict
        ``layer call channel sample``, and ``place``, fractions of the map, or None.

    Returns
    -------
    dict, dict
        The words, with numbers as text: ``kind``, ``"colour"`` (all kernels of a first layer),
        ``"slices"`` or ``"row"`` (one number for each input channel); ``channels`` and ``numbers``
        of the tiles, the largest ``by`` first; ``facts`` of the channel; ``bins``, the distribution
        of all weights and of the channel's. And ``tiles`` ``(n, numbers of a tile)``, float32.

    Raises
    ------
    ValueError
        As `hookviz.studies.graph.kernels.layer_weights` and `hookviz.contributions`.
    """
    layer, channel = question["layer"], int(question["channel"])
    found = view.memo.get_or_compute(
        "weights", layer, lambda: allow_interrupts(layer_weights, view.session, layer)
    )
    own = found.kernels[channel]
    row = own[0].numel() == 1  # of a linear layer, or of 1×1 kernels
    position: tuple[int, ...] | None = None
    if question.get("place") and not found.in_colour:
        at = view.with_settings(place=tuple(question["place"]))
        call = int(question["call"])
        position = chosen_position(at, cut_run(view), layer, call)
        why = contributions_of(view, layer, channel, position, int(question["sample"]), call)
        found = replace(found, channel=channel, contributions=why.by_channel)
    by = "contribution here" if position is not None else "weight" if row else "norm"
    if found.in_colour:
        values, tiles, channels = found.norms, found.kernels, list(range(len(found.kernels)))
        order = found.order[:TILES]
    else:
        tiles, channels = own, found.inputs_of(channel)
        order, values = found.ranked(channel)
        order = order[: BARS if row else TILES]
    shape = found.kernels.shape[2:]
    facts = {"norm": found.norms, "bias": found.bias}
    if found.folded is not None:
        facts |= {"norm with BatchNorm": found.folded.flatten(1).norm(dim=1)}
        facts |= {"bias with BatchNorm": found.folded_bias}
    name = f" {found.class_names[channel]}" if found.class_names else ""
    said = {
        "layer": found.layer,
        "channel": channel,
        "words": found.verdict if found.in_colour else f"{found.layer}, channel {channel}{name}",
        "kind": "colour" if found.in_colour else "row" if row else "slices",
        "by": by,
        "channels": [channels[n] for n in order],
        "numbers": [str(float(values[n])) for n in order],
        "total": len(channels),
        "size": [max(1, prod(shape[:-1])), shape[-1]] if shape else [1, 1],
        "facts": [[n, str(float(each[channel]))] for n, each in facts.items() if each is not None],
        "bins": _bins(found.kernels.flatten(), own.flatten()),
    }
    return said, {"tiles": tiles[order].reshape(len(order), -1).float().numpy()}


def _bins(every: Tensor, own: Tensor) -> dict[str, Any]:
    finite = every[every.isfinite()].numpy()
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts = [
        np.histogram(each[each.isfinite()].numpy(), BINS, (low, high))[0] for each in (every, own)
    ]
    return {
        "low": str(low),
        "high": str(high),
        "all": counts[0].tolist(),
        "own": counts[1].tolist(),
    }
