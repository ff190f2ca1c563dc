"""`WatchCallback`: what `hookviz.watch` records, as a callback of Lightning, which it needs."""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch import Callback  # pyright: ignore[reportMissingImports]
except ImportError:
    try:
        from pytorch_lightning import Callback  # pyright: ignore[reportMissingImports]
    except ImportError:
        Callback = object

from .studies.watch.watch import Watch, watch


class WatchCallback(Callback):  # pyright: ignore[reportGeneralTypeIssues]
    """Record what every layer does while a ``Trainer`` trains.

    Each batch of training and of validation is a block; see `hookviz.watch`, whose arguments it
    takes, but for the model. A gradient scaler of the trainer's is found.

    Attributes
    ----------
    watch : hookviz.results.Watch or None
        What is recorded; there from the beginning of a ``fit`` on.

    Raises
    ------
    ImportError
        Lightning is not installed.
    """

    def __init__(self, layers: Any = None, every: int = 50, **options: Any) -> None:
        if Callback is object:
            raise ImportError(
                "hookviz.lightning needs Lightning, which is not installed: pip install lightning. "
                "In a loop of your own put `with hookviz.watch(model):` around each step."
            )
        self._options: dict[str, Any] = {"layers": layers, "every": every, **options}
        self.watch: Watch | None = None

    def on_fit_start(self, trainer: Any, module: Any) -> None:
        plugin = getattr(trainer, "precision_plugin", None)
        options: dict[str, Any] = {"scaler": getattr(plugin, "scaler", None)} | self._options
        self.watch = watch(module, **options)

    def on_train_batch_start(self, *_: Any) -> None:
        self._enter()

    def on_train_batch_end(self, *_: Any) -> None:
        self._leave()

    def on_validation_batch_start(self, *_: Any) -> None:
        self._enter()

    def on_validation_batch_end(self, *_: Any) -> None:
        self._leave()

    def on_exception(self, trainer: Any, module: Any, error: BaseException) -> None:
        self._leave(type(error), error, error.__traceback__)

    def teardown(self, *_: Any, **__: Any) -> None:
        self._leave()

    def _enter(self) -> None:
        if self.watch is not None:
            self.watch.__enter__()

    def _leave(self, *error: Any) -> None:
        if self.watch is not None and self.watch.active:
            self.watch.__exit__(*(error or (None, None, None)))
