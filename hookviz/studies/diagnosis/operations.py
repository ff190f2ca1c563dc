"""The operations of an examined run: where each ran, its values' ranges, what it overwrote."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...hooking.tables import number
from ...run.errors import line_of
from ...run.recorder import Operation, labelled

OUTSIDE = "(outside)"
"""In place of a layer's name: the model had not begun, or had returned."""


@dataclass(frozen=True)
class Range:
    """From where to where a tensor's values go; both ends are NaN where one of them is."""

    low: float
    high: float
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def finite(self) -> bool:
        """True if there is no NaN and no Inf."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def nan(self) -> bool:
        """True if there is a NaN."""
        return math.isnan(self.low)

    @property
    def magnitude(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    def __str__(self) -> str:
        size = "×".join(map(str, self.shape)) or "one number"
        return f"{number(self.low)} … {number(self.high)} ({size})"


def range_of(tensor: Tensor) -> Range | None:
    """Return the range of a floating-point or complex tensor; None where it cannot be read.

    >>> print(range_of(torch.tensor([[0.5, -2.0]])))
    −2 … 0.5 (1×2)
    """
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return None
    values = tensor.detach()
    try:
        values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
        values = values if values.dtype in (torch.float32, torch.float64) else values.float()
        low, high = torch.stack(values.aminmax()).tolist() if values.numel() else (0.0, 0.0)
    except (RuntimeError, NotImplementedError, TypeError):  # sparse, quantized, nested, meta
        return None
    return Range(low, high, tuple(tensor.shape), tensor.dtype)


@dataclass(eq=False)
class OperationRecord:
    """One operation that ran, or the source of numbers that no operation made.

    Attributes
    ----------
    index : int
        Counted in the run; −1 for a source, such as weights.
    name : str
        torch's, without what tells its variants apart: ``"log"``, ``"convolution"``.
    layer : str or None
        The innermost module that was running; `OUTSIDE` if none was.
    call : int
        Which run of that module, from 0.
    phase : str
        ``"forward"`` or ``"backward"``; a backward's layer, call and line are its forward's.
    made, given : tuple of Range
        Of its outputs; and of its inputs, where something that it made is not finite.
    origin : OperationRecord or None
        Where those numbers arose that are not finite; itself, if here.
    """

    index: int
    name: str
    layer: str = OUTSIDE
    call: int = 0
    phase: str = "forward"
    file: str = ""
    line: int = 0
    made: tuple[Range, ...] = ()
    given: tuple[Range, ...] = ()
    origin: OperationRecord | None = None
    constant: bool = False  # Inf that the code asks for, as a mask does
    overwrites: bool = False  # works in place
    again: bool = False  # run once more by activation checkpointing
    unwritten: bool = False  # its memory holds whatever was there
    propagated: bool = False  # whether what arose here left a layer, or reached a weight
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def finite(self) -> bool:
        """True if all that it made is."""
        return all(each.finite for each in self.made)

    @property
    def nan(self) -> bool:
        """True if a NaN is in what it made."""
        return any(each.nan for each in self.made)

    @property
    def where(self) -> str:
        """The line of the user's code, as `line_of` says it."""
        return line_of(self.file, self.line)

    @property
    def place(self) -> dict[str, Any]:
        """The operation's place, by the names that a `Finding` has for it."""
        return {
            "layer": "" if self.layer == OUTSIDE else self.layer,
            "call": self.call,
            "phase": self.phase,
            "operation": self.name if self.index >= 0 else "",
            "file": self.file,
            "line": self.line,
        }


Place = tuple[str, int]
"""A layer's name and which of its calls."""

# Their memory holds whatever was there, until something is written.
_UNWRITTEN = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"}
_UNWRITTEN |= {"empty_permuted"}
_CONSTANT = {"full", "full_like", "new_full", "fill", "masked_fill", "scalar_tensor", "where"}


def record_of(operation: Operation, index: int) -> OperationRecord:
    """Write down where an operation runs, without its tensors."""
    layer, call = OUTSIDE, 0
    if operation.call is not None:
        layer, call = operation.call.layer, operation.call.call
    scalars = (each for each in (*operation.args, *operation.kwargs.values()))
    return OperationRecord(
        index,
        operation.title,
        layer,
        call,
        operation.phase,
        *operation.line,
        constant=operation.name in _CONSTANT
        or any(isinstance(each, float) and math.isinf(each) for each in scalars),
        overwrites=operation.mutates,
        again=operation.again,
        unwritten=operation.name in _UNWRITTEN,
    )


def origin_of(
    record: OperationRecord, given: list[Range | None], writers: list[OperationRecord | None]
) -> OperationRecord:
    """Find where an operation's NaN or Inf arose: with those it was given, or here."""
    for found, source in zip(given, writers, strict=True):
        if found is None or found.finite:
            continue
        if source is None:  # written by nothing that was seen: a constant of the code
            source = OperationRecord(-1, "constant", record.layer, record.call, constant=True)
        origin = source.origin or source
        # A mask of −Inf is meant, what makes a NaN of it is not.
        if not (origin.constant and record.nan and not found.nan):
            return origin
    return record


@dataclass(frozen=True, eq=False)
class Seen:
    """An operation that has just run: what it was given, as it was, and who made that."""

    record: OperationRecord
    operation: Operation
    given: Sequence[Tensor]
    makers: Sequence[OperationRecord | None]
    first: bool  # whether no BatchNorm has run before

    @property
    def output(self) -> Tensor:
        return self.operation.outputs[0]

    @property
    def maker(self) -> OperationRecord | None:
        return self.makers[0] if self.makers else None


SAYS = re.compile("modified by an inplace operation")


def culprit(
    operations: Sequence[OperationRecord], error: Exception, score: Tensor | None
) -> tuple[OperationRecord, str, str] | None:
    """Return the operation that wrote, and name and line of the one that needs the old value.

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
    for node, label in labelled(score.grad_fn):
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
    """Return True if one of the tensors that a node keeps has been overwritten."""
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                getattr(node, name)
            except RuntimeError as error:
                if SAYS.search(str(error)):
                    return True
    return False
