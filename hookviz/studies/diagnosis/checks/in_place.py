"""Outputs that are overwritten in place: for plain hooks a trap, for a gradient an error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from ....run.error_messages import OVERWRITTEN, message_of
from ....run.errors import first_line, line_of
from ....run.recorder import labelled
from ....tables import counted
from ..check import Check, LayerCall, RunRecord
from ..findings import Finding
from ..records import OperationRecord


@dataclass
class InPlace(Check):
    """Note layers whose output is overwritten: a plain hook that stores it shows wrong values."""

    looks_at = "outputs that are overwritten in place"

    error: Finding | None = None

    def finish(self, score: Tensor | None, run: RunRecord) -> None:
        if run.error is not None and score is not None:
            self.error = overwrite(run, run.error, score)

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        returned: dict[OperationRecord | None, LayerCall] = {}
        for call in run.calls:  # of nested layers the innermost counts
            for record in call.made:
                if record not in returned or not returned[record].leaf:
                    returned[record] = call
        writes = (each for each in run.operations if each.overwrites and each.phase == "forward")
        wanted = (each for each in writes if each.finite and not each.again)
        pairs = [(returned[e.overwrote], e) for e in wanted if e.overwrote in returned]
        if not pairs:
            return
        first, by = min(pairs, key=lambda pair: run.calls.index(pair[0]))
        inside = repr(by.layer) if by.layer else "the model's own forward"
        names = dict.fromkeys([first.layer, *(call.layer for call, _ in pairs)])
        yield Finding(
            "in place",
            "note",
            f"The outputs of {counted(len(names), 'layer')} are overwritten in place, that of "
            f"{first.layer!r} by {by.name} in {inside}: a plain forward hook that stores them "
            "without a copy shows the later values.",
            "Use hookviz.capture, which copies, or clone() in your own hook.",
            **by.place | {"layer": first.layer, "call": first.call},
            layers=list(names),
        )


def overwrite(run: RunRecord, error: BaseException, score: Tensor) -> Finding | None:
    """Report the operation that overwrote what a gradient needs; None for other errors.

    A node of autograd's graph says by raising the same error which of the tensors that it keeps has
    changed.
    """
    if not OVERWRITTEN.search(message_of(error)):
        return None
    forward = [each for each in run.operations if each.phase == "forward"]
    for node, label in labelled(score.grad_fn):
        if not _has_changed(node):
            continue
        place = label.line, label.call and (label.call.layer, label.call.call)
        made = (e for e in forward if e.name == label.name and (e.file, e.line) == place[0])
        needing = next((e for e in made if place[1] in (None, (e.layer, e.call))), None)
        writes = [e for e in forward if e.overwrites and (not needing or e.index > needing.index)]
        # A node keeps its inputs, or its output.
        kept = (needing, *needing.makers) if needing is not None else ()
        own = [each for each in writes if each.overwrote is not None and each.overwrote in kept]
        if record := next(iter(own or writes), None):
            at = f" ({line_of(*label.line)})" if label.line[0] else ""
            return Finding(
                "in place",
                "error",
                f"{record.called} overwrites a tensor in place, but the gradient of "
                f"{label.name}{at} needs the old values.",
                "Write a new tensor in that line: x = x + 1, x.relu(), inplace=False; or overwrite "
                f"a clone() of the output of {label.name}.",
                **{**record.place, "phase": "backward"},
                evidence={"error": first_line(error)},
            )
    return None


def _has_changed(node: object) -> bool:
    """Return True if one of the tensors that a node keeps has been overwritten."""
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                getattr(node, name)
            except RuntimeError as error:
                if OVERWRITTEN.search(message_of(error)):
                    return True
    return False
