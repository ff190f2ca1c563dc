"""Selection of modules: patterns, types and predicates become names and modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import lru_cache
from inspect import signature
from typing import Any

import torch
from torch import nn

CONVOLUTIONS: tuple[type[nn.Module], ...] = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
"""The types that ``layers=None`` selects; lazy, parametrized and user-made convolutions are
subclasses. `is_convolution` also finds quantized ones."""

_CONVOLUTION_NAMES = {kind.__name__ for kind in CONVOLUTIONS}

_WRAPPED = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
"""Attributes under which wrappers hold a module: torch.compile's, FSDP's, checkpointing's."""

PACKED = frozenset({"_packed_params", "_all_weight_values"})
"""Attributes under which a quantized layer holds its weights, in modules that never run."""

Predicate = Callable[[str, nn.Module], bool]
Layers = (
    None
    | type[nn.Module]
    | tuple[type[nn.Module], ...]
    | str
    | nn.Module
    | Sequence[str | nn.Module]
    | Predicate
)


def check_model(model: nn.Module) -> None:
    """Raise ``TypeError`` if the model is not a module with a ``forward``, or has no layers.

    A program of TorchScript or torch.export has none: it runs operations, not modules.
    """
    check_module(model)
    core = unwrapped(model)[0]
    if isinstance(core, torch.jit.ScriptModule):
        raise TypeError(
            f"The model is a ScriptModule ({type_name(core)}), which runs outside Python and "
            "cannot be hooked: pass the eager model that was scripted."
        )
    if isinstance(core, torch.fx.GraphModule) and not any(map(_is_layer, core.modules())):
        raise TypeError(
            "The layers of this graph (of torch.export, say) are functions, not modules that "
            "could be hooked: take the model that it was made from."
        )


def _is_layer(module: nn.Module) -> bool:
    """Return whether a graph's module computes anything; torch.export leaves empty modules."""
    of_export = type(module).__module__.startswith("torch.export")
    return not (type(module) is nn.Module or isinstance(module, torch.fx.GraphModule) or of_export)


def check_module(model: nn.Module) -> None:
    """Raise ``TypeError`` if the model is not a module with a ``forward``."""
    name, inner = type_name(model), getattr(model, "model", None)
    without_forward = not isinstance(model, nn.Module) or (
        not isinstance(model, torch.jit.ScriptModule)
        and type(model).forward is nn.Module.forward
        and "forward" not in vars(model)
    )
    if without_forward and isinstance(inner, nn.Module):
        raise TypeError(
            f"{name} wraps a network and has no forward of its own: pass its .model, a "
            f"{type_name(inner)}."
        )
    if name == "ExportedProgram":
        raise TypeError(
            "The model is an ExportedProgram, whose layers are functions, not modules that could "
            "be hooked: take the model that it was made from."
        )
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"The model must be a torch.nn.Module, not {name}: pass the model itself, not its "
            "class, a function that builds it, its weights or its output."
        )


def is_convolution(module: nn.Module) -> bool:
    """Return whether the module is a convolution, quantized ones included."""
    kind: Any = type(module)
    return _convolves(kind)


@lru_cache(maxsize=256)
def _convolves(kind: type) -> bool:
    # Quantized convolutions are not subclasses, and their package is not imported here.
    return issubclass(kind, CONVOLUTIONS) or any(
        base.__name__ in _CONVOLUTION_NAMES and base.__module__.startswith("torch.ao.nn.quantized")
        for base in kind.__mro__
    )


def first_convolution(model: nn.Module) -> nn.Module | None:
    """Return the convolution that is defined first; None if the model has none."""
    # A ScriptModule may list anything as a module.
    modules = (module for module in model.modules() if isinstance(module, nn.Module))
    return next(filter(is_convolution, modules), None)


def dimensions(convolution: nn.Module) -> int:
    """Return the number of spatial dimensions of a convolution."""
    return len(convolution.kernel_size)  # type: ignore[arg-type]


def _is_scripted_convolution(module: nn.Module) -> bool:
    scripted = isinstance(module, torch.jit.ScriptModule)
    return scripted and type_name(module) in _CONVOLUTION_NAMES


def type_name(module: nn.Module) -> str:
    r"""Return the class's name; for a ScriptModule that of the class that was scripted.

    Control characters are escaped, as `repr` does it: the name may be part of an error's message.

    >>> type_name(type("Net\x1b[31m", (nn.Module,), {})())
    'Net\\x1b[31m'
    """
    name = type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        name = str(getattr(module, "original_name", name))
    if name.isprintable():
        return name
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in name)


def select_layers(model: nn.Module, layers: Layers = None) -> dict[nn.Module, list[str]]:
    """Find the modules that ``layers`` selects, in the model's order, each with its names.

    ``layers`` is None for every convolution; a module type or a tuple of types; a glob pattern or a
    list of them over the names (``"layer1.*.conv?"``; ``*`` also matches dots); a module or a list
    of modules; or a predicate ``(name, module) -> bool``. A module with several names is called by
    the first one. Names are those of the model inside ``DataParallel``,
    ``DistributedDataParallel`` or ``torch.compile``; the wrapper's longer ones (``module.conv1``)
    work too.

    Raises
    ------
    TypeError
        The model is not an ``nn.Module``, the form of ``layers`` is unknown, or a layer
        belongs to a ``ScriptModule``, which cannot be hooked.
    ValueError
        Nothing matches; the message lists similar names.

    Examples
    --------
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sequential(nn.ReLU(), nn.Conv2d(8, 8, 3)))
    >>> [names[0] for names in select_layers(net).values()]
    ['0', '1.1']
    >>> [names[0] for names in select_layers(net, nn.ReLU).values()]
    ['1.0']
    """
    check_model(model)
    chosen = _choose(model, module_names(model), layers)
    refuse_scripted({module: names[0] for module, names in chosen.items()})
    return chosen


def refuse_scripted(layers: Mapping[nn.Module, str]) -> None:
    """Raise ``TypeError`` if a layer belongs to a ``ScriptModule``; the values are names."""
    for module, name in layers.items():
        if isinstance(module, torch.jit.ScriptModule):
            raise TypeError(
                f"Layer {name!r} is a ScriptModule ({type_name(module)}), which runs "
                "outside Python and cannot be hooked: pass the eager model that was scripted, "
                "or leave the layer out with layers=."
            )


def select_layer(model: nn.Module, layer: str | nn.Module) -> tuple[nn.Module, str]:
    """Return the one layer that a name, pattern or module selects, with its first name.

    Raises
    ------
    TypeError, ValueError
        As `select_layers`; or a pattern matches several layers.
    """
    (module, (name, *_)), *more = select_layers(model, [layer]).items()
    if more:
        raise ValueError(f"layer={layer!r} names {len(more) + 1} layers: name one.")
    return module, name


def all_modules(model: nn.Module) -> list[nn.Module]:
    """List a module and all modules in it, each once, in the order of ``model.modules()``.

    That takes five times as long, for its nested generators.

    >>> all_modules(nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh())))[1:]
    [ReLU(), Sequential(
      (0): Tanh()
    ), Tanh()]
    """
    found: dict[nn.Module, None] = {}
    waiting: list[Any] = [model]
    while waiting:
        module = waiting.pop()
        # A ScriptModule may list anything as a module.
        if module not in found and isinstance(module, nn.Module):
            found[module] = None
            if inner := module._modules:
                waiting += reversed(inner.values())
    return list(found)


def module_names(model: nn.Module) -> dict[nn.Module, list[str]]:
    """Return all modules of ``model`` with all their names, without wrappers."""
    core, wrapper = unwrapped(model)
    names: dict[nn.Module, list[str]] = {}
    _add_names(names, wrapper, "", "", core)
    return names


def _add_names(
    names: dict[nn.Module, list[str]], wrapper: str, name: str, plain: str, module: Any
) -> None:
    """Add the names of a module and of those in it; ``plain`` is the one without wrappers."""
    if not isinstance(module, nn.Module):  # a ScriptModule's attribute may be anything
        return
    inner = module._modules
    if _WRAPPED.isdisjoint(inner.keys()):  # else the wrapped module has its name
        aliases = names.setdefault(module, [])
        for alias in (plain, name, f"{wrapper}.{name}".strip(".") if wrapper else name):
            if alias not in aliases:
                aliases.append(alias)
    for key, each in inner.items():
        plain_name = plain if key in _WRAPPED else f"{plain}.{key}" if plain else key
        _add_names(names, wrapper, f"{name}.{key}" if name else key, plain_name, each)


def first_names(model: nn.Module) -> dict[nn.Module, str]:
    """Return all modules of ``model`` with their first names, without wrappers."""
    return {module: aliases[0] for module, aliases in module_names(model).items()}


def close_names(name: str, names: Iterable[str], most: int = 6) -> str:
    """Return the end of an error message: similar names, in either case, or the first few.

    ``most`` is how many of them are listed if none is similar.

    >>> close_names("Conv3", ["conv1", "conv2", "fc"])
    "close to it: 'conv2', 'conv1'"
    >>> close_names("Conv3", [])
    'there are none'
    """
    every = [*dict.fromkeys(names)]
    if not every:
        return "there are none"
    names = [name for name in every if name] or every  # "" is the model itself
    by_lower = {each.lower(): each for each in reversed(names)}
    if close := get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5):
        return "close to it: " + ", ".join(repr(by_lower[each]) for each in close)
    tail = f", … ({len(names)} in all)" if len(names) > most else ""
    return "there are: " + ", ".join(map(repr, names[:most])) + tail


def unwrapped(model: nn.Module) -> tuple[nn.Module, str]:
    """Return the model inside all its wrappers, and its path in ``model``.

    Wrappers are ``DataParallel``, ``DistributedDataParallel`` and the result of ``torch.compile``.

    >>> unwrapped(nn.DataParallel(nn.ReLU()))
    (ReLU(), 'module')
    """
    path: list[str] = []
    while True:
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            path.append("module")
        # The result of torch.compile. Its class is not imported: that alone takes a second.
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            path.append("_orig_mod")
        else:
            return model, ".".join(path)
        model = getattr(model, path[-1])


def unseen_layers(model: nn.Module) -> str:
    """Return a sentence that names the layers similar to a convolution; empty if none.

    These are layers of other classes with a kernel (``DeformConv2d``), and layers that add a tensor
    to the output of an inner convolution (LoRA, whose sum no convolution returns).

    Examples
    --------
    >>> class Own(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.weight = nn.Parameter(torch.ones(1, 1, 3, 3))
    >>> unseen_layers(nn.Sequential(nn.Conv2d(1, 1, 1), Own()))
    "1 layer like a convolution is not among them: layers=['1']"
    """
    if not any(map(_is_convolution_like, all_modules(model))):
        return ""
    names = {m: name for m, name in first_names(model).items() if _is_convolution_like(m)}
    kinds = {type(module) for module in names}
    layers = f"layers={list(names.values())!r}"
    if len(names) > 3 and len(kinds) == 1:
        layers = f"layers=type(model.get_submodule({next(iter(names.values()))!r}))"
    several = len(names) != 1
    return (
        f"{len(names)} layer{'s' * several} like a convolution {'are' if several else 'is'} not "
        f"among them: {layers}"
    )


def _is_convolution_like(module: nn.Module) -> bool:
    if is_convolution(module) or isinstance(module, torch.jit.ScriptModule):
        return False
    weight, inner = module._parameters.get("weight"), getattr(module, "base_layer", None)
    has_kernel = weight is not None and 3 <= weight.ndim <= 5
    return has_kernel or (isinstance(inner, nn.Module) and is_convolution(inner))


def _choose(
    model: nn.Module, names: dict[nn.Module, list[str]], layers: Layers
) -> dict[nn.Module, list[str]]:
    if layers is None:
        # `select_layers` refuses a scripted one, in a sentence that says why.
        chosen = _where(names, lambda _, m: is_convolution(m) or _is_scripted_convolution(m))
        if not chosen:
            raise ValueError(
                f"{type_name(model)} has no convolution layers; choose others with layers=, "
                f"for example {unseen_layers(model).rpartition(': ')[2] or _example(names)}."
            )
        return chosen
    if isinstance(layers, (str, nn.Module)):
        layers = [layers]
    kinds: tuple[Any, ...] = layers if isinstance(layers, tuple) else (layers,)
    if kinds and all(isinstance(entry, type) for entry in kinds):
        what = f"of type {' or '.join(kind.__name__ for kind in kinds)}"
        chosen = _where(names, lambda name, module: isinstance(module, kinds))
    elif callable(layers):
        _check_predicate(layers, model)
        predicate: Any = layers
        what = "for which layers= is true"
        chosen = _where(names, lambda name, module: predicate(name, module))
    elif isinstance(layers, Iterable):
        picked = {module for entry in layers for module in _matching(model, names, entry)}
        what, chosen = "in layers=[]", {m: n for m, n in names.items() if m in picked}
    else:
        raise TypeError(
            f"layers={layers!r} is not a layer name, pattern, module, module type, predicate, or "
            "a list of those."
        )
    if not chosen:
        raise ValueError(
            f"{type_name(model)} has no layer {what}; its layers are of types "
            f"{', '.join(sorted({type_name(module) for module in names}))}."
        )
    return chosen


def _check_predicate(function: Callable[..., Any], model: nn.Module) -> None:
    """Raise ``TypeError`` for a function that is not a predicate, such as ``F.relu``."""
    name = getattr(function, "__name__", repr(function))
    owners = torch, nn.functional, torch.Tensor
    if any(function is getattr(owner, name, None) for owner in owners):
        raise TypeError(
            f"layers={name} is a function, and only modules have hooks: give a module type, such "
            "as torch.nn.ReLU, or a layer's name."
        )
    try:
        signature(function).bind("", model)
    except TypeError:
        raise TypeError(
            f"layers={name} does not take (name, module): give a predicate of these two, a module "
            "type or a layer's name."
        ) from None
    except ValueError:  # a function of C without a signature
        pass


def _where(names: dict[nn.Module, list[str]], test: Predicate) -> dict[nn.Module, list[str]]:
    return {module: aliases for module, aliases in names.items() if test(aliases[0], module)}


def _matching(
    model: nn.Module, names: dict[nn.Module, list[str]], entry: object
) -> list[nn.Module]:
    """Return the modules that one entry of a list, a pattern or a module, selects."""
    if isinstance(entry, nn.Module):
        if entry not in names:
            raise ValueError(
                f"The {type_name(entry)} given in layers= is not part of this "
                f"{type_name(model)}: take it from the model itself, or give its type."
            )
        return [entry]
    if not isinstance(entry, str):
        raise TypeError(
            f"layers= holds {entry!r}, which is neither a name or pattern nor a module: give types "
            "as a tuple, such as layers=(torch.nn.Conv2d, torch.nn.ReLU)."
        )
    # "*" must not select the model itself, whose name is "".
    matching = [
        module
        for module, aliases in names.items()
        if entry in aliases or any(name and fnmatchcase(name, entry) for name in aliases)
    ]
    if not matching:
        near = close_names(entry, [name for aliases in names.values() for name in aliases])
        if entry in map(type_name, names):
            near = "it is a type of layer: give the class itself, not its name"
        raise ValueError(f"No layer of {type_name(model)} is called {entry!r}; {near}.")
    return matching


def _example(names: dict[nn.Module, list[str]]) -> str:
    """Return a layer to suggest: the first one with its own weights."""
    named = {module: aliases[0] for module, aliases in names.items() if aliases[0]}
    weighted = [name for module, name in named.items() if module._parameters]
    name = next(iter(weighted or named.values()), "")
    return f"layers={name!r}" if name else "layers='', which is the model itself"
