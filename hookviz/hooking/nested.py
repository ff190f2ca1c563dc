"""Tensors within tuples, lists, dicts and dataclasses: what layers take and return."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor


def tensors_in(value: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors in what a layer took or returned, each with the path by which Python reaches it.

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


def change_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same lists, tuples and dicts with each tensor changed; the old ones stay as they are.

    >>> import torch
    >>> change_tensors(({"x": torch.ones(1)}, 3), lambda tensor: tensor + 1)
    ({'x': tensor([2.])}, 3)
    """
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        items = {key: change_tensors(each, change) for key, each in value.items()}
        if type(value) is dict:
            return items
        changed: Any = copy.copy(value)  # an OrderedDict, a library's output
        for key, each in items.items():
            changed[key] = each
        return changed
    if isinstance(value, (list, tuple)):
        parts = [change_tensors(each, change) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if is_dataclass(value) and not isinstance(value, type):
        new = copy.copy(value)
        for each in fields(value):
            object.__setattr__(new, each.name, change_tensors(getattr(value, each.name), change))
        return new
    return value


def memory_of(tensor: Tensor) -> int:
    """Which memory a tensor's values are in; views share it.

    >>> import torch
    >>> whole = torch.zeros(4)
    >>> memory_of(whole) == memory_of(whole[2:]) != memory_of(whole.clone())
    True
    """
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # a sparse tensor has none of its own
        return id(tensor)
