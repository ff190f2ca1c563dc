"""A model asked again and again: the score of each sample as its picture changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..hooking.tensors import at_least_float32
from ..run.inputs import ModelInput
from ..run.output import Output
from ..run.progress import Progress
from ..run.session import Session
from ..run.target import Target, check_target, needed_logits, probabilities, sample_scores


class Scorer:
    """A session's batch of inputs, and the score that each sample of it is asked for.

    Made, and used, within ``with session.active(grad=False)``. ``pictures`` are what may be
    changed, ``(N, C, *spatial)``, and ``batch_size`` how many rows `score` may be given at a time.
    """

    def __init__(
        self, session: Session, target: Target, batch_size: int, *, as_probability: bool = False
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: at least one has to go through at a time.")
        self.session, self.target = session, check_target(target)
        self.pictures = _only_pictures(session.inputs)
        if isinstance(self.target, Output) and len(self.pictures) > 1:
            raise ValueError(
                f"target={self.target} is a number of the whole batch of {len(self.pictures)}, and "
                "here each sample has a score of its own: give one picture, or a class."
            )
        self.batch_size = 1 if callable(self.target) else batch_size
        self._as_probability = as_probability
        self._targets: list[Target] = [] if callable(self.target) else self._each_target()

    def run(self, samples: Tensor, pictures: Tensor | None = None) -> Any:
        """Run the model on some samples, ``(B,)`` indices, with ``pictures`` in their place."""

        def rows(value: Any) -> Any:
            if value is self.pictures and pictures is not None:
                return pictures
            if not isinstance(value, Tensor):
                return value
            # A copy in any case: models may work in place on what they are given.
            batched = value.ndim > 0 and len(value) == len(self.pictures)
            return value[samples.to(value.device)] if batched else value.clone()

        inputs = self.session.inputs
        kwargs = {key: rows(value) for key, value in inputs.kwargs.items()}
        return self.session.call(*map(rows, inputs.args), **kwargs)

    def scores(self) -> Tensor:
        """The scores ``(N,)`` of the samples as they are."""
        batches = torch.arange(len(self.pictures)).split(self.batch_size)
        return torch.cat([self.score(samples) for samples in batches])

    def score(self, samples: Tensor, pictures: Tensor | None = None) -> Tensor:
        """The scores ``(B,)`` of up to ``batch_size`` samples."""
        output = self.run(samples, pictures)
        if callable(self.target):
            return _one_number(self.target(output)).to(self.pictures.device)[None]
        logits = needed_logits(output, self.target)
        values = probabilities(logits) if self._as_probability else at_least_float32(logits)
        targets = [self._targets[sample] for sample in samples.tolist()]
        return sample_scores(values, targets, self.session.class_names)

    def table(self, columns: int, evaluate: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """What ``evaluate`` gives for every sample and column, ``(N, columns)``, in batches."""
        batches = torch.arange(len(self.pictures) * columns).split(self.batch_size)
        scores = []
        with Progress() as progress:
            for done, batch in enumerate(batches, 1):
                scores.append(evaluate(batch // columns, batch % columns))
                progress.update(done / len(batches))
        return torch.cat(scores).view(-1, columns)

    def _each_target(self) -> list[Target]:
        """Each sample's target; its top class is that of the whole picture, whatever comes."""
        logits = needed_logits(self.run(torch.arange(len(self.pictures))), self.target)
        # Raises, if the target is not there.
        sample_scores(logits, self.target, self.session.class_names)
        count = len(self.pictures)
        targets = self.target if isinstance(self.target, list) else [self.target] * count
        tops = logits.argmax(1).tolist()
        return [top if each is None else each for each, top in zip(targets, tops, strict=True)]


def _only_pictures(inputs: ModelInput) -> Tensor:
    main = inputs.main
    if main is None or not any(main is each for each in (*inputs.args, *inputs.kwargs.values())):
        raise ValueError(
            "The model's input has no floating-point tensor (N, C, *spatial) to change: give one, "
            "not a list of pictures."
        )
    return main


def _one_number(value: Any) -> Tensor:
    try:
        return at_least_float32(torch.as_tensor(value).detach()).reshape(())
    except (RuntimeError, TypeError, ValueError):
        shape = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise ValueError(f"target= returned {shape}, not one number: sum or index it.") from None
