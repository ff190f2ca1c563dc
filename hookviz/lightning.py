"""`WatchCallback`: `hookviz.watch` and `hookviz.diagnose` as a callback of Lightning."""

from __future__ import annotations

from typing import Any

from torch import nn

from .studies.fit import TrainingCallback

try:
    from lightning.pytorch import (  # pyright: ignore[reportMissingImports]
        Callback,
        LightningModule,
    )
except ImportError:
    try:
        from pytorch_lightning import (  # pyright: ignore[reportMissingImports]
            Callback,
            LightningModule,
        )
    except ImportError:
        Callback, LightningModule = object, nn.Module


class WatchCallback(TrainingCallback, Callback):  # pyright: ignore[reportGeneralTypeIssues]
    """Record what every layer does while Lightning's ``Trainer`` trains.

    Each batch of training and of validation is a block. The arguments are those of `hookviz.watch`,
    except for the model. The trainer's gradient scaler is found.

    Parameters
    ----------
    layers, every, **options
        As in `hookviz.watch`.
    diagnose : bool or str
        True puts a guard, ``with hookviz.diagnose(model)``, around the first batch, and warns of
        its findings: it examines the module that is trained, or the only layer in one without a
        ``forward``. A name, such as ``"net"``, says which submodule the step calls.

    Attributes
    ----------
    watch : hookviz.results.Watch or None
        The recorded steps; None before ``fit`` begins.
    findings : hookviz.results.Diagnosis or None
        The findings in the first batch; None before it has ended.

    Raises
    ------
    ImportError
        Lightning is not installed.
    """

    _library = "lightning" if Callback is object else ""

    def on_fit_start(self, trainer: Any, module: Any) -> None:
        plugin = getattr(trainer, "precision_plugin", None)
        self._start(module, _called(module), getattr(plugin, "scaler", None))

    def on_train_batch_start(self, *_: Any) -> None:
        self._enter()

    def on_before_optimizer_step(self, trainer: Any, module: Any, *_: Any) -> None:
        # The step changes the weights, with which the guard may have to run the model again.
        if self._guard is not None and self._guard.active and module.automatic_optimization:
            self._leave()

    def on_train_batch_end(self, *_: Any) -> None:
        self._leave()

    def on_validation_batch_start(self, *_: Any) -> None:
        self._enter(training=False)

    def on_validation_batch_end(self, *_: Any) -> None:
        self._leave()

    def on_exception(self, trainer: Any, module: Any, error: BaseException) -> None:
        self._leave(type(error), error, error.__traceback__)

    def teardown(self, *_: Any, **__: Any) -> None:
        self._leave()


def _called(module: nn.Module) -> nn.Module:
    """Return the module that a step calls: the only layer of one without a ``forward``."""
    has_forward = type(module).forward is not LightningModule.forward
    inner = [child for child in module.children() if next(child.parameters(), None) is not None]
    return module if has_forward or len(inner) != 1 else inner[0]
