"""Hooks on, hooks off: copies of every layer's activation and gradient at the moment they arise.

The whole idea is in `Capture._after`: a *forward hook* runs when a layer has
returned and nothing has overwritten its output yet, so the hook copies it at once;
and it sets a *tensor hook* on the output, through which backward passes the gradient.

Why a copy: ``nn.ReLU(inplace=True)`` behind a convolution overwrites the very tensor
that the convolution returned. Why not ``register_full_backward_hook``: it makes that
in-place operation an error. A tensor hook belongs to the value that the tensor had when
the hook was set, whatever is done to the tensor in place later.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .checkpoint import FORWARD, ModuleCallStack, Reruns, current_backward
from .handles import Hook, HookManager
from .maps import PatchGrid
from .records import Call, CapturedTensor, FeatureCache, LayerRecord, TensorStore
from .select import Layers, is_convolution, select_layers, unseen_layers
from .tensors import tensors, tensors_in
from .transforms import FORWARD_MODE, GRAD, is_batched

NamedTensors = list[tuple[str, Tensor]]
"""The tensors in a nested input or output, each with its path."""


def capture(
    model: nn.Module,
    layers: Layers = None,
    *,
    inputs: bool = False,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    max_bytes: int | None = None,
) -> Capture:
    """Store every layer's output, and the gradient that reaches it, within a ``with`` block.

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
        Store the layers' inputs too.
    device, dtype : optional
        Device and type of the copies (``device="cpu"`` for a model on a GPU);
        ``None`` leaves them as the layer returned them. ``dtype`` is for
        floating-point tensors.
    max_bytes : int, optional
        Budget for all copies. Room for a tensor's gradient is reserved with the
        tensor. Beyond the budget only shapes and statistics are stored.

    Returns
    -------
    Capture
        A `FeatureCache`: a mapping, layer name -> `LayerRecord`, and a context manager. The
        hooks are set at the beginning of the block and removed at its end, also after an
        exception; the records remain.

    Raises
    ------
    ValueError
        Nothing matches ``layers``, ``max_bytes`` is negative, ``device`` is unavailable, or
        ``dtype`` is not a floating-point type.
    TypeError
        The model is not a module, or a layer is part of a ``ScriptModule``.

    Warns
    -----
    RuntimeWarning
        Once, at the end, naming the layers that went over ``max_bytes``.

    Notes
    -----
    Backward must run within the block: ``backward()`` or ``torch.autograd.grad``, as often
    as you like; the latest gradient counts. A layer that activation checkpointing runs again
    during backward does not count as a second call.

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
    return Capture(model, layers, TensorStore(device, dtype, max_bytes), inputs=inputs)


class Capture(HookManager, FeatureCache):
    """A `FeatureCache` that fills itself while its hooks are on; `capture` makes it.

    Parameters
    ----------
    model, layers, inputs
        As for `capture`.
    store : TensorStore
        Copies the tensors.
    on_progress : callable, optional
        Called each time a layer has run or a gradient has arrived.
    """

    # Tensors can be unwrapped within these; no gradient reaches the tensors of torch.func.jvp.
    follows = frozenset((GRAD, FORWARD_MODE))

    def __init__(
        self,
        model: nn.Module,
        layers: Layers,
        store: TensorStore,
        *,
        inputs: bool = False,
        on_progress: Callable[[], object] = lambda: None,
    ) -> None:
        chosen = select_layers(model, layers)
        records = [LayerRecord(names[0], m, tuple(names[1:])) for m, names in chosen.items()]
        unseen = unseen_layers(model) if layers is None else ""
        FeatureCache.__init__(self, records, unseen=unseen)
        self._grid = PatchGrid()
        HookManager.__init__(self, self._wanted(model, inputs))
        self._store, self._on_progress = store, on_progress
        self._running: ModuleCallStack[tuple[CapturedTensor, ...]] = ModuleCallStack()
        self._reruns: Reruns[tuple[CapturedTensor, ...]] = Reruns()

    def _wanted(self, model: nn.Module, inputs: bool) -> list[Hook]:
        # The patch grid is needed for a transformer's tokens, not for a convolution's maps.
        convolved = all(is_convolution(record.module) for record in self._hooked)
        hooks = [] if convolved else self._grid.hooks(model)
        for record in self._hooked:
            before, after = partial(self._before, record), partial(self._after, record)
            hooks += [(record.module, "forward_pre", before)] if inputs else []
            hooks += [(record.module, "forward", after)]
        return hooks

    def _before(self, record: LayerRecord, module: nn.Module, args: Any, kwargs: Any) -> None:
        arguments = [*tensors_in(args), *tensors_in(kwargs)]
        copies = () if self._again(record, "inputs", arguments) else self._take(record, arguments)
        self._running.begin(module, copies)

    def _after(
        self, record: LayerRecord, module: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        returned, inputs = list(tensors_in(output)), self._running.end(module) or ()
        if self._again(record, "outputs", returned):
            return
        outputs = self._take(record, returned)
        for (_, tensor), copy in zip(returned, outputs, strict=True):
            self._hook_base(tensor, copy, (args, kwargs))
        grid = self._grid.of(outputs[0].shape) if outputs else None
        record.calls.append(Call(outputs, inputs, record.name, record.module, grid))
        self._ran.setdefault(record.name, record)
        self._on_progress()

    def _take(self, record: LayerRecord, named: NamedTensors) -> tuple[CapturedTensor, ...]:
        """Copy the present values of the tensors, and hook their gradients."""
        copies = tuple(self._store.store(record.name, path, tensor) for path, tensor in named)
        for (_, tensor), copy in zip(named, copies, strict=True):
            self._hook_gradient(tensor, copy, FORWARD)
        return copies

    def _hook_gradient(self, tensor: Tensor, copy: CapturedTensor, task: int) -> None:
        if tensor.requires_grad:
            copy.hooked_in_task = task
            self.add(tensor, "tensor", partial(self._arrived, copy))

    def _arrived(self, copy: CapturedTensor, gradient: Tensor | None) -> None:
        # An autograd.Function's backward may return None, and jacrev's gradient is a batch.
        if gradient is not None and not is_batched(gradient):
            self._store.store_gradient(copy, gradient)
            self._on_progress()

    def _begin(self) -> None:
        self.exit_stack.push(self._warn)
        super()._begin()

    def _warn(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None and (over_budget := self.over_budget):
            warnings.warn(
                f"{len(over_budget)} of {len(self)} layers went over max_bytes="
                f"{self._store.max_bytes} and were kept as statistics only: "
                f"{', '.join(over_budget)}.",
                RuntimeWarning,
                stacklevel=5,
            )

    def data(self) -> FeatureCache:
        """Return the records without the hooks, as a plain `FeatureCache`."""
        return FeatureCache(self._hooked, self._ran, self.unseen)

    def forget_gradients(self) -> None:
        """Remove all gradients, before another backward that may not reach all layers."""
        for record in self._ran.values():
            for call in record.calls:
                for tensor in (*call.inputs, *call.outputs):
                    tensor.keep_gradient(None)

    # Less simple: checkpointing, views

    def _again(self, record: LayerRecord, side: str, named: NamedTensors) -> bool:
        """Return whether a layer runs only because backward recomputes a checkpointed block.

        Then nothing is stored. But if the first run had no graph (reentrant checkpointing), the
        gradient reaches the tensors of this run, so they are hooked.
        """
        task = current_backward()
        if task == FORWARD or not record.calls:
            return False
        sides = [getattr(call, side) for call in record.calls]
        waiting = [s for s in sides if not any(t.hooked_in_task in (FORWARD, task) for t in s)]
        same = partial(self._store.are, [tensor for _, tensor in named])
        first = self._reruns.first(waiting, same)
        for (_, tensor), copy in zip(named, first or (), strict=False):
            self._hook_gradient(tensor, copy, task)
        return True

    def _hook_base(self, tensor: Tensor, copy: CapturedTensor, arguments: Any) -> None:
        """Set a hook on the base tensor of a view that a layer returned.

        An unbatched convolution returns a view, for example. Overwriting a view in place removes
        the view's own hook from the graph: then only the base gets the gradient. If the base is an
        input of the layer (as of a Flatten), it has other uses too, and its gradient is not the
        layer's: then no hook is set, since no gradient is better than a wrong one.
        """
        base = tensor._base if tensor.requires_grad else None
        # With torch 2.4, a reentrant checkpoint detaches the base.
        if base is None or not base.requires_grad:
            return
        if any(base is t or base is t._base for t in tensors(arguments)):
            return
        node = tensor.grad_fn
        layout = tensor.size(), tensor.stride(), tensor.storage_offset() - base.storage_offset()
        size, stride = base.size(), base.stride()

        def arrived(gradient: Tensor | None) -> None:
            # If the view was not overwritten, its own hook gets the gradient.
            if gradient is None or tensor.grad_fn is node:
                return
            laid_out = torch.empty_strided(
                size, stride, dtype=gradient.dtype, device=gradient.device
            ).copy_(gradient)
            self._arrived(copy, laid_out.as_strided(*layout))

        self.add(base, "tensor", arrived)
