"""`TrainerWatchCallback`: `hookviz.watch` and `diagnose` for the ``Trainer`` of Hugging Face."""

from __future__ import annotations

from typing import Any, Self

from .studies.fit import TrainingCallback

try:
    from transformers import TrainerCallback  # pyright: ignore[reportMissingImports]
except ImportError:
    TrainerCallback = object


class TrainerWatchCallback(TrainingCallback, TrainerCallback):  # pyright: ignore[reportGeneralTypeIssues]
    """Record what every layer does while the ``Trainer`` of transformers trains.

    Each step of the optimizer is a block, with all batches whose gradients it accumulates. The
    arguments are those of `hookviz.watch`, except for the model; the gradient scaler of the
    trainer's accelerator is found. The trainer does not report when a batch of its evaluation
    begins: evaluations are not recorded.

    The trainer does not report errors to callbacks. ``with callback: trainer.train()`` removes all
    hooks if one is raised, and makes a finding of it; otherwise the next training does, or
    ``close()``.

    Parameters
    ----------
    layers, every, **options
        As in `hookviz.watch`.
    diagnose : bool or str
        True puts a guard, ``with hookviz.diagnose(model)``, around the first step, and warns of
        its findings; a name is that of a submodule.

    Attributes
    ----------
    watch : hookviz.results.Watch or None
        The recorded steps; None before the training begins.
    findings : hookviz.results.Diagnosis or None
        The findings in the first step; None before it has ended.

    Raises
    ------
    ImportError
        transformers is not installed.
    """

    _library = "transformers" if TrainerCallback is object else ""

    def on_train_begin(self, *_: Any, model: Any = None, optimizer: Any = None, **__: Any) -> None:
        # Callbacks do not get the accelerator, but the optimizer that it wraps with its scaler.
        self._start(model, model, getattr(optimizer, "scaler", None))

    def on_step_begin(self, *_: Any, model: Any = None, **__: Any) -> None:
        if not model.training:
            model.train()  # after an evaluation, as the trainer does with each batch
        self._enter()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._leave()  # the guard may have to run the model again, with the same weights

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._leave()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._leave()

    def close(self) -> None:
        """Remove the hooks of a training that has raised an error."""
        self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._leave(*error)
