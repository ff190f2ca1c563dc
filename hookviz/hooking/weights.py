"""Read a module's weights without running any of its code.

Reading ``module.weight`` of a parametrized module runs the parametrization: in training mode
spectral norm takes a step of its power iteration, and a random one draws numbers.
"""

from __future__ import annotations

from torch import Tensor, nn


def stored_tensor(module: nn.Module, name: str) -> Tensor | None:
    """Return a parameter, buffer or attribute of a module; None if it is missing or computed.

    Of quantized weights it returns the numbers that they stand for.

    Hooks that rewrite a weight, as those of pruning, leave their last result as a plain attribute.

    Examples
    --------
    >>> from torch.nn.utils.parametrizations import spectral_norm
    >>> stored_tensor(nn.Linear(2, 3), "weight").shape
    torch.Size([3, 2])
    >>> stored_tensor(spectral_norm(nn.Linear(2, 3)), "weight") is None
    True
    """
    for holder in (module._parameters, module._buffers, vars(module)):
        if isinstance(tensor := holder.get(name), Tensor):
            return numbers_of(tensor)
    return None


def is_packed(tensor: Tensor) -> bool:
    """Return True for a quantized tensor, also for one of a library's class, such as torchao's."""
    return tensor.is_quantized or type(tensor).dequantize is not Tensor.dequantize


def numbers_of(tensor: Tensor) -> Tensor:
    """Return the numbers of a quantized tensor as floats; any other tensor unchanged."""
    return tensor.detach().dequantize() if is_packed(tensor) else tensor
