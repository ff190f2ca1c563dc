"""Read a module's weights without running any of its code.

Reading ``module.weight`` of a parametrized module runs the parametrization: in training mode
spectral norm takes a step of its power iteration, and a random one draws numbers.
"""

from __future__ import annotations

from torch import Tensor, nn


def stored_tensor(module: nn.Module, name: str) -> Tensor | None:
    """Return a parameter, buffer or attribute of a module; None if it is missing or computed.

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
        if name in holder and isinstance(holder[name], Tensor):
            return holder[name]
    return None
