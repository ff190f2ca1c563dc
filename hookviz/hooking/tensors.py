"""The tensors in nested inputs and outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution


def tensors_in(value: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in a layer's inputs or output, each with its path as a Python expression.

    In tuples, lists, dicts, dataclasses and distributions, at any depth; ``path`` is put in front.

    >>> import torch
    >>> output = {"out": torch.zeros(1), "aux": (torch.zeros(1), None)}
    >>> [path for path, _ in tensors_in(output)]
    ["['out']", "['aux'][0]"]
    >>> [path for path, _ in tensors_in(torch.distributions.Categorical(torch.ones(2)))]
    ['.probs']
    """
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_in(item, f"{path}[{key!r}]")
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from tensors_in(item, f"{path}[{index}]")
    else:
        for name, item in _attributes(value):
            yield from tensors_in(item, f"{path}.{name}")


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """List the attributes of a dataclass, or of a distribution, that may hold tensors."""
    if is_dataclass(value) and not isinstance(value, type):
        return [(item.name, getattr(value, item.name)) for item in fields(value)]
    if isinstance(value, Distribution):
        # The `_param` of some is their logits or probs again.
        return [(name, item) for name, item in vars(value).items() if name != "_param"]
    return []


_NOT_TENSORS = {
    int,
    float,
    bool,
    str,
    type(None),
    torch.dtype,
    torch.device,
}  # the most frequent ones


def tensors(*values: Any) -> list[Tensor]:
    """List the tensors that `tensors_in` yields for these values, without their paths.

    >>> [tensor.ndim for tensor in tensors(({"x": torch.ones(1)}, 3))]
    [1]
    """
    found: list[Tensor] = []
    _collect(values, found)
    return found


def _collect(values: Iterable[Any], found: list[Tensor]) -> None:
    for value in values:
        kind = type(value)
        if kind in _NOT_TENSORS:
            continue
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            _collect(value, found)
        elif kind is dict or isinstance(value, Mapping):  # the second test is slow
            _collect(value.values(), found)
        else:
            _collect((item for _, item in _attributes(value)), found)


def central_value(tensor: Tensor) -> Tensor:
    """Return the central number of a strided tensor that is not empty, as a view.

    >>> central_value(torch.arange(9.0).reshape(3, 3))
    tensor(4.)
    """
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    centre = tensor.storage_offset() + sum(size // 2 * stride for size, stride in pairs)
    return tensor.detach().as_strided((), (), centre)


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return lists, tuples and dicts with each tensor changed; the originals stay unchanged.

    >>> import torch
    >>> map_tensors(({"x": torch.ones(1)}, 3), lambda tensor: tensor + 1)
    ({'x': tensor([2.])}, 3)
    """
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        items = {key: map_tensors(item, change) for key, item in value.items()}
        if type(value) is dict:
            return items
        changed: Any = copy.copy(value)  # an OrderedDict, a library's output
        for key, item in items.items():
            changed[key] = item
        return changed
    if isinstance(value, (list, tuple)):
        parts = [map_tensors(item, change) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    new = copy.copy(value) if (attributes := _attributes(value)) else value
    for name, item in attributes:
        object.__setattr__(new, name, map_tensors(item, change))
    return new


def at_least_float32(tensor: Tensor) -> Tensor:
    """Convert to float32 or better, dequantized: sums of half-precision numbers overflow.

    Complex numbers stay complex.
    """
    if tensor.is_quantized:
        return tensor.dequantize()
    exact = tensor.dtype == torch.float64 or tensor.is_complex()
    return tensor if exact else tensor.float()


def as_real(tensor: Tensor) -> Tensor:
    """Return the values of a tensor as float32, or float64 where that is needed to hold them.

    Half precision becomes float32, since its sums overflow; integers of 32 and 64 bits become
    float64; booleans are 0 and 1; complex numbers are replaced by their absolute values; quantized
    and sparse tensors are expanded.

    Raises
    ------
    TypeError
        The tensor has no values (on the meta device), or is nested.
    """
    values = tensor.detach()
    if values.is_meta or values.is_nested:
        kind = "meta" if values.is_meta else "nested"
        raise TypeError(f"A {kind} tensor has no statistics: give one that holds its values.")
    if values.is_quantized:
        values = values.dequantize()
    elif values.layout is not torch.strided:
        values = values.to_dense()
    if values.is_complex():
        # abs() of half-precision complex numbers is not implemented on every device.
        values = (values if values.dtype != torch.complex32 else values.to(torch.complex64)).abs()
    if values.dtype in (torch.float32, torch.float64):
        return values
    large = values.dtype in (torch.int32, torch.int64)
    return values.to(wide(values.device) if large else torch.float32)


def wide(device: torch.device) -> torch.dtype:
    """Return the most precise floating-point type of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


def on_cpu(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Move tensors to the CPU together: each transfer waits until an accelerator is idle.

    Those of one device arrive in one data type, the widest of them.

    >>> import torch
    >>> on_cpu([torch.ones(2), torch.ones(())])
    [tensor([1., 1.]), tensor(1.)]
    """
    found = list(tensors)
    for device in {each.device for each in tensors if each.device.type != "cpu"}:
        indices = [i for i, each in enumerate(tensors) if each.device == device]
        if device.type == "cuda":
            # A hook may have run on another stream than the current one.
            torch.cuda.synchronize(device)
        joined = torch.cat([tensors[i].reshape(-1) for i in indices]).cpu()
        parts = joined.split([tensors[i].numel() for i in indices])
        for index, part in zip(indices, parts, strict=True):
            found[index] = part.view(tensors[index].shape)
    return found


_EXACT = 1 << 24  # a sum of up to this many ones is exact in float32


def count_nonzero(values: Tensor) -> Tensor:
    """Count the values that are not zero along the last dimension; NaN is not zero."""
    if values.device.type != "cpu" or values.shape[-1] > _EXACT:
        return values.count_nonzero(-1)
    values = values.detach()
    if values.dtype in (torch.float32, torch.float64) and (values.numpy() != 0).all():
        return torch.full(values.shape[:-1], values.shape[-1])  # the most frequent case
    # On the CPU, torch sums floats twenty times faster than it counts booleans.
    return torch.ne(values, 0, out=torch.empty_like(values)).sum(-1).long()


def version_of(tensor: Tensor | None) -> int:
    """Return how often a tensor was overwritten; −1 where that is not counted."""
    return -1 if tensor is None or tensor.is_inference() else tensor._version
