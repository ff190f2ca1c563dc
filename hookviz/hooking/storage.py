"""Values that belong to the memory of tensors, so that all views of it share them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

V = TypeVar("V")


class StorageMap(Generic[V]):
    """A mapping from a tensor's storage to a value, for as long as the storage lives.

    Views share a storage. No tensor is kept alive. A sparse tensor has the storage of its values;
    tensors of other layouts, such as MKL-DNN's, have none and are ignored.

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
        # An address is not used again while a weak reference to its storage exists.
        self._references: dict[int, StorageWeakRef] = {}
        self._values: dict[int, V] = {}
        self._prune_at = 0

    def get(self, tensor: Tensor) -> V | None:
        """Return the value of a tensor's storage; None if it has none."""
        storage = _storage(tensor)
        return None if storage is None else self._values.get(storage._cdata)

    def __contains__(self, tensor: Tensor) -> bool:
        return _address(tensor) in self._values

    def __setitem__(self, tensor: Tensor, value: V) -> None:
        storage = _storage(tensor)
        if storage is None:
            return
        address = storage._cdata
        if address not in self._references:
            if len(self._references) >= self._prune_at:
                self._prune()
            self._references[address] = StorageWeakRef(storage)
        self._values[address] = value

    def pop(self, tensor: Tensor) -> V | None:
        """Remove and return the value of a tensor's storage."""
        return self._values.pop(_address(tensor), None)

    def values(self) -> Iterator[V]:
        """Yield the values of live storages."""
        self._prune()
        yield from self._values.values()

    def _prune(self) -> None:
        """Discard the values of storages that are gone, each time the entries have doubled."""
        gone = [address for address, each in self._references.items() if each.expired()]
        for address in gone:
            del self._references[address]
            self._values.pop(address, None)
        self._prune_at = 2 * len(self._references) + 20


def _address(tensor: Tensor) -> int:
    """Return the address of a tensor's storage; 0 if it has none."""
    storage = _storage(tensor)
    return 0 if storage is None else storage._cdata


def _storage(tensor: Tensor) -> torch.UntypedStorage | None:
    if tensor.layout is not torch.strided:
        if tensor.layout is torch.sparse_coo:
            tensor = tensor._values()
        elif tensor.layout is not torch._mkldnn:  # type: ignore[attr-defined]
            tensor = tensor.values()
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        return None


def share_memory(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors share a storage.

    >>> whole = torch.zeros(4)
    >>> share_memory(whole, whole[2:]), share_memory(whole, whole.clone())
    (True, False)
    """
    one, other = _storage(first), _storage(second)
    if one is None or other is None:
        return first is second
    return one._cdata == other._cdata
