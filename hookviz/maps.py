"""One layer's tensors as maps: (N, C, *spatial), and one view of them as numpy arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

_SPATIAL = {"1d": 1, "2d": 2, "3d": 3}


def as_maps(
    tensor: Tensor, module: nn.Module | None = None, grid: tuple[int, ...] | None = None
) -> Tensor:
    """Arrange what a layer returned as feature maps ``(N, C, *spatial)``.

    Parameters
    ----------
    tensor : torch.Tensor
        Maps ``(N, C, *spatial)`` with one to three spatial dimensions; a convolution's
        unbatched output ``(C, *spatial)``; features ``(N, C)``, as maps of one pixel; or a
        transformer's tokens ``(N, T, C)`` or patches ``(N, H, W, C)``.
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
    if module is not None and hasattr(module, "kernel_size"):
        name = type(module).__name__.lower()
        spatial = next((count for end, count in _SPATIAL.items() if name.endswith(end)), 0)
        if tensor.ndim == spatial + 1:
            return tensor[None]
    if tensor.ndim == 2:
        return tensor[..., None]
    if tensor.ndim in (3, 4) and _channels_last(tensor, module, grid):
        return _token_maps(tensor, grid) if tensor.ndim == 3 else tensor.movedim(-1, 1)
    if tensor.ndim in (3, 4, 5):
        return tensor
    raise ValueError(
        f"A tensor of shape {tuple(tensor.shape)} cannot be shown as maps: (N, C, *spatial) with "
        "one to three spatial dimensions can."
    )


def _channels_last(tensor: Tensor, module: nn.Module | None, grid: tuple[int, ...] | None) -> bool:
    """Whether the channels are in the last dimension, not in the second."""
    if module is None:
        return False
    first, last = tensor.shape[1], tensor.shape[-1]
    convolved, others = _channel_counts(module)
    if last in convolved | others and first in convolved | others:
        return not convolved  # both would do: a convolution has its channels second
    if first in convolved | others:
        return False
    # A layer without sizes of its own, such as a dropout, among tokens.
    return last in convolved | others or (tensor.ndim == 3 and grid is not None)


def _channel_counts(module: nn.Module) -> tuple[set[int], set[int]]:
    """How many channels come out of the convolutions in a module, and out of its other layers."""
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
    """Tokens ``(N, T, C)`` as maps ``(N, C, *grid)``: the last ones are the patches."""
    count = tokens.shape[1]
    side = math.isqrt(count)
    grid = grid or (side, side)
    before = count - math.prod(grid)
    if before < 0 or before > _MOST_PREFIX_TOKENS:
        raise ValueError(
            f"{count} tokens cannot be arranged as {'×'.join(map(str, grid))} patches with up to "
            f"{_MOST_PREFIX_TOKENS} tokens before them: give grid=(rows, columns)."
        )
    return tokens[:, before:].mT.unflatten(2, grid)


_MOST_PREFIX_TOKENS = 8  # a class token, a distillation token and registers


def patching_layer(model: nn.Module) -> nn.Module | None:
    """The layer that cuts a vision transformer's input into patches, if there is one.

    It is the first convolution, if its stride is its kernel: so the patches do not overlap.

    Examples
    --------
    >>> from torch import nn
    >>> patching_layer(nn.Sequential(nn.Conv2d(3, 8, 16, stride=16)))
    Conv2d(3, 8, kernel_size=(16, 16), stride=(16, 16))
    """
    for module in model.modules():
        kernel, stride = getattr(module, "kernel_size", None), getattr(module, "stride", None)
        if isinstance(kernel, tuple) and isinstance(stride, tuple):
            return module if kernel == stride and max(stride) > 1 else None
    return None


def fitting_grid(grid: tuple[int, ...] | None, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The grid of patches, if tokens of this shape ``(N, T, C)`` still have as many."""
    if grid is None or len(shape) != 3:
        return None
    return grid if 0 <= shape[1] - math.prod(grid) <= _MOST_PREFIX_TOKENS else None


def wide(tensor: Tensor) -> Tensor:
    """In single precision at least: sums of half-precision numbers overflow."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def enlarged(maps: Tensor, size: Sequence[int]) -> Tensor:
    """Maps ``(N, *spatial)`` at another size, linear between the centres of their cells.

    Examples
    --------
    >>> enlarged(torch.tensor([[0.0, 1.0]]), [4])
    tensor([[0.0000, 0.2500, 0.7500, 1.0000]])
    """
    if maps.shape[1:] == tuple(size):
        return maps
    mode = {2: "linear", 3: "bilinear", 4: "trilinear"}[maps.ndim]
    return interpolate(maps[:, None], tuple(size), mode=mode, align_corners=False)[:, 0]


SHOWN_SIDE = 640
"""Pictures and maps that are longer or wider than this are averaged down to be shown, see
`shown_size`. They are never computed with: heatmaps, statistics and colour ranges are of the whole.
"""


def shown_size(maps: np.ndarray) -> np.ndarray:
    """Maps ``(C, H, W)`` as they are shown: large ones averaged over squares of whole pixels.

    Examples
    --------
    >>> shown_size(np.zeros((1, 2048, 1024))).shape, shown_size(np.zeros((1, 640, 9))).shape
    ((1, 512, 256), (1, 640, 9))
    """
    return averaged(maps, math.ceil(max(maps.shape[1:]) / SHOWN_SIDE))


def averaged(maps: np.ndarray, factor: int) -> np.ndarray:
    """Average over squares of ``factor`` pixels, or of what is left of one at an edge.

    Examples
    --------
    >>> averaged(np.array([[[1.0, 3.0, 5.0]]]), 2)
    array([[[2., 5.]]])
    """
    if factor <= 1:
        return maps
    for axis in (1, 2):
        rows = maps.swapaxes(1, axis)
        # Sums of strided slices: several times faster than np.add.reduceat.
        sums = rows[:, ::factor].copy()
        for start in range(1, factor):
            part = rows[:, start::factor]
            sums[:, : part.shape[1]] += part
        sizes = np.full(sums.shape[1], factor, maps.dtype)
        sizes[-1] = (rows.shape[1] - 1) % factor + 1
        maps = (sums / sizes[:, None]).swapaxes(1, axis)
    return maps


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Any tensor as float32, from any device; doubles and integers as float64, to stay exact."""
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = tensor.abs()
    exact = tensor.dtype in (torch.float64, torch.int32, torch.int64)
    return tensor.to("cpu", torch.float64 if exact else torch.float32).numpy()


def all_finite(values: np.ndarray) -> bool:
    """Whether no value is NaN or infinite; in one pass, by the sum.

    A sum that overflows gives False, too: then the long way is taken for nothing.
    """
    with np.errstate(all="ignore"):
        return bool(np.isfinite(values.sum()))


@dataclass(frozen=True, eq=False)
class ChannelStatistics:
    """Of each channel's map, ``(C,)`` each; min, max, mean and norm are over the finite values."""

    min: np.ndarray
    max: np.ndarray
    mean: np.ndarray
    zeros: np.ndarray  # share, 0 to 1
    norm: np.ndarray  # sqrt(sum(x**2))
    nans: np.ndarray
    infs: np.ndarray

    @property
    def dead(self) -> np.ndarray:
        """Whether a channel says nothing about this input: the same value everywhere."""
        return self.min == self.max


@dataclass(frozen=True, eq=False)
class LayerView:
    """One layer, call, sample and depth, ready to draw.

    Attributes
    ----------
    maps : numpy.ndarray
        float32 ``(C, H, W)``. A 1d layer's maps have H = 1.
    gradients : numpy.ndarray or None
        The same shape.
    statistics, gradient_statistics : ChannelStatistics
        Of the maps and of the gradients.
    weights : numpy.ndarray or None
        Grad-CAM's, ``(C,)``: each channel's gradient, averaged over all its places.
    samples, depths : int
        How many there are to choose from.
    """

    maps: np.ndarray
    gradients: np.ndarray | None
    statistics: ChannelStatistics
    gradient_statistics: ChannelStatistics | None
    weights: np.ndarray | None
    samples: int
    depths: int

    @property
    def signed(self) -> bool:
        """Whether any value is negative: then zero is in the middle of the colours."""
        return bool((self.statistics.min < 0).any())


def layer_view(
    activation: Tensor,
    gradient: Tensor | None,
    module: nn.Module | None = None,
    sample: int = 0,
    depth: int = 0,
    grid: tuple[int, ...] | None = None,
) -> LayerView:
    """Cut one sample, and of a volume one slice, out of a layer's tensors.

    Parameters
    ----------
    activation, gradient : torch.Tensor
        ``(N, C, *spatial)``, see `as_maps`.
    sample, depth : int
        Taken down to the last there is.
    grid : tuple of int, optional
        See `as_maps`.

    Raises
    ------
    ValueError
        No maps, or none in the tensor.
    """
    stacked = as_maps(activation, module, grid)
    if not stacked.numel():
        raise ValueError(f"The layer returned an empty tensor, shape {tuple(activation.shape)}.")
    sample = min(sample, len(stacked) - 1)
    depths = stacked.shape[2] if stacked.ndim == 5 else 1
    depth = min(depth, depths - 1)

    def cut(tensor: Tensor) -> np.ndarray:
        maps = as_maps(tensor, module, grid)[sample]
        if maps.ndim == 4:
            maps = maps[:, depth]
        return to_numpy(maps[:, None] if maps.ndim == 2 else maps)

    maps = cut(activation)
    gradients = None if gradient is None else cut(gradient)
    slopes = weights = None
    if gradient is not None and gradients is not None:
        slopes = channel_statistics(gradients)
        weights = to_numpy(as_maps(gradient, module, grid)[sample].flatten(1).float().mean(1))
    own = channel_statistics(maps)
    return LayerView(maps, gradients, own, slopes, weights, len(stacked), depths)


def channel_statistics(maps: np.ndarray) -> ChannelStatistics:
    """Statistics of every map of ``(C, H, W)``; NaN where a map has no finite value."""
    flat = maps.reshape(len(maps), -1)
    zeros = 1 - np.count_nonzero(flat, axis=1) / flat.shape[1]
    nans = infs = np.zeros(len(flat), int)
    count: int | np.ndarray = flat.shape[1]
    if not all_finite(flat):
        finite = np.isfinite(flat)
        nans = np.isnan(flat).sum(1)
        infs = flat.shape[1] - finite.sum(1) - nans
        count = np.maximum(finite.sum(1), 1)
        flat = np.where(finite, flat, np.nan)
    # fmin and fmax pass over NaN, and give NaN without a warning where there is nothing else.
    low, high = np.fmin.reduce(flat, 1), np.fmax.reduce(flat, 1)
    known = flat if not nans.any() and not infs.any() else np.nan_to_num(flat)
    mean = np.where(np.isnan(low), np.nan, known.sum(1) / count)
    norm = np.sqrt(np.einsum("ij,ij->i", known, known))
    return ChannelStatistics(low, high, mean, zeros, norm, nans, infs)


ORDERS = ("index", "mean", "max", "zeros", "gradient", "weight")
"""Channel orders: by index, or the largest mean, maximum, share of zeros, gradient norm or
Grad-CAM weight first."""


def channel_order(view: LayerView, order: str) -> np.ndarray:
    """Channel numbers in the order in which they are stepped through, ``(C,)``.

    Examples
    --------
    >>> import torch
    >>> view = layer_view(torch.tensor([[1.0, 5.0, 3.0]]), None)
    >>> channel_order(view, "max").tolist()
    [1, 2, 0]
    """
    slopes = view.gradient_statistics
    if order == "index" or (order in ("gradient", "weight") and slopes is None):
        return np.arange(len(view.maps))
    if slopes is not None and view.weights is not None and order in ("gradient", "weight"):
        key = slopes.norm if order == "gradient" else view.weights
    else:
        key = getattr(view.statistics, order)
    # NaN, a channel without any finite value, goes last; equals stay in order.
    return np.argsort(-np.nan_to_num(key, nan=-np.inf), kind="stable")
