"""Activations and gradients that grow, shrink or vanish along the layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ....tables import number
from ..check import Check, LayerCall, RunRecord
from ..findings import Finding
from ..modules import has_weights, is_zero, untrained_norms
from ..step import WatchedStep

LIMIT = 1e6
"""The factor between two layers from which on something has exploded or vanished."""
MANY = 8
"""The number of steps, or of calls of a recurrent layer, from which on there are many."""

UNEVEN, FAR_TOO_LARGE = 1e5, 1e10
"""A step that was only watched is examined from this ratio of the mean absolute values of gradients
on, between the weights of two layers, and from this mean value on."""


class Magnitudes(Check):
    """Report activations that grow or shrink too much from layer to layer, and gradients.

    A small branch, such as one that begins at zero, does no harm while another way is open: what
    vanishes is the largest of all values further on.
    """

    def looked_at(self, run: RunRecord) -> str:
        return f"the size of activations and gradients along {len(run.calls)} calls of layers"

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        leaves = [each for each in run.calls if each.leaf]
        zero = {each.layer for each in leaves if is_zero(each.module)}
        ran = [e for e in leaves if e.layer not in zero and has_weights(e.module)]
        advice = untrained_norms(run.names)
        forward = list(_findings("activation", ran, [each.size for each in ran], advice))
        yield from (_out_of_range(each, run) for each in (*forward, *_growing_states(run)))
        products = [each for each in run.operations if each.name == "mul"]
        factors = [m for each in products for m in each.makers if m is not None and m.zero_weights]
        begins = any(run.gradient_norms.get(each.title) for each in factors)
        if begins or any(map(run.learns, zero)):
            return  # in the first step no gradient passes such weights
        told = {(each.kind, each.layer) for each in forward}
        recurrent = any(each.evidence.get("recurrence") for each in forward)
        back = ran[::-1]
        for each in _findings("gradient", back, [e.gradient for e in back], advice, leaves):
            # A layer, or a recurrence, changes the gradient as it changes the activation.
            same = recurrent and each.evidence.get("recurrence")
            if same or (each.kind, each.layer) in told:
                continue
            centred = each.kind == "vanishing" and _centres(run.modules.get(each.layer))
            if centred and (not run.judged or run.output_gradient.alike):
                advised = _ALIKE if run.judged else _WITHOUT_LOSS
                each = replace(each, severity="note", advice=advised)
            yield _out_of_range(each, run)

    def suspects(self, step: WatchedStep) -> bool:
        """Return True if a mean size is far too large, or differs too much between layers."""
        sizes = [each for each in step.gradients.values() if each]
        large = max((step.output, *sizes))
        return large > FAR_TOO_LARGE or (bool(sizes) and max(sizes) > UNEVEN * min(sizes))


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


def _centres(module: nn.Module | None) -> bool:
    """Return True for a BatchNorm whose mean over the batch removes a gradient that is alike."""
    return isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)


def _out_of_range(finding: Finding, run: RunRecord) -> Finding:
    """Make it an error if values grow from layer to layer until their type cannot hold them."""
    if finding.kind != "exploding" or not finding.evidence.get("everywhere"):
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


def _findings(
    what: str,
    calls: Sequence[LayerCall],
    measured: Sequence[float | None],
    advice: str,
    leaves: Sequence[LayerCall] = (),
) -> Iterator[Finding]:
    pairs = zip(calls, measured, strict=True)
    finite = [(call, s) for call, s in pairs if s is not None and math.isfinite(s)]
    if len(finite) < 3:
        return
    recurrence = _recurrence(what, finite, advice)
    if recurrence is not None:
        yield recurrence
        return
    for kind, sizes in trends([size for _, size in finite]):
        trend = Trend(kind, what, [call for call, _ in finite], sizes, advice)
        yield trend.everywhere() or trend.one_step(leaves)


@dataclass
class Trend:
    """Sizes that shrink or grow along calls of layers.

    Attributes
    ----------
    kind : str
        ``"vanishing"`` or ``"exploding"``.
    what : str
        ``"activation"``, ``"gradient"``, or ``"state"`` of a recurrent layer.
    calls : list of LayerCall
    sizes : list of float
    advice : str
        Instead of the usual one.
    """

    kind: str
    what: str
    calls: list[LayerCall]
    sizes: list[float]
    advice: str

    def finding(
        self, call: LayerCall, words: str, advice: str, severity: str = "warning", **evidence: Any
    ) -> Finding:
        """Report it at a call; ``words`` tell where."""
        return Finding(
            self.kind,
            severity,
            f"The {self.what} is {words}",
            self.advice or advice,
            call.layer,
            call.call,
            "backward" if self.what == "gradient" else "forward",
            evidence={
                "factor": self.ratio(self.sizes[0], self.sizes[-1]),
                "layers": [each.layer for each in self.calls],
                "sizes": self.sizes,
            }
            | evidence,
            explains=_EXPLAINS.get(self.kind, frozenset()),
        )

    def ratio(self, before: float, after: float) -> float:
        """Return by which factor the size shrinks or grows."""
        large, small = (before, after) if self.kind == "vanishing" else (after, before)
        return large / small if small else math.inf

    def words(self, last: int) -> str:
        """Compare the size of a call with that of the first one."""
        by = "smaller" if self.kind == "vanishing" else "larger"
        factor = number(self.ratio(self.sizes[0], self.sizes[last]))
        named = f"{self.named(self.calls[last])} than in {self.named(self.calls[0])}"
        return f"{factor} times {by} in {named}"

    def named(self, call: LayerCall) -> str:
        """Return a layer's name; if layers run several times, with the number of the run."""
        several = len({each.layer for each in self.calls}) < len(self.calls)
        return f"{call.layer!r} (run {call.call})" if several else repr(call.layer)

    def everywhere(self) -> Finding | None:
        """Report it if many small steps make most of it."""
        steps = [self.ratio(a, b) for a, b in pairwise(self.sizes)]
        part = [number for number, step in enumerate(steps) if 1 < step < math.inf]
        logs = sorted((math.log(steps[number]) for number in part), reverse=True)
        if sum(logs) <= math.log(LIMIT) or len(part) < MANY or sum(logs[:2]) >= sum(logs) / 2:
            return None
        # What becomes 0 at once, from a size that is not small, is cut off.
        left = self.sizes[0] / LIMIT
        if any(math.isinf(step) and self.sizes[i] > left for i, step in enumerate(steps)):
            return None
        mean = number(math.exp(sum(logs) / len(part)))
        gone = " and becomes 0 there" if self.sizes[-1] == 0 else ""
        found = self.finding(
            self.calls[part[0] + 1],
            f"{self.words(part[-1] + 1)}{gone}: no single layer is the cause, each of {len(part)} "
            f"steps changes it {mean} times.",
            _ADVICE[self.kind],
            "note" if self.advice else "warning",  # nothing has been learnt yet
            everywhere=True,
        )
        layers = list(dict.fromkeys(each.layer for each in self.calls[part[0] + 1 :]))
        return replace(found, layers=layers)

    def one_step(self, leaves: Sequence[LayerCall]) -> Finding:
        """Report it at the layer with the largest step."""
        steps = [self.ratio(a, b) for a, b in pairwise(self.sizes)]
        most, end = max(steps), self.sizes.index(self.sizes[-1])
        first, call = self.calls[steps.index(most) :][:2]
        if leaves:
            call = self._passing(leaves[leaves.index(call) : leaves.index(first) + 1])
        if self.sizes[-1]:
            largest = f"the largest step, {number(most)} times, is in {self.named(call)}"
            return self.finding(call, f"{self.words(end)}; {largest}.", _ADVICE[self.kind])
        found = self.finding(
            call,
            f"0 from {self.named(self.calls[end])} on: nothing passes.",
            f"Look at {call.layer!r}, which may be dead or cut off.",
        )
        return replace(found, symptom="gradient of 0" if self.what == "gradient" else "")

    def _passing(self, leaves: Sequence[LayerCall]) -> LayerCall:
        """Return the layer that changes a gradient most between its output and its input."""
        known = [each for each in leaves if each.gradient]
        if leaves[0].gradient == 0 or len(known) < 2:
            return known[0] if known else leaves[-1]
        sizes = [each.gradient or 0.0 for each in known]
        steps = [self.ratio(before, after) for after, before in pairwise(sizes)]
        return known[steps.index(max(steps)) + 1]


_EXPLAINS = {"exploding": frozenset({"learning rate"})}


def _recurrence(
    what: str, measured: Sequence[tuple[LayerCall, float]], advice: str
) -> Finding | None:
    """Report a layer that runs many times, in which values grow or shrink from run to run."""
    runs: dict[str, list[tuple[LayerCall, float]]] = {}
    for call, size in measured:
        if size:
            runs.setdefault(call.layer, []).append((call, size))
    many = [each for each in runs.values() if len(each) >= MANY]
    if not many:
        return None
    most = max(many, key=lambda each: abs(math.log(each[-1][1] / each[0][1])))
    sizes = [size for _, size in most]
    kind = "exploding" if sizes[-1] > sizes[0] else "vanishing"
    trend = Trend(kind, what, [call for call, _ in most], sizes, advice)
    if (factor := trend.ratio(sizes[0], sizes[-1])) <= LIMIT:
        return None
    step = number(factor ** (1 / (len(most) - 1)))
    return trend.finding(
        most[-1][0],
        f"{trend.words(-1)}: it is the same layer, {step} times from run to run.",
        _RECURRENT,
        # If it shrinks, early inputs are forgotten; the layer learns from the late ones.
        "warning" if kind == "exploding" else "note",
        everywhere=True,
        recurrence=True,
    )


def _growing_states(run: RunRecord) -> Iterator[Finding]:
    """Report recurrent layers in which values grow from step to step of a sequence."""
    for call in run.calls:
        if not isinstance(call.module, nn.RNNBase):
            continue
        ran = (e for e in run.operations if (e.layer, e.call) == call.place and e.made)
        states = (e for e in ran if e.phase == "forward" and e.name in ("relu", "tanh"))
        sizes = [s for each in states if math.isfinite(s := each.made[0].magnitude) and s]
        if len(sizes) >= MANY and sizes[-1] > LIMIT * sizes[0]:
            trend = Trend("exploding", "state", [call], sizes, "")
            yield trend.finding(
                call,
                f"{number(sizes[-1])} at step {len(sizes) - 1} of the sequence in {call.layer!r} "
                f"({call.type}), and {number(sizes[0])} at step 0: it grows from step to step.",
                "Use tanh, an LSTM or a GRU, or make its weights smaller: "
                "nn.init.orthogonal_(rnn.weight_hh_l0).",
                everywhere=True,
            )


_RECURRENT = (
    "Put a tanh into the recurrence, or use nn.GRU; initialise its weights with "
    "nn.init.orthogonal_, and clip the gradient's norm."
)
_WITHOUT_LOSS = (
    "Pass the loss, lambda output: loss(output, y): without it the gradient is that of a sum of "
    "scores, alike for all samples, and BatchNorm removes what is alike."
)
_ALIKE = (
    "No fix is needed while the answers are still far from the truth: there the slope of an L1 or "
    "Huber loss is alike for all samples, and BatchNorm removes what is alike; targets scaled to "
    "about 0 shorten this phase."
)
_ADVICE = {
    "exploding": "Add a normalization after the layers, or initialise them smaller "
    "(nn.init.kaiming_normal_); while training, clip the gradient's norm.",
    "vanishing": "Add a residual connection and a normalization to each few layers, and use ReLU "
    "in place of sigmoid or tanh.",
}
