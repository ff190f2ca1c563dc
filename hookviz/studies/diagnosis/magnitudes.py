"""How large activations and gradients are along the layers: growing, shrinking, lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise

from torch.nn.modules.batchnorm import _BatchNorm

from ...hooking.tables import number
from .findings import Finding
from .observation import LayerCall, Observation
from .weights import is_zero, learns, weighted

LIMIT = 1e6
"""By which factor something has exploded or vanished between two layers."""


def scales(seen: Observation) -> Iterator[Finding]:
    """Whether activations grow or shrink too much on their way, or gradients on theirs.

    A branch that is small, such as one that begins at zero, is no trouble while another way is
    open: what has vanished is the largest of all that lie further on.
    """
    leaves = [each for each in seen.calls if each.leaf]
    zero = {name for name, module in weighted(seen) if is_zero(module)}
    ran = [each for each in leaves if _weighty(each) and each.layer not in zero]
    advice = _untrained(seen)
    yield from _judged("activation", [(each, each.size) for each in ran], advice)
    if any(learns(seen, name) for name in zero):
        return  # in the first step nothing comes to what lies before such a layer
    gradients = [(each, each.gradient) for each in reversed(ran)]
    yield from _judged("gradient", gradients, advice, leaves)


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
    if len(known) < 3 or not sizes[0]:
        return
    # The largest that lies further on, and the largest so far.
    ahead = list(accumulate(reversed(sizes), max))[::-1]
    if ahead[-max(len(sizes) // 10, 1)] * LIMIT < sizes[0]:
        yield _told("vanishing", what, [look for look, _ in known], ahead, advice, leaves)
    so_far = list(accumulate(sizes, max))
    if so_far[-1] > LIMIT * sizes[0]:
        yield _told("exploding", what, [look for look, _ in known], so_far, advice, leaves)


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
    most = max(steps)
    first, step = calls[steps.index(most) :][:2]
    if leaves:
        step = _passing(leaves[leaves.index(step) : leaves.index(first) + 1], ratio)
    end = sizes.index(sizes[-1])
    factor = _ratio(sizes[0], sizes[-1]) if shrinks else _ratio(sizes[-1], sizes[0])
    word = "smaller" if shrinks else "larger"
    message = (
        f"The {what} is {number(factor)} times {word} in {calls[end].layer!r} than in "
        f"{calls[0].layer!r}; the largest step, {number(most)} times, is in {step.layer!r}."
    )
    if math.isinf(factor):
        message = f"The {what} is 0 from {calls[end].layer!r} on: nothing comes through."
        advice = advice or f"Look at {step.layer!r}, which may be dead or cut off."
    return Finding(
        kind,
        "warning",
        message,
        advice or _ADVICE[kind],
        step.layer,
        step.call,
        "forward" if what == "activation" else "backward",
        evidence={
            "factor": factor,
            "step": most,
            "from": calls[0].layer,
            "to": calls[end].layer,
            "layers": [look.layer for look in calls],
            "sizes": sizes,
        },
    )


def _passing(leaves: Sequence[LayerCall], ratio: Callable[[float, float], float]) -> LayerCall:
    """The layer that changes a gradient most: what comes to it, those behind have changed."""
    known = [each for each in leaves if each.gradient]
    if known and leaves[0].gradient == 0:
        return known[0]
    steps = [ratio(after.gradient or 0.0, each.gradient or 0.0) for each, after in pairwise(known)]
    return known[steps.index(max(steps)) + 1] if steps else leaves[-1]


def _ratio(large: float, small: float) -> float:
    return large / small if small else math.inf


def _untrained(seen: Observation) -> str:
    """What to do, where BatchNorm layers in eval mode have never seen a batch."""
    norms = [m for m in seen.names if isinstance(m, _BatchNorm) and not m.training]
    new = [m for m in norms if m.num_batches_tracked is not None and m.num_batches_tracked == 0]
    if not new:
        return ""
    return (
        f"{len(new)} BatchNorm layers in eval mode have never seen a batch and normalize nothing: "
        "load trained weights, or examine the model in training mode."
    )


_ADVICE = {
    "exploding": "Add a normalization after the layers, or initialise them smaller "
    "(nn.init.kaiming_normal_); while training, clip the gradient's norm.",
    "vanishing": "Use ReLU in place of sigmoid or tanh, add a normalization or a residual "
    "connection, or initialise the weights larger (nn.init.kaiming_normal_).",
}
