"""`WatchCallback`: `hookviz.watch` and `hookviz.diagnose` as a callback of Lightning."""

from __future__ import annotations

from typing import Any

from torch import nn

from .studies.fit import FitResults, WatchedFit

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


class WatchCallback(FitResults, Callback):  # pyright: ignore[reportGeneralTypeIssues]
    """Record what every layer does while Lightning's ``Trainer`` trains.

    Each batch of training and of validation is a block; see `hookviz.watch`, whose arguments it
    takes, but for the model. A gradient scaler of the trainer's is found.

    Parameters
    ----------
    layers, every, **options
        As in `hookviz.watch`.
    diagnose : bool or str
        True puts a guard, ``with hookviz.diagnose(model)``, around the first batch, and warns of
        what it finds: of the module that is trained, or of the only layer in one without a
        ``forward``. A name, such as ``"net"``, says which submodule the step calls.

    Attributes
    ----------
    watch : hookviz.results.Watch or None
        What is recorded; there from the beginning of a ``fit`` on.
    findings : hookviz.results.Diagnosis or None
        Of the first batch, once it is over.

    Raises
    ------
    ImportError
        Lightning is not installed.
    """

    def __init__(
        self, layers: Any = None, every: int = 50, *, diagnose: bool | str = False, **options: Any
    ) -> None:
        if Callback is object:
            raise ImportError(
                "hookviz.lightning needs Lightning, which is not installed: pip install lightning. "
                "In a loop of your own put `with hookviz.watch(model):` around each step."
            )
        self._fit = WatchedFit(layers, every, diagnose, options)

    def on_fit_start(self, trainer: Any, module: Any) -> None:
        plugin = getattr(trainer, "precision_plugin", None)
        self._fit.begin(module, _called(module), getattr(plugin, "scaler", None))

    def on_train_batch_start(self, *_: Any) -> None:
        self._fit.enter()

    def on_before_optimizer_step(self, trainer: Any, module: Any, *_: Any) -> None:
        # The step changes the weights, with which the guard may have to run the model again.
        if self._fit.examining and module.automatic_optimization:
            self._fit.leave()

    def on_train_batch_end(self, *_: Any) -> None:
        self._fit.leave()

    def on_validation_batch_start(self, *_: Any) -> None:
        self._fit.enter(training=False)

    def on_validation_batch_end(self, *_: Any) -> None:
        self._fit.leave()

    def on_exception(self, trainer: Any, module: Any, error: BaseException) -> None:
        self._fit.leave(type(error), error, error.__traceback__)

    def teardown(self, *_: Any, **__: Any) -> None:
        self._fit.leave()


def _called(module: nn.Module) -> nn.Module:
    """Return the module that a step calls: the only layer of one without a ``forward``."""
    own = type(module).forward is not LightningModule.forward
    inner = [each for each in module.children() if next(each.parameters(), None) is not None]
    return module if own or len(inner) != 1 else inner[0]
