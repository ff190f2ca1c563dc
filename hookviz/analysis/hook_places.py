"""Where torch keeps hooks: on modules, on their parameters and buffers, and for all modules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from ..hooking.interrupts import defer_interrupts
from ..hooking.select import module_names, type_name

_ON_MODULES = {
    "forward_pre": ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    "forward": ("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    "full_backward_pre": ("_backward_pre_hooks",),
    "full_backward": ("_backward_hooks",),
    "state_dict_pre": ("_state_dict_pre_hooks",),
    "state_dict_post": ("_state_dict_hooks",),
    "load_state_dict_pre": ("_load_state_dict_pre_hooks",),
    "load_state_dict_post": ("_load_state_dict_post_hooks",),
}
"""Kind of hook -> the attribute that holds such hooks by their handles' ids, then those that hold
more about the same ids. Old backward hooks share theirs with the full ones; `_FULL` says which."""

_FULL = "_is_full_backward_hook"

_ON_TENSORS = {"tensor": "_backward_hooks", "post_accumulate_grad": "_post_accumulate_grad_hooks"}

# The hooks for all modules are variables of torch's, called as the attributes, after "_global".
_GLOBAL = {kind: held for kind, held in _ON_MODULES.items() if "state_dict" not in kind} | {
    f"{what}_registration": (f"_{what}_registration_hooks",)
    for what in ("module", "parameter", "buffer")
}

GLOBAL = "global "
"""How the kinds of those hooks begin that are called for every module of every model."""

KINDS = (
    *_ON_MODULES,
    "backward",
    *_ON_TENSORS,
    *(GLOBAL + kind for kind in (*_GLOBAL, "backward")),
)
"""``register_…_hook`` sets them; ``register_hook`` those of kind ``"tensor"``, and
``register_module_…_hook`` the global ones."""


@dataclass(frozen=True, eq=False)
class Place:
    """The hooks of one kind on one module or tensor, or for all modules."""

    name: str  # of the module or tensor, "" for the model itself and for all modules
    type: str
    kind: str
    hooks: dict[int, Any]
    beside: tuple[dict[int, Any], ...] = ()
    attributes: dict[str, Any] | None = None  # where `flag` is
    flag: str = ""

    @defer_interrupts
    def remove(self, key: int) -> None:
        """Take one off; its handle, should anybody have it, has nothing left to remove then."""
        for each in (self.hooks, *self.beside):
            each.pop(key, None)
        if self.attributes is not None and not self.hooks:
            self.attributes[self.flag] = None  # both sorts of backward hooks may be set again


def places(model: nn.Module) -> Iterator[Place]:
    """Every place where the model has hooks; the global ones come last."""
    seen = set()
    for name, module in _modules(model):
        yield from _places(name, type_name(module), _ON_MODULES, vars(module))
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for attribute, tensor in own:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield from _tensor_places(".".join(filter(None, (name, attribute))), tensor)
    yield from _places("", "", _GLOBAL, vars(torch_module), "_global", GLOBAL)


def _modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """All modules, wrappers too: these go by the name of what they wrap."""
    names = module_names(model)
    for module in model.modules():
        if isinstance(module, nn.Module):  # a ScriptModule's attribute may be anything
            inner = (each for each in module.modules() if isinstance(each, nn.Module))
            yield next((names[each][0] for each in inner if each in names), ""), module


def _places(
    name: str,
    type_: str,
    kinds: dict[str, tuple[str, ...]],
    attributes: dict[str, Any],
    prefix: str = "",
    scope: str = "",
) -> Iterator[Place]:
    for kind, held in kinds.items():
        # Not by getattr: wrappers answer for what they wrap. No torch has all of the attributes.
        hooks, *beside = (attributes.get(prefix + each) or {} for each in held)
        flag = prefix + _FULL
        if kind == "full_backward" and attributes.get(flag) is False:
            kind = "backward"
        if hooks:
            of_backward = attributes if kind.endswith("backward") else None
            yield Place(name, type_, scope + kind, hooks, tuple(beside), of_backward, flag)


def _tensor_places(name: str, tensor: Tensor) -> Iterator[Place]:
    with torch._C.DisableTorchFunctionSubclass():  # whatever a tensor of another class makes of it
        for kind, held in _ON_TENSORS.items():
            if hooks := getattr(tensor, held, None):
                yield Place(name, type(tensor).__name__, kind, hooks)
