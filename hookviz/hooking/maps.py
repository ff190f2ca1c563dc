"""Layers' outputs as feature maps: which dimension holds the channels, and where tokens belong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import interpolate

from .handles import Hook
from .select import unwrapped
from .tensors import tensors

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
        sizes of the layers in it say which dimension holds the channels.
    grid : tuple of int, optional
        Rows and columns of the tokens' patches. Tokens that come before the patches, such as the
        class token, are dropped. If left out, the tokens are a sequence, ``(N, C, T)``.

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
    torch.Size([2, 768, 197])
    >>> as_maps(torch.zeros(2, 197, 768), nn.LayerNorm(768), grid=(14, 14)).shape
    torch.Size([2, 768, 14, 14])
    """
    channels = channel_dimension(tensor, module, grid)
    if channels == 0 and tensor.ndim > 1:
        return tensor[None]
    if tensor.ndim == 2:
        return tensor[..., None]
    if channels == -1:
        if grid is not None and tensor.ndim == 3:
            return _token_maps(tensor, grid)
        return tensor.movedim(-1, 1)
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
    windows = 0 if module is None else _window_dimensions(module)
    if windows and tensor.ndim == windows + 1:
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
        elif isinstance(part, (nn.LayerNorm, nn.RMSNorm)):
            others.add(part.normalized_shape[-1])
        elif isinstance(part, nn.Linear):
            others.add(part.out_features)
        elif isinstance(part, nn.Embedding):
            others.add(part.embedding_dim)
        elif isinstance(part, nn.RNNBase):
            others.add((part.proj_size or part.hidden_size) * (1 + part.bidirectional))
    return convolved, others


def _token_maps(tokens: Tensor, grid: tuple[int, ...]) -> Tensor:
    """Arrange tokens ``(N, T, C)`` as maps ``(N, C, *grid)``: the last tokens are the patches."""
    count = tokens.shape[1]
    before = count - math.prod(grid)
    if before < 0 or before > MAX_PREFIX_TOKENS:
        raise ValueError(
            f"{count} tokens cannot be arranged as {'×'.join(map(str, grid))} patches with up to "
            f"{MAX_PREFIX_TOKENS} tokens before them: give grid=(rows, columns)."
        )
    return tokens[:, before:].mT.unflatten(2, grid)


MAX_PREFIX_TOKENS = 8
"""The most tokens before the patches: a class token, a distillation token and registers."""

_TOKEN_LAYERS = (nn.Embedding, nn.RNNBase, nn.MultiheadAttention)
_CHANNELS_SECOND = (nn.modules.batchnorm._NormBase, nn.GroupNorm)


class PatchGrid:
    """The rows and columns in which a network's tokens lie on its input picture.

    A vision transformer's first convolution cuts the picture, if its stride equals its kernel, so
    that patches do not overlap. Other networks take the positions of a convolution or pooling for
    tokens, or cut the picture without a convolution. Hooks store these sizes when the layers run.
    All other tokens are a sequence.
    """

    grid: tuple[int, ...] | None = None  # of the patches that the first convolution has cut

    def __init__(self) -> None:
        self._sizes: list[tuple[int, ...]] = []  # of convolutions and poolings, the latest first
        self._cuts: nn.Module | None = None  # the convolution that cuts the picture into patches
        self._picture: tuple[int, ...] | None = None  # of the input, without convolutions
        self._sequences = False  # True if each output (N, T, C) of the network is one of tokens

    def hooks(self, model: nn.Module) -> list[Hook]:
        """Return the hooks that store the sizes."""
        model, _ = unwrapped(model)
        modules = list(model.modules())
        found = {module: _window_dimensions(module) for module in modules}
        windows = {module: count for module, count in found.items() if count}
        if not windows:
            channels_second = any(isinstance(module, _CHANNELS_SECOND) for module in modules)
            tokens = any(isinstance(module, _TOKEN_LAYERS) for module in modules)
            self._sequences = tokens and not channels_second
            return [(model, "forward_pre", self._note_picture)]
        for module in windows:
            kernel, stride = getattr(module, "kernel_size", None), getattr(module, "stride", None)
            if isinstance(kernel, tuple) and isinstance(stride, tuple):
                self._cuts = module if kernel == stride and max(stride) > 1 else None
                break
        return [
            (module, "forward", partial(self._note_size, count))
            for module, count in windows.items()
            if count > 1 or module is self._cuts
        ]

    def _note_size(
        self, dimensions: int, module: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        if isinstance(output, Tensor):
            size = tuple(output.shape[-dimensions:])
            self._sizes = [size, *(other for other in self._sizes if other != size)]
            if module is self._cuts:
                self.grid = size

    def _note_picture(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        pictures = (t for t in tensors(args, kwargs) if t.ndim == 4 and t.is_floating_point())
        self._picture = next((tuple(picture.shape[2:]) for picture in pictures), None)

    def of(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the grid, if tokens of this shape ``(N, T, C)`` still have as many patches."""
        if len(shape) != 3:
            return None
        grid = self._of_count(shape[1])
        return (shape[1],) if grid is None and self._sequences else grid

    def _of_count(self, count: int) -> tuple[int, ...] | None:
        if self._picture is not None:
            return _cut_into(self._picture, count)
        limits = [(size, 1) for size in self._sizes if math.prod(size) > 1]
        if self.grid is not None:
            limits = [(self.grid, MAX_PREFIX_TOKENS), *limits]
        for size, most in limits:
            if 0 <= count - math.prod(size) <= most:
                return size
        # Patches that were merged two by two, once or several times, with none before them.
        merged = [
            tuple(-(-n // 2**times) for n in size)
            for size, _ in limits[:1]
            for times in range(1, 6)
        ]
        return next((size for size in merged if math.prod(size) == count), None)


def _window_dimensions(module: nn.Module) -> int:
    """Return the number of dimensions in which a convolution's or pooling's window moves; or 0."""
    if not hasattr(module, "kernel_size"):
        return 0
    names = [kind.__name__.lower()[-2:] for kind in type(module).__mro__]
    return next((_SPATIAL[end] for end in names if end in _SPATIAL), 0)


def _cut_into(picture: tuple[int, ...], count: int) -> tuple[int, ...] | None:
    """Return the grid of square patches that makes this many tokens, with or without a class token.

    >>> _cut_into((224, 224), 197)
    (14, 14)
    >>> _cut_into((224, 224), 7) is None
    True
    """
    sides = [side for side in range(2, min(picture) + 1) if not any(n % side for n in picture)]
    grids = [tuple(size // side for size in picture) for side in sides]
    return next((grid for grid in grids if math.prod(grid) in (count, count - 1)), None)


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
