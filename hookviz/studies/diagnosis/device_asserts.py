"""Arguments that a CUDA kernel does not take, found before it runs.

On the CPU PyTorch raises an error for them. On a GPU the kernel stops with a device-side assertion,
and from then on the process cannot use the GPU.
"""

from __future__ import annotations

from torch import Tensor

from ...hooking.tensors import at_least_float32, map_tensors
from ...run.recorder import Operation

DEVICES = {"cuda"}
"""The types of devices whose kernels assert."""

ASSERTING = frozenset(
    (
        *("nll_loss_forward", "nll_loss2d_forward", "binary_cross_entropy", "embedding"),
        *("gather", "scatter", "scatter_add", "index_select", "index", "index_put"),
    )
)
"""The operations whose kernels assert."""


def error_of(operation: Operation) -> Exception | None:
    """Return the error that the CPU raises for an operation that is about to run on a GPU."""
    if operation.name not in ASSERTING:
        return None
    if not any(each.device.type in DEVICES for each in operation.inputs):
        return None
    args, kwargs = map_tensors((operation.args, operation.kwargs), _copied_to_cpu)
    try:
        operation.function(*args, **kwargs)
    except (IndexError, RuntimeError) as error:
        return error
    return None


def _copied_to_cpu(tensor: Tensor) -> Tensor:
    copy = tensor.to("cpu", copy=True)
    # In half precision the CPU has not all of these operations.
    return at_least_float32(copy) if copy.is_floating_point() else copy
