"""Outputs that are overwritten in place: for plain hooks a trap, for a gradient an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import Tensor

from ....hooking.storage import StorageMap
from ....run.errors import first_line, line_of, message_of
from ....run.recorder import Operation, labelled
from ..check import Check, LayerCall, RunRecord
from ..error_messages import OVERWRITTEN
from ..findings import Finding
from ..records import OUTSIDE, OperationRecord


@dataclass(frozen=True)
class Overwrite:
    """The operation that overwrote a tensor; name and line of the one whose gradient needs it."""

    record: OperationRecord
    needing: str
    at: str

    def finding(self, error: BaseException) -> Finding:
        """Report the error."""
        layer = self.record.layer
        owner = f" in {layer!r}" if layer and layer != OUTSIDE else ""
        at = f" ({self.at})" if self.at else ""
        return Finding(
            "in place",
            "error",
            f"{self.record.name.capitalize()}{owner} overwrites a tensor in place, but the "
            f"gradient of {self.needing}{at} needs the old values.",
            f"Write a new tensor in that line: x = x + 1, x.relu(), inplace=False; or overwrite a "
            f"clone() of the output of {self.needing}.",
            **{**self.record.place, "phase": "backward"},
            evidence={"error": first_line(error)},
        )


@dataclass
class InPlace(Check):
    """Note layers whose output is overwritten: a plain hook that stores it shows wrong values."""

    looks_at = "outputs that are overwritten in place"

    outputs: StorageMap[LayerCall] = field(default_factory=StorageMap)
    overwritten: list[tuple[LayerCall, OperationRecord]] = field(default_factory=list)
    error: Overwrite | None = None

    def leave(self, call: LayerCall, returned: list[Tensor], run: RunRecord) -> None:
        for tensor in returned:
            if tensor not in self.outputs:
                self.outputs[tensor] = call

    def heard(self, operation: Operation, record: OperationRecord, run: RunRecord) -> None:
        if record.overwrites and not record.again and not operation.is_view and operation.outputs:
            call = self.outputs.pop(operation.outputs[0])  # from now on another layer's
            if call is not None:
                self.overwritten.append((call, record))

    def finish(self, score: Tensor | None, run: RunRecord) -> None:
        self.outputs = StorageMap()
        if run.error is not None and score is not None:
            self.error = overwrite(run, run.error, score)

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        if not self.overwritten:
            return
        in_order = {call: number for number, call in enumerate(run.calls)}
        first, by = min(self.overwritten, key=lambda pair: in_order.get(pair[0], 0))
        calls = sorted((call for call, _ in self.overwritten), key=lambda c: in_order.get(c, 0))
        names = list(dict.fromkeys(call.layer for call in calls))
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


def overwrite(run: RunRecord, error: BaseException, score: Tensor) -> Overwrite | None:
    """Find the operation that overwrote what a gradient needs; None if the error is another one.

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
            return Overwrite(found[0], label.name, line_of(*label.line))
    return None


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
