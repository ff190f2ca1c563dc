"""`TrainerWatchCallback`: `hookviz.watch` and `diagnose` for the ``Trainer`` of Hugging Face."""

from __future__ import annotations

from typing import Any, Self

from .studies.fit import FitResults, WatchedFit

try:
    from transformers import TrainerCallback  # pyright: ignore[reportMissingImports]
except ImportError:
    TrainerCallback = object


class TrainerWatchCallback(FitResults, TrainerCallback):  # pyright: ignore[reportGeneralTypeIssues]
    """Record what every layer does while the ``Trainer`` of transformers trains.

    Each step of the optimizer is a block, with all batches whose gradients it accumulates; see
    `hookviz.watch`, whose arguments it takes, but for the model. The trainer does not say when a
    batch of its evaluation begins: evaluations are not recorded.

    The trainer does not tell callbacks of errors. ``with callback: trainer.train()`` takes off all
    hooks if one is raised, and makes a finding of it; else the next training does, or ``close()``.

    Parameters
    ----------
    layers, every, **options
        As in `hookviz.watch`.
    diagnose : bool or str
        True puts a guard, ``with hookviz.diagnose(model)``, around the first step, and warns of
        what it finds; a name is that of a submodule.

    Attributes
    ----------
    watch : hookviz.results.Watch or None
        What is recorded; there from the beginning of a training on.
    findings : hookviz.results.Diagnosis or None
        Of the first step, once it is over.

    Raises
    ------
    ImportError
        transformers is not installed.
    """

    def __init__(
        self, layers: Any = None, every: int = 50, *, diagnose: bool | str = False, **options: Any
    ) -> None:
        if TrainerCallback is object:
            raise ImportError(
                "hookviz.transformers needs transformers, which is not installed: pip install "
                "transformers. In a loop of your own put `with hookviz.watch(model):` around each "
                "step."
            )
        self._fit = WatchedFit(layers, every, diagnose, options)

    def on_train_begin(self, *_: Any, model: Any = None, **__: Any) -> None:
        self._fit.begin(model, model)

    def on_step_begin(self, *_: Any, model: Any = None, **__: Any) -> None:
        if not model.training:
            model.train()  # after an evaluation, as the trainer does with each batch
        self._fit.enter()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._fit.leave()  # the guard may have to run the model again, with the same weights

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._fit.leave()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._fit.leave()

    def close(self) -> None:
        """Take off the hooks of a training that has raised."""
        self._fit.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._fit.leave(*error)
