"""Arguments that a CUDA kernel does not take, found before it runs.

On the CPU PyTorch raises an error for them. On a GPU the kernel stops with a device-side assertion,
and from then on the process cannot use the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ...run.recorder import Operation

DEVICES = {"cuda"}
"""The types of devices whose kernels assert."""


def error_of(operation: Operation) -> Exception | None:
    """Return the error that the CPU would raise for an operation that is about to run on a GPU."""
    wrong = CHECKS.get(operation.name)
    if wrong is None or not any(each.device.type in DEVICES for each in operation.inputs):
        return None
    return next(wrong(operation.argument), None)


def _labels(given: Mapping[str, Any]) -> Iterator[Exception]:
    scores, target = given["self"], given["target"]
    classes = scores.shape[min(1, scores.ndim - 1)]
    kept = target != given["ignore_index"]
    for label in _outside(target, 0, classes, kept):
        yield IndexError(f"Target {label} is out of bounds.")


def _rows(given: Mapping[str, Any]) -> Iterator[Exception]:
    for _ in _outside(given["indices"], 0, len(given["weight"])):
        yield IndexError("index out of range in self")


def _along_one_dimension(given: Mapping[str, Any]) -> Iterator[Exception]:
    values, dim = given["self"], given["dim"]
    size = values.shape[dim] if values.ndim else 1
    for index in _outside(given["index"], 0, size):
        yield IndexError(_MESSAGE.format(index, dim, size))


def _by_tensors(given: Mapping[str, Any]) -> Iterator[Exception]:
    dim = 0
    for index in given["indices"]:
        if index is None:
            dim += 1
        elif index.dtype in (torch.bool, torch.uint8):  # a mask
            dim += index.ndim
        else:
            size = given["self"].shape[dim]
            for wrong in _outside(index, -size, size):
                yield IndexError(_MESSAGE.format(wrong, dim, size))
            dim += 1


def _probabilities(given: Mapping[str, Any]) -> Iterator[Exception]:
    for argument, name in (("self", "input"), ("target", "target")):
        values = given[argument]
        if bool(((values < 0) | (values > 1)).any()):
            yield RuntimeError(f"all elements of {name} should be between 0 and 1")


def _outside(index: Tensor, low: int, end: int, of: Tensor | None = None) -> Iterator[int]:
    """Yield the first index that is below `low`, or not below `end`, if there is one."""
    wrong = (index < low) | (index >= end)
    if of is not None:
        wrong = wrong & of
    if bool(wrong.any()):
        yield int(index[wrong][0])


_MESSAGE = "index {} is out of bounds for dimension {} with size {}"

CHECKS: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Exception]]] = {
    "nll_loss_forward": _labels,
    "nll_loss2d_forward": _labels,
    "embedding": _rows,
    "gather": _along_one_dimension,
    "scatter": _along_one_dimension,
    "scatter_add": _along_one_dimension,
    "index_select": _along_one_dimension,
    "index": _by_tensors,
    "index_put": _by_tensors,
    "binary_cross_entropy": _probabilities,
}
"""The name of an operation -> what yields its errors."""
