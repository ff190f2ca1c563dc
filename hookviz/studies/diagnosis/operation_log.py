"""The log of the operations that run, each with its place, its values and what made them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ...hooking.storage import StorageMap
from ...run.operations import RECTIFIERS, Kind
from ...run.recorder import Listener, Operation
from . import device_asserts
from .check import EVERY, Check, RunRecord
from .domains import cause_of
from .ranges import Range, channel_ranges, range_of
from .records import (
    HALF,
    MAPS,
    OperationRecord,
    channel_dimension,
    constant_of,
    origin_of,
    record_of,
)


class OperationLog(Listener):
    """Records the operations that run, and has the checks of a run observe them.

    Parameters
    ----------
    run : RunRecord
    thorough : bool
        True if the operations of the backward are recorded, too.
    """

    labels_backward = True

    def __init__(self, run: RunRecord, *, thorough: bool = True) -> None:
        self.run, self.thorough = run, thorough
        self.makers: StorageMap[OperationRecord] = StorageMap()
        self._parameters: StorageMap[list[str]] = StorageMap()  # their names
        self._stored: StorageMap[str] = StorageMap()  # tensors that are plain attributes
        # The checks that observe an operation, by its phase and name.
        self._observing: dict[tuple[str, str], list[Check]] = {}
        for check in run.checks:
            for phase in ("forward", "backward") if check.backward else ("forward",):
                for name in check.operations:
                    self._observing.setdefault((phase, name), []).append(check)

    def reaches(self, tensor: Tensor, *, end: bool = False) -> OperationRecord | None:
        """Note that NaN or Inf reached this tensor; return the operation that made it.

        An Inf that the code asks for may be a mask, but not throughout an ``end``: an output of the
        model, or the loss.
        """
        maker = self.makers.get(tensor)
        if maker is None or maker.finite:
            return maker
        extent = range_of(tensor)  # maybe a part of the memory that is finite
        origin = maker.origin or maker
        if extent is None or extent.finite:
            return maker
        if extent.nan or not origin.constant or (end and extent.low == extent.high):
            origin.reached = origin.reached or ("nan" if extent.nan else "inf")
        return maker

    def before(self, operation: Operation) -> None:
        if operation.phase == "backward" and not self.thorough:
            operation.notes[self] = None
            return
        record = record_of(operation, len(self.run.operations))
        given = operation.inputs
        record.makers = tuple([self._maker(each, record) for each in given])
        if operation.mutates:
            if given and record.phase == "forward":
                record.overwrote = record.makers[0]
            # The old values will be gone.
            if not (record.unwritten or operation.name in RECTIFIERS):
                given = [each.clone() if each.is_floating_point() else each for each in given]
        operation.notes[self] = record, given
        error = device_asserts.error_of(operation)
        if error is not None:
            self.failed(operation)
            raise error

    def failed(self, operation: Operation) -> None:
        failed, given = operation.notes.get(self) or (record_of(operation, 0), operation.inputs)
        self.run.failed = failed
        failed.given = tuple(filter(None, map(range_of, given)))

    def after(self, operation: Operation) -> None:
        if operation.notes[self] is None:
            return
        record, given = operation.notes[self]
        returned = operation.outputs
        new = bool(returned) and not operation.is_view
        if new:
            self.run.drew |= operation.kind is Kind.RANDOM and returned[0].numel() == 1
            if not record.unwritten:
                self._measure(record, returned)
            if not record.finite:
                self._find_origin(record, operation, given)
        if not record.again:
            for name in (EVERY, record.name, "F." + operation.functional):
                for check in self._observing.get((record.phase, name), ()):
                    self.run.show(check.after, operation, record, given)
        if new:
            self.run.operations.append(record)
            for tensor in returned:
                self.makers[tensor] = record

    def _maker(self, tensor: Tensor, record: OperationRecord) -> OperationRecord | None:
        """Return what made a tensor; a new source for one that no operation made."""
        maker = self.makers.get(tensor)
        if maker is not None:
            if maker.name == "weights":
                self.run.used.update(self._parameters.get(tensor) or ())
            elif type(tensor) is nn.Parameter and maker.index >= 0:
                maker.loose |= tensor.requires_grad and tensor not in self._parameters
            return maker
        if record.phase == "backward" or not (tensor.is_floating_point() or tensor.is_complex()):
            return None
        maker = constant_of(record)
        maker.stored, maker.matrix = self._stored.get(tensor) or "", tensor.ndim > 1
        parameter = type(tensor) is nn.Parameter or bool(maker.stored)
        maker.loose = parameter and tensor.requires_grad and tensor.is_leaf
        self.makers[tensor] = maker
        return maker

    def _measure(self, record: OperationRecord, returned: list[Tensor]) -> None:
        """Measure the outputs; of maps each channel, in the same pass."""
        first = returned[0]
        self.run.half |= first.dtype in HALF
        plain = first.is_floating_point() and first.layout is torch.strided and not first.is_meta
        maps = record.name in RECTIFIERS or record.name in MAPS
        if not (maps and plain and record.phase == "forward" and first.ndim > 1 and first.numel()):
            record.made = tuple(filter(None, map(range_of, returned)))
            return
        record.channels = least, most = channel_ranges(
            first.detach(), channel_dimension(first, record.maker)
        )
        ends = least.amin().item(), most.amax().item()
        record.made = (Range(*ends, tuple(first.shape), first.dtype),)

    def _find_origin(
        self, record: OperationRecord, operation: Operation, given: list[Tensor]
    ) -> None:
        scalars = (*operation.args, *operation.kwargs.values())
        record.constant |= any(isinstance(each, float) and math.isinf(each) for each in scalars)
        before = [range_of(each) for each in given]
        record.given = tuple(filter(None, before))
        record.origin = origin_of(record, before)
        if record.origin is record:
            maker = next((each.name for each in record.makers if each is not None), "")
            record.cause = cause_of(operation, given, record.made, maker)
