"""Activations and gradients that grow, shrink or vanish along the layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from ....tables import number
from ..check import Check, LayerCall, RunRecord
from ..findings import Finding
from ..modules import has_weights, untrained_norms

LIMIT = 1e6
"""The factor between two layers from which on something has exploded or vanished."""
HUGE = 1e10
"""An activation of this size has exploded even if no other layer's is smaller."""
MANY = 8
"""The number of small steps from which on there are many."""


class Magnitudes(Check):
    """Report activations that grow or shrink too much from layer to layer, and gradients.

    The size of a layer that runs several times is its largest one. A small branch, such as one that
    begins at zero, does no harm while another way is open: what vanishes is the largest of all
    values further on.
    """

    def looked_at(self, run: RunRecord) -> str:
        what = "activations and gradients" if run.scored else "activations"
        return f"the size of {what} along {len(run.calls)} calls of layers"

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        leaves = [each for each in run.calls if each.leaf]
        zero = run.zero_layers
        ran = [e for e in leaves if e.layer not in zero and has_weights(e.module)]
        new = untrained_norms(run.names)
        forward = list(_findings("activation", [(e, e.size) for e in ran], new))
        yield from (_out_of_range(each, run) for each in forward)
        products = [each for each in run.operations if each.name == "mul"]
        factors = [m for each in products for m in each.makers if m is not None and m.zero_weights]
        if any(run.gradient_norms.get(e.title) for e in factors) or any(map(run.learns, zero)):
            return  # in the first step no gradient passes weights that begin at zero
        # A layer changes the gradient as it changes the activation.
        kinds = {each.kind for each in forward}
        for each in _findings("gradient", [(e, e.gradient) for e in ran[::-1]], new, leaves):
            if each.kind in kinds:
                continue
            norm = run.modules.get(each.layer)
            centres = isinstance(norm, _BatchNorm) and (norm.training or norm.running_mean is None)
            alike = not run.judged or run.output_gradient.alike
            if isinstance(norm, (nn.LayerNorm, nn.GroupNorm, _InstanceNorm)):
                centres, alike = True, not run.judged and run.output_gradient.flat
            if each.kind == "vanishing" and centres and alike:
                each = replace(each, severity="note", advice=_ALIKE)
            yield _out_of_range(each, run)


def trends(sizes: Sequence[float]) -> Iterator[tuple[str, list[float]]]:
    """Yield ``"vanishing"`` and ``"exploding"`` if they are so, and the sizes that show it.

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


def _findings(
    what: str,
    measured: Sequence[tuple[LayerCall, float | None]],
    advice: str,
    leaves: Sequence[LayerCall] = (),
) -> Iterator[Finding]:
    """Find trends in the sizes of layers' calls; ``advice`` replaces the usual one."""
    largest: dict[str, tuple[LayerCall, float]] = {}
    for call, size in measured:
        if size is not None and math.isfinite(size):
            known = largest.get(call.layer, (call, size))
            largest[call.layer] = (call, size) if size > known[1] else known
    calls, sizes = [call for call, _ in largest.values()], [size for _, size in largest.values()]
    kinds = dict(trends(sizes))
    for kind, trend in kinds.items():
        yield _trend(kind, what, calls, trend, advice, leaves)
    # What the model returns may be in a unit of which there are many.
    huge = next((each for name, each in largest.items() if name and each[1] > HUGE), None)
    if what == "activation" and huge is not None and "exploding" not in kinds:
        call, size = huge
        yield Finding(
            "exploding",
            "warning",
            f"Activations in {call.layer!r} have a size of {number(size)}.",
            advice or _ADVICE["exploding"],
            call.layer,
            call.call,
            explains=frozenset({"learning rate"}),
        )


def _trend(
    kind: str,
    what: str,
    calls: Sequence[LayerCall],
    sizes: Sequence[float],
    advice: str,
    leaves: Sequence[LayerCall],
) -> Finding:
    """Report it as a whole if many small steps make most of it, else at its largest step."""
    backward = what == "gradient"
    steps = [_ratio(kind, a, b) for a, b in pairwise(sizes)]
    small = [index for index, step in enumerate(steps) if 1 < step < math.inf]
    logs = sorted((math.log(steps[index]) for index in small), reverse=True)
    many = len(small) >= MANY and sum(logs) > math.log(LIMIT) and sum(logs[:2]) < sum(logs) / 2
    most = max(steps)
    found = Finding(
        kind,
        # Layers that do not normalize yet add up to it, unless one makes most of it by itself.
        "note" if advice and (many or most < LIMIT**0.5) else "warning",
        "",
        advice or _ADVICE[kind],
        phase="backward" if backward else "forward",
        evidence={"layers": [each.layer for each in calls], "sizes": sizes},
        explains=frozenset({"learning rate"} if kind == "exploding" else ()),
    )

    def compared(last: int) -> str:
        by = "smaller" if kind == "vanishing" else "larger"
        factor = number(_ratio(kind, sizes[0], sizes[last]))
        named = f"{calls[last].layer!r} than in {calls[0].layer!r}"
        return f"The {what}s are {factor} times {by} in {named}"

    if many:
        behind = calls[small[0] + 1 :]
        mean = number(math.exp(sum(logs) / len(small)))
        return replace(
            found,
            message=f"{compared(small[-1] + 1)}: no single layer is the cause, each of "
            f"{len(small)} steps changes it {mean} times.",
            layer=behind[0].layer,
            call=behind[0].call,
            layers=[each.layer for each in behind],
        )
    end = sizes.index(sizes[-1])
    first, call = calls[steps.index(most) :][:2]
    if backward:
        between = leaves[leaves.index(call) : leaves.index(first) + 1]
        call = _passing(kind, between or [call])
    found = replace(found, layer=call.layer, call=call.call, layers=[call.layer])
    if sizes[-1]:
        largest = f"the largest step, {number(most)} times, is in {call.layer!r}"
        return replace(found, message=f"{compared(end)}; {largest}.")
    return replace(
        found,
        message=f"The {what} is 0 from {calls[end].layer!r} on: nothing passes.",
        advice=advice or f"Look at {call.layer!r}, which may be dead or cut off.",
        symptom="gradient of 0" if backward else "",
    )


def _ratio(kind: str, before: float, after: float) -> float:
    """Return by which factor a size shrinks or grows."""
    large, small = (before, after) if kind == "vanishing" else (after, before)
    return large / small if small else math.inf


def _passing(kind: str, leaves: Sequence[LayerCall]) -> LayerCall:
    """Return the layer that changes a gradient most between its output and its input."""
    known = [each for each in leaves if each.gradient]
    if leaves[0].gradient == 0 or len(known) < 2:
        return known[0] if known else leaves[-1]
    pairs = pairwise(each.gradient or 0.0 for each in known)
    steps = [_ratio(kind, before, after) for after, before in pairs]
    return known[steps.index(max(steps)) + 1]


def _out_of_range(finding: Finding, run: RunRecord) -> Finding:
    """Make it an error if values grow from layer to layer until their type cannot hold them."""
    if finding.kind != "exploding" or len(finding.layers) == 1:
        return finding
    lost = any(each.reached and each.overflowed for each in run.operations)
    if not lost and not (finding.phase == "backward" and run.suspect):
        return finding
    return replace(
        finding,
        severity="error",
        message=f"{finding.message} In the end its type cannot hold them: they become Inf and NaN.",
        explains=finding.explains | {"overflow", "half precision", "dead"},
    )


_ALIKE = (
    "No fix is needed while the gradient is alike for all that the normalization averages over, "
    "since it removes that: as the gradient of a sum of scores (pass the loss, "
    "lambda output: loss(output, y)), or of an L1 or Huber loss whose answers are still far from "
    "the truth."
)
_ADVICE = {
    "exploding": "Add a normalization after the layers, or initialise them smaller "
    "(nn.init.kaiming_normal_, in a recurrence nn.init.orthogonal_); put a tanh into a recurrence; "
    "while training, clip the gradient's norm.",
    "vanishing": "Add a residual connection and a normalization to each few layers, and use ReLU "
    "in place of sigmoid or tanh.",
}
