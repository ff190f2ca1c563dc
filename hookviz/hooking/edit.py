"""Replace a layer's output or gradient inside a ``with`` block: hooks that return a tensor.

A forward hook may return a tensor that replaces the layer's output, and a tensor hook a gradient
that replaces the one that arrived. `Edit` does no more than that; `changes.py` computes the new
tensor.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from ..tables import Tabular, counted, plain, some
from .arguments import whole_number
from .changes import (
    Change,
    Channels,
    ShapeError,
    Where,
    changed,
    check_change,
    select_channels,
    select_positions,
)
from .checkpoint import FORWARD, Reruns, current_backward
from .handles import HookManager
from .maps import PatchGrid, as_maps, channel_dimension
from .select import Layers, close_names, first_convolution, module_names, select_layers, unwrapped
from .tensors import map_tensors, tensors_in
from .transforms import TRANSFORMS


def edit(
    model: nn.Module,
    layers: Layers,
    change: Change,
    *,
    channels: Channels = None,
    where: Where = None,
    gradient: bool = False,
    call: int | None = None,
    output: str | None = None,
) -> Edit:
    """Change what layers return, or the gradients that reach them, within a ``with`` block.

    Parameters
    ----------
    model : torch.nn.Module
        As for `hookviz.capture`.
    layers
        As for `hookviz.capture`; or ``"input"``, the model's own input: its first floating-point
        tensor, or by its path, ``"input[1]"``, ``"input['mask']"``.
        With ``gradient=True`` also names and patterns of parameters (``"*.bias"``), whose gradient
        is changed on its way to ``.grad``; a pattern that fits layers means those.
    change : float, torch.Tensor, "mean" or callable
        A number multiplies, 0 is off. A tensor replaces: of the output's shape, or one that
        broadcasts to it, or to the chosen channels. ``"mean"`` puts each channel's own mean in
        its positions. A function gets a copy of the whole tensor and returns the new one, of the
        same shape, or None to leave it.
    channels : int, slice, sequence of int, or bool tensor ``(C,)``, optional
        Which channels change; None is all. For a parameter: indices of its first dimension.
    where : slice or tuple of slices, or bool tensor of the layer's spatial size, optional
        Which positions of the maps, or of the input, change: rows and columns; for a 1d layer
        along its length; for a volume also its depth; for a transformer's tokens, rows and
        columns of its patches.
    gradient : bool
        Change the gradients that reach the outputs, not the outputs.
    call : int, optional
        Which call of a layer that runs several times, counted from 0 within the block.
    output : str, optional
        Which tensor of a layer that returns several, by its path (``"[1]"``, ``"['out']"``); the
        first if left out.

    Returns
    -------
    Edit
        A context manager; its ``count`` is the number of changed tensors. Blocks nest, several
        edits of a layer apply in the order in which they were entered, and a `capture` records
        edited outputs, whichever block began first.

    Raises
    ------
    ValueError
        Unknown layer, parameter, channel or position; a number that is not finite. When the
        layer runs: a replacement whose shape does not fit.
    TypeError
        ``change`` is of another type, or the model is not a module.
    RuntimeError
        When the layer runs: the function raised; the message names layer and function.

    Warns
    -----
    RuntimeWarning
        At the end of a block that changed nothing: the layer did not run, or backward came only
        after the block.

    Notes
    -----
    Zero before a BatchNorm is not "off": it becomes ``bias - weight * mean / sqrt(var + eps)``.
    Change what the norm returns, or use ``"mean"``.

    Examples
    --------
    >>> import torch, hookviz
    >>> model = nn.Sequential(nn.Conv2d(1, 3, 1), nn.ReLU(inplace=True))
    >>> x = torch.ones(1, 1, 2, 2)
    >>> with hookviz.edit(model, "0", 0, channels=[1]) as silenced:
    ...     y = model(x)
    >>> bool((y[:, 1] == 0).all()), silenced.count
    (True, 1)
    >>> with hookviz.edit(model, "input", 0, where=(slice(1), slice(1))):  # occlude a corner
    ...     y = model(x)
    >>> with hookviz.edit(model, "*.weight", lambda g: g.clamp(-1, 1), gradient=True):
    ...     model(x).sum().backward()
    >>> bool(model[0].weight.grad.abs().max() <= 1)
    True
    """
    return Edit(model, layers, change, channels, where, gradient, call, output)


class Edit(Tabular, HookManager):
    """The block that `edit` returns; shown as a table of what it changes.

    Attributes
    ----------
    count : int
        Number of tensors changed since the block began.
    """

    follows = TRANSFORMS
    _header = ("layer", "change")

    def __init__(
        self,
        model: nn.Module,
        layers: Layers,
        change: Change,
        channels: Channels,
        where: Where,
        gradient: bool,
        call: int | None,
        output: str | None,
    ) -> None:
        check_change(change)
        if call is not None:
            whole_number("call", call, 0)
        self.change: Change = change
        self.channels, self.where = channels, where
        self.gradient, self.call, self.output = gradient, call, output
        self.count, self._ran = 0, False
        self._chose_nothing = self._without_graph = False
        self._grid = PatchGrid()
        self._runs: dict[nn.Module, list[Tensor]] = {}
        self._reruns: Reruns[Tensor] = Reruns()
        self._model, _ = unwrapped(model)
        inputs, modules, parameters = _chosen(model, layers, gradient)
        if parameters and where is not None:
            raise ValueError("where= is of feature maps: for parameters, give channels= alone.")
        self.names = [*inputs, *modules.values(), *parameters.values()]
        # The grid also tells tokens from channels in layers without a size, such as dropouts.
        hooks = self._grid.hooks(model) if modules else []
        hooks += [(self._model, "forward_pre", partial(self._before, name)) for name in inputs]
        hooks += [(m, "edit", partial(self._after, name)) for m, name in modules.items()]
        hooks += [(p, "tensor", partial(self._arrived_at, name)) for p, name in parameters.items()]
        super().__init__(hooks)

    @property
    def verdict(self) -> str:
        """The number of changed tensors, in one line."""
        what = "gradients" if self.gradient else "outputs"
        return f"Edit of {what} of {some(self.names)}: {counted(self.count, 'tensor')} changed"

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per layer: ``layer change channels gradient call output``."""
        options = {name: getattr(self, name) for name in ("channels", "gradient", "call", "output")}
        return [
            plain({"layer": name, "change": self._of(name)._what()} | options)
            for name in self.names
        ]

    def _of(self, name: str) -> LayerEdit:
        return LayerEdit(name, self.change, self.channels, self.where)

    def _cells(self) -> list[tuple[str, ...]]:
        return [(name or "(model)", self._of(name).words()) for name in self.names]

    def _before(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> Any:
        old = input_tensor(name, args, kwargs)
        like = first_convolution(module)  # its sizes tell which dimension holds the channels
        # A function of pictures takes a batch, also where the model does not.
        single = channel_dimension(old, like) == 0 and old.ndim > 1
        new = self._replaced(old[None] if single else old, module, like, f"{name!r}")
        if new is None:
            return None
        new = new[0] if single else new
        return map_tensors((args, kwargs), lambda tensor: new if tensor is old else tensor)

    def _after(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        outputs = dict(tensors_in(output))
        path = next(iter(outputs), "") if self.output is None else self.output
        if path not in outputs:
            raise ShapeError(
                f"Layer {name!r} returns no tensor at {path!r}: there are {list(outputs)}."
            )
        old = outputs[path]
        grid = self._grid.of(old.shape)
        new = self._replaced(old, module, module, f"layer {name!r}", grid)
        if new is None:
            return None
        return map_tensors(output, lambda tensor: new if tensor is old else tensor)

    def _replaced(
        self,
        old: Tensor,
        module: nn.Module,
        like: nn.Module | None,
        what: str,
        grid: tuple[int, ...] | None = None,
    ) -> Tensor | None:
        """Return the tensor to use instead of an output or input of a module; None for the old."""
        self._ran |= not self.gradient
        if self.call is not None and self._run(module, old) != self.call:
            return None
        dimension = channel_dimension(old, like, grid)
        mask = self._mask(old, like, dimension, what)
        if not self.gradient:
            new = self._changed(old, mask, dimension, what)
            # A repetition by checkpointing during backward is not counted again.
            self.count += new is not None and current_backward() == FORWARD
            return new
        if not old.requires_grad:
            self._without_graph = True
            return None
        # Overwriting a view in place would remove the view's hook from the graph.
        new = old if old._base is None else old.clone()
        arrived = partial(self._arrived, f"the gradient of {what}", mask, dimension)
        self.add(new, "tensor", arrived)
        return None if new is old else new

    def _arrived(
        self, what: str, mask: Tensor | None, dimension: int, gradient: Tensor | None
    ) -> Tensor | None:
        if gradient is None:
            return None
        self._ran = True
        new = self._changed(gradient, mask, dimension, what)
        self.count += new is not None
        return new

    def _changed(
        self, old: Tensor, mask: Tensor | None, dimension: int, what: str
    ) -> Tensor | None:
        """Return the changed tensor; None if no value is chosen, or the function returned None."""
        if mask is not None and not mask.any():
            self._chose_nothing = True
            return None
        return changed(old, self.change, mask, dimension, what, self.channels)

    def _arrived_at(self, name: str, gradient: Tensor | None) -> Tensor | None:
        mask = None if gradient is None else self._mask(gradient, None, 0, name)
        return self._arrived(f"the gradient of {name!r}", mask, 0, gradient)

    def _mask(
        self, like: Tensor, module: nn.Module | None, dimension: int, what: str
    ) -> Tensor | None:
        """Return a bool tensor, true where values change, that broadcasts; None if all change."""
        if self.channels is None and self.where is None:
            return None
        if self.where is None:
            # One flag per channel, so that results and gradients keep their memory format.
            flags = torch.zeros(like.shape[dimension], dtype=torch.bool, device=like.device)
            select_channels(flags, self.channels, what)
            return flags.view([-1 if d == dimension % like.ndim else 1 for d in range(like.ndim)])
        mask = torch.zeros_like(like, dtype=torch.bool)
        # A view, so that setting values here sets them in the mask.
        maps = as_maps(mask, module, self._grid.of(like.shape))
        positions, channels = maps.new_zeros(maps.shape[2:]), maps.new_zeros(maps.shape[1])
        select_positions(positions, self.where, what)
        select_channels(channels, self.channels, what)
        maps[:, channels] = positions
        return mask

    def _run(self, module: nn.Module, output: Tensor) -> int:
        """Return the number of this call; a rerun by checkpointing has that of the first run."""
        runs = self._runs.setdefault(module, [])
        same = self._reruns.first(
            runs, lambda one: one.shape == output.shape and torch.equal(one, output)
        )
        if same is None:
            runs.append(output.detach().clone())
            return len(runs) - 1
        return next(index for index, one in enumerate(runs) if one is same)

    def _begin(self) -> None:
        self.count, self._ran = 0, False
        self._chose_nothing = self._without_graph = False
        self._runs.clear()
        self.exit_stack.push(self._warn)
        super()._begin()

    def _warn(self, kind: type[BaseException] | None, *error: object) -> None:
        self._runs.clear()
        if kind is not None or self.count or self._chose_nothing:
            return
        why = "it did not run within the block"
        if self._ran:
            why = "the function returned its input unchanged, or call= matched no run"
        elif self._without_graph:
            why = (
                "it needs no gradient: call requires_grad_() on the input or on a weight before it"
            )
        elif self.gradient:
            why = "no gradient arrived: run backward within the block"
        warn_unchanged(self.names, why)


def warn_unchanged(names: Sequence[str], why: str) -> None:
    """Warn that an edit's block has ended and changed nothing."""
    shown = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
    warnings.warn(f"The edit of {shown} changed nothing: {why}.", RuntimeWarning, stacklevel=6)


@dataclass(frozen=True, eq=False)
class LayerEdit:
    """An edit to make in every run; ``str`` describes it.

    Attributes
    ----------
    layer, change, channels, where
        As for `edit`.

    Examples
    --------
    >>> print(LayerEdit("layer4.1.conv2", 0, 17))
    layer4.1.conv2, channel 17: off
    >>> print(LayerEdit("conv1", "mean"))
    conv1, all channels: its mean
    >>> print(LayerEdit("conv1", 0.5, slice(2, 5)))
    conv1, channels 2:5: × 0.5
    """

    layer: str
    change: Change = 0
    channels: Channels = None
    where: Where = None

    @property
    def of_input(self) -> bool:
        """True if it changes the model's input instead of a layer."""
        return is_input(self.layer)

    def changed_modules(self, model: nn.Module) -> Iterable[nn.Module]:
        """Return the modules before whose first result it changes nothing."""
        return model.modules() if self.of_input else [model.get_submodule(self.layer)]

    def block(self, model: nn.Module) -> HookManager:
        """Return the ``with`` block that makes this edit."""
        return edit(model, self.layer, self.change, channels=self.channels, where=self.where)

    def merged(self, later: LayerEdit) -> LayerEdit | None:
        """Return one edit that does what this one and the next one do; None if they stay two."""
        return None

    @property
    def factor(self) -> float | None:
        """The number that it multiplies by; None for other changes."""
        return float(self.change) if isinstance(self.change, (int, float)) else None

    @property
    def multiplied(self) -> list[int]:
        """The channels that it multiplies, at all positions; empty if it does anything else."""
        return self._listed if self.where is None and self.factor is not None else []

    @property
    def _listed(self) -> list[int]:
        """The channels, if they are numbers."""
        chosen = [self.channels] if isinstance(self.channels, int) else self.channels
        return [*chosen] if isinstance(chosen, (list, tuple)) else []

    def __str__(self) -> str:
        return f"{self.layer or '(model)'}, {self.words()}"

    def words(self) -> str:
        """Return what it changes, and how."""
        whose = "all channels" if self.channels is None else f"channels {self.channels}"
        if listed := self._listed:
            whose = f"channel{'s' * (len(listed) > 1)} {some(listed, 2)}"
        elif isinstance(self.channels, slice):
            whose = f"channels {index_words(self.channels)}"
        whose += ", some positions" if self.where is not None else ""
        return f"{whose}: {self._what()}"

    def _what(self) -> str:
        if self.factor is not None:
            return f"× {self.factor:.3g}" if self.factor else "off"
        if isinstance(self.change, str):
            return "its mean"
        if isinstance(self.change, Tensor):
            return "another tensor"
        return getattr(self.change, "__name__", "a function")


def merged(edits: Iterable[LayerEdit]) -> list[LayerEdit]:
    """Return the fewest edits that do the same in a run."""
    found: list[LayerEdit] = []
    for each in edits:
        one = found[-1].merged(each) if found else None
        found[-1:] = [*found[-1:], each] if one is None else [one]
    return found


_INPUT_NAME = re.compile(r"input((?:\[[^\]]+\]|\.\w+)*)$")


def is_input(name: object) -> TypeGuard[str]:
    """Return whether a name stands for an input of the model.

    Examples
    --------
    >>> is_input("input"), is_input("input[0][2]"), is_input("inputs")
    (True, True, False)
    """
    return isinstance(name, str) and _INPUT_NAME.match(name) is not None


def input_tensor(name: str, args: Any, kwargs: Any) -> Tensor:
    """Return the tensor that the name of an input stands for."""
    inputs = {**dict(tensors_in(tuple(args))), **dict(tensors_in(dict(kwargs)))}
    floating = {path: tensor for path, tensor in inputs.items() if tensor.is_floating_point()}
    path = name.removeprefix("input").replace('"', "'")
    if not path and floating:
        return next(iter(floating.values()))
    if path in floating:
        return floating[path]
    names = ", ".join(f"input{path}" for path in floating) or "none"
    raise ShapeError(f"The model's inputs have no floating-point tensor {name!r}; known: {names}.")


def index_words(index: int | slice) -> str:
    """Format an index or slice as in square brackets.

    >>> index_words(slice(2, None)), index_words(slice(None, None, 2))
    ('2:', '::2')
    """
    if isinstance(index, int):
        return str(index)
    ends = ["" if end is None else str(end) for end in (index.start, index.stop, index.step)]
    return ":".join(ends[:2] if index.step is None else ends)


def _chosen(
    model: nn.Module, layers: Any, gradient: bool
) -> tuple[list[str], dict[nn.Module, str], dict[nn.Parameter, str]]:
    """Return the chosen inputs, layers and parameters, the last two with their names."""
    if layers is None:
        raise ValueError("layers= is needed: which layers to change, for example layers='conv1'.")
    several = isinstance(layers, (list, tuple)) and not all(isinstance(e, type) for e in layers)
    inputs: list[str] = []
    modules: dict[nn.Module, str] = {}
    parameters: dict[nn.Parameter, str] = {}
    for entry in layers if several else [layers]:
        if is_input(entry) and not any(entry in names for names in module_names(model).values()):
            inputs.append(entry)
            continue
        try:
            modules |= {m: names[0] for m, names in select_layers(model, entry).items()}
        except ValueError:
            matching = _parameters(model, entry) if gradient and isinstance(entry, str) else {}
            if not matching:
                raise
            parameters |= matching
    return inputs, modules, parameters


def _parameters(model: nn.Module, pattern: str) -> dict[nn.Parameter, str]:
    named = dict(unwrapped(model)[0].named_parameters())
    matching = {
        p: name for name, p in named.items() if name == pattern or fnmatchcase(name, pattern)
    }
    trainable = {p: name for p, name in matching.items() if p.requires_grad}
    if matching and not trainable:
        raise ValueError(
            f"{pattern!r} is frozen and gets no gradient: set requires_grad, or leave it out."
        )
    if not matching:
        every = [name for names in module_names(model).values() for name in names] + list(named)
        raise ValueError(
            f"No layer or parameter is called {pattern!r}; {close_names(pattern, every)}."
        )
    return trainable
