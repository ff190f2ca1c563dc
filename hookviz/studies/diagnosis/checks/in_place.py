"""Outputs that are overwritten in place: for plain hooks a trap, for a gradient an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from ....run.errors import first_line, line_of, message_of
from ....run.recorder import labelled
from ..check import Check, LayerCall, RunRecord
from ..error_messages import OVERWRITTEN
from ..findings import Finding
from ..records import OUTSIDE, OperationRecord


@dataclass
class InPlace(Check):
    """Note layers whose output is overwritten: a plain hook that stores it shows wrong values."""

    looks_at = "outputs that are overwritten in place"

    error: Finding | None = None

    def finish(self, score: Tensor | None, run: RunRecord) -> None:
        if run.error is not None and score is not None:
            self.error = overwrite(run, run.error, score)

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        layers = _returned_by(run)
        writes = [each for each in run.operations if each.overwrites and each.phase == "forward"]
        writes = [each for each in writes if each.finite and not each.again]
        pairs = [(layers[each.overwrote], each) for each in writes if each.overwrote in layers]
        if not pairs:
            return
        first, by = min(pairs, key=lambda pair: run.calls.index(pair[0]))
        names = list(dict.fromkeys(call.layer for call, _ in pairs))
        names = [first.layer, *(name for name in names if name != first.layer)]
        yield Finding(
            "in place",
            "note",
            f"The outputs of {len(names)} layers are overwritten in place, that of {first.layer!r} "
            f"by {by.name} in {by.layer!r}: a plain forward hook that stores them without a copy "
            "shows the later values.",
            "Use hookviz.capture, which copies, or clone() in your own hook.",
            **by.place | {"layer": first.layer, "call": first.call},
            layers=names,
        )


def _returned_by(run: RunRecord) -> dict[OperationRecord | None, LayerCall]:
    """Return the layer that returned an operation's output; of nested ones the innermost."""
    found: dict[OperationRecord | None, LayerCall] = {}
    for call in run.calls:
        for record in call.made:
            if record not in found or not found[record].leaf:
                found[record] = call
    return found


def overwrite(run: RunRecord, error: BaseException, score: Tensor) -> Finding | None:
    """Report the operation that overwrote what a gradient needs; None if the error is another one.

    A node of autograd's graph says by raising the same error which of the tensors that it keeps has
    changed.
    """
    message = message_of(error)
    if not OVERWRITTEN.search(message):
        return None
    forward = [each for each in run.operations if each.phase == "forward"]
    writes = [each for each in forward if each.overwrites]
    shape = re.search(r"\[([\d, ]*)\]\], which is", message)
    for node, label in labelled(score.grad_fn):
        if not _has_changed(node):
            continue
        needing = next((each for each in forward if _is(each, label)), None)
        after = [each for each in writes if needing is None or each.index > needing.index]
        own = [each for each in after if needing is not None and each.overwrote is needing]
        alike = [each for each in after if shape and _shape(each) == shape[1].replace(" ", "")]
        found = own or alike or after
        if found:
            return _overwritten(found[0], label.name, line_of(*label.line), error)
    return None


def _overwritten(record: OperationRecord, needing: str, line: str, error: BaseException) -> Finding:
    owner = f" in {record.layer!r}" if record.layer not in ("", OUTSIDE) else ""
    at = f" ({line})" if line else ""
    return Finding(
        "in place",
        "error",
        f"{record.name.capitalize()}{owner} overwrites a tensor in place, but the gradient of "
        f"{needing}{at} needs the old values.",
        "Write a new tensor in that line: x = x + 1, x.relu(), inplace=False; or overwrite a "
        f"clone() of the output of {needing}.",
        **dict(record.place, phase="backward"),
        evidence={"error": first_line(error)},
    )


def _shape(record: OperationRecord) -> str:
    return ",".join(map(str, record.made[0].shape)) if record.made else ""


def _is(record: OperationRecord, label: object) -> bool:
    name, call, line = (getattr(label, each) for each in ("name", "call", "line"))
    place = (call.layer, call.call) if call is not None else (record.layer, record.call)
    same = (record.name, record.layer, record.call) == (name, *place)
    return same and (record.file, record.line) == line


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
