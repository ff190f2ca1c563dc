"""The record of an operation that ran: where, on which values, and which operations made these.

The records of a run form its dataflow graph: each has those that made its inputs. What a check can
read off that graph it computes when the run is over; only values have to be looked at at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from ...run.errors import line_of
from ...run.operations import BATCH_NORMS, UNINITIALIZED, Kind
from ...run.recorder import Operation
from .ranges import Range

_IS_FINITE = attrgetter("finite")  # quicker than a generator

OUTSIDE = "(outside)"
"""The layer of operations before the model begins and after it has returned, as in a loss."""


@dataclass(frozen=True)
class Cause:
    """Why an operation made NaN or Inf."""

    words: str
    fix: str
    overflow: bool = False  # a result, or a sum, is larger than its type holds


@dataclass(eq=False, slots=True)
class OperationRecord:
    """One operation that ran, or the source of values that no operation made.

    Attributes
    ----------
    index : int
        Position in the run; −1 for a source, such as weights.
    name : str
        Torch's, without the marks of its variants: ``"log"``, ``"convolution"``.
    layer : str
        The innermost module that was running; `OUTSIDE` if none was.
    call : int
        Which call of that module, from 0.
    phase : str
        ``"forward"`` or ``"backward"``; a backward's layer, call and line are its forward's.
    made, given : tuple of Range
        Of its outputs; and of its inputs, if its output is not finite.
    makers : tuple of OperationRecord or None
        The operation, or the source, that made each input.
    origin : OperationRecord or None
        Where those of its values arose that are not finite; itself, if here.
    title : str
        Of a source: the name of the parameter or buffer.
    stored : str
        Of a source: a plain attribute of a module that holds this tensor.
    overwrote : OperationRecord or None
        The one whose output an in-place operation overwrote.
    channels : tuple of torch.Tensor or None
        Least and largest value of each channel, of operations that make or rectify maps.
    reached : str
        ``"nan"`` or ``"inf"``, if what arose here left a layer, or reached a weight.
    function : str
        Outside of the model: the function of ``torch.nn.functional`` that the user called.
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
    makers: tuple[OperationRecord | None, ...] = ()
    origin: OperationRecord | None = None
    cause: Cause | None = None  # why it made NaN or Inf, if it did so first and that is known
    constant: bool = False  # an Inf that the code asks for, such as a mask's
    kind: Kind = Kind.UNKNOWN
    overwrites: bool = False  # works in place
    again: bool = False  # run once more by activation checkpointing
    title: str = ""
    stored: str = ""
    matrix: bool = False  # of a source: more than a vector
    loose: bool = False  # a parameter that learns and is in none of the modules
    overwrote: OperationRecord | None = None
    channels: tuple[Tensor, Tensor] | None = None
    reached: str = ""
    function: str = ""

    @property
    def unwritten(self) -> bool:
        """True if its memory holds arbitrary values."""
        return self.name in UNINITIALIZED

    @property
    def finite(self) -> bool:
        """True if all outputs are finite."""
        return all(map(_IS_FINITE, self.made))

    @property
    def nan(self) -> bool:
        """True if a NaN is in an output."""
        return any(each.nan for each in self.made)

    @property
    def where(self) -> str:
        """The line of the user's code, formatted by `line_of`."""
        return line_of(self.file, self.line)

    @property
    def called(self) -> str:
        """The function that the user called, or torch's name of the operation."""
        return self.function or self.name.removesuffix("_forward")

    @property
    def place(self) -> dict[str, Any]:
        """The operation's place, as keyword arguments of a `Finding`."""
        return {
            "layer": "" if self.layer == OUTSIDE else self.layer,
            "call": self.call,
            "phase": self.phase,
            "operation": self.called if self.index >= 0 else "",
            "outside": self.layer == OUTSIDE,
            "file": self.file,
            "line": self.line,
        }

    @property
    def maker(self) -> OperationRecord | None:
        """The operation that made its first input."""
        return self.makers[0] if self.makers else None

    @property
    def maker_layer(self) -> str:
        """The layer of that operation."""
        return self.maker.layer if self.maker is not None else ""

    @property
    def uniform(self) -> bool:
        """True if its output is one number everywhere."""
        return self.index >= 0 and bool(self.made) and self.made[0].low == self.made[0].high

    @property
    def of_zero_weights(self) -> bool:
        """True for a layer whose weights and biases are all 0, as a residual branch's last one."""
        weights = self.makers[1:3]
        zero = all(m is not None and m.made and m.made[0].magnitude == 0 for m in weights)
        return self.phase == "forward" and self.name in MAPS and bool(weights) and zero

    @property
    def zero_weights(self) -> bool:
        """True if these are weights that are 0 throughout."""
        return self.name == "weights" and bool(self.made) and self.made[0].magnitude == 0

    @property
    def overflowed(self) -> bool:
        """True if its NaN or Inf comes of numbers that are too large for their type."""
        if self.origin is not self or self.constant:
            return False
        large = max((each.magnitude for each in self.given if each.finite), default=0.0) >= LARGE
        too_large = self.cause is not None and self.cause.overflow
        return self.phase == "backward" or too_large or large

    @property
    def passes(self) -> OperationRecord | None:
        """The operation whose values this one passes on, channel by channel; None if it does not.

        A product does not pass them, but for dropout written as one.
        """
        passing = self.kind in _PASSING and not (self.kind is Kind.COPY and self.overwrites)
        if passing or self.name == "mean":
            return self.maker
        if self.name == "mul" and any(each is not None and each.drawn for each in self.makers):
            return next((each for each in self.makers if each is not None and not each.drawn), None)
        return None

    @property
    def drawn(self) -> bool:
        """True for the random mask of a dropout, scaled or not."""
        scaled = self.name == "div" and self.maker is not None and self.maker.drawn
        return self.name == "bernoulli" or scaled

    def passed_on(self) -> Iterator[OperationRecord]:
        """Yield this operation and those whose values it passes on, back to where they arose."""
        record: OperationRecord | None = self
        while record is not None:
            yield record
            record = record.passes

    def channelwise(self) -> Iterator[OperationRecord]:
        """Yield this operation and those before it that make or keep its channels."""
        record: OperationRecord | None = self
        while record is not None:
            yield record
            ends = record.name == "convolution" or record.kind is Kind.PRODUCT
            record = record.maker if record.channels is not None and not ends else record.passes

    def without_copies(self) -> OperationRecord:
        """Return the operation that made these values, behind copies such as casts."""
        record = self
        while record.kind is Kind.COPY and record.maker is not None:
            record = record.maker
        return record


_PASSING = frozenset(
    (
        Kind.COPY,
        Kind.ACTIVATION,
        Kind.DROPOUT,
        Kind.PADDING,
        Kind.CONCATENATION,
        Kind.POOLING,
        Kind.RESAMPLING,
    )
)

Place = tuple[str, int]
"""A layer's name and which of its calls."""

_CONSTANT = {"full", "full_like", "new_full", "fill", "masked_fill", "scalar_tensor", "where"}


def record_of(operation: Operation, index: int) -> OperationRecord:
    """Record where an operation runs, without its tensors."""
    layer, call = OUTSIDE, 0
    if operation.call is not None:
        layer, call = operation.call.layer, operation.call.call
    return OperationRecord(
        index,
        operation.title,
        layer,
        call,
        operation.phase,
        *operation.line,
        constant=operation.name in _CONSTANT,
        kind=operation.kind,
        overwrites=operation.mutates,
        again=operation.again,
        function=operation.functional if layer == OUTSIDE else "",
    )


def behind(*records: OperationRecord) -> set[OperationRecord]:
    """Return these, and all operations and sources that their values were made from."""
    waiting, found = [*records], set[OperationRecord]()
    while waiting:
        record = waiting.pop()
        if record not in found:
            found.add(record)
            waiting += filter(None, record.makers)
    return found


def origin_of(record: OperationRecord, given: list[Range | None]) -> OperationRecord:
    """Find where an operation's NaN or Inf arose: where its inputs were made, or here."""
    for extent, maker in zip(given, record.makers, strict=True):
        if extent is None or extent.finite or (extent.nan and not record.nan):  # where() drops NaN
            continue
        source = maker
        if source is None:  # written by nothing that was seen: a constant of the code
            source = constant_of(record)
        if source.index < 0 and not source.made:
            source.made, source.constant = (extent,), True
        origin = source.origin or source
        # A mask of −Inf is deliberate, a NaN that comes of it is not.
        if not (origin.constant and record.nan and not extent.nan):
            return origin
    return record


def constant_of(record: OperationRecord) -> OperationRecord:
    """Return the source of a constant that the code takes where an operation runs."""
    place = record.layer, record.call, record.phase, record.file, record.line
    return OperationRecord(-1, "constant", *place, constant=True)


LARGE = 1e6
"""An input of this size is on its way to overflow."""

MAPS = frozenset(("convolution", "group_norm", *BATCH_NORMS))
"""Operations whose output has channels."""

HALF = (torch.float16, torch.bfloat16)


def channel_dimension(output: Tensor, maker: OperationRecord | None) -> int:
    """Return the channels' dimension: the last for tokens, as a product of matrices makes them."""
    tokens = maker is not None and (maker.kind is Kind.PRODUCT or maker.name == "layer_norm")
    return output.ndim - 1 if tokens or output.ndim == 2 else 1
