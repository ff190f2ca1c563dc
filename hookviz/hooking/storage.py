"""Values kept beside tensors, by the memory that the tensors' numbers are in."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

V = TypeVar("V")


class StorageMap(Generic[V]):
    """A value for each memory, for as long as the memory lives; views share it.

    It keeps no tensor alive.

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

    def get(self, tensor: Tensor) -> V | None:
        """Return the value of a tensor's memory, None if it has none."""
        reference, value = self._held.get(_key(tensor), (None, None))
        return None if reference is None or _gone(reference) else value

    def __contains__(self, tensor: Tensor) -> bool:
        held = self._held.get(_key(tensor))
        return held is not None and not _gone(held[0])

    def __setitem__(self, tensor: Tensor, value: V) -> None:
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):  # a sparse tensor has none of its own
            self._held[id(tensor)] = weakref.ref(tensor), value
        else:
            self._held[storage._cdata] = StorageWeakRef(storage), value

    def pop(self, tensor: Tensor) -> V | None:
        """Remove and return the value of a tensor's memory."""
        value = self.get(tensor)
        self._held.pop(_key(tensor), None)
        return value

    def values(self) -> Iterator[V]:
        """Go through the values of what is alive."""
        return (value for reference, value in self._held.values() if not _gone(reference))

    def storages(self) -> Iterator[tuple[torch.UntypedStorage, V]]:
        """Go through the memory that is alive, with its value."""
        for reference, value in self._held.values():
            if isinstance(reference, StorageWeakRef) and not reference.expired():
                yield torch.UntypedStorage._new_with_weak_ptr(reference.cdata), value

    def prune(self) -> None:
        """Let go of the values of memory that is gone."""
        for key in [key for key, (reference, _) in self._held.items() if _gone(reference)]:
            del self._held[key]


def _key(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):
        return id(tensor)


def _gone(reference: StorageWeakRef | weakref.ref) -> bool:
    return reference.expired() if isinstance(reference, StorageWeakRef) else reference() is None


def share_memory(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors' numbers are in one memory.

    >>> whole = torch.zeros(4)
    >>> share_memory(whole, whole[2:]), share_memory(whole, whole.clone())
    (True, False)
    """
    return _key(first) == _key(second)
