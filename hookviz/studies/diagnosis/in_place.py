"""An error of autograd's: a number that a backward needs was overwritten. By which operation?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import Tensor

from ...run.errors import line_of
from ...run.recorder import labelled
from .operations import OperationRecord

SAYS = re.compile("modified by an inplace operation")


def culprit(
    operations: Sequence[OperationRecord], error: Exception, score: Tensor | None
) -> tuple[OperationRecord, str, str] | None:
    """The operation that wrote, and name and line of the one whose backward needs what was there.

    None if the error is another one, or neither is to be found. A node of autograd's graph says by
    raising the same error which of the tensors that it keeps is no longer what it was.
    """
    if score is None or not SAYS.search(str(error)):
        return None
    writes = [
        each
        for each in operations
        if each.overwrites and each.phase == "forward" and "overwrote" in each.facts
    ]
    shape = re.search(r"\[([\d, ]*)\]\], which is", str(error))
    for node, label in labelled(score):
        if not _spoiled(node):
            continue
        needing = next((o for o in operations if _is(o, label)), None)
        after = [each for each in writes if needing is None or each.index > needing.index]
        own = [each for each in after if each.facts["overwrote"] is needing]
        alike = [each for each in after if shape and _shape(each) == shape[1].replace(" ", "")]
        found = (own or alike or after)[:1]
        if found:
            return found[0], label.name, line_of(*label.line)
    return None


def _shape(record: OperationRecord) -> str:
    return ",".join(map(str, record.made[0].shape)) if record.made else ""


def _is(record: OperationRecord, label: object) -> bool:
    name, call, line = (getattr(label, each) for each in ("name", "call", "line"))
    place = (call.layer, call.call) if call is not None else (record.layer, record.call)
    same = (record.name, record.layer, record.call) == (name, *place)
    return same and record.phase == "forward" and (record.file, record.line) == line


def _spoiled(node: object) -> bool:
    """Whether one of the tensors that a node keeps has been overwritten."""
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                getattr(node, name)
            except RuntimeError as error:
                if SAYS.search(str(error)):
                    return True
    return False
