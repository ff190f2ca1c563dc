"""The transform that made the input of a picture, in words; a guess is compared with BatchNorm."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..hooking.handles import HookManager
from ..hooking.select import first_names
from ..run.session import Session
from ..studies.diagnosis.checks.input_scale import distance_to, is_off_scale


class TransformWords(NamedTuple):
    """The transform in words.

    Attributes
    ----------
    short : str
        Its origin in a few words.
    full : str
        Its origin and all steps.
    doubt : str
        A sentence if the first BatchNorm's statistics speak against a guess; or empty.
    """

    short: str
    full: str
    doubt: str = ""


def transform_words_of(session: Session) -> TransformWords | None:
    """Return the words on a session's transform; None where no picture was given.

    Where the transform was guessed, the model runs once more, and the batch at its first BatchNorm
    is compared with that layer's running statistics, as by `hookviz.diagnose`.
    """
    preprocessing = session.inputs.preprocessing
    if preprocessing is None:
        return None
    if preprocessing.guessed:
        short = "preprocessing: guessed (ImageNet)"
        return TransformWords(short, preprocessing.words, _doubt(session))
    short = "preprocessing: " + ("as given" if preprocessing.given else "from the weights")
    return TransformWords(short, preprocessing.words)


def _doubt(session: Session) -> str:
    """Return what the first BatchNorm says against a guess."""
    norms: dict[nn.Module, str] = {
        module: name
        for module, name in first_names(session.model).items()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    }
    first: list[tuple[_BatchNorm, tuple[float, float]]] = []

    def entered(module: Any, args: Any, kwargs: Any) -> None:
        if not first and args and isinstance(args[0], Tensor) and args[0].ndim > 1:
            away = distance_to(module, [args[0]])
            if away is not None:
                first.append((module, away))

    if not norms:
        return ""
    session.forward(
        lambda: HookManager([(module, "forward_pre", entered) for module in norms]), grad=False
    )
    for module, away in first:
        shift, spread = away
        # A photograph's contrast is a picture's, so that one is enough to compare spreads.
        if is_off_scale(module, shift, spread, samples=2):
            return (
                f"The guessed transform does not fit: at the first BatchNorm, {norms[module]!r}, "
                f"values are {shift:.2g} deviations away from those of training, their spread "
                f"{spread:.2g} times as large. Give transform= or weights=."
            )
    return ""
