"""Checks of magnitudes along the layers: activations and gradients that grow, shrink or vanish."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ...tables import number
from .findings import Finding
from .observation import LayerCall, Observation
from .values import is_zero, learns, untrained

LIMIT = 1e6
"""By which factor something has exploded or vanished between two layers."""


def scales(seen: Observation) -> Iterator[Finding]:
    """Report activations that grow or shrink too much on their way, or gradients on theirs.

    A branch that is small, such as one that begins at zero, does no harm while another way is
    open: what has vanished is the largest of all that lie further on.
    """
    leaves = [each for each in seen.calls if each.leaf]
    zero = {each.layer for each in leaves if is_zero(each.module)}
    ran = [each for each in leaves if _weighty(each) and each.layer not in zero]
    advice = untrained(seen)
    yield from _judged("activation", [(each, each.size) for each in ran], advice)
    factors = {each.facts["closed by"] for each in seen.operations if "closed by" in each.facts}
    if any(seen.gradient_norms.get(name) for name in factors):
        return  # in the first step nothing comes to what lies before such weights
    if any(learns(seen, name) for name in zero):
        return
    gradients = [(each, each.gradient) for each in reversed(ran)]
    for each in _judged("gradient", gradients, advice, leaves):
        found = replace(each, evidence={**each.evidence, "lost": seen.suspect})
        layer = seen.modules.get(each.layer)
        if each.kind == "vanishing" and _centres(layer) and not (seen.judged and not seen.alike):
            advised = _SLOPE_ALIKE if seen.judged else _ALIKE
            found = replace(found, severity="note", advice=advised)
        yield found


_ALIKE = (
    "Give the loss, lambda output: loss(output, y): without it the gradient is that of a sum of "
    "scores, alike for all samples, and BatchNorm takes out what is alike."
)
_SLOPE_ALIKE = (
    "Nothing, if the answers are still far from the truth: the slope of an L1 or Huber loss is "
    "alike for all samples there, and BatchNorm takes out what is alike; a truth that is scaled to "
    "about 0 ends it sooner."
)


def _centres(module: nn.Module | None) -> bool:
    """Return True for a BatchNorm by whose mean over the batch a gradient that is alike is lost."""
    return isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)


def grows_out_of_range(seen: Observation) -> bool:
    """Return True if gradients grow from layer to layer until their type holds them no more."""
    told = [each for each in scales(seen) if each.phase == "backward"]
    grown = [each for each in told if each.kind == "exploding" and each.evidence.get("everywhere")]
    return any(max(each.evidence["sizes"]) > HUGE for each in grown)


HUGE = 1e34
"""A gradient's norm beyond it is next to the largest number of single precision, 3.4e38."""


def trends(sizes: Sequence[float]) -> Iterator[tuple[str, list[float]]]:
    """Yield ``"vanishing"`` and ``"exploding"`` where they are so, and the sizes that show it.

    The explorer's line of health judges by it, too.

    Examples
    --------
    >>> [kind for kind, _ in trends([1.0, 1e-4, 1e-8])], list(trends([1.0, 1e-8, 1.0]))
    (['vanishing'], [])
    """
    if len(sizes) < 3 or not sizes[0]:
        return
    ahead = list(accumulate(reversed(sizes), max))[::-1]  # the largest that lies further on
    if ahead[-max(len(sizes) // 10, 1)] * LIMIT < sizes[0]:
        yield "vanishing", ahead
    so_far = list(accumulate(sizes, max))
    if so_far[-1] > LIMIT * sizes[0]:
        yield "exploding", so_far


def _weighty(look: LayerCall) -> bool:
    return next(look.module.parameters(recurse=False), None) is not None


def _judged(
    what: str,
    measured: list[tuple[LayerCall, float | None]],
    advice: str,
    leaves: Sequence[LayerCall] = (),
) -> Iterator[Finding]:
    known = [(look, size) for look, size in measured if size is not None and math.isfinite(size)]
    sizes = [size for _, size in known]
    if len(known) >= 3 and (again := _recurrence(what, known, advice)) is not None:
        yield again
        return
    if len(known) < 3 or not sizes[0]:
        return
    for kind, largest in trends(sizes):
        looks = [look for look, _ in known]
        yield _told(kind, what, looks, largest, advice, leaves)


def _told(
    kind: str,
    what: str,
    calls: list[LayerCall],
    sizes: list[float],
    advice: str,
    leaves: Sequence[LayerCall],
) -> Finding:
    shrinks = kind == "vanishing"
    ratio = _ratio if shrinks else lambda a, b: _ratio(b, a)
    steps = [ratio(a, b) for a, b in pairwise(sizes)]
    end = sizes.index(sizes[-1])
    factor = ratio(sizes[0], sizes[-1])
    several = len({look.layer for look in calls}) < len(calls)
    evidence = {
        "factor": factor,
        "step": max(steps),
        "from": calls[0].layer,
        "to": calls[end].layer,
        "layers": [look.layer for look in calls],
        "sizes": sizes,
    }
    part = _everywhere(steps, sizes)
    phase = "forward" if what == "activation" else "backward"
    if part:
        layers = list(dict.fromkeys(look.layer for look in calls[part[0] + 1 :]))
        each = math.exp(sum(math.log(steps[place]) for place in part) / len(part))
        gone = " and comes to 0 there" if math.isinf(factor) else ""
        by = "smaller" if shrinks else "larger"
        message = (
            f"The {what} is {number(ratio(sizes[0], sizes[part[-1] + 1]))} times {by} in "
            f"{_run(calls[part[-1] + 1], several)} than in {_run(calls[0], several)}{gone}: not "
            f"one layer is to blame, {len(part)} steps make it {number(each)} times {by} each."
        )
        at = calls[part[0] + 1]
        severity = "note" if advice else "warning"  # nothing has been learnt yet
        advice = advice or _ADVICE[kind]
        return Finding(
            kind, severity, message, advice, at.layer, at.call, phase,
            evidence=evidence | {"everywhere": True}, layers=[at.layer, *layers[1:]],
        )  # fmt: skip
    most = max(steps)
    first, step = calls[steps.index(most) :][:2]
    if leaves:
        step = _passing(leaves[leaves.index(step) : leaves.index(first) + 1], ratio)
    message = (
        f"The {what} is {number(factor)} times {'smaller' if shrinks else 'larger'} in "
        f"{_run(calls[end], several)} than in {_run(calls[0], several)}; the largest step, "
        f"{number(most)} times, is in {_run(step, several)}."
    )
    if math.isinf(factor):
        message = f"The {what} is 0 from {_run(calls[end], several)} on: nothing comes through."
        advice = advice or f"Look at {step.layer!r}, which may be dead or cut off."
    advice = advice or _ADVICE[kind]
    return Finding(
        kind, "warning", message, advice, step.layer, step.call, phase, evidence=evidence
    )


def _recurrence(what: str, known: list[tuple[LayerCall, float]], advice: str) -> Finding | None:
    """Report a layer that runs many times, in which numbers grow or shrink from run to run."""
    runs: dict[str, list[tuple[LayerCall, float]]] = {}
    for look, size in known:
        if size:
            runs.setdefault(look.layer, []).append((look, size))
    many = [each for each in runs.values() if len(each) >= MANY]
    if not many:
        return None
    most = max(many, key=lambda each: abs(math.log(each[-1][1] / each[0][1])))
    (first, begin), (last, end) = most[0], most[-1]
    factor = max(end / begin, begin / end)
    if factor <= LIMIT:
        return None
    kind, by = ("exploding", "larger") if end > begin else ("vanishing", "smaller")
    # Where it shrinks, what is long ago is forgotten; the layer learns from what is late.
    return Finding(
        kind,
        "warning" if kind == "exploding" else "note",
        f"The {what} is {number(factor)} times {by} in {_run(last, True)} than in "
        f"{_run(first, True)}: it is the same layer, {number(factor ** (1 / (len(most) - 1)))} "
        "times from run to run.",
        advice or _RECURRENT,
        last.layer,
        last.call,
        "forward" if what == "activation" else "backward",
        evidence={
            "factor": factor,
            "everywhere": True,
            "recurrence": True,
            "sizes": [size for _, size in most],
        },
    )


_RECURRENT = (
    "Put a tanh into the recurrence, or use nn.GRU; initialise its weights with "
    "nn.init.orthogonal_, and clip the gradient's norm."
)


def _run(look: LayerCall, several: bool) -> str:
    """Return a layer's name; where layers run several times, with the number of the run."""
    return f"{look.layer!r} (run {look.call})" if several else repr(look.layer)


MANY = 8
"""Fewer steps than this are not many."""


def _everywhere(steps: list[float], sizes: list[float]) -> list[int]:
    """Return the steps, if many small ones make most of it; empty if one or a few do."""
    some = [place for place, step in enumerate(steps) if 1 < step < math.inf]
    logs = sorted((math.log(steps[place]) for place in some), reverse=True)
    large = sum(logs) > math.log(LIMIT) and len(some) >= MANY
    # What comes to 0 at once, from a size that is not small, is cut off.
    left = sizes[0] / LIMIT
    sunk = any(math.isinf(step) and sizes[i] > left for i, step in enumerate(steps))
    return some if large and not sunk and sum(logs[:2]) < sum(logs) / 2 else []


def overflows(seen: Observation) -> Iterator[Finding]:
    """Report a recurrent layer in which numbers grow from step to step of a sequence."""
    for look in seen.calls:
        if not isinstance(look.module, nn.RNNBase):
            continue
        made = [
            each.made[0].magnitude
            for each in seen.operations
            if each.phase == "forward" and (each.layer, each.call) == look.place
            if each.name in ("relu", "tanh") and each.made
        ]
        finite = [size for size in made if math.isfinite(size) and size]
        if len(finite) >= MANY and finite[-1] > LIMIT * finite[0]:
            yield Finding(
                "exploding",
                "warning",
                f"Within {look.layer!r} ({look.type}) the state is {number(finite[-1])} at step "
                f"{len(finite) - 1} of the sequence and {number(finite[0])} at step 0: it grows "
                "from step to step.",
                "Use tanh, an LSTM or a GRU, or make its weights smaller: "
                "nn.init.orthogonal_(rnn.weight_hh_l0).",
                look.layer,
                look.call,
                evidence={"factor": finite[-1] / finite[0], "everywhere": True, "sizes": made},
            )


def _passing(leaves: Sequence[LayerCall], ratio: Callable[[float, float], float]) -> LayerCall:
    """Return the layer that changes a gradient most between its output and its input."""
    known = [each for each in leaves if each.gradient]
    if known and leaves[0].gradient == 0:
        return known[0]
    steps = [ratio(after.gradient or 0.0, each.gradient or 0.0) for each, after in pairwise(known)]
    return known[steps.index(max(steps)) + 1] if steps else leaves[-1]


def _ratio(large: float, small: float) -> float:
    return large / small if small else math.inf


_ADVICE = {
    "exploding": "Add a normalization after the layers, or initialise them smaller "
    "(nn.init.kaiming_normal_); while training, clip the gradient's norm.",
    "vanishing": "Add a residual connection and a normalization to each few layers, and use ReLU "
    "in place of sigmoid or tanh.",
}
