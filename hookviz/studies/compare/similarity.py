"""``hookviz.similarity``: how alike the layers of two models are, over a data set."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sized
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...draw.document import TablePage
from ...hooking.handles import HookManager
from ...hooking.select import Layers, select_layers
from ...hooking.tensors import at_least_float32, tensors
from ...run.inputs import ModelInput, as_the_model_takes
from ...run.progress import Progress
from ...run.session import Session
from ...tables import for_terminal, html_table, plain, text_table

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
    from matplotlib.figure import Figure

LEAST = 4
"""Samples that a batch must have: the estimate divides by n − 3."""


@dataclass(frozen=True, eq=False)
class Similarity(TablePage):
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

    def figure(self) -> Figure:
        """Draw the matrix as a heatmap, a's layers from the bottom up; what has no CKA is gray."""
        from ...draw.figures import ShownFigure, layer_label  # matplotlib

        wide, high = (min(12.0, 2.5 + 0.16 * n) for n in reversed(self.matrix.shape))
        figure = ShownFigure(figsize=(wide + 1, high), layout="tight")
        axes = figure.add_subplot()
        axes.set_facecolor("gray")
        shown = axes.imshow(self.matrix.numpy(), "viridis", vmin=0, vmax=1, origin="lower")
        for names, axis in ((self.layers_b, axes.xaxis), (self.layers, axes.yaxis)):
            step = math.ceil(len(names) / 60)
            ticks = range(0, len(names), step)
            axis.set_ticks(ticks, [*map(layer_label, names[::step])], fontsize="xx-small")
        axes.tick_params("x", rotation=90)
        axes.set(xlabel="b", ylabel="a")
        figure.colorbar(shown, ax=axes, label="linear CKA", shrink=0.8)
        return figure

    def _heading(self) -> str:
        return f"Linear CKA over {self.samples:,} samples"

    def _png(self) -> bytes:
        from ...draw.figures import small_png  # matplotlib

        return small_png(self.figure())

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
        and labels, or dicts by the names of the models' arguments. Both models get each batch.
    layers, layers_b : optional
        Which layers, as in `hookviz.capture`; None is every convolution. ``layers_b`` is as
        ``layers`` if left out.

    Returns
    -------
    Similarity

    Raises
    ------
    ValueError
        No batch has four samples; a layer ran several times or returned no numbers of each sample.
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
    >>> batches = torch.rand(2, 8, 3, 64, 64)
    >>> found = hookviz.similarity(model, model, batches, "layer?.0")
    >>> [round(value, 3) for value in found.matrix.diagonal().tolist()]
    [1.0, 1.0, 1.0]
    """
    sides = [(model_a, layers), (model_b, layers if layers_b is None else layers_b)]
    models = [GramHooks(*side) for side in sides]
    sums = [torch.zeros(())] * 3
    samples = small = 0
    total = len(inputs) if isinstance(inputs, Sized) else 0
    with Progress() as bar, ExitStack() as stack:
        for each in models:
            stack.enter_context(each.session.active(grad=False))
        for number, batch in enumerate(inputs):
            a, b = (each.run(batch) for each in models)
            count = a.shape[-1]
            if count < LEAST:
                small += 1
                continue
            parts = unbiased_hsic(a[:, None], b), unbiased_hsic(a, a), unbiased_hsic(b, b)
            sums = [whole + part for whole, part in zip(sums, parts, strict=True)]
            samples += count
            bar.update((number + 1) / total if total else 0.0, f"{samples:,} samples")
    if not samples:
        raise ValueError(f"No batch has {LEAST} samples: the unbiased estimate needs so many.")
    crossed, *own = sums
    notes = []
    if small:
        some = "batches were" if small > 1 else "batch was"
        notes.append(f"{small} {some} of fewer than {LEAST} samples, and left out")
    for each, hsic in zip(models, own, strict=True):
        if never := [name for name, value in zip(each.names, hsic, strict=True) if value <= 0]:
            notes.append(
                f"{', '.join(never)} of {each.session.name} never varied, so they have no CKA"
            )
    for note in notes:
        warnings.warn(f"similarity: {note}.", RuntimeWarning, stacklevel=2)
    norms = [hsic.clamp(min=0).sqrt() for hsic in own]
    matrix = crossed / (norms[0][:, None] * norms[1])
    return Similarity(matrix, models[0].names, models[1].names, samples, notes)


class GramHooks(HookManager):
    """Hooks that reduce what each layer returns for a batch to a Gram matrix."""

    def __init__(self, model: nn.Module, layers: Layers) -> None:
        self.session = Session(model, ModelInput(()))
        chosen = select_layers(model, layers)
        self.names = [names[0] for names in chosen.values()]
        self._found: dict[str, list[Tensor | None]] = {}
        super().__init__(
            [(m, "forward", partial(self._after, names[0])) for m, names in chosen.items()]
        )

    def run(self, batch: Any) -> Tensor:
        """Run the model on a batch of n samples, and return the matrices, ``(layers, n, n)``."""
        given = as_the_model_takes(_as_input(batch), self.session.model)

        def run() -> None:
            self._found = {name: [] for name in self.names}
            with self:
                self.session.call(*given.args, **given.kwargs)

        self.session.observed(run)
        grams: list[Tensor] = []
        for name, found in self._found.items():
            # Raised here, since an error within a hook would look like the model's.
            if len(found) != 1:
                raise ValueError(f"Layer {name!r} ran {len(found)} times for a batch: {_ADVICE}")
            if found[0] is None:
                raise ValueError(f"Layer {name!r} returns no tensor of samples: {_ADVICE}")
            grams.append(found[0])
        return torch.stack(grams)

    def _after(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        features = next(iter(tensors(output)), None)
        known = None if features is None or not features.ndim else gram(at_least_float32(features))
        self._found[name].append(known)


_ADVICE = "leave it out with layers=."


def _as_input(batch: Any) -> ModelInput:
    """Return the first of a tuple, since the others are labels."""
    if isinstance(batch, Mapping):
        return ModelInput((), dict(batch))
    return ModelInput((batch[0] if isinstance(batch, (tuple, list)) else batch,))
