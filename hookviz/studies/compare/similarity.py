"""``hookviz.similarity``: how alike the layers of two models are, over a data set."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...hooking.capture import Capture
from ...hooking.interrupts import Block
from ...hooking.records import TensorStore
from ...hooking.select import Layers, select_layers
from ...hooking.tensors import at_least_float32, tensors
from ...run.inputs import ModelInput, as_the_model_takes
from ...run.progress import Progress
from ...run.session import Session
from ...tables import Tabular, counted, for_terminal, html_table, plain, text_table

_AT_ONCE = 1 << 22  # how many numbers are made double at once


def gram(features: Tensor) -> Tensor:
    """Compute the Gram matrix ``X X^T`` of a batch in double precision, on CPU: ``(N, N)``.

    A complex feature counts as two.

    >>> gram(torch.tensor([[1.0, 2.0], [0.0, 1.0]])).tolist()
    [[5.0, 2.0], [2.0, 1.0]]
    """
    if features.is_complex():
        features = torch.view_as_real(features.resolve_conj())
    rows = features.detach().flatten(1)
    if rows.device.type == "mps":  # no double precision there
        rows = rows.cpu()
    parts = rows.split(max(1, _AT_ONCE // max(1, len(rows))), 1)
    grams = [part.double() @ part.double().T for part in parts]
    return torch.stack(grams).sum(0).cpu()


def unbiased_hsic(k: Tensor, l: Tensor) -> Tensor:  # noqa: E741
    """Estimate HSIC without bias from Gram matrices of the same n ≥ 4 samples.

    With the diagonals of ``K`` and ``L`` set to zero it is ::

        (tr(K L) + sum(K) sum(L) / ((n-1)(n-2)) - 2 sum(K L) / (n-2)) / (n (n-3))

    [1]_. Of stacks ``(A, 1, n, n)`` and ``(B, n, n)`` it is that of each pair, ``(A, B)``.

    References
    ----------
    .. [1] Song et al., *Feature Selection via Dependence Maximization*, JMLR 2012, eq. 5.
    """
    n = k.shape[-1]
    off = 1 - torch.eye(n, dtype=k.dtype)
    k, l = k * off, l * off  # noqa: E741
    trace = (k * l).sum((-2, -1))  # both are symmetric
    sums = k.sum((-2, -1)) * l.sum((-2, -1)) / ((n - 1) * (n - 2))
    crossed = (k.sum(-2) * l.sum(-2)).sum(-1) * 2 / (n - 2)
    return (trace + sums - crossed) / (n * (n - 3))


if TYPE_CHECKING:
    from ...draw.figures import ShownFigure

LEAST = 4
"""Samples that a batch must have: the estimate divides by n − 3."""


@dataclass(frozen=True, eq=False)
class Similarity(Tabular):
    """The similarity of the layers of two models; `hookviz.similarity` measures it.

    Attributes
    ----------
    matrix : torch.Tensor
        Linear CKA ``(A, B)`` in float64: 1 for what is the same but for rotation and scale, about 0
        for what has nothing in common. NaN where ``notes`` say why.
    layers, layers_b : list of str
        The layers' names: its rows and its columns.
    samples : int
        Over how many samples.
    notes : list of str
        What was left out, and why.
    """

    matrix: Tensor
    layers: list[str]
    layers_b: list[str]
    samples: int
    notes: list[str]

    def best(self) -> dict[str, str]:
        """For each layer of a, the layer of b that is most like it; constant ones are left out."""
        known = self.matrix.nan_to_num(-1.0).max(1)
        rows = zip(self.layers, known.values.tolist(), known.indices.tolist(), strict=True)
        return {name: self.layers_b[place] for name, value, place in rows if value > -1}

    def records(self) -> list[dict[str, Any]]:
        """One dict for each pair, with the keys layer, layer_b and cka; None where that is NaN."""
        rows = zip(self.layers, self.matrix.tolist(), strict=True)
        return [
            {"layer": a, "layer_b": b, "cka": plain(value)}
            for a, row in rows
            for b, value in zip(self.layers_b, row, strict=True)
        ]

    def figure(self) -> ShownFigure:
        """Draw the matrix as a heatmap, a's layers from the bottom up; what has no CKA is gray."""
        from ...draw.figures import ShownFigure, name_ticks  # matplotlib

        wide, high = (min(12.0, 2.5 + 0.16 * n) for n in reversed(self.matrix.shape))
        figure = ShownFigure(figsize=(wide + 1, high), layout="tight")
        axes = figure.add_subplot()
        axes.set_facecolor("gray")
        shown = axes.imshow(self.matrix.numpy(), "viridis", vmin=0, vmax=1, origin="lower")
        name_ticks(axes.xaxis, self.layers_b, 60)
        name_ticks(axes.yaxis, self.layers, 60)
        axes.tick_params("x", rotation=90)
        axes.set(xlabel="b", ylabel="a")
        figure.colorbar(shown, ax=axes, label="linear CKA", shrink=0.8)
        return figure

    def _heading(self) -> str:
        return f"Linear CKA over {self.samples:,} samples"

    def _png(self) -> bytes:
        return self.figure()._repr_png_()

    def _title(self) -> str:
        return "; ".join([self._heading(), *self.notes])

    @for_terminal
    def __repr__(self) -> str:
        best = self.best()
        values = self.matrix.nan_to_num(-1.0).amax(1).tolist()
        rows = [
            (name, best.get(name, "–"), f"{value:.3f}" if name in best else "–")
            for name, value in zip(self.layers, values, strict=True)
        ]
        title = f"{self._title()}; figure() shows all pairs"
        return text_table(title, ("layer", "most like", "CKA"), rows)

    def _repr_html_(self) -> str:
        rows = zip(self.layers, self.matrix.tolist(), strict=True)
        cells = [(name, *(f"{value:.3f}" for value in row)) for name, row in rows]
        return html_table(self._title(), ("", *self.layers_b), cells)


def similarity(
    model_a: nn.Module,
    model_b: nn.Module,
    inputs: Iterable[Any],
    layers: Layers = None,
    *,
    layers_b: Layers = None,
) -> Similarity:
    """Measure how similar two models' layers are: linear CKA over a data set, one forward each.

    Parameters
    ----------
    model_a, model_b : torch.nn.Module
        May be the same one. They run in eval mode and are as before afterwards, to the bit.
    inputs : iterable
        A loader or list of batches of at least four samples: tensors ``(N, ...)``, tuples of one
        and labels, or dicts by the names of the models' arguments. A lone tensor or dict is one
        batch. Both models get each batch.
    layers, layers_b : optional
        Which layers, as in `hookviz.capture`; None is every convolution. ``layers_b`` is as
        ``layers`` if left out.

    Returns
    -------
    Similarity

    Raises
    ------
    ValueError
        There is no batch, or none has four samples; a layer ran several times or returned no
        numbers of each sample.
    RuntimeError
        What a model raises, with the layer in which it arose.

    Warns
    -----
    RuntimeWarning
        Batches of fewer than four samples are left out; layers that never vary have no CKA.

    Notes
    -----
    The unbiased estimate of Nguyen et al., eq. 2, ::

        sum HSIC(K, L) / sqrt(sum HSIC(K, K) sum HSIC(L, L))

    whose sums over batches are in float64: it does not depend on the size of the batches. A layer's
    features are all that it returns for a sample.

    References
    ----------
    Nguyen, Raghu and Kornblith, *Do Wide and Deep Networks Learn the Same Things?*, ICLR 2021,
    https://arxiv.org/abs/2010.15327

    Examples
    --------
    >>> import hookviz, torch
    >>> model = hookviz.demo_model()
    >>> batches = list(torch.rand(2, 8, 3, 64, 64))
    >>> found = hookviz.similarity(model, model, batches, "layer?.0")
    >>> [round(value, 3) for value in found.matrix.diagonal().tolist()]
    [1.0, 1.0, 1.0]
    """
    if not hasattr(inputs, "__iter__") and not hasattr(inputs, "__getitem__"):
        raise TypeError(
            f"inputs= of type {type(inputs).__name__} has no batches: give a loader or a list."
        )
    if isinstance(inputs, (Tensor, Mapping)):
        inputs = [inputs]  # a single batch
    sides = [(model_a, layers), (model_b, layers if layers_b is None else layers_b)]
    sessions = [Session(model, ModelInput(())) for model, _ in sides]
    names = [[known[0] for known in select_layers(*side).values()] for side in sides]
    sums = [torch.zeros(())] * 3
    samples = small = 0
    total = len(inputs) if isinstance(inputs, Sized) else 0
    with Progress() as bar, Block(session.active(grad=False) for session in sessions):
        for number, batch in enumerate(inputs):
            a, b = (_grams(*side, batch) for side in zip(sessions, names, strict=True))
            count = a.shape[-1]
            if count < LEAST:
                small += 1
                continue
            parts = unbiased_hsic(a[:, None], b), unbiased_hsic(a, a), unbiased_hsic(b, b)
            sums = [whole + part for whole, part in zip(sums, parts, strict=True)]
            samples += count
            bar.update((number + 1) / total if total else 0.0, f"{samples:,} samples")
    if not samples and not small:
        raise ValueError(
            "inputs= holds no batch: give a loader or a list, or a new generator, since one can be "
            "used only once."
        )
    if not samples:
        raise ValueError(f"No batch has {LEAST} samples, which the unbiased estimate needs.")
    crossed, *own = sums
    notes = []
    if small:
        some = "batches were" if small > 1 else "batch was"
        notes.append(f"{small} {some} of fewer than {LEAST} samples, and left out")
    for session, layer_names, hsic in zip(sessions, names, own, strict=True):
        if never := [name for name, value in zip(layer_names, hsic, strict=True) if value <= 0]:
            notes.append(f"{', '.join(never)} of {session.name} never varied, so they have no CKA")
    for note in notes:
        warnings.warn(f"similarity: {note}.", RuntimeWarning, stacklevel=2)
    norms = [hsic.clamp(min=0).sqrt() for hsic in own]
    matrix = crossed / (norms[0][:, None] * norms[1])
    return Similarity(matrix, names[0], names[1], samples, notes)


class GramStore(TensorStore):
    """Stores the Gram matrix of a tensor's samples in place of the tensor."""

    def copy(self, tensor: Tensor) -> Tensor:
        return gram(at_least_float32(tensor)) if tensor.ndim else tensor


def _grams(session: Session, names: Sequence[str], batch: Any) -> Tensor:
    """Run a model on a batch of n samples; return a matrix for each layer, ``(layers, n, n)``."""
    given = session.inputs = as_the_model_takes(_as_input(batch), session.model)

    def run() -> Capture:
        with Capture(session.given, names, GramStore()) as cache:
            session.call(*given.args, **given.kwargs)
        return cache

    cache = session.observed(run)
    count = next((len(each) for each in tensors(given.args, given.kwargs) if each.ndim), None)
    grams: list[Tensor] = []
    for name in names:
        calls = cache[name].calls if name in cache else []
        if len(calls) != 1:
            times = counted(len(calls), "time")
            raise ValueError(f"Layer {name!r} ran {times} for a batch: {_ADVICE}")
        first = next(iter(calls[0].outputs), None)
        if first is None or not first.shape:
            raise ValueError(f"Layer {name!r} returns no tensor of samples: {_ADVICE}")
        rows = first.shape[0]  # several per sample if the model flattens frames or windows
        if (count and rows % count) or (grams and rows != len(grams[0])):
            raise ValueError(
                f"Layer {name!r} returns {rows} rows for a batch of {count}: give batches of "
                f"samples, such as [x] for one tensor x, or {_ADVICE}"
            )
        grams.append(first.value)
    return torch.stack(grams)


_ADVICE = "leave it out with layers=."


def _as_input(batch: Any) -> ModelInput:
    """Return the first of a tuple, since the others are labels."""
    if isinstance(batch, Mapping):
        return ModelInput((), dict(batch))
    if isinstance(batch, (tuple, list)) and not batch:
        raise ValueError("inputs= holds an empty batch: give tensors (N, …), or tuples of one.")
    return ModelInput((batch[0] if isinstance(batch, (tuple, list)) else batch,))
