"""Why a value of a view's run is what it is, from one more forward; and a layer's weights."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf, prod
from time import perf_counter

import numpy as np
from torch import Tensor

from ..hooking.interrupts import allow_interrupts
from ..run.output import read_output
from ..run.target import logits_of, score_of
from ..studies.graph.contributions import Contributions, contributions_in
from ..studies.graph.cut import CutRun, Value
from ..studies.graph.kernels import LayerWeights, falling, layer_weights
from ..studies.graph.origins import Part
from ..studies.graph.terms import largest_tap
from . import messages as m
from .attending import refuse_weights_of_attention
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


def why_answer(
    view: View, question: m.WhyQuestion, traced: int = SHOWN, seconds: float = inf
) -> tuple[m.WhyAnswer, dict[str, np.ndarray]]:
    """Take the value that a question names apart.

    Parameters
    ----------
    traced : int
        The number of largest terms whose origins are listed.
    seconds : float
        About the longest that tracing terms back takes, one backward each. The next call goes on.

    Returns
    -------
    WhyAnswer, dict
        The answer and its arrays: for each of the `SHOWN` largest terms its input channel's
        ``maps`` ``(n, H, W)``, and ``kernel`` and ``patch`` ``(n, taps)`` in float64. No maps where
        the layer's input has no two dimensions.

    Raises
    ------
    ValueError
        As `hookviz.contributions`; or the output cannot be followed back to a layer.
    """
    run, sample, note = cut_run(view), question.sample or 0, ""
    if question.written is not None:
        target = read_output(question.written)
        value, note = _beginning(run, score_of(run.output, target), str(target))
    elif question.output is not None:
        logits = logits_of(run.output)
        score = None if logits is None else logits[sample, question.output]
        value, note = _beginning(run, score, f"output {question.output}")
    else:
        layer, call = question.layer or "", -1 if question.call is None else question.call
        position: Sequence[int] | None = question.position
        if position is None:
            position = chosen_position(view.with_settings(place=question.place), run, layer, call)
        value = run.value(layer, question.channel or 0, position, sample, call)
    why = contributions_in(run, value)
    least = 0 if question.traced is None else question.traced + 1
    terms, constants = _sorted_terms(run, value, why, least, seconds)
    shown = [term.channel for term in terms]
    terms[traced:] = [_term(run, value, why, channel, traced=False) for channel in shown[traced:]]
    others = why.by_channel.clone()
    others[shown + constants] = 0
    passed = run.graph.after(why.layer, why.call)[len(why.after) :]
    answer = m.WhyAnswer(
        layer=why.layer,
        call=why.call,
        channel=why.channel,
        position=list(why.position or ()),
        sample=value.sample,
        value=str(why.value),
        bias=str(why.bias),
        remainder=str(why.remainder),
        rest=str(float(others.sum())),
        others=len(others) - len(shown) - len(constants),
        constant=str(float(why.by_channel[constants].sum())),
        constants=len(constants),
        size=list(why.kernel.shape[1:]),
        terms=terms,
        after=[[name, str(number)] for name, number in why.after],
        mixed=passed[0] if passed else "",
        sources=[list(place) for place in why.sources],
        note=note or run.problem,
        edited=None if why.edited is None else str(why.edited),
        edits=[str(edit).rpartition(": ")[2] for edit in run.edits_of(why.layer)],
    )
    if not shown:
        return answer, {}
    tensors = {"kernel": why.kernel[shown], "patch": why.patch[shown]}
    arrays = {name: each.reshape(len(shown), -1).numpy() for name, each in tensors.items()}
    given = run.input_of(value)
    if given.ndim == 3 and why.kernel.ndim == 3 and why.kernel[0].numel() > 1:
        arrays["maps"] = given[shown].float().cpu().numpy()
    return answer, arrays


def _beginning(run: CutRun, score: Tensor | None, target: str) -> tuple[Value, str]:
    """Return the layer's value that a target comes from, and what to say about it.

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
    for part in parts:
        own = len(parts) == 1 and score is not None and part.value == float(score.detach())
        with suppress(ValueError):  # not a layer with kernels
            value = run.value(part.layer, part.channel, part.position, part.sample, part.call)
            note = (
                f"{target} is not a layer's own number. Of the layers' numbers that it is made of, "
                f"this one raises it most: by {part.weight:.3g} for each 1."
            )
            return value, "" if own else note
    reason = run.problem or f"{target} comes from no layer with kernels."
    raise ValueError(f"{reason} Walk from a layer instead.")


def _sorted_terms(
    run: CutRun, value: Value, why: Contributions, least: int, seconds: float
) -> tuple[list[m.WhyTerm], list[int]]:
    """Return the terms shown, and the input channels before them that only carry biases.

    Nothing of an earlier layer is in the latter: they were trained away, or get zeros alone here.
    Only tracing tells, so that until then they are among the terms.
    """
    shown, constants = list[m.WhyTerm](), list[int]()
    end = perf_counter() + seconds
    for count, channel in enumerate(falling(why.by_channel)):
        if len(shown) == SHOWN or not (why.kernel[channel].any() or why.patch[channel].any()):
            break
        term = _term(run, value, why, channel, count < least or perf_counter() < end)
        if term.kind == "constant" and not term.origins:
            constants.append(channel)
        else:
            shown.append(term)
    return shown, constants


def _term(run: CutRun, value: Value, why: Contributions, channel: int, traced: bool) -> m.WhyTerm:
    """Return an input channel's term, with the numbers that its largest product came from."""
    products = why.products[channel]
    tap = largest_tap(products)
    ends = [run.tap(value, end) for end in ([0] * len(tap), [n - 1 for n in products.shape])]
    window = [[n for n in end if n is not None] for end in ends]
    term = m.WhyTerm(
        channel=channel,
        contribution=str(float(why.by_channel[channel])),
        # A tap of a transposed convolution may stand between two input positions.
        window=window if tap and ends == window else [],
        origins=[],
        others=0,
        traced=traced,
    )
    found = run.origins(value, channel, tap) if traced and not run.problem else None
    if found is None:
        return term
    shown, left_out = found.parts[:BRANCHES], found.parts[BRANCHES:]
    origins = [
        m.WhyOrigin(
            layer=part.layer,
            call=part.call,
            channel=part.channel,
            sample=part.sample,
            position=list(part.position),
            path=part.path,
            part=str(part.part),
            cut_off=part.weight == 0,
        )
        for part in shown
    ]
    return replace(
        term,
        origins=origins,
        others=found.others + len(left_out),
        rest=str(found.rest + sum(part.part for part in left_out)),
        remainder=str(found.remainder),
        kind=found.kind,
        bent_by=found.bent_by,
    )


def without_answer(view: View, question: m.WithoutQuestion) -> m.WithoutAnswer:
    """Switch input channels of a layer off, and compare with what its terms predict.

    The model runs once more with these channels of the layer's input set to zero.
    """
    run, channels = cut_run(view), question.channels
    position = tuple(question.position)
    value = run.value(question.layer, question.channel, position, question.sample, question.call)
    why = contributions_in(run, value)
    changed, output = allow_interrupts(run.without, value, channels)
    score, before, after = None, view.run.logits, logits_of(output)
    if question.target is not None and before is not None and after is not None:
        score = str(float((after - before)[question.sample, question.target]))
    predicted = str(-float(why.by_channel[channels].sum()))
    return m.WithoutAnswer(predicted=predicted, true=str(changed - why.value), score=score)


TILES, BARS, BINS = 64, 24, 40
"""The numbers of kernels or slices, of bars of a row, and of bins in the panel of weights."""


def weights_answer(
    view: View, question: m.WeightsQuestion
) -> tuple[m.WeightsAnswer, dict[str, np.ndarray]]:
    """Return a layer's kernels, the largest first.

    All of a first layer, ``"colour"``; else those of one channel: ``"slices"``, or ``"row"``, one
    number for each input channel. With them come ``tiles`` ``(n, numbers of a tile)``, float32.

    Raises
    ------
    ValueError
        As `hookviz.studies.graph.kernels.layer_weights` and `hookviz.contributions`.
    """
    layer, channel, place = question.layer, question.channel, question.place
    found, every = view.memo.get_or_compute("weights", layer, lambda: _weights(view, layer))
    own = found.kernels[channel]
    row = own[0].numel() == 1  # of a linear layer, or of 1×1 kernels
    by = "weight" if row else "norm"
    if place and not found.in_colour:
        at, by = view.with_settings(place=place), "contribution here"
        why = contributions_of(at, layer, channel, None, question.sample, question.call)
        found = replace(found, channel=channel, contributions=why.by_channel)
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
    words = f"{found.layer}, channel {channel}{name}{found.note}"
    answer = m.WeightsAnswer(
        layer=found.layer,
        channel=channel,
        words=found.verdict if found.in_colour else words,
        kind="colour" if found.in_colour else "row" if row else "slices",
        by=by,
        channels=[channels[n] for n in order],
        numbers=[str(float(values[n])) for n in order],
        total=len(channels),
        size=[max(1, prod(shape[:-1])), shape[-1]] if shape else [1, 1],
        facts=[[n, str(float(each[channel]))] for n, each in facts.items() if each is not None],
        bins=replace(every, own=_counts(own, float(every.low), float(every.high))),
    )
    return answer, {"tiles": tiles[order].reshape(len(order), -1).float().numpy()}


def _weights(view: View, layer: str) -> tuple[LayerWeights, m.WeightBins]:
    """Return a layer's weights, and the histogram of all of them."""
    refuse_weights_of_attention(view, layer)
    found = allow_interrupts(layer_weights, view.session, layer)
    finite = found.kernels[found.kernels.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 1.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts = _counts(found.kernels, low, high)
    return found, m.WeightBins(low=str(low), high=str(high), all=counts, own=[])


def _counts(values: Tensor, low: float, high: float) -> list[int]:
    return np.histogram(values[values.isfinite()].numpy(), BINS, (low, high))[0].tolist()
