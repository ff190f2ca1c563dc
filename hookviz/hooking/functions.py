"""Stand in for torch's functions, which have no hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode, handle_torch_function

from .interrupts import Block, allow_interrupts, deferring_within


def standing_in(call: Callable[..., Any]) -> Block:
    """Return a block within which torch's functions and tensors' methods are called by ``call``.

    Parameters
    ----------
    call : callable
        Called with the function, its positional arguments and a dict of the others. It returns
        the result.

    Examples
    --------
    >>> import torch
    >>> def doubled(function, args, kwargs):
    ...     return 2 * function(*args, **kwargs)
    >>> with standing_in(doubled):
    ...     result = torch.ones(2)
    >>> result
    tensor([2., 2.])
    """
    # While torch calls the mode, a block of torch's own takes it off. If that block is cut short,
    # it puts the mode back only when Python collects it, after the end of ours.
    return Block([deferring_within(handle_torch_function), _FunctionMode(call)])


class _FunctionMode(TorchFunctionMode):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self._call = call

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return allow_interrupts(self._call, function, args, kwargs or {})
