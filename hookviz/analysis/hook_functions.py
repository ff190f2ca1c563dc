"""Whose function a hook is: its name, where it is defined, and which library made it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePath
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from torch import nn

from ..hooking.handles import own_function


class HookFunction(NamedTuple):
    """What is known of the function that runs in the end."""

    name: str  #: ``save``, ``Recorder.save``, ``<lambda>``; of an object that is called, its class
    module: str  #: where Python imported it from, ``__main__`` for a notebook
    code: CodeType | None  #: None if it is not written in Python
    maker: str  #: ``"hookviz"``, ``"torch"``, the library's name, or ``"user"``

    @property
    def key(self) -> tuple[Any, ...]:
        """The same for two functions that one cell made in two runs.

        A cell that was changed in between makes a function of the same name; lambdas, which have
        none, have to be of the same code.
        """
        return self.module, self.name, self.code if "<lambda>" in self.name else None

    @property
    def file(self) -> str:
        """A path, ``In[3]`` for a notebook's cell, or what Python calls it, ``<stdin>``."""
        return legible(self.code.co_filename) if self.code else ""

    @property
    def line(self) -> int | None:
        """Its first line."""
        return self.code.co_firstlineno if self.code else None


def hook_function(hook: Callable[..., Any]) -> HookFunction:
    """Look through partials, methods and decorators; of an object see the method that is called.

    >>> hook_function(partial(print, "grad")).name
    'print'
    """
    ours = own_function(hook) is not None
    hook = _unwrapped(hook)
    called = hook
    if not isinstance(hook, (FunctionType, type)):
        method = "forward" if isinstance(hook, nn.Module) else "__call__"
        called = _unwrapped(getattr(type(hook), method, hook))
    code = getattr(called, "__code__", None)
    name = getattr(hook, "__qualname__", None) or type(hook).__qualname__
    module = getattr(hook, "__module__", None) or ""
    # An object of a user's class may run torch's method, as a user's way of pruning does.
    where = str(getattr(called, "__module__", None) or "")
    maker = "hookviz" if ours else _maker(where, code, isinstance(hook, nn.Module))
    plain = str(name).removeprefix("_VariableFunctionsClass.")  # where torch.clamp and the like are
    return HookFunction(plain, str(module), code, maker)


def _unwrapped(hook: Any) -> Any:
    """The function within what was made around it."""
    while True:
        inner = own_function(hook)
        if inner is None and isinstance(hook, partial):
            inner = hook.func
        elif inner is None and isinstance(hook, MethodType):
            inner = hook.__func__
        elif inner is None:
            inner = getattr(hook, "__dict__", {}).get("__wrapped__") or _one_of_several(hook)
        if inner is None:
            return hook
        hook = inner


def _one_of_several(hook: Any) -> Any:
    """What `torch.autograd.graph.register_multi_grad_hook` was given for several tensors."""
    if getattr(hook, "__module__", None) != "torch.autograd.graph":
        return None
    code = getattr(hook, "__code__", None)
    if code is None or "fn" not in code.co_freevars:
        return None
    return hook.__closure__[code.co_freevars.index("fn")].cell_contents


# Functions that people use as hooks, as they do torch's modules; none of them comes as one.
_TOOLS = (
    *("torch.functional", "torch.nn.functional", "torch.nn.init", "torch.nn.utils.clip_grad"),
    "hookviz.hooking.changes",
)
_LIBRARIES = {"site-packages", "dist-packages"}


def _maker(module: str, code: CodeType | None, is_module: bool) -> str:
    package = module.partition(".")[0]
    if code is None or module in _TOOLS or (package == "torch" and is_module):
        return "user"
    is_library = _LIBRARIES & {*PurePath(code.co_filename).parts}
    return package if is_library or package == "torch" else "user"


def legible(file: str) -> str:
    """A notebook's cell by its number, where the notebook knows it."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    said = getattr(getattr(shell, "compile", None), "format_code_name", lambda name: None)(file)
    if said:
        return str(said[1])
    if number := re.search(r"ipython-input-(\d+)-", file):  # IPython 7, as in Colab
        return f"In[{number[1]}]"
    return "a notebook cell" if re.search(r"ipykernel_|ipython-input|__marimo__", file) else file


def short(file: str) -> str:
    """A path without what is the same for all: of a library, or of the current folder.

    >>> short("/usr/lib/python3/site-packages/captum/attr/deep_lift.py")
    'captum/attr/deep_lift.py'
    """
    path = PurePath(file)
    for folder in _LIBRARIES & {*path.parts}:
        return PurePath(*path.parts[path.parts.index(folder) + 1 :]).as_posix()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
