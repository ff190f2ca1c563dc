"""Random weights: faster than the models' initialization, and without its many zeros."""

from __future__ import annotations

from contextlib import contextmanager

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

_SLOW = {"uniform_", "normal_", "trunc_normal_", "erfinv_"}


class _Unfilled(TorchFunctionMode):
    """Skip the random initialization of parameters, since `fill` follows."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        filled = args[0] if args else None
        if getattr(function, "__name__", "") in _SLOW and isinstance(filled, nn.Parameter):
            return filled
        return function(*args, **(kwargs or {}))


@contextmanager
def unfilled():
    """Within the block, models are built without random initialization; call `fill` afterwards."""
    with _Unfilled():
        yield


def fill(model, gain=1.0):
    """Give all parameters and the norms' statistics random values.

    Matrices and kernels are He-uniform, U(±gain · sqrt(6 / fan_in)), so that signals keep their
    size; in residual networks they grow, which a gain below 1 makes up for.
    Vectors (norms' weights, layer scales, gates) are U(0.5, 1.5) and biases U(±0.1): many models
    begin with zeros there, which would leave whole branches without a gradient.
    """
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.uniform_(*_range(name, parameter, gain), generator=generator)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.uniform_(-0.1, 0.1, generator=generator)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5, generator=generator)


def _range(name, parameter, gain):
    if parameter.numel() == max(parameter.shape, default=1):  # a vector or a scalar
        return (-0.1, 0.1) if "bias" in name.rpartition(".")[2] else (0.5, 1.5)
    bound = gain * (6 / parameter[0].numel()) ** 0.5
    return -bound, bound
