"""The score of each sample of a batch as its picture changes: what most methods here run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..hooking.arguments import whole_number
from ..hooking.tensors import at_least_float32, tensors
from ..run.progress import Progress
from ..run.session import GradientSource, Session
from ..run.target import (
    Target,
    differentiable,
    named_target,
    needed_logits,
    one_number,
    probabilities,
    sample_scores,
)
from ..tables import counted


class Scorer:
    """A session's batch of inputs with a target for each sample.

    Use it within ``with session.active()``. ``pictures`` is the tensor that may be changed,
    ``(N, C, *spatial)``: the main one, or the input tensor with the index ``picture``. `scores` and
    `table` run up to ``batch_size`` rows at a time, and one at a time for a function as target,
    which gets the output for one picture.
    """

    source: GradientSource = "inputs"  # of the gradients, see `run_backward`

    def __init__(
        self,
        session: Session,
        target: Target,
        batch_size: int,
        *,
        as_probability: bool = False,
        picture: int | None = None,
    ) -> None:
        whole_number("batch_size", batch_size)
        self.session = session
        self.target = named_target(target, session.class_names)
        inputs, main = session.inputs, session.inputs.main
        if picture is not None:
            main = tensors(inputs.args, inputs.kwargs)[picture]
        if main is None or not any(main is e for e in (*inputs.args, *inputs.kwargs.values())):
            raise ValueError(
                "The model's input has no floating-point tensor (N, C, *spatial) to change: give "
                "one, not whole or complex numbers or a list of pictures."
            )
        self.pictures = main
        self.batch_size = 1 if callable(self.target) else batch_size
        self._as_probability = as_probability
        self._targets: list[Target] = [] if callable(self.target) else self._each_target()

    def run(self, pictures: Tensor | None, samples: Tensor) -> Any:
        """Run the model on some samples, ``(B,)`` indices, with ``pictures`` in their place."""

        def rows(value: Any) -> Any:
            # Always a copy: models may change their input in place.
            if value is self.pictures and pictures is not None:
                return pictures.to(value.dtype, copy=True)
            if not isinstance(value, Tensor):
                return value
            dense = value.layout is torch.strided  # a sparse tensor cannot be indexed
            batched = dense and value.ndim > 0 and len(value) == len(self.pictures)
            return value[samples.to(value.device)] if batched else value.clone()

        inputs = self.session.inputs
        kwargs = {key: rows(value) for key, value in inputs.kwargs.items()}
        return self.session.call(*map(rows, inputs.args), **kwargs)

    def scores(self) -> Tensor:
        """Return the scores ``(N,)`` of the unchanged samples."""
        batches = torch.arange(len(self.pictures)).split(self.batch_size)
        return torch.cat([self.score(None, samples) for samples in batches])

    def score(self, pictures: Tensor | None, samples: Tensor) -> Tensor:
        """Return the scores ``(B,)`` of a run; of a function as target one number, ``(1,)``."""
        output = self.run(pictures, samples)
        if callable(self.target):
            called = differentiable if torch.is_grad_enabled() else one_number
            number = at_least_float32(called(self.target, output))
            return number.to(self.pictures.device)[None]
        logits = needed_logits(output, self.target)
        values = probabilities(logits) if self._as_probability else at_least_float32(logits)
        targets = [self._targets[sample] for sample in samples.tolist()]
        return sample_scores(values, targets, self.session.class_names)

    def table(self, columns: int, evaluate: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Call ``evaluate`` for every sample and column, in batches; return ``(N, columns)``."""
        batches = torch.arange(len(self.pictures) * columns).split(self.batch_size)
        scores = []
        with Progress() as progress:
            for done, batch in enumerate(batches, 1):
                scores.append(evaluate(batch // columns, batch % columns))
                progress.update(done / len(batches))
        return torch.cat(scores).view(-1, columns)

    def _each_target(self) -> list[Target]:
        """Return each sample's target; None becomes the top class of the unchanged picture."""
        with torch.no_grad():
            logits = needed_logits(self.run(None, torch.arange(len(self.pictures))), self.target)
        # Raises if the target is unknown.
        sample_scores(logits, self.target, self.session.class_names)
        count = len(self.pictures)
        if len(logits) != count:
            raise ValueError(
                f"The model returned {counted(len(logits), 'row')} of scores for "
                f"{counted(count, 'sample')}, so that a sample has no score of its own: give one "
                "sample, or a function as target, which gets the output for one sample."
            )
        targets = self.target if isinstance(self.target, list) else [self.target] * count
        tops = logits.argmax(1).tolist()
        return [top if each is None else each for each, top in zip(targets, tops, strict=True)]
