"""The hooks of a recorded step: they sum up the layers' outputs, and the gradients that arrive."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...hooking.checkpoint import FORWARD, Reruns, current_backward
from ...hooking.handles import Hook, HookManager
from ...hooking.maps import PatchGrid, channel_dimension
from ...hooking.select import unwrapped
from ...hooking.tensors import tensors_in
from ...hooking.transforms import TRANSFORMS, TransformError, is_wrapped, refuse_transforms
from ...run.errors import first_sentence
from .summary import Summaries, TensorSums, merged, sums_of
from .weights import Weights


class Row(NamedTuple):
    """One tensor that a layer returns in one run of the model."""

    layer: str  #: the module's name, ``""`` for the model itself
    call: int = 0  #: which call of the layer within a run of the model, from 0
    path: str = ""  #: the tensor's path in the output, such as ``"[0]"``


class RecordedRun(NamedTuple):
    """One call of a layer, which checkpointing may run again in backward."""

    rows: list[tuple[Row, int | None, TensorSums]]  #: with the dimension of the channels
    watched: bool  #: True if a gradient can reach its outputs


class StepRecorder(HookManager):
    """A block around one step.

    Several runs of the model within the block, as in gradient accumulation, are merged.

    Parameters
    ----------
    model : torch.nn.Module
        As the user passed it, perhaps in a wrapper.
    layers : mapping of str to torch.nn.Module
    weights : bool
        If True, record the layers' weights, too.
    scale : float
        Gradients are divided by it.
    before : mapping of int to int, optional
        As of `Weights`.
    """

    follows = TRANSFORMS  # a refusal would stop the training

    def __init__(
        self,
        model: nn.Module,
        layers: Mapping[str, nn.Module],
        *,
        weights: bool = True,
        scale: float = 1.0,
        before: Mapping[int, int] | None = None,
    ) -> None:
        self.weights = Weights(layers if weights else {}, before)
        self.left_out: dict[str, str] = {}
        self.scale = scale
        # The sums of activations and of gradients, of each run of the model.
        self._seen: dict[Row, tuple[list[TensorSums], list[TensorSums]]] = {}
        self._calls: Counter[tuple[int, str]] = Counter()
        self._ran: dict[str, list[RecordedRun]] = {}
        self._reruns: Reruns[RecordedRun] = Reruns()
        self._grid = PatchGrid()
        hooks: list[Hook] = [(unwrapped(model)[0], "forward_pre", self._begins)]
        hooks += self._grid.hooks(model)
        hooks += [(m, "forward", partial(self._after, name)) for name, m in layers.items()]
        super().__init__([*hooks, *self.weights.hooks()])

    def _begin(self) -> None:
        self.weights.begin()
        super()._begin()

    # The hooks

    def _begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if current_backward() == FORWARD:
            here = threading.get_ident()  # DataParallel has a thread for each part of the batch
            for key in [key for key in self._calls if key[0] == here]:
                del self._calls[key]

    def _after(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        try:
            refuse_transforms()
            if current_backward() == FORWARD:
                self._take(name, module, output)
            else:
                self._take_again(name, output)
        except TransformError as error:
            self.left_out[name] = first_sentence(error).rstrip(".")
        except Exception as error:  # errors while recording must not stop the training
            self.left_out[name] = f"{type(error).__name__}: {first_sentence(error)}"

    def _take(self, name: str, module: nn.Module, output: Any) -> None:
        here = (threading.get_ident(), name)
        call = self._calls[here]
        self._calls[here] += 1
        found = _plain(output)
        rows = []
        for path, tensor in found:
            channel, row = self._channel(module, tensor), Row(name, call, path)
            sums = sums_of(tensor, channel)
            self._seen.setdefault(row, ([], []))[0].append(sums)
            rows.append((row, channel, sums))
            self._watch(tensor, row, channel)
        self._ran.setdefault(name, []).append(RecordedRun(rows, _asks(found)))

    def _take_again(self, name: str, output: Any) -> None:
        """Watch the gradient of a layer that checkpointing runs again: only now it has a graph."""
        found = _plain(output)
        waiting = [ran for ran in self._ran.get(name, ()) if not ran.watched]

        def same(ran: RecordedRun) -> bool:
            return all(
                torch.allclose(sums_of(tensor, channel).numbers, sums.numbers, 0, 0, equal_nan=True)
                for (_, tensor), (_, channel, sums) in zip(found, ran.rows, strict=True)
            )

        ran = self._reruns.first(waiting, same)
        if ran is not None and _asks(found):
            for (_, tensor), (row, channel, _) in zip(found, ran.rows, strict=False):
                self._watch(tensor, row, channel)

    def _channel(self, module: nn.Module, tensor: Tensor) -> int | None:
        if tensor.ndim < 2:
            return None
        return channel_dimension(tensor, module, self._grid.of(tensor.shape)) % tensor.ndim

    def _watch(self, tensor: Tensor, row: Row, channel: int | None) -> None:
        if tensor.requires_grad:
            self.add(tensor, "tensor", partial(self._arrived, row, channel))

    def _arrived(self, row: Row, channel: int | None, gradient: Tensor | None) -> None:
        if gradient is not None and _has_numbers(gradient):
            try:
                self._seen[row][1].append(sums_of(gradient, channel))
            except Exception as error:
                self.left_out[row.layer] = f"{type(error).__name__}: {first_sentence(error)}"

    # After the block

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows in the order in which they were seen."""
        return tuple(self._seen)

    @property
    def has_graph(self) -> bool:
        """True if a gradient could reach any output."""
        return any(run.watched for runs in self._ran.values() for run in runs)

    def summaries(self) -> Summaries:
        """Return the summaries of each row: of its activations, then of its gradients."""
        sides = [side for row in self._seen.values() for side in row]
        return merged(sides, [1.0, self.scale] * len(self._seen))

    def norms(self) -> dict[str, tuple[float, float]]:
        """Return the norms of each layer's weights and of their gradients."""
        return {name: (size, slope / self.scale) for name, size, slope in self.weights.norms()}


def _plain(output: Any) -> list[tuple[str, Tensor]]:
    return [(path, tensor) for path, tensor in tensors_in(output) if _has_numbers(tensor)]


def _has_numbers(tensor: Tensor) -> bool:
    """Return True if the tensor holds numbers, all of them in this process."""
    if not (tensor.is_floating_point() or tensor.is_complex() or tensor.is_quantized):
        return False
    strided = tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_nested
    whole = type(tensor) is Tensor or not hasattr(tensor, "to_local")
    return strided and whole and not is_wrapped(tensor) and tensor.numel() > 0


def _asks(found: list[tuple[str, Tensor]]) -> bool:
    return any(tensor.requires_grad for _, tensor in found)
