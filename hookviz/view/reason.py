"""Why a value of a view's run is what it is, from one forward kept beside the run; and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from torch import Tensor, unravel_index
from torch.nn import Linear

from ..hooking.interrupts import allow_interrupts
from ..run.output import Output, index_of, leaves_of, read_output
from ..run.target import logits_of
from ..studies.graph.contributions import Contributions, contributions_in
from ..studies.graph.kept import KeptRun, Origin, Value, largest_tap
from ..studies.kernels import falling, layer_weights
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
    sizes = kept.sizes(layer, call)
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
    at, kept = view.settings, kept_run(view)
    layer = at.layer if layer is None else layer
    channel = at.channel if channel is None else channel
    call = at.call if call is None else call
    sample = at.sample if sample is None else sample
    if position is None:
        position = chosen_position(view, kept, layer, call)
    return contributions_in(kept, kept.value(layer, channel, position, sample, call))


SHOWN = 8
"""The number of largest terms that the panel shows one by one."""


def reason_payload(view: View, question: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Answer the panel's question about one value.

    Parameters
    ----------
    view : View
    question : dict
        ``layer channel sample call`` and ``position``, a list, or ``place``, fractions of the
        map; or in place of a layer ``output``, the number of a class, or ``written``, a target as
        it is typed.

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
    kept, sample = kept_run(view), int(question.get("sample", 0))
    layer, call = question.get("layer", ""), int(question.get("call", -1))
    channel, position = int(question.get("channel", 0)), question.get("position")
    note, first = "", None  # where the question names a layer
    if "written" in question:
        first, note = _beginning(view, kept, read_output(question["written"]))
    elif "output" in question:
        first = next(iter(kept.output_origins((sample, int(question["output"])))), None)
        if first is None:
            raise ValueError("The output is not a layer's number: walk from a layer instead.")
    if first is not None:
        layer, call, sample = first.layer, first.call, first.sample
        channel, position = first.channel, first.position
    if position is None:
        at = view.with_settings(place=tuple(question["place"]))
        position = chosen_position(at, kept, layer, call)
    value = kept.value(layer, channel, tuple(position), sample, call)
    why = contributions_in(kept, value)
    shown, constants, others = _sorted_terms(kept, value, why)
    terms = [_term(kept, value, why, n) for n in shown]
    passed = kept.graph.after(layer, call)[len(why.after) :]
    said = {
        "layer": why.layer,
        "call": why.call,
        "channel": why.channel,
        "position": list(why.position),
        "sample": sample,
        "value": str(why.value),
        "bias": str(why.bias),
        "remainder": str(why.remainder),
        "rest": str(float(why.by_channel[others].sum())),
        "others": len(others),
        "constant": str(float(why.by_channel[constants].sum())),
        "constants": len(constants),
        "size": list(why.kernel.shape[1:]),
        "terms": terms,
        "after": [[name, str(number)] for name, number in why.after],
        "mixed": passed[0] if passed else "",
        "sources": [list(each) for each in why.sources],
        "note": note,
        "edited": None if why.edited is None else str(why.edited),
        "edits": [str(each).rpartition(": ")[2] for each in kept.edits_of(layer)],
    }
    arrays = {"kernel": why.kernel[shown].reshape(len(shown), -1).numpy()} if shown else {}
    if shown:
        arrays["patch"] = why.patch[shown].reshape(len(shown), -1).numpy()
        given = kept.inputs_of(layer, sample, call)
        if given.ndim == 3 and len(why.kernel.shape) == 3:
            arrays["maps"] = given[shown].detach().float().cpu().numpy()
    return said, arrays


def _beginning(view: View, kept: KeptRun, target: Output) -> tuple[Origin, str]:
    """Return the layer's number that a target comes from, and what is to be said about it.

    Where it is not a layer's own number, as after a softmax, a resize or a choice of boxes, it is
    the number, of the last layer with kernels on its way, whose growth raises it most.

    Raises
    ------
    ValueError
        No layer with kernels was reached by its gradient.
    """
    leaves = view.run.leaves
    if not leaves and view.run.logits is not None:
        leaves = leaves_of(view.run.logits)
    found = index_of(target, leaves)
    if found is not None:
        origins = kept.output_origins(found[1], found[0])
        if origins:
            return origins[0], ""
    for name, record in reversed(list(view.run.cache.items())):
        for call in reversed(range(len(record.calls))):
            gradient = record.calls[call].gradient
            if gradient is None or not gradient.any():
                continue
            index = [int(n) for n in unravel_index(gradient.argmax(), gradient.shape)]
            sample, inside = (index[0], index[1:]) if len(index) > 1 else (0, index)
            linear = isinstance(record.module, Linear)
            channel = inside.pop(-1 if linear else 0)
            slope = float(gradient[tuple(index)])
            try:
                kept.value(name, channel, inside, sample, call)
            except ValueError:
                continue  # not a layer with kernels
            note = (
                f"{target} is not a layer's own number. In the last of the explored layers that it "
                f"depends on, this number raises it most: by {slope:.3g} for each 1."
            )
            place = name, call, channel, tuple(inside)
            return Origin(*place, [], slope, False, sample=sample), note
    raise ValueError(f"{target} comes from no layer with kernels: walk from a layer instead.")


def _sorted_terms(
    kept: KeptRun, value: Value, why: Contributions
) -> tuple[list[int], list[int], list[int]]:
    """Return the input channels shown, those before them that only carry biases, and the rest."""
    order = why.by_channel.abs().nan_to_num(float("inf")).argsort(descending=True, stable=True)
    shown: list[int] = []
    constants: list[int] = []
    rest = order.tolist()
    while rest and len(shown) < SHOWN and (why.kernel[rest[0]].any() or why.patch[rest[0]].any()):
        channel = rest.pop(0)
        still = kept.is_constant(value, channel, largest_tap(why.products[channel]))
        (constants if still else shown).append(channel)
    return shown, constants, rest


def _term(kept: KeptRun, value: Value, why: Contributions, channel: int) -> dict[str, Any]:
    """Return an input channel's term, with the numbers that its largest product came from."""
    products = why.products[channel]
    tap = largest_tap(products)
    ends = [[0] * len(tap), [size - 1 for size in products.shape]]
    return {
        "channel": channel,
        "contribution": str(float(why.by_channel[channel])),
        "tap": tap,
        "window": [list(kept.tap(value, end)) for end in ends] if tap else [],
        "origins": [
            {
                "layer": each.layer,
                "call": each.call,
                "channel": each.channel,
                "sample": each.sample,
                "position": list(each.position),
                "path": each.path,
                "value": str(each.value),
                "exact": each.exact,
            }
            for each in kept.origins(value, channel, tap)
        ],
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
    kept = kept_run(view)
    layer, call, sample = question["layer"], int(question["call"]), int(question["sample"])
    place = int(question["channel"]), tuple(question["position"])
    why = contributions_in(kept, kept.value(layer, *place, sample, call))
    channels = [int(each) for each in question["channels"]]
    value, output = allow_interrupts(kept.without, layer, *place, sample, call, channels)
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
        ``"slices"`` or ``"row"`` (of a linear layer); ``channels`` and ``numbers`` of the tiles,
        the largest ``by`` first; ``facts`` of the channel; ``bins``, the distribution of all
        weights and of the channel's. And ``tiles`` ``(n, numbers of a tile)``, float32.

    Raises
    ------
    ValueError
        As `hookviz.studies.kernels.layer_weights` and `hookviz.contributions`.
    """
    layer, channel = question["layer"], int(question["channel"])
    found = view.memo.get_or_compute(
        "weights", layer, lambda: allow_interrupts(layer_weights, view.session, layer)
    )
    own, linear = found.kernels[channel], found.kernels.ndim == 2
    position: tuple[int, ...] | None = None
    if question.get("place") and not found.in_colour:
        kept = kept_run(view)
        at = view.with_settings(place=tuple(question["place"]))
        call = int(question["call"])
        position = chosen_position(at, kept, layer, call)
        why = contributions_of(view, layer, channel, position, int(question["sample"]), call)
        found = replace(found, channel=channel, contributions=why.by_channel)
    inputs = found.inputs_of(channel)
    by = "contribution here" if position is not None else "weight" if linear else "norm"
    norms = own.reshape(len(own), -1).norm(dim=1)
    if found.in_colour:
        values, tiles, channels = found.norms, found.kernels, list(range(len(found.kernels)))
    else:
        terms = None if found.contributions is None else found.contributions[inputs]
        values = terms if terms is not None else own if linear else norms
        tiles, channels = own, inputs
    order = falling(values)[: BARS if linear else TILES]
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
        "kind": "colour" if found.in_colour else "row" if linear else "slices",
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
    counts = []
    for each in (every, own):
        shares = (each[each.isfinite()].numpy() - low) / (high - low)
        places = np.minimum(np.floor(shares * BINS), BINS - 1).astype(np.int64)
        counts.append(np.bincount(places, minlength=BINS).tolist())
    return {"low": str(low), "high": str(high), "all": counts[0], "own": counts[1]}
