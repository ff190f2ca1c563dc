"""Activations and gradients that grow, shrink or vanish along the layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ....tables import number
from ..check import Check, LayerCall, RunRecord
from ..findings import Finding
from ..modules import is_zero, learns, untrained_norms
from ..step import WatchedStep

LIMIT = 1e6
"""The factor between two layers from which on something has exploded or vanished."""
HUGE = 1e34
"""A gradient's norm beyond it is next to the largest number of single precision, 3.4e38."""
MANY = 8
"""The number of steps, or of calls of a recurrent layer, from which on there are many."""

UNEVEN, FAR_TOO_LARGE = 1e5, 1e10
"""A step that was only watched is examined from this ratio of mean absolute values on, between two
layers' outputs or two weights' gradients, and from this mean value on."""

Measured = tuple[LayerCall, float]


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
        ran = [each for each in leaves if _has_weights(each) and each.layer not in zero]
        advice = untrained_norms(run)
        forward = list(_findings("activation", [(each, each.size) for each in ran], advice))
        yield from (_out_of_range(each, run) for each in forward)
        products = [each for each in run.operations if each.name == "mul"]
        factors = [m for each in products for m in each.makers if m is not None and m.zero_weights]
        if any(run.gradient_norms.get(each.title) for each in factors):
            return  # in the first step no gradient passes such weights
        if any(learns(run, name) for name in zero):
            return
        told = {(each.kind, each.layer) for each in forward}
        recurrent = any(each.evidence.get("recurrence") for each in forward)
        gradients = [(each, each.gradient) for each in reversed(ran)]
        for each in _findings("gradient", gradients, advice, leaves):
            if (each.kind, each.layer) in told:
                continue  # a layer changes the gradient as it changes the activation
            if recurrent and each.evidence.get("recurrence"):
                continue  # the gradient runs back through the same recurrence
            layer = run.modules.get(each.layer)
            if each.kind == "vanishing" and _centres(layer) and not run.judged:
                each = replace(each, severity="note", advice=_WITHOUT_LOSS)
            elif each.kind == "vanishing" and _centres(layer) and run.output_gradient.alike:
                each = replace(each, severity="note", advice=_ALIKE)
            yield _out_of_range(each, run)

    def suspects(self, step: WatchedStep) -> bool:
        """Return True if a mean size is far too large, or differs too much between layers."""
        for means in (step.activations, step.gradients):
            sizes = [each for each in means.values() if each and math.isfinite(each)]
            if sizes and max(sizes) > min(UNEVEN * min(sizes), FAR_TOO_LARGE):
                return True
        return False


def grows_out_of_range(run: RunRecord) -> bool:
    """Return True if gradients grow from layer to layer until their type cannot hold them."""
    found = [each for each in run.check(Magnitudes).findings(run) if each.phase == "backward"]
    grown = [each for each in found if each.kind == "exploding" and each.evidence.get("everywhere")]
    return any(max(each.evidence["sizes"]) > HUGE for each in grown)


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


def _has_weights(call: LayerCall) -> bool:
    return next(call.module.parameters(recurse=False), None) is not None


def _centres(module: nn.Module | None) -> bool:
    """Return True for a BatchNorm whose mean over the batch removes a gradient that is alike."""
    return isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)


def _out_of_range(finding: Finding, run: RunRecord) -> Finding:
    """Make it an error if values grow from layer to layer until their type cannot hold them."""
    if finding.kind != "exploding" or not finding.evidence.get("everywhere"):
        return finding
    lost = any(each.propagated and each.overflowed for each in run.operations)
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
    measured: list[tuple[LayerCall, float | None]],
    advice: str,
    leaves: Sequence[LayerCall] = (),
) -> Iterator[Finding]:
    finite = [(call, s) for call, s in measured if s is not None and math.isfinite(s)]
    sizes = [size for _, size in finite]
    if len(finite) < 3:
        return
    recurrence = _recurrence(what, finite, advice)
    if recurrence is not None:
        yield recurrence
        return
    for kind, largest in trends(sizes):
        trend = Trend(kind, what, [call for call, _ in finite], largest)
        yield trend.everywhere(advice) or trend.one_step(advice, leaves)


@dataclass
class Trend:
    """Sizes that shrink or grow along calls of layers.

    Attributes
    ----------
    kind : str
        ``"vanishing"`` or ``"exploding"``.
    what : str
        ``"activation"`` or ``"gradient"``.
    calls : list of LayerCall
    sizes : list of float
        Monotonic.
    """

    kind: str
    what: str
    calls: list[LayerCall]
    sizes: list[float]

    def ratio(self, before: float, after: float) -> float:
        """Return by which factor the size shrinks or grows."""
        large, small = (before, after) if self.kind == "vanishing" else (after, before)
        return large / small if small else math.inf

    @property
    def steps(self) -> list[float]:
        """The factors from call to call."""
        return [self.ratio(a, b) for a, b in pairwise(self.sizes)]

    @property
    def phase(self) -> str:
        return "forward" if self.what == "activation" else "backward"

    @property
    def by(self) -> str:
        return "smaller" if self.kind == "vanishing" else "larger"

    def named(self, call: LayerCall) -> str:
        """Return a layer's name; if layers run several times, with the number of the run."""
        several = len({each.layer for each in self.calls}) < len(self.calls)
        return _named(call, several)

    @property
    def end(self) -> LayerCall:
        """The first call of the last size."""
        return self.calls[self.sizes.index(self.sizes[-1])]

    @property
    def factor(self) -> float:
        return self.ratio(self.sizes[0], self.sizes[-1])

    @property
    def evidence(self) -> dict[str, object]:
        return {
            "factor": self.factor,
            "step": max(self.steps),
            "from": self.calls[0].layer,
            "to": self.end.layer,
            "layers": [each.layer for each in self.calls],
            "sizes": self.sizes,
        }

    def everywhere(self, advice: str) -> Finding | None:
        """Report it if many small steps make most of it."""
        steps = self.steps
        part = _small_steps(steps, self.sizes)
        if not part:
            return None
        layers = list(dict.fromkeys(each.layer for each in self.calls[part[0] + 1 :]))
        mean = math.exp(sum(math.log(steps[number]) for number in part) / len(part))
        gone = " and becomes 0 there" if math.isinf(self.factor) else ""
        last = part[-1] + 1
        first = self.calls[part[0] + 1]
        return Finding(
            self.kind,
            "note" if advice else "warning",  # nothing has been learnt yet
            f"The {self.what} is {number(self.ratio(self.sizes[0], self.sizes[last]))} times "
            f"{self.by} in {self.named(self.calls[last])} than in {self.named(self.calls[0])}"
            f"{gone}: no single layer is the cause, {len(part)} steps make it {number(mean)} times "
            f"{self.by} each.",
            advice or _ADVICE[self.kind],
            first.layer,
            first.call,
            self.phase,
            evidence=self.evidence | {"everywhere": True},
            layers=[first.layer, *layers[1:]],
            explains=_EXPLAINS.get(self.kind, frozenset()),
        )

    def one_step(self, advice: str, leaves: Sequence[LayerCall]) -> Finding:
        """Report it at the layer with the largest step."""
        steps = self.steps
        most = max(steps)
        first, call = self.calls[steps.index(most) :][:2]
        if leaves:
            call = self._passing(leaves[leaves.index(call) : leaves.index(first) + 1])
        message = (
            f"The {self.what} is {number(self.factor)} times {self.by} in {self.named(self.end)} "
            f"than in {self.named(self.calls[0])}; the largest step, {number(most)} times, is in "
            f"{self.named(call)}."
        )
        gone = math.isinf(self.factor)
        if gone:
            message = f"The {self.what} is 0 from {self.named(self.end)} on: nothing passes."
            advice = advice or f"Look at {call.layer!r}, which may be dead or cut off."
        lost = gone and self.kind == "vanishing" and self.phase == "backward"
        return Finding(
            self.kind,
            "warning",
            message,
            advice or _ADVICE[self.kind],
            call.layer,
            call.call,
            self.phase,
            evidence=self.evidence,
            symptom="gradient of 0" if lost else self.kind,
            explains=_EXPLAINS.get(self.kind, frozenset()),
        )

    def _passing(self, leaves: Sequence[LayerCall]) -> LayerCall:
        """Return the layer that changes a gradient most between its output and its input."""
        known = [each for each in leaves if each.gradient]
        if known and leaves[0].gradient == 0:
            return known[0]
        steps = [
            self.ratio(each.gradient or 0.0, after.gradient or 0.0)
            for after, each in pairwise(known)
        ]
        return known[steps.index(max(steps)) + 1] if steps else leaves[-1]


_EXPLAINS = {"exploding": frozenset({"learning rate"})}


def _recurrence(what: str, measured: list[Measured], advice: str) -> Finding | None:
    """Report a layer that runs many times, in which values grow or shrink from run to run."""
    runs: dict[str, list[Measured]] = {}
    for call, size in measured:
        if size:
            runs.setdefault(call.layer, []).append((call, size))
    many = [each for each in runs.values() if len(each) >= MANY]
    if not many:
        return None
    most = max(many, key=lambda each: abs(math.log(each[-1][1] / each[0][1])))
    (first, begin), (last, end) = most[0], most[-1]
    factor = max(end / begin, begin / end)
    if factor <= LIMIT:
        return None
    kind, by = ("exploding", "larger") if end > begin else ("vanishing", "smaller")
    return Finding(
        kind,
        # If it shrinks, early inputs are forgotten; the layer learns from the late ones.
        "warning" if kind == "exploding" else "note",
        f"The {what} is {number(factor)} times {by} in {_named(last, True)} than in "
        f"{_named(first, True)}: it is the same layer, {number(factor ** (1 / (len(most) - 1)))} "
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
        explains=_EXPLAINS.get(kind, frozenset()),
    )


def _named(call: LayerCall, several: bool) -> str:
    return f"{call.layer!r} (run {call.call})" if several else repr(call.layer)


def _small_steps(steps: list[float], sizes: list[float]) -> list[int]:
    """Return the steps, if many small ones make most of it; empty if one or a few do."""
    some = [number for number, step in enumerate(steps) if 1 < step < math.inf]
    logs = sorted((math.log(steps[number]) for number in some), reverse=True)
    large = sum(logs) > math.log(LIMIT) and len(some) >= MANY
    # What becomes 0 at once, from a size that is not small, is cut off.
    left = sizes[0] / LIMIT
    sunk = any(math.isinf(step) and sizes[i] > left for i, step in enumerate(steps))
    return some if large and not sunk and sum(logs[:2]) < sum(logs) / 2 else []


class GrowingState(Check):
    """Report a recurrent layer in which values grow from step to step of a sequence."""

    looks_at = "recurrent layers step by step"

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        for call in run.calls:
            if not isinstance(call.module, nn.RNNBase):
                continue
            made = [
                each.made[0].magnitude
                for each in run.operations
                if each.phase == "forward" and (each.layer, each.call) == call.place
                if each.name in ("relu", "tanh") and each.made
            ]
            finite = [size for size in made if math.isfinite(size) and size]
            if len(finite) >= MANY and finite[-1] > LIMIT * finite[0]:
                found = Finding(
                    "exploding",
                    "warning",
                    f"In {call.layer!r} ({call.type}) the state is {number(finite[-1])} at step "
                    f"{len(finite) - 1} of the sequence and {number(finite[0])} at step 0: it "
                    "grows from step to step.",
                    "Use tanh, an LSTM or a GRU, or make its weights smaller: "
                    "nn.init.orthogonal_(rnn.weight_hh_l0).",
                    call.layer,
                    call.call,
                    evidence={"factor": finite[-1] / finite[0], "everywhere": True, "sizes": made},
                    explains=_EXPLAINS["exploding"],
                )
                yield _out_of_range(found, run)


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
