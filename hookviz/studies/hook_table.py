"""List the hooks that are registered on a model, with their origins, and remove them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path, PurePath
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from ..hooking.handles import is_own, own_function
from ..hooking.interrupts import defer_interrupts
from ..hooking.select import check_module, module_names, type_name
from ..run.errors import legible
from ..tables import Row, Tabular, for_terminal, html_table, some, text_table


class HookFunction(NamedTuple):
    """The function that a hook finally calls."""

    name: str  #: ``save``, ``Recorder.save``, ``<lambda>``; a callable object has its class's name
    module: str  #: its Python module, ``__main__`` in a notebook
    code: CodeType | None  #: None if it is not written in Python
    origin: str  #: ``"hookviz"``, ``"torch"``, the library's name, or ``"user"``

    @property
    def key(self) -> tuple[Any, ...]:
        """A key that is equal for functions made by two runs of the same cell.

        If the cell was changed in between, its functions still have the same name. Lambdas have no
        name, so their code must be equal.
        """
        return self.module, self.name, self.code if "<lambda>" in self.name else None

    @property
    def file(self) -> str:
        """A path, ``In[3]`` for a notebook's cell, or Python's name, such as ``<stdin>``."""
        return legible(self.code.co_filename) if self.code else ""

    @property
    def line(self) -> int | None:
        """Its first line."""
        return self.code.co_firstlineno if self.code else None


def hook_function(hook: Callable[..., Any]) -> HookFunction:
    """Unwrap partials, methods and decorators; of a callable object take the method called.

    >>> hook_function(partial(print, "grad")).name
    'print'
    """
    ours = is_own(hook)
    hook = _unwrapped(hook)
    called = hook
    if not isinstance(hook, (FunctionType, type)):
        method = "forward" if isinstance(hook, nn.Module) else "__call__"
        called = _unwrapped(getattr(type(hook), method, hook))
    code = getattr(called, "__code__", None)
    name = getattr(hook, "__qualname__", None) or type(hook).__qualname__
    module = getattr(hook, "__module__", None) or ""
    # An object of a user's class may run a method of torch, as a custom pruning method does.
    where = str(getattr(called, "__module__", None) or "")
    origin = "hookviz" if ours else _origin_of(where, code, isinstance(hook, nn.Module))
    plain = str(name).removeprefix("_VariableFunctionsClass.")  # where torch.clamp and the like are
    return HookFunction(plain, str(module), code, origin)


def _unwrapped(hook: Any) -> Any:
    """Unwrap partials, bound methods and decorators."""
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
    """Return the function given to `torch.autograd.graph.register_multi_grad_hook`, else None."""
    if getattr(hook, "__module__", None) != "torch.autograd.graph":
        return None
    code = getattr(hook, "__code__", None)
    if code is None or "fn" not in code.co_freevars:
        return None
    return hook.__closure__[code.co_freevars.index("fn")].cell_contents


# Modules of functions that users register as hooks themselves: the hooks are the user's.
_TOOLS = (
    *("torch.functional", "torch.nn.functional", "torch.nn.init", "torch.nn.utils.clip_grad"),
    "hookviz.edits",
)
_LIBRARIES = {"site-packages", "dist-packages"}


def _origin_of(module: str, code: CodeType | None, is_module: bool) -> str:
    package = module.partition(".")[0]
    if code is None or module in _TOOLS or (package == "torch" and is_module):
        return "user"
    is_library = _LIBRARIES & {*PurePath(code.co_filename).parts}
    return package if is_library or package == "torch" else "user"


def short(file: str) -> str:
    """Shorten a path: relative to the folder of libraries, or to the current folder.

    >>> short("/usr/lib/python3/site-packages/captum/attr/deep_lift.py")
    'captum/attr/deep_lift.py'
    """
    path = PurePath(file)
    for folder in _LIBRARIES & {*path.parts}:
        return PurePath(*path.parts[path.parts.index(folder) + 1 :]).as_posix()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


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
"""Kind of hook -> the module's attribute with these hooks by their handles' ids, then attributes
with more data by the same ids. Old and full backward hooks share one; `_FULL` says which."""

_FULL = "_is_full_backward_hook"

_ON_TENSORS = {"tensor": "_backward_hooks", "post_accumulate_grad": "_post_accumulate_grad_hooks"}

# Hooks for all modules are variables of torch named like the attributes, with "_global" in front.
_GLOBAL = {kind: held for kind, held in _ON_MODULES.items() if "state_dict" not in kind} | {
    f"{what}_registration": (f"_{what}_registration_hooks",)
    for what in ("module", "parameter", "buffer")
}

GLOBAL = "global "
"""Prefix of the kinds of hooks that are called for every module of every model."""

KINDS = (
    *_ON_MODULES,
    "backward",
    *_ON_TENSORS,
    *(GLOBAL + kind for kind in (*_GLOBAL, "backward")),
)
"""``register_…_hook`` sets them; ``register_hook`` those of kind ``"tensor"``, and
``register_module_…_hook`` the global ones."""


@dataclass(frozen=True, eq=False)
class HookLocation:
    """The hooks of one kind on one module or tensor, or for all modules."""

    name: str  # of the module or tensor, "" for the model itself and for all modules
    type: str
    kind: str
    hooks: dict[int, Any]
    beside: tuple[dict[int, Any], ...] = ()
    attributes: dict[str, Any] | None = None  # these contain `flag`
    flag: str = ""

    @defer_interrupts
    def remove(self, key: int) -> None:
        """Remove a hook; afterwards its handle, if somebody has it, does nothing."""
        for each in (self.hooks, *self.beside):
            each.pop(key, None)
        if self.attributes is not None and not self.hooks:
            self.attributes[self.flag] = None  # allows both sorts of backward hooks again


def places(model: nn.Module) -> Iterator[HookLocation]:
    """Yield every place where the model has hooks, the global ones last."""
    seen = set()
    for name, module in _modules(model):
        yield from _places(name, type_name(module), _ON_MODULES, vars(module))
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for attribute, tensor in own:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield from _tensor_places(".".join(filter(None, (name, attribute))), tensor)
    yield from _places("", "", _GLOBAL, torch_module.__dict__, "_global", GLOBAL)


def _modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield all modules with their names; a wrapper has the name of the wrapped module."""
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
) -> Iterator[HookLocation]:
    for kind, held in kinds.items():
        # Not getattr: wrappers forward it. No version of torch has all of these attributes.
        hooks, *beside = (attributes.get(prefix + each) or {} for each in held)
        flag = prefix + _FULL
        if kind == "full_backward" and attributes.get(flag) is False:
            kind = "backward"
        if hooks:
            of_backward = attributes if kind.endswith("backward") else None
            yield HookLocation(name, type_, scope + kind, hooks, tuple(beside), of_backward, flag)


def _tensor_places(name: str, tensor: Tensor) -> Iterator[HookLocation]:
    with torch._C.DisableTorchFunctionSubclass():  # a tensor subclass may override it
        for kind, held in _ON_TENSORS.items():
            if hooks := getattr(tensor, held, None):
                yield HookLocation(name, type(tensor).__name__, kind, hooks)


@dataclass(frozen=True)
class HookInfo:
    """One hook: its target, its function, and whether `hookviz.remove_hooks` removes it."""

    #: The name of the module, parameter or buffer, the first if it has several; ``""`` for the
    #: model itself and for global hooks.
    layer: str
    type: str  #: the class of the module or tensor, ``""`` for a global hook
    kind: str  #: one of `hookviz.studies.hook_table.KINDS`
    #: The function's name within its file: ``save``, ``Recorder.save``, ``<lambda>``; the class's
    #: name for a callable object.
    function: str
    #: Its file: a path, ``In[3]`` for a notebook's cell, ``""`` if not written in Python.
    file: str
    line: int | None  #: the function's first line in the file
    #: Who made it: ``"user"``, ``"torch"``, ``"hookviz"``, or the name of another library.
    origin: str
    why: str  #: why `hookviz.remove_hooks` keeps it unless it is named; ``""`` if it removes it
    #: Number of hooks of this kind on this module or tensor with the same function; 0 for those
    #: of torch and hookviz, where several are no mistake.
    times: int
    key: int  #: the ``id`` of its handle

    @property
    def removable(self) -> bool:
        """True if ``hookviz.remove_hooks(model)`` removes it."""
        return not self.why

    @property
    def repeated(self) -> bool:
        """True if the same function is registered several times, as after running a cell twice."""
        return self.times > 1

    @property
    def name(self) -> str:
        """The name of its target, for people."""
        return "(all models)" if self.kind.startswith(GLOBAL) else self.layer or "(model)"

    @property
    def where(self) -> str:
        """File and line, for people."""
        return f"{short(self.file)}:{self.line}" if self.file else ""

    def record(self) -> dict[str, Any]:
        """Return a flat dict of strict JSON."""
        return asdict(self) | {"removable": self.removable, "repeated": self.repeated}


def hooks(model: nn.Module) -> HookTable:
    """List every hook on a model, its parameters and buffers, with its origin.

    Parameters
    ----------
    model : torch.nn.Module
        Layers have the names that they have in the model inside ``DataParallel``,
        ``DistributedDataParallel`` or ``torch.compile``.

    Returns
    -------
    HookTable
        A sequence of `HookInfo` in the order of the modules; hooks of one kind on one module are
        in the order in which they fire. Hooks for all modules of all models
        (``torch.nn.modules.module.register_module_forward_hook``) come last.

    Raises
    ------
    TypeError
        The model is not an ``nn.Module``.

    Notes
    -----
    PyTorch does not list hooks on autograd's nodes. So the hooks with which
    ``DistributedDataParallel`` gathers gradients are missing, and so are hooks on tensors that the
    model computes. Hooks of an optimizer are not on the model, and those of a ScriptModule are
    invisible to Python.

    Examples
    --------
    >>> import hookviz
    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    >>> for run in range(2):
    ...     handle = model[1].register_forward_hook(lambda module, args, output: None)
    >>> [(hook.kind, hook.layer, hook.function, hook.times) for hook in hookviz.hooks(model)]
    [('forward', '1', '<lambda>', 2), ('forward', '1', '<lambda>', 2)]
    """
    check_module(model)
    return HookTable([hook for hook, *_ in _found(model)], type_name(model))


def remove_hooks(
    model: nn.Module, kinds: str | Iterable[str] | None = None, of: Any = None
) -> RemovedHooks:
    """Remove hooks from a model, its parameters and buffers, for example after a cell ran twice.

    Hooks that PyTorch needs (``weight_norm``, ``spectral_norm``, pruning, lazy modules,
    parametrizations, FSDP, checkpointing) always stay. Three more sorts stay unless ``of`` names
    them: hookviz's, which end with their block; the model's own, which are methods of its classes,
    or defined in these, or by the library of the classes; and global ones, which are on all models
    and are also removed if ``kinds`` names them.

    Parameters
    ----------
    model : torch.nn.Module
    kinds : str or iterable of str, optional
        Remove only these: ``"forward"``, ``"tensor"``, …, see `hookviz.studies.hook_table.KINDS`;
        ``"global"`` is short for all global kinds. None removes all kinds.
    of : optional
        Remove only these, one or a list: the registered function, even if its cell has run again
        since; the name of a function, whole or its last part (``"save"`` also means
        ``Recorder.save``); an origin (``"user"``, ``"captum"``); a `HookInfo`.

    Returns
    -------
    RemovedHooks
        The removed hooks, a sequence of `HookInfo`; its ``left`` has those that remain. The handles
        of removed hooks do nothing from then on.

    Raises
    ------
    TypeError
        The model is not an ``nn.Module``, or ``of`` does not name a hook.
    ValueError
        Unknown kind.

    Examples
    --------
    >>> import hookviz
    >>> model = nn.utils.spectral_norm(nn.Linear(3, 3))
    >>> handle = model.register_forward_hook(lambda module, args, output: None)
    >>> removed = hookviz.remove_hooks(model)
    >>> [hook.function for hook in removed]
    ['<lambda>']
    >>> {hook.origin for hook in removed.left}
    {'torch'}
    """
    check_module(model)
    wanted = _checked_kinds(kinds)
    removed = []
    for hook, function, place in _found(model):
        # "global" stands for all kinds that begin with it.
        of_kind = hook.kind in wanted or hook.kind.partition(" ")[0] in wanted
        if hook.origin == "torch" or (kinds is not None and not of_kind):
            continue
        meant = hook.removable or (of_kind and hook.kind.startswith(GLOBAL))
        if meant if of is None else _is_named(of, hook, function):
            place.remove(hook.key)
            removed.append(hook)
    return RemovedHooks(removed, type_name(model), hooks(model))


class HookTable(Tabular, Sequence[HookInfo]):
    """The hooks on a model, made by `hookviz.hooks`; a slice is a table, too."""

    def __init__(self, found: Iterable[HookInfo], model: str) -> None:
        self._found, self._model = tuple(found), model

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, index: int) -> HookInfo: ...
    @overload
    def __getitem__(self, index: slice) -> HookTable: ...
    def __getitem__(self, index: int | slice) -> HookInfo | HookTable:
        found = self._found[index]
        return HookTable(found, self._model) if isinstance(found, tuple) else found

    @property
    def repeated(self) -> HookTable:
        """The hooks whose function is registered several times on one module or tensor."""
        return HookTable([hook for hook in self if hook.repeated], self._model)

    @property
    def removable(self) -> HookTable:
        """The hooks that ``hookviz.remove_hooks(model)`` removes."""
        return HookTable([hook for hook in self if hook.removable], self._model)

    def records(self) -> list[dict[str, Any]]:
        """Return a flat dict for every hook: ``pandas.DataFrame(hooks.records())``.

        Returns
        -------
        list of dict
            With the keys layer, type, kind, function, file, line, origin, why, times, key,
            removable, repeated.
        """
        return [hook.record() for hook in self]

    @property
    def title(self) -> str:
        """The number of hooks, and of those that are registered several times."""
        names = some(hook.function for hook in self.repeated)
        twice = f"; several times: {names}. Was a cell run twice?" if names else ""
        return f"{_count(self).capitalize()} on {self._model}{twice}"

    def _title(self) -> str:
        return self.title

    def _as_table(self) -> tuple[Row, Sequence[Row], Sequence[str]]:
        return _HEADER, _rows(self), ()


class RemovedHooks(HookTable):
    """The hooks that `hookviz.remove_hooks` removed from a model.

    Attributes
    ----------
    left : HookTable
        The hooks that remain; their ``why`` gives the reason.
    """

    def __init__(self, found: Iterable[HookInfo], model: str, left: HookTable) -> None:
        super().__init__(found, model)
        self.left = left

    @property
    def title(self) -> str:
        """The numbers of removed and of remaining hooks."""
        return f"Removed {_count(self)} from {self._model}; {_count(self.left)} left"

    @for_terminal
    def __repr__(self) -> str:
        left = "\n\n" + text_table("Left:", _HEADER, _rows(self.left)) if self.left else ""
        return super().__repr__() + left

    def _repr_html_(self) -> str:
        left = html_table("Left", _HEADER, _rows(self.left)) if self.left else ""
        return super()._repr_html_() + left


# Finding


def _found(model: nn.Module) -> list[tuple[HookInfo, HookFunction, HookLocation]]:
    standing = [
        (place, key, hook_function(hook))
        for place in places(model)
        for key, hook in list(place.hooks.items())
    ]
    times = Counter((place, function.key) for place, _, function in standing)
    classes = {kind for each in model.modules() for kind in type(each).__mro__}
    found = []
    for place, key, function in standing:
        ours = function.origin in ("torch", "hookviz")
        hook = HookInfo(
            *(place.name, place.type, place.kind, function.name, function.file, function.line),
            *(function.origin, _why(place, function, classes)),
            times=0 if ours else times[place, function.key],
            key=key,
        )
        found.append((hook, function, place))
    return found


def _why(place: HookLocation, function: HookFunction, classes: set[type]) -> str:
    """Return why a hook stays unless it is named; empty if it does not."""
    if function.origin == "torch":
        return "torch needs it"
    if function.origin == "hookviz":
        return "does nothing after its block"
    if place.kind.startswith(GLOBAL):
        return "is on all models"
    for kind in classes:
        by_class = function.name.startswith(f"{kind.__qualname__}.")
        own = by_class and function.module == kind.__module__
        if own or kind.__module__.partition(".")[0] == function.origin:
            return "the model's own"
    return ""


# Choosing


def _checked_kinds(kinds: str | Iterable[str] | None) -> list[str]:
    named = [kinds] if isinstance(kinds, str) else list(kinds or ())
    for kind in named:
        if kind not in (*KINDS, "global"):
            raise ValueError(
                f"kinds={kind!r} is not a kind of hook; the kinds are: {', '.join(KINDS)}; and "
                "global for all global kinds."
            )
    return named


def _is_named(of: Any, hook: HookInfo, function: HookFunction) -> bool:
    """Return True if one of ``of`` names the hook."""
    if isinstance(of, str):
        return of in (hook.origin, hook.function, hook.function.rpartition(".")[2])
    if isinstance(of, HookInfo):
        return (hook.layer, hook.kind, hook.key) == (of.layer, of.kind, of.key)
    if callable(of):
        return function.key == hook_function(of).key
    if isinstance(of, Iterable):
        return any(_is_named(each, hook, function) for each in of)
    raise TypeError(
        f"of={of!r} does not name a hook: give the function that was set, its name, who made "
        "it ('user', 'captum'), or a hook of hookviz.hooks(model)."
    )


# Tables: one row for all hooks with the same function, kind and note

_HEADER = ("hook", "function", "on", "origin", "defined in", "note")


def _count(found: Sequence[HookInfo]) -> str:
    return f"{len(found) or 'no'} hook{'s' * (len(found) != 1)}"


def _rows(found: Iterable[HookInfo]) -> list[tuple[str, ...]]:
    alike: dict[tuple[str, ...], list[HookInfo]] = {}
    for hook in found:
        times = f"registered {hook.times} times" if hook.repeated else ""
        note = ", ".join(filter(None, (times, hook.why)))
        alike.setdefault((hook.kind, hook.function, hook.origin, note), []).append(hook)
    return [
        (
            kind,
            function.rpartition("<locals>.")[2],
            some(hook.name for hook in row),
            origin,
            some(filter(None, (hook.where for hook in row)), 2),
            note,
        )
        for (kind, function, origin, note), row in alike.items()
    ]
