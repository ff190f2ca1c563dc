"""The layout of samples in a tensor's memory, and the operations that keep samples apart."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .operations import BATCH_NORMS, ELEMENTWISE_KINDS, FACTORS, Kind
from .recorder import Operation


class SampleLayout(NamedTuple):
    """The samples in a memory: the byte at ``offset`` is of sample ``offset // block % batch``.

    So ``block`` bytes of one sample are followed by as many of the next one, and after the last
    sample comes the first again. That describes a batch, windows cut from each sample in turn, and
    sequences whose second dimension is the batch.

    Examples
    --------
    >>> x = torch.zeros(5, 2, 4)  # five tokens, two samples
    >>> layout = SampleLayout(2, 4 * x.element_size())
    >>> layout.axis(x), layout.axis(x.transpose(0, 1)), layout.axis(x.flatten(0, 1))
    (1, 0, 0)
    >>> [layout.sample(x.flatten(0, 1), row) for row in range(4)]
    [0, 1, 0, 1]
    """

    batch: int
    block: int

    def axis(self, tensor: Tensor) -> int | None:
        """Return the dimension of a tensor along which the sample changes, None if unclear."""
        if tensor.layout is not torch.strided:
            return None
        width, period = tensor.element_size(), self.block * self.batch
        steps = [stride * width for stride in tensor.stride()]
        for axis, (size, step) in enumerate(zip(tensor.shape, steps, strict=True)):
            if size < 2 or not step or (self.block % step and step % self.block):
                continue
            # The other dimensions must stay within a sample, or step by whole periods.
            unit = min(step, self.block)
            reach = tensor.storage_offset() * width % unit + width
            for other, (length, stride) in enumerate(zip(tensor.shape, steps, strict=True)):
                reach += (length - 1) * stride if other != axis and stride % period else 0
            if reach <= unit:
                return axis
        return None

    def sample(self, tensor: Tensor, row: int) -> int:
        """Return the sample of a row of a tensor whose `axis` is 0."""
        offset = int(tensor.storage_offset()) + row * tensor.stride(0)
        return offset * tensor.element_size() // self.block % self.batch

    def of_result(self, operation: Operation, made: Tensor, tensor: Tensor) -> SampleLayout | None:
        """Return the layout of a result from that of a tensor that was read; None if unknown."""
        axis = self.axis(tensor)
        new_axis = None if axis is None else axis_kept(operation, made, tensor, axis)
        if axis is None or new_axis is None:
            return None
        before = tensor.stride(axis) * tensor.element_size()
        block, rest = divmod(self.block * made.stride(new_axis) * made.element_size(), before)
        layout = SampleLayout(self.batch, block)
        if rest or not block or layout.axis(made) != new_axis:
            return None
        # A part of a tensor may begin with another sample than its result.
        return layout if layout._phase(made, new_axis) == self._phase(tensor, axis) else None

    def _phase(self, tensor: Tensor, axis: int) -> int:
        """Return the position in the period at which a tensor begins, in steps along its axis."""
        width = tensor.element_size()
        begin = int(tensor.storage_offset()) * width % (self.block * self.batch)
        return begin // min(tensor.stride(axis) * width, self.block)


_BY_SAMPLE = frozenset((Kind.CONVOLUTION, Kind.POOLING, Kind.RESAMPLING, Kind.NORMALIZATION))
_ALONG_DIMENSIONS = frozenset(
    (Kind.SOFTMAX, Kind.REDUCTION, Kind.SCAN, Kind.SORTING, Kind.CONCATENATION, Kind.TRANSFORM)
)
_MOVES = {"index_select": "dim", "gather": "dim", "flip": "dims", "roll": "dims", "glu": "dim"}
_SHUFFLES = frozenset(("pixel_shuffle", "pixel_unshuffle", "channel_shuffle"))


def axis_kept(operation: Operation, made: Tensor, tensor: Tensor, axis: int) -> int | None:
    """Return the dimension of the result that corresponds to a dimension of an input tensor.

    Values of the result at an index along it must use only the tensor's values at the same index,
    apart from a batch norm's statistics. None if they use others, or if that is unknown.
    """
    kind, name, argument = operation.kind, operation.name, operation.argument
    # The same tensor may also be passed as a weight.
    first = tensor is operation.inputs[0] and sum(tensor is t for t in operation.inputs) == 1
    new_axis = axis
    if kind in ELEMENTWISE_KINDS or name in BATCH_NORMS:
        apart = tensor.ndim == made.ndim
    elif "normalized_shape" in argument:
        apart = first and axis < tensor.ndim - len(argument["normalized_shape"])
    elif kind in _BY_SAMPLE:
        # Other convolutions take maps without a batch, or with channels last.
        apart = axis == 0 and (kind is not Kind.CONVOLUTION or name.endswith("convolution"))
        apart = apart and first and name not in ("renorm", "weight_norm_interface")
    elif kind is Kind.ATTENTION:
        apart = axis < max(tensor.ndim - 2, 1) and tensor.ndim == operation.inputs[0].ndim
    elif kind is Kind.PRODUCT:
        apart = tensor.ndim == made.ndim and _is_apart_in_product(operation, tensor, axis)
    elif kind is Kind.PADDING:
        padded = len(argument["pad"]) // 2 if "pad" in argument else int(name[-2])
        apart = axis < tensor.ndim - padded
    elif name == "index":
        indexed = [index is not None for index in argument["indices"]]
        apart = first and indexed == sorted(indexed) and axis < indexed.index(True)
    elif (kind in _ALONG_DIMENSIONS and not name.startswith("unique")) or name in _MOVES:
        along = argument.get(_MOVES.get(name, "dim"))
        along = [along] if isinstance(along, int) else along or []
        dimensions = {
            index % max(made.ndim if name == "stack" else tensor.ndim, 1) for index in along
        }
        apart = bool(dimensions) and (first or kind is Kind.CONCATENATION)
        if name == "stack":
            new_axis = axis + (min(dimensions) <= axis)
        else:
            apart = apart and axis not in dimensions
            dropped = kind is Kind.REDUCTION and not argument.get("keepdim")
            new_axis = axis - dropped * sum(index < axis for index in dimensions)
    else:
        apart = axis == 0 and (name.startswith("grid_sampler") or name in _SHUFFLES)
    fits = new_axis < made.ndim and tensor.shape[axis] == made.shape[new_axis]
    return new_axis if apart and fits else None


def _is_apart_in_product(operation: Operation, tensor: Tensor, axis: int) -> bool:
    first, second = FACTORS.get(operation.name, ("", ""))
    summed = {"self": None, first: tensor.ndim - 1, second: tensor.ndim - 2}
    # A tensor may be multiplied by itself.
    roles = [role for role in summed if operation.argument.get(role) is tensor]
    return tensor.ndim > 1 and bool(roles) and all(summed[role] != axis for role in roles)
