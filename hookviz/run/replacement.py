"""Replace samples of the input by noise, to measure which samples a layer's row depends on."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import count

import torch
from torch import Tensor, nn

from ..hooking.maps import channel_dimension
from ..hooking.tensors import map_tensors, tensors
from .operations import BATCH_NORMS, uses_running_statistics
from .recorder import Listener, ModuleCall, Operation, OperationRecorder
from .session import Session

CallKey = tuple[str, int]
"""A layer's name and the number of its call."""

Sample = tuple[int, int]
"""The index of an input tensor, and the index of a sample in it."""


class SampleReplacement:
    """Runs a model again with some of the samples of its input replaced by noise.

    Batch statistics stay fixed: through a BatchNorm in training mode every row depends on every
    sample, but that is not the question here.

    Parameters
    ----------
    session : Session
    layers : container of str
        The layers whose rows are compared.
    """

    def __init__(self, session: Session, layers: Container[str]) -> None:
        self._session, self._layers = session, layers
        self._statistics: dict[int, tuple[Tensor, ...]] = {}
        self._before = self._run({}, 0)

    def changed(self, samples: Sequence[Sample]) -> dict[CallKey, list[bool]]:
        """Return which rows of each call change if some samples become noise, of two kinds.

        Calls whose number of rows changes are missing.
        """
        chosen: dict[int, list[int]] = {}
        for index, sample in samples:
            chosen.setdefault(index, []).append(sample)
        runs = [self._run(chosen, seed) for seed in (1, 2)] if samples else []
        changes = {}
        for key, before in self._before.items():
            after = [run[key] for run in runs if key in run and run[key].shape == before.shape]
            if len(after) == len(runs):
                same = [before == rows for rows in after]
                changes[key] = [not all(one[row] for one in same) for row in range(len(before))]
        return changes

    def _run(self, chosen: Mapping[int, Sequence[int]], seed: int) -> dict[CallKey, Tensor]:
        """Run the model with noise instead of samples; return one number per row of each call."""
        inputs, places = self._session.inputs, count()
        generator = torch.Generator().manual_seed(seed)

        def replaced(tensor: Tensor) -> Tensor:
            samples, tensor = chosen.get(next(places), ()), tensor.detach().clone()
            batch = inputs.batched(tensor)
            for sample in samples:
                low, high = batch[sample].min(), batch[sample].max()
                span = high - low if high > low else torch.ones_like(high)
                noise = torch.rand(batch[sample].shape, generator=generator).to(batch)
                batch[sample] = low + (noise * seed - (seed - 1) / 2) * span
            return tensor

        listener = _RowSums(self._layers, self._statistics, first=not seed)
        with self._session.active(grad=False):
            args, kwargs = map_tensors((inputs.args, inputs.kwargs), replaced)
            with OperationRecorder(listener, model=self._session.model, backward=False):
                self._session.call(*args, **kwargs)
        return listener.sums


def rows_of(tensor: Tensor, module: nn.Module) -> Tensor:
    """Return a layer's output with its samples first; without a batch it is one row."""
    unbatched = tensor.ndim < 2 or channel_dimension(tensor, module) == 0
    return tensor[None] if unbatched else tensor


class _RowSums(Listener):
    """Computes a weighted sum of each row of layers' outputs; keeps batch statistics fixed.

    Attributes
    ----------
    sums : dict of (str, int) to torch.Tensor
        ``(rows,)`` in float64, for each call.
    """

    def __init__(
        self, layers: Container[str], statistics: dict[int, tuple[Tensor, ...]], first: bool
    ) -> None:
        self.sums: dict[CallKey, Tensor] = {}
        self._layers, self._statistics, self._first = layers, statistics, first
        self._norms = count()

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Sum up a layer's output."""
        if call.layer in self._layers and returned and not again:
            rows = rows_of(returned[0].detach(), call.module).flatten(1)
            rows = torch.view_as_real(rows).flatten(1) if rows.is_complex() else rows
            # Random weights, because a plain sum does not change if values are only permuted.
            weights = torch.rand(rows.shape[1], generator=torch.Generator().manual_seed(0))
            # On the CPU, since MPS has no float64.
            finite = rows.cpu().double().nan_to_num(1.23e4)
            self.sums[call.layer, call.call] = finite @ weights.double()

    def before(self, operation: Operation) -> None:
        """Normalize by the statistics of the first run."""
        arguments = operation.argument
        if operation.name not in BATCH_NORMS or uses_running_statistics(operation.name, arguments):
            return
        number, shape = next(self._norms), [1, -1, *[1] * (arguments["input"].ndim - 2)]
        if self._first:
            self._statistics[number] = tuple(map(torch.clone, tensors(operation.run())[1:]))
        if number in self._statistics:
            # Computed here also in the first run, because the operation itself rounds differently.
            mean, spread, *others = self._statistics[number]
            made = (arguments["input"] - mean.view(shape)) * spread.view(shape)
            made = made if arguments["weight"] is None else made * arguments["weight"].view(shape)
            made = made if arguments["bias"] is None else made + arguments["bias"].view(shape)
            operation.replace((made.to(arguments["input"].dtype), mean, spread, *others))
