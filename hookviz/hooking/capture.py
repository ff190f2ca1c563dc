"""Hooks on, hooks off: every layer's activation and gradient, as they were at that moment.

The whole idea is in `Capture._after`: a *forward hook* runs when a layer has
returned and nothing has touched its output yet, so it takes a copy there and then;
and it sets a *tensor hook* on the output, through which backward passes the gradient.

Why a copy: ``nn.ReLU(inplace=True)`` behind a convolution overwrites the very tensor
that the convolution returned. Why not ``register_full_backward_hook``: it makes that
in-place operation an error. A tensor hook belongs to the value that the tensor had when
the hook was set, whatever is done to the tensor in place later.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import fields, is_dataclass
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .interrupts import hold, release, unbroken
from .layout import fitting_grid, patching_layer
from .records import Call, CapturedTensor, FeatureCache, LayerRecord, statistics
from .select import CONVOLUTIONS, Layers, select_layers

_FIRST_RUN = -1  # in place of a graph task's number: the layer ran in the forward itself


def capture(
    model: nn.Module,
    layers: Layers = None,
    *,
    inputs: bool = False,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    max_bytes: int | None = None,
) -> Capture:
    """Keep what every layer returns, and the gradient that reaches it, within a ``with`` block.

    Parameters
    ----------
    model : torch.nn.Module
        Eager, or wrapped by ``DataParallel``, ``DistributedDataParallel`` or
        ``torch.compile`` (compiled code runs eagerly within the block).
    layers : optional
        Which layers: ``None`` for every convolution, however deep it is nested; or a
        module type or tuple of types, a glob pattern or list of them over the names of
        ``model.named_modules()``, a module or list of modules, or a predicate
        ``(name, module) -> bool``.
    inputs : bool
        Keep what the layers are given, too.
    device, dtype : optional
        Where and how the copies are kept (``device="cpu"`` for a model on a GPU);
        ``None`` leaves them as the layer returned them. ``dtype`` is for
        floating-point tensors.
    max_bytes : int, optional
        Budget for all copies. Room for a tensor's gradient is set aside with the
        tensor. What would go over it is kept as shape and statistics.

    Returns
    -------
    Capture
        A `FeatureCache`: a mapping, layer name -> `LayerRecord`, and a context manager. The
        hooks go on at the beginning of the block and off at its end, whichever way it ends;
        what was captured stays.

    Raises
    ------
    ValueError
        Nothing matches ``layers``, ``max_bytes`` is negative, or ``device`` is not there.
    TypeError
        The model is no module, or a layer is part of a ``ScriptModule``.

    Warns
    -----
    RuntimeWarning
        Once, at the end, naming the layers that went over ``max_bytes``.

    Notes
    -----
    Backward must run within the block: ``backward()`` or ``torch.autograd.grad``, as often
    as you like; the latest gradient counts. What activation checkpointing runs again during
    backward is not a second call.

    Examples
    --------
    >>> import torch, hookviz
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True))
    >>> with hookviz.capture(model) as cache:
    ...     score = model(torch.ones(1, 3, 5, 5)).sum()
    ...     score.backward()
    >>> cache["0"].activation.shape
    torch.Size([1, 8, 3, 3])
    >>> bool((cache["0"].activation < 0).any())  # from before the in-place ReLU
    True
    >>> bool((cache["0"].gradient[cache["0"].activation < 0] == 0).all())
    True
    """
    if max_bytes is not None and max_bytes < 0:
        raise ValueError(f"max_bytes={max_bytes} is negative: give a number of bytes, or None.")
    if device is not None:
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"device={str(device)!r} cannot be used ({reason}): give 'cpu', or leave it out."
            ) from None
    records = [
        LayerRecord(names[0], module, tuple(names[1:]))
        for module, names in select_layers(model, layers).items()
    ]
    # Only a transformer's tokens, not a convolution's maps, need to know of patches.
    tokens = not all(isinstance(record.module, CONVOLUTIONS) for record in records)
    patching = patching_layer(model) if tokens else None
    return Capture(records, patching, inputs, device, dtype, max_bytes)


class Capture(FeatureCache):
    """A `FeatureCache` that fills itself; `capture` makes it."""

    def __init__(
        self,
        records: list[LayerRecord],
        patching: nn.Module | None,
        inputs: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
        max_bytes: int | None,
    ) -> None:
        super().__init__(records)
        self._inputs, self._device, self._dtype = inputs, device, dtype
        self._max_bytes, self._reserved = max_bytes, 0
        self._patching = patching
        self._grid: tuple[int, ...] | None = None
        self._handles: list[RemovableHandle] = []
        self._around = ExitStack()
        self._held = False

    def __enter__(self) -> Capture:
        if self._handles:
            raise RuntimeError("This capture is on already: make a second one with capture().")
        try:
            self._on()
        except BaseException:
            self._off()
            raise
        return self

    @unbroken
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._off()
        if kind is None and (dropped := self.dropped):
            warnings.warn(
                f"{len(dropped)} of {len(self)} layers went over max_bytes={self._max_bytes} "
                f"and were kept as statistics only: {', '.join(dropped)}.",
                RuntimeWarning,
                stacklevel=3,
            )

    @unbroken
    def _on(self) -> None:
        self._held = hold()  # for an interrupt on the way into __exit__
        self._around.enter_context(eager())  # compiled code would run past the hooks
        if self._patching is not None:
            self._handles.append(self._patching.register_forward_hook(self._note_grid))
        for record in self._hooked:
            self._hook(record)

    @unbroken
    def _off(self) -> None:
        try:
            self._remove_handles()
        finally:
            self._around.close()
            if self._held:
                self._held = False
                release()

    def _remove_handles(self) -> None:
        while self._handles:
            self._handles[-1].remove()
            self._handles.pop()

    def _hook(self, record: LayerRecord) -> None:
        """Set the hooks of one layer."""
        # By thread, for DataParallel, and as a stack, for a layer that calls itself.
        taken: dict[int, list[tuple[CapturedTensor, ...]]] = {}

        @unbroken  # a tensor's hook without its handle would stay
        def before(module: nn.Module, args: Any, kwargs: Any) -> None:
            stack = taken.setdefault(threading.get_ident(), [])
            stack.append(self._before(record, args, kwargs))

        @unbroken
        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            stack = taken.get(threading.get_ident())
            self._after(record, (args, kwargs), output, stack.pop() if stack else ())

        if self._inputs:
            handle = record.module.register_forward_pre_hook(before, with_kwargs=True)
            self._handles.append(handle)
        self._handles.append(record.module.register_forward_hook(after, with_kwargs=True))

    def _note_grid(self, module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            self._grid = tuple(output.shape[2:])

    def _before(self, record: LayerRecord, args: Any, kwargs: Any) -> tuple[CapturedTensor, ...]:
        given = [*tensors_in(args), *tensors_in(kwargs)]
        if self._rerun(record, "inputs", given):
            return ()
        return tuple(self._take(record.name, path, tensor) for path, tensor in given)

    def _after(
        self, record: LayerRecord, given: Any, output: Any, inputs: tuple[CapturedTensor, ...]
    ) -> None:
        returned = list(tensors_in(output))
        if self._rerun(record, "outputs", returned):
            return
        outputs = tuple(self._take(record.name, path, tensor) for path, tensor in returned)
        for (_, tensor), taken in zip(returned, outputs, strict=True):
            self._watch_base(tensor, taken, given)
        grid = fitting_grid(self._grid, outputs[0].shape) if outputs else None
        record.calls.append(Call(outputs, inputs, record.name, record.module, grid))
        self._ran.setdefault(record.name, record)

    def _take(self, name: str, path: str, tensor: Tensor) -> CapturedTensor:
        """Copy a tensor as it is now, and ask for its gradient."""
        size = tensor.numel() * self._kept_as(tensor).itemsize
        needs = size * (1 + tensor.requires_grad)
        taken = CapturedTensor(name, path, tensor.shape, tensor.dtype, needs, self._max_bytes)
        if self._max_bytes is None or self._reserved + needs <= self._max_bytes:
            self._reserved += needs
            taken._value = self._copy(tensor)
        else:
            taken._statistics = statistics(tensor)
        self._watch(tensor, taken, _FIRST_RUN)
        return taken

    def _watch(self, tensor: Tensor, taken: CapturedTensor, task: int) -> None:
        if not tensor.requires_grad:
            return

        taken.watched_in = task
        self._handles.append(tensor.register_hook(lambda gradient: self._arrived(taken, gradient)))

    def _watch_base(self, tensor: Tensor, taken: CapturedTensor, given: Any) -> None:
        """Watch the tensor of which a layer returned a view, as a convolution of one sample does.

        What overwrites a view in place takes the view's own hook out of the graph: then the
        gradient goes to the base alone. A base that the layer was given, as a Flatten is, has
        other uses too, and its gradient is not the layer's: there, none is better than a wrong
        one.
        """
        base = tensor._base if tensor.requires_grad else None
        if base is None or any(base is t or base is t._base for _, t in tensors_in(given)):
            return
        cut = _through_view(tensor, base, lambda gradient: self._arrived(taken, gradient))
        self._handles.append(base.register_hook(cut))

    @unbroken
    def _arrived(self, taken: CapturedTensor, gradient: Tensor) -> None:
        if taken.kept:
            taken._gradient, taken._gradient_statistics = self._copy(gradient), None
        else:
            taken._gradient_statistics = statistics(gradient)

    def _copy(self, tensor: Tensor) -> Tensor:
        # Within inference_mode a copy would be an inference tensor, of little use outside.
        with torch.inference_mode(False):
            kept_as = self._kept_as(tensor)
            if self._device is None and kept_as == tensor.dtype:
                return tensor.detach().clone()  # quantized ones know of no other way
            return tensor.detach().to(self._device, kept_as, copy=True)

    def _kept_as(self, tensor: Tensor) -> torch.dtype:
        return self._dtype if self._dtype and tensor.is_floating_point() else tensor.dtype

    def _rerun(self, record: LayerRecord, side: str, found: list[tuple[str, Tensor]]) -> bool:
        """Whether a layer runs only because backward recomputes a checkpointed block.

        Then nothing is kept. But where the first run was without a graph (reentrant
        checkpointing), it is the tensors of this run that the gradient reaches.
        """
        # The number of the backward that this thread is in, as torch's own checkpointing asks.
        task = torch._C._current_graph_task_id()
        if task == -1 or not record.calls:
            return False
        tensors = [tensor for _, tensor in found]
        call = self._first_run(record.calls, side, tensors, task)
        if call is not None and any(tensor.requires_grad for tensor in tensors):
            for tensor, taken in zip(tensors, getattr(call, side), strict=False):
                self._watch(tensor, taken, task)
        return True

    def _first_run(
        self, calls: list[Call], side: str, tensors: list[Tensor], task: int
    ) -> Call | None:
        """Which call is being run again: of several, the one that gave the same values."""
        waiting = [
            call
            for call in calls
            if not any(t.watched_in in (_FIRST_RUN, task) for t in getattr(call, side))
        ]
        if len(waiting) < 2:
            return waiting[0] if waiting else None
        for call in waiting:
            pairs = list(zip(tensors, getattr(call, side), strict=False))
            if all(t.kept and _same(self._copy(tensor), t.value) for tensor, t in pairs):
                return call
        return waiting[-1]


def tensors_in(value: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Find the tensors in what a layer took or returned: nested tuples, lists, dicts, dataclasses.

    Parameters
    ----------
    value : Any
    path : str
        Put in front of each path.

    Yields
    ------
    path : str
        How to reach the tensor from ``value``, as Python writes it.
    tensor : torch.Tensor

    Examples
    --------
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


def _through_view(
    view: Tensor, base: Tensor, arrived: Callable[[Tensor], None]
) -> Callable[[Tensor], None]:
    """A hook on a view's base that cuts the view's part out of the gradient."""
    node = view.grad_fn
    place = view.size(), view.stride(), view.storage_offset() - base.storage_offset()
    size, stride = base.size(), base.stride()

    def base_arrived(gradient: Tensor) -> None:
        if view.grad_fn is node:  # not overwritten: the view's own hook has it
            return
        laid_out = torch.empty_strided(
            size, stride, dtype=gradient.dtype, device=gradient.device
        ).copy_(gradient)
        arrived(laid_out.as_strided(*place))

    return base_arrived


class _Eager:
    captures = 0
    stance: AbstractContextManager[Any] = nullcontext()

    def __enter__(self) -> None:
        if not _Eager.captures:
            if hasattr(torch.compiler, "set_stance"):
                _Eager.stance = torch.compiler.set_stance("force_eager")
            else:
                _Eager.stance = _frames_as_they_are()
                _Eager.stance.__enter__()
        _Eager.captures += 1

    def __exit__(self, *error: object) -> None:
        _Eager.captures -= 1
        if not _Eager.captures:
            _Eager.stance.__exit__(None, None, None)
            _Eager.stance = nullcontext()


@contextmanager
def _frames_as_they_are() -> Iterator[None]:
    """What ``set_stance("force_eager")`` does, for torch 2.4 and 2.5, which do not have it.

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


def eager() -> AbstractContextManager[Any]:
    """Within the block, what torch.compile has compiled runs as plain Python.

    Blocks may overlap in any order: the first switches, the last one switches back.
    """
    # Nothing is compiled yet where the compiler has not been imported, which takes a second.
    return _Eager() if "torch._dynamo" in sys.modules else nullcontext()


def _same(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and torch.equal(first, second)
