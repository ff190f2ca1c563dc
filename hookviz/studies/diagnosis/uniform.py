"""Values that are one number everywhere: where they became so, and where they join others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...run.operations import LAYER_KINDS, Kind
from .records import OperationRecord


@dataclass
class UniformValues:
    """The places where uniform outputs got their one number from.

    Attributes
    ----------
    origins : dict of OperationRecord to (OperationRecord, bool)
        The first operation with a uniform output on the way to this one; and whether weights, or a
        norm, lie between.
    joins : set of OperationRecord
        Those of these first ones that are added to other values, as a branch is.
    """

    origins: dict[OperationRecord, tuple[OperationRecord, bool]] = field(default_factory=dict)
    joins: set[OperationRecord] = field(default_factory=set)

    def begin(self, record: OperationRecord) -> OperationRecord:
        """Return the operation whose output was the first to be this one number."""
        return self.origins.get(record, (record, False))[0]


def uniform_values(operations: Iterable[OperationRecord]) -> UniformValues:
    """Follow uniform values through the operations of a forward."""
    found = UniformValues()
    for record in operations:
        if record.phase == "backward":
            continue
        weighs = record.kind in LAYER_KINDS or record.kind is Kind.NORMALIZATION
        for maker in record.makers[:1] if weighs else record.makers:
            if maker is None or not maker.uniform:
                continue
            begin, behind = found.origins.get(maker, (maker, False))
            behind = weighs or behind
            if not record.uniform:
                if record.name == "add" and not behind:
                    found.joins.add(begin)
            elif not behind or record not in found.origins:
                found.origins[record] = begin, behind
    return found
