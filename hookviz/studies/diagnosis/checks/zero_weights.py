"""Layers whose weights are zero throughout."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Check, RunRecord
from ..findings import Finding
from ..modules import LINEAR, is_zero, learns, zero_layers
from ..uniform import uniform_values

VANISHING = frozenset({"vanishing", "gradient of 0"})
CONSTANT = VANISHING | {"flat batch", "input scale", "batchnorm", "constant", "dead", "silent"}
"""The consequences of a layer that returns the same for every input."""


class ZeroWeights(Check):
    """Report weights of zero, unless a layer begins so by design and a gradient reaches it.

    What lies before a layer that begins at zero gets no gradient in the first step, which is not a
    fault either.
    """

    looks_at = "weights that are zero"

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        if run.error is not None:
            return
        zero = zero_layers(run)
        learning = {name for name in zero if learns(run, name)}
        for name, module in zero.items():
            fault = not _by_design(run, name, learning)
            if not fault and not isinstance(module, LINEAR):
                continue  # the last norm of a residual branch often begins so
            scaled = "" if is_zero(module) else " once they are scaled"
            message = f"All weights of {name!r} ({type(module).__name__}) are zero{scaled}"
            yield Finding(
                "zero weights",
                "warning" if fault else "note",
                message
                + (
                    ": it returns the same for every input." if fault else ", as some layers begin."
                ),
                "Initialise them with nn.init.kaiming_normal_(layer.weight), or load trained ones."
                if fault
                else "No fix is needed if it should begin at zero: a gradient reaches it.",
                name,
                cause="zero" if fault else "begins at zero",
                explains=CONSTANT if fault else frozenset(),
            )


def _by_design(run: RunRecord, name: str, learning: set[str]) -> bool:
    """Return True if a layer begins at zero: the next step moves it, or the one behind it."""
    uniform = uniform_values(run.operations)
    made = [each for each in run.operations if each.layer == name and each.phase == "forward"]
    joins = any(each in uniform.joins for each in made)  # it may also lead to a gate
    if not joins and any(run.uses.get(each) for each in made):
        return False  # a norm makes noise of it, and the next layer has nothing to learn from
    # Without a backward nobody can tell.
    return name in learning or bool(learning) or not run.backward
