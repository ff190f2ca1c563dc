"""Tensors in nested inputs and outputs, layers' outputs as maps, and values by storage.

The inputs of a model go by name: "input", or one of several by its path.
"""

from __future__ import annotations

import copy
import math
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.functional import interpolate

from .handles import Hook
from .select import first_convolution, module_names, unwrapped


def tensors_in(value: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in a layer's inputs or output, each with its path as a Python expression.

    In tuples, lists, dicts and dataclasses, at any depth; ``path`` is put in front.

    >>> import torch
    >>> output = {"out": torch.zeros(1), "aux": (torch.zeros(1), None)}
    >>> [path for path, _ in tensors_in(output)]
    ["['out']", "['aux'][0]"]
    """
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from tensors_in(each, f"{path}[{key!r}]")
    elif isinstance(value, (tuple, list)):
        for index, each in enumerate(value):
            yield from tensors_in(each, f"{path}[{index}]")
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from tensors_in(getattr(value, each.name), f"{path}.{each.name}")


_PLAIN = {int, float, bool, str, type(None), torch.dtype, torch.device}  # most of what is no tensor


def tensors(value: Any) -> list[Tensor]:
    """List the tensors that `tensors_in` yields, without their paths.

    >>> [tensor.ndim for tensor in tensors(({"x": torch.ones(1)}, 3))]
    [1]
    """
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        parts: Iterable[Any] = value
    elif isinstance(value, Mapping):
        parts = value.values()
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, each.name) for each in fields(value)]
    else:
        return []
    found: list[Tensor] = []
    for each in parts:
        if type(each) in _PLAIN:
            continue
        if isinstance(each, Tensor):
            found.append(each)
        else:
            found += tensors(each)
    return found


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Rebuild lists, tuples and dicts with each tensor changed; the old ones stay as they are.

    >>> import torch
    >>> map_tensors(({"x": torch.ones(1)}, 3), lambda tensor: tensor + 1)
    ({'x': tensor([2.])}, 3)
    """
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        items = {key: map_tensors(each, change) for key, each in value.items()}
        if type(value) is dict:
            return items
        changed: Any = copy.copy(value)  # an OrderedDict, a library's output
        for key, each in items.items():
            changed[key] = each
        return changed
    if isinstance(value, (list, tuple)):
        parts = [map_tensors(each, change) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if is_dataclass(value) and not isinstance(value, type):
        new = copy.copy(value)
        for each in fields(value):
            object.__setattr__(new, each.name, map_tensors(getattr(value, each.name), change))
        return new
    return value


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
    # A layer without sizes of its own, such as a dropout, among tokens.
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
        merged = [tuple(-(-each // 2**n) for each in self.grid) for n in range(1, 6)]
        return next((each for each in merged if math.prod(each) == shape[1]), None)


def at_least_float32(tensor: Tensor) -> Tensor:
    """Convert to float32 or better, dequantized: sums of half-precision numbers overflow.

    Complex numbers stay complex.
    """
    if tensor.is_quantized:
        return tensor.dequantize()
    exact = tensor.dtype == torch.float64 or tensor.is_complex()
    return tensor if exact else tensor.float()


def enlarged(maps: Tensor, size: Sequence[int]) -> Tensor:
    """Resize maps ``(N, *spatial)``, linear between the centres of their cells.

    >>> enlarged(torch.tensor([[0.0, 1.0]]), [4])
    tensor([[0.0000, 0.2500, 0.7500, 1.0000]])
    """
    if maps.shape[1:] == tuple(size):
        return maps
    mode = {2: "linear", 3: "bilinear", 4: "trilinear"}[maps.ndim]
    return interpolate(maps[:, None], tuple(size), mode=mode, align_corners=False)[:, 0]


# By storage

V = TypeVar("V")


class StorageMap(Generic[V]):
    """A mapping from a tensor's storage to a value, for as long as the storage lives.

    Views share a storage. No tensor is kept alive.

    Examples
    --------
    >>> names, whole = StorageMap(), torch.zeros(4)
    >>> names[whole] = "whole"
    >>> names.get(whole[2:]), names.get(whole.clone())
    ('whole', None)
    >>> del whole
    >>> list(names.values())
    []
    """

    def __init__(self) -> None:
        # An address is not used again while a weak reference to its storage is held.
        self._held: dict[int, tuple[StorageWeakRef | weakref.ref, V]] = {}
        self._twice = 0  # as many entries as were left by `prune`, twice

    def get(self, tensor: Tensor) -> V | None:
        """Return the value of a tensor's storage; None if it has none."""
        held = self._held.get(_key(tensor))
        return None if held is None or _gone_sparse(held[0]) else held[1]

    def __contains__(self, tensor: Tensor) -> bool:
        held = self._held.get(_key(tensor))
        return held is not None and not _gone_sparse(held[0])

    def __setitem__(self, tensor: Tensor, value: V) -> None:
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):  # a sparse tensor has none of its own
            self._held[id(tensor)] = weakref.ref(tensor), value
        else:
            self._held[storage._cdata] = StorageWeakRef(storage), value

    def pop(self, tensor: Tensor) -> V | None:
        """Remove and return the value of a tensor's storage."""
        value = self.get(tensor)
        self._held.pop(_key(tensor), None)
        return value

    def values(self) -> Iterator[V]:
        """Yield the values of live storages."""
        return (value for reference, value in self._held.values() if not _gone(reference))

    def storages(self) -> Iterator[tuple[torch.UntypedStorage, V]]:
        """Yield the live storages, each with its value."""
        for reference, value in self._held.values():
            if isinstance(reference, StorageWeakRef) and not reference.expired():
                yield torch.UntypedStorage._new_with_weak_ptr(reference.cdata), value

    def prune(self, *, lazily: bool = False) -> None:
        """Discard the values of storages that are gone; lazily, once the entries have doubled."""
        if lazily and len(self._held) < self._twice:
            return
        for key in [key for key, (reference, _) in self._held.items() if _gone(reference)]:
            del self._held[key]
        self._twice = 2 * len(self._held)


def _key(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):
        return id(tensor)


def _gone(reference: StorageWeakRef | weakref.ref) -> bool:
    return reference.expired() if isinstance(reference, StorageWeakRef) else reference() is None


def _gone_sparse(reference: StorageWeakRef | weakref.ref) -> bool:
    # A storage that is looked up lives, and the reference under its address is to it.
    return type(reference) is weakref.ref and reference() is None


def sharing_memory(tensors: Iterable[Tensor], others: Iterable[Tensor]) -> list[Tensor]:
    """Return those of some tensors that share a storage with any of the others."""
    keys = {_key(each) for each in others}
    return [each for each in tensors if _key(each) in keys]


def share_memory(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors share a storage.

    >>> whole = torch.zeros(4)
    >>> share_memory(whole, whole[2:]), share_memory(whole, whole.clone())
    (True, False)
    """
    return _key(first) == _key(second)


_NAME = re.compile(r"input((?:\[[^\]]+\]|\.\w+)*)$")


def is_input(name: object) -> bool:
    """Return whether a name stands for an input of the model.

    Examples
    --------
    >>> is_input("input"), is_input("input[0][2]"), is_input("inputs")
    (True, True, False)
    """
    return isinstance(name, str) and _NAME.match(name) is not None


class ModelInputs:
    """The inputs of a model, which are named as layers are.

    Attributes
    ----------
    model : torch.nn.Module
        Without its wrappers.
    first : torch.nn.Module or None
        The first convolution: its dimensions tell a batch from a single sample.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, _ = unwrapped(model)
        self._given = model

    @cached_property
    def first(self) -> nn.Module | None:
        return first_convolution(self.model)

    def _is_layer(self, name: str) -> bool:
        """Return whether a module has this name, which says an input otherwise."""
        head = name.partition(".")[0]
        if not any(head in module._modules for module in self.model.modules()):
            return False  # all names are seldom needed, and each stroke of a brush is an edit
        return any(name in every for every in module_names(self._given).values())

    def split(self, layers: Any) -> tuple[Any, list[str]]:
        """Return the layers without the names of inputs, and those names."""
        entries = layers if isinstance(layers, (list, tuple)) else [layers]
        inputs = [each for each in entries if is_input(each) and not self._is_layer(each)]
        if not inputs:
            return layers, []
        return [each for each in entries if each not in inputs], inputs

    def chosen(self, name: str, args: Any, kwargs: Any) -> Tensor:
        """Return the tensor that a name stands for; a ``ValueError`` lists the known names."""
        found = {**dict(tensors_in(tuple(args))), **dict(tensors_in(dict(kwargs)))}
        floating = {path: each for path, each in found.items() if each.is_floating_point()}
        path = name.removeprefix("input").replace('"', "'")
        if not path and floating:
            return next(iter(floating.values()))
        if path in floating:
            return floating[path]
        known = ", ".join(f"input{each}" for each in floating) or "none"
        raise ValueError(
            f"The model's inputs have no floating-point tensor {name!r}; known: {known}."
        )
