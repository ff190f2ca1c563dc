"""The only owner of hooks: all are set together and removed together, also after an exception.

Nothing else in hookviz calls a ``register_*hook``. Other files give a list of (target, kind,
function); this file registers and removes. `capture.py` shows the use.

These hooks do nothing once their block is over. A deep copy or a pickle of the module made within
the block has, in their place, a function of the standard library that does nothing.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .interrupts import Block, defer_interrupts, raise_if_stopped
from .threads import belongs_to_another, open_block
from .transforms import refuse_transforms

Hook = tuple[nn.Module | Tensor | ModuleType, str, Callable[..., Any]]

KINDS = {
    "forward_pre": {"with_kwargs": True},
    "forward": {"with_kwargs": True},
    "full_backward_pre": {},
    "full_backward": {},
}
"""Kinds of hooks on a module, with the options of their registration; beside them there are those
of ``FIRST``."""

FIRST = {"raw": 2, "edit": 1}
"""Kinds of forward hooks that run before all others, the largest number first: ``"edit"`` changes
an output, ``"raw"`` sees it before any edit."""

OTHER_KINDS = {
    "tensor": "hook",
    "accumulated": "post_accumulate_grad_hook",
    "step": "step_pre_hook",
    "any step": "optimizer_step_post_hook",
}
"""Kinds of hooks on a tensor: called with the gradient that reaches it; called with a parameter
once its ``.grad`` is accumulated. On an optimizer: called before its step. On
``torch.optim.optimizer``: called after a step of any optimizer."""


class HookManager(Block):
    """A ``with`` block within which hooks are on.

    Parameters
    ----------
    hooks : iterable of (target, kind, function), optional
        Set in this order when the block begins. The target is a module, the kind one of ``KINDS``,
        and the function is called as torch calls such a hook, forward ones with ``kwargs``; or the
        target is a tensor, the kind one of ``OTHER_KINDS``, and the function gets the gradient, or
        None; of ``"accumulated"`` the parameter; of ``"step"`` an optimizer and its arguments.

    Raises
    ------
    RuntimeError
        On entry, if the block is already active or torch refuses a hook; no hook remains then.

    Examples
    --------
    >>> import torch
    >>> layer = nn.Linear(2, 1)
    >>> def after(module, args, kwargs, output):
    ...     print("ran")
    >>> with HookManager([(layer, "forward", after)]):
    ...     _ = layer(torch.zeros(1, 2))
    ran
    >>> _ = layer(torch.zeros(1, 2))
    """

    follows: frozenset[str] = frozenset()
    """The transforms of torch.func within which a module's hooks work; others are refused."""

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        super().__init__()
        self._hooks = list(hooks)
        self._handles: list[RemovableHandle] = []
        self.thread = 0  # the thread that has entered the block

    def _begin(self) -> None:
        self.thread = threading.get_ident()
        modules = [target for target, _, _ in self._hooks if isinstance(target, nn.Module)]
        self.exit_stack.enter_context(open_block(modules))
        self.exit_stack.enter_context(EveryModuleRuns())
        self.exit_stack.callback(self._remove_hooks)
        for hook in self._hooks:
            self._register(*hook)

    def _register(self, target: Any, kind: str, function: Callable[..., Any]) -> None:
        """Set one more hook; it is removed with the others."""
        if kind in OTHER_KINDS:
            register = getattr(target, f"register_{OTHER_KINDS[kind]}")
            handle = register(_Hook(self, None, function))
        else:
            hook = _Hook(self, target, function, first=FIRST.get(kind, 0))
            kind = "forward" if kind in FIRST else kind
            handle = getattr(target, f"register_{kind}_hook")(hook, **KINDS[kind])
            if hook.first:
                _prepend(target._forward_hooks)
        self._handles.append(handle)

    add = defer_interrupts(_register)  # a hook without its handle could never be removed

    def _remove_hooks(self) -> None:
        while self._handles:
            self._handles.pop().remove()


class _Hook:
    """A function on one module or tensor; it does nothing on others or after the block."""

    def __init__(
        self,
        owner: HookManager,
        module: nn.Module | None,
        function: Callable[..., Any],
        first: int = 0,
    ) -> None:
        self.owner, self.module, self.function, self.first = owner, module, function, first

    @defer_interrupts  # a hook may switch torch's modes; an interrupt must not leave them switched
    def __call__(self, *arguments: Any) -> Any:
        raise_if_stopped()
        # DataParallel's replicas stand for the module; its other copies do not.
        is_own = self.module is None or arguments[0] is self.module
        if self.owner.active and (is_own or getattr(arguments[0], "_is_replica", False)):
            if belongs_to_another(self.module, self.owner.thread):
                return None
            if self.module is not None:
                refuse_transforms(self.owner.follows)
            return self.function(*arguments)
        return None

    # A module's copies and pickles include its hooks. There they must not refer to this block,
    # which holds all captured tensors, and a pickle must not need hookviz.

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


def is_own(hook: Any) -> bool:
    """Return True for a hook that hookviz has set, and for what a copy has in its place."""
    copied = isinstance(getattr(hook, "__self__", None), nullcontext)
    return copied or isinstance(hook, _Hook)


def own_function(hook: Any) -> Callable[..., Any] | None:
    """Return the function of a hook that hookviz has set, None for other hooks."""
    return hook.function if isinstance(hook, _Hook) else None


def _prepend(hooks: OrderedDict) -> None:
    """Move raw hooks and edits before all others, so that those see edited outputs."""
    own = [key for key, hook in hooks.items() if isinstance(hook, _Hook) and hook.first]
    own.reverse()
    for key in sorted(own, key=lambda key: hooks[key].first):
        hooks.move_to_end(key, last=False)


class EveryModuleRuns:
    """A block within which torch calls every module, so that its hooks run; blocks may overlap.

    Code compiled by torch.compile, which skips hooks, runs eagerly. Torch's fast path is off: it
    computes an encoder layer as one operation, without calling the modules inside; if tokens are
    masked, on nested tensors, which have no sizes. The first block switches both, the last one
    switches back.
    """

    blocks, eager = 0, False
    switches = ExitStack()

    def __enter__(self) -> None:
        shared = EveryModuleRuns
        if not shared.blocks:
            fast_path = torch.backends.mha
            shared.switches.callback(
                fast_path.set_fastpath_enabled, fast_path.get_fastpath_enabled()
            )
            fast_path.set_fastpath_enabled(False)
        # Importing the compiler takes a second; until it is imported, nothing is compiled.
        if not shared.eager and "torch._dynamo" in sys.modules:
            stances = hasattr(torch.compiler, "set_stance")
            shared.switches.enter_context(
                torch.compiler.set_stance("force_eager") if stances else _without_callback()
            )
            shared.eager = True
        shared.blocks += 1

    def __exit__(self, *error: object) -> None:
        EveryModuleRuns.blocks -= 1
        if not EveryModuleRuns.blocks:
            EveryModuleRuns.eager = False
            EveryModuleRuns.switches.close()


@contextmanager
def _without_callback() -> Iterator[None]:
    """Do what ``set_stance("force_eager")`` does, for torch 2.4 and 2.5, which lack it.

    Compiled code is reached through a callback that the compiled module sets before it calls the
    eager one. Within the block it is not set.
    """
    frames = sys.modules["torch._dynamo.eval_frame"]
    set_callback = frames.set_eval_frame
    frames.set_eval_frame = lambda callback: None  # type: ignore[attr-defined]
    try:
        yield
    finally:
        frames.set_eval_frame = set_callback  # type: ignore[attr-defined]
