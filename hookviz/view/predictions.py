"""The model's predictions and the target, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from ..hooking.tables import number as in_words
from ..run.output import Output
from ..run.target import Target, probabilities

TOP = 5


class Prediction(NamedTuple):
    """A class or, for models that are not classifiers, an output."""

    number: int
    name: str
    value: float  # a probability, 0 to 1, or the model's own score
    words: str  # the value as text
    before: float | None = None  # the value without the edits
    change: str = ""  # the change by the edits, as text


def ranked(
    logits: Tensor | None,
    sample: int,
    class_names: Sequence[str],
    classes: bool = True,
    before: Tensor | None = None,
) -> list[Prediction]:
    """Return a sample's five largest outputs; empty without a classifier, or with NaN.

    Outputs for ``classes`` become probabilities by the softmax, which is meaningless for other
    outputs. A single output has its sigmoid beside the score. With logits of ``before``, outputs
    that were large then are ranked too.

    >>> import torch
    >>> [each.words for each in ranked(torch.tensor([[0.25, 0.75]]), 0, ["ball"])]
    ['75.0 %', '25.0 %']
    >>> ranked(torch.tensor([[0.0]]), 0, [])[0].words
    'score 0, sigmoid 50.0 %'
    """
    if logits is None:
        return []
    row = logits[min(sample, len(logits) - 1)].detach().float()
    if row.isnan().any():  # ranking is undefined with NaN
        return []
    softmax = classes and len(row) > 1
    scores, row = row, probabilities(row[None])[0] if softmax else row
    best, was = row, None
    scores_before = scores
    known = before is not None and before.shape == logits.shape and not before.isnan().any()
    if before is not None and known:
        scores_before = before[min(sample, len(before) - 1)].detach().float()
        was = probabilities(scores_before[None])[0] if softmax else scores_before
        best = row.maximum(was)
    chosen = best.topk(min(TOP, len(row))).indices
    found = []
    for number in chosen[row[chosen].argsort(descending=True, stable=True)].tolist():
        value = float(row[number])
        words = f"{100 * value:.1f} %" if softmax else f"score {in_words(value)}"
        if len(row) == 1:
            words += f", sigmoid {100 * float(row.sigmoid()):.1f} %"
        name = class_name(number, class_names) if classes else f"output {number}"
        earlier, change = None, ""
        if was is not None:
            earlier = float(was[number])
            change = signed(100 * (value - earlier), ".1f") if softmax else signed(value - earlier)
            if softmax:
                change += f", logit {signed(float(scores[number] - scores_before[number]), '.2f')}"
        found.append(Prediction(number, name, value, words, earlier, change))
    return found


def signed(value: float, how: str = ".3g") -> str:
    """Format a change, with its sign.

    >>> signed(-0.25), signed(3.04, ".1f")
    ('−0.25', '+3.0')
    """
    return f"{value:+{how}}".replace("-", "−", 1)


def are_classes(model: nn.Module, logits: Tensor | None, class_names: Sequence[str]) -> bool:
    """Return whether a model's outputs are known to be classes, by names or their number."""
    if logits is None or class_names:
        return bool(class_names)
    holders = (model, getattr(model, "config", None))
    said = [getattr(h, n, None) for h in holders for n in ("num_classes", "num_labels")]
    return logits.shape[1] in said


def class_labels(count: int, class_names: Sequence[str]) -> list[str]:
    """Return a distinct name for each class, for a menu.

    Examples
    --------
    >>> class_labels(4, ["crane", "moon", "crane"])
    ['crane (0)', 'moon', 'crane (2)', 'class 3']
    """
    names = [class_name(index, class_names) for index in range(count)]
    often = Counter(names)
    return [f"{name} ({i})" if often[name] > 1 else name for i, name in enumerate(names)]


def class_name(index: int, class_names: Sequence[str]) -> str:
    return class_names[index] if index < len(class_names) else f"class {index}"


def target_name(
    target: Target, sample: int, class_names: Sequence[str], predictions: list[Prediction]
) -> str:
    """Return the name of a sample's target.

    >>> target_name(["ball", (1, 0)], 1, ["ball", "moon"], [])
    'moon against ball'
    """
    if isinstance(target, list):
        target = target[min(sample, len(target) - 1)]
    if isinstance(target, Output):
        return str(target)
    if callable(target):
        name = getattr(target, "__name__", "")
        return name if name.isidentifier() else "your function"  # "<lambda>" says nothing
    if target is None:
        return predictions[0][1] if predictions else "nothing"
    classes: Any = target if isinstance(target, tuple) else (target,)
    first, *others = (c if isinstance(c, str) else class_name(c, class_names) for c in classes)
    return f"{first} against {' and '.join(others)}" if others else first
