"""Layers' outputs as feature maps: which dimension holds the channels, and where tokens belong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import interpolate

from .handles import Hook

_SPATIAL = {"1d": 1, "2d": 2, "3d": 3}


def as_maps(
    tensor: Tensor, module: nn.Module | None = None, grid: tuple[int, ...] | None = None
) -> Tensor:
    """Arrange a layer's output as feature maps ``(N, C, *spatial)``.

    Parameters
    ----------
    tensor : torch.Tensor
        Maps ``(N, C, *spatial)`` with one to three spatial dimensions; a convolution's
        unbatched output ``(C, *spatial)``; features ``(N, C)``, as maps of one pixel; or a
        transformer's tokens ``(N, T, C)`` or patches ``(N, *spatial, C)``.
    module : torch.nn.Module, optional
        The layer. Tells an unbatched output from a batched one, and tokens from 1d maps: the
        sizes of the norms and linear layers in it say which dimension holds the channels.
    grid : tuple of int, optional
        Rows and columns of the tokens' patches; a square if left out. Tokens that come before
        the patches, such as the class token, are dropped.

    Raises
    ------
    ValueError
        The tensor cannot be arranged as maps.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> as_maps(torch.zeros(2, 10)).shape
    torch.Size([2, 10, 1])
    >>> as_maps(torch.zeros(8, 5, 5), nn.Conv2d(3, 8, 3)).shape
    torch.Size([1, 8, 5, 5])
    >>> as_maps(torch.zeros(2, 197, 768), nn.LayerNorm(768)).shape
    torch.Size([2, 768, 14, 14])
    """
    channels = channel_dimension(tensor, module, grid)
    if channels == 0 and tensor.ndim > 1:
        return tensor[None]
    if tensor.ndim == 2:
        return tensor[..., None]
    if channels == -1:
        return _token_maps(tensor, grid) if tensor.ndim == 3 else tensor.movedim(-1, 1)
    if tensor.ndim in (3, 4, 5):
        return tensor
    raise ValueError(
        f"A tensor of shape {tuple(tensor.shape)} cannot be shown as maps: (N, C, *spatial) with "
        "one to three spatial dimensions can."
    )


def channel_dimension(
    tensor: Tensor, module: nn.Module | None = None, grid: tuple[int, ...] | None = None
) -> int:
    """Return the dimension of the channels: 0 without a batch, 1, or −1; see `as_maps`."""
    if module is not None and hasattr(module, "kernel_size"):
        name = type(module).__name__.lower()
        spatial = next((count for end, count in _SPATIAL.items() if name.endswith(end)), 0)
        if tensor.ndim == spatial + 1:
            return 0
    if tensor.ndim in (3, 4, 5) and _channels_last(tensor, module, grid):
        return -1
    return 1 if tensor.ndim > 1 else 0


def _channels_last(tensor: Tensor, module: nn.Module | None, grid: tuple[int, ...] | None) -> bool:
    """Return whether the channels are in the last dimension, not in the second."""
    if module is None:
        return False
    first, last = tensor.shape[1], tensor.shape[-1]
    convolved, others = _channel_counts(module)
    if last in convolved | others and first in convolved | others:
        return not convolved  # both fit: a convolution has its channels second
    if first in convolved | others:
        return False
    # A layer without a size, such as a dropout, between layers with tokens.
    return last in convolved | others or (tensor.ndim == 3 and grid is not None)


def _channel_counts(module: nn.Module) -> tuple[set[int], set[int]]:
    """Return the numbers of output channels of a module's convolutions, and of its other layers."""
    convolved: set[int] = set()
    others: set[int] = set()
    for part in module.modules():
        if hasattr(part, "out_channels"):
            convolved.add(int(part.out_channels))  # type: ignore[arg-type]
        elif isinstance(part, nn.LayerNorm):
            others.add(part.normalized_shape[-1])
        elif isinstance(part, nn.Linear):
            others.add(part.out_features)
    return convolved, others


def _token_maps(tokens: Tensor, grid: tuple[int, ...] | None) -> Tensor:
    """Arrange tokens ``(N, T, C)`` as maps ``(N, C, *grid)``: the last tokens are the patches."""
    count = tokens.shape[1]
    side = math.isqrt(count)
    grid = grid or (side, side)
    before = count - math.prod(grid)
    if before < 0 or before > MAX_PREFIX_TOKENS:
        raise ValueError(
            f"{count} tokens cannot be arranged as {'×'.join(map(str, grid))} patches with up to "
            f"{MAX_PREFIX_TOKENS} tokens before them: give grid=(rows, columns)."
        )
    return tokens[:, before:].mT.unflatten(2, grid)


MAX_PREFIX_TOKENS = 8
"""The most tokens before the patches: a class token, a distillation token and registers."""


class PatchGrid:
    """The rows and columns of patches into which a vision transformer cuts its input.

    The first convolution cuts, if its stride equals its kernel, so that patches do not overlap. A
    hook stores the grid each time it has run.
    """

    grid: tuple[int, ...] | None = None  # once it has run

    def hooks(self, model: nn.Module) -> list[Hook]:
        """Return the hook, or an empty list if no layer cuts the input into patches."""
        for module in model.modules():
            kernel, stride = getattr(module, "kernel_size", None), getattr(module, "stride", None)
            if isinstance(kernel, tuple) and isinstance(stride, tuple):
                patching = kernel == stride and max(stride) > 1
                return [(module, "forward", self._note)] if patching else []
        return []

    def _note(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            self.grid = tuple(output.shape[2:])

    def of(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the grid, if tokens of this shape ``(N, T, C)`` still have as many patches."""
        if self.grid is None or len(shape) != 3:
            return None
        if 0 <= shape[1] - math.prod(self.grid) <= MAX_PREFIX_TOKENS:
            return self.grid
        # Patches that were merged two by two, once or several times, with none before them.
        merged = [tuple(-(-size // 2**n) for size in self.grid) for n in range(1, 6)]
        return next((grid for grid in merged if math.prod(grid) == shape[1]), None)


def enlarged(maps: Tensor, size: Sequence[int]) -> Tensor:
    """Resize maps ``(N, *spatial)``, linear between the centres of their cells.

    >>> import torch
    >>> enlarged(torch.tensor([[0.0, 1.0]]), [4])
    tensor([[0.0000, 0.2500, 0.7500, 1.0000]])
    """
    if maps.shape[1:] == tuple(size):
        return maps
    mode = {2: "linear", 3: "bilinear", 4: "trilinear"}[maps.ndim]
    return interpolate(maps[:, None], tuple(size), mode=mode, align_corners=False)[:, 0]
