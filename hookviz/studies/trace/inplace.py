"""Find the modules whose tensors are overwritten in place: a full backward hook forbids that."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...hooking.checkpoint import ModuleCallStack
from ...hooking.handles import HookManager
from ...hooking.select import type_name
from ...hooking.storage import StorageMap
from ...hooking.tensors import tensors_in
from .recorder import Names


class InplaceTracker(HookManager):
    """Within the block, forward hooks look at the versions of what modules take and return.

    A tensor's version goes up each time it, or what shares its memory, is overwritten.
    """

    def __init__(self, names: Names) -> None:
        # A ScriptModule takes no hooks, full backward ones neither.
        eager = [module for module in names if not isinstance(module, torch.jit.ScriptModule)]
        kinds = (("forward_pre", self._before), ("forward", self._after))
        super().__init__([(module, kind, hook) for module in eager for kind, hook in kinds])
        self._names = names
        self._running: ModuleCallStack[list[tuple[Tensor, int]]] = ModuleCallStack()
        self._returned: list[tuple[nn.Module, Tensor, int]] = []
        self._overwrites_input: set[nn.Module] = set()
        # By memory: version -> the innermost module during which it came to that version.
        self._by: StorageMap[dict[int, nn.Module]] = StorageMap()

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        given = [(tensor, _version(tensor)) for tensor in _graded((args, kwargs))]
        self._running.begin(module, given)

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        for tensor, before in self._running.end(module) or ():
            if _version(tensor) > before:
                self._overwrites_input.add(module)
                by = self._by.get(tensor) or {}
                self._by[tensor] = (
                    dict.fromkeys(range(before + 1, _version(tensor) + 1), module) | by
                )
        for tensor in _graded(output):
            self._returned.append((module, tensor, _version(tensor)))

    def found(self) -> dict[nn.Module, str]:
        """Say for each module what is overwritten."""
        why: dict[nn.Module, str] = {}
        for module, tensor, version in self._returned:
            if _version(tensor) > version:
                by = (self._by.get(tensor) or {}).get(version + 1)
                who = "code (such as out += x)"
                if by is not None:
                    who = f"{self._names[by][0]!r} ({type_name(by)})"
                why.setdefault(module, f"{who} overwrites its output")
        for module in self._overwrites_input:
            why.setdefault(module, "it overwrites its own input")
        return why


def _graded(value: Any) -> list[Tensor]:
    """Only for these does overwriting in place make a full backward hook an error."""
    if not torch.is_grad_enabled():
        return []
    return [tensor for _, tensor in tensors_in(value) if tensor.requires_grad]


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
