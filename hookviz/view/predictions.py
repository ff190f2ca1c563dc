"""The predictions and the target of a view, in words; and pictures in its output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from ..run.output import Output
from ..run.target import Target, class_index, probabilities
from ..tables import number as in_words
from .outputs import ShownOutput, class_name, read_output_pictures
from .source import input_sample
from .view import View, cached

TOP = 5


@cached(input_sample, lambda view: repr(view.settings.target))
def predictions_of(view: View) -> list[Prediction]:
    """Return the shown sample's top classes, and last the target, if it is another class."""
    names, logits, sample = view.session.class_names, view.run.logits, input_sample(view)
    classes = has_classes(view)
    before = None if view.original is None else view.original.run.logits
    number = class_number(view)
    return ranked(logits, sample, names, classes, before, [] if number is None else [number])


def has_classes(view: View) -> bool:
    """Return whether the outputs are known to be classes."""
    return are_classes(view.session.model, view.run.logits, view.session.class_names)


def class_number(view: View) -> int | None:
    """Return the number of the target's class; None if it is not a single class, or the top one."""
    target, logits = view.target, view.run.logits
    if isinstance(target, list):
        target = target[min(input_sample(view), len(target) - 1)]
    if logits is None or target is None or callable(target) or isinstance(target, tuple):
        return None
    return class_index(target, logits.shape[1], view.session.class_names)


def target_name_of(view: View) -> str:
    """Return the name of the target."""
    names, logits, predictions = view.session.class_names, view.run.logits, predictions_of(view)
    target = view.target
    for rank, box in enumerate(output_of(view).boxes if isinstance(target, Output) else (), 1):
        if box.target == str(target):
            return f"box {rank}, {box.label}"
    if target is None and logits is not None and not predictions:
        return "NaN scores" if logits.numel() else "nothing"
    return target_name(target, input_sample(view), names, predictions, has_classes(view))


@cached()
def classes_of(view: View) -> list[str]:
    """Return the names of all classes; empty without a classifier."""
    logits, names = view.run.logits, view.session.class_names
    return class_labels(0 if logits is None else logits.shape[1], names, has_classes(view))


@cached(input_sample)
def output_of(view: View) -> ShownOutput:
    """Return the parts of the output that are pictures; false of a classifier."""
    main = view.session.inputs.main
    if main is None or main.ndim < 3 or not view.run.leaves:
        return ShownOutput([], [])
    size = (*(1,) * (4 - main.ndim), *main.shape)
    names = view.session.class_names
    return read_output_pictures(view.run.leaves, size, input_sample(view), names)


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
    others: Sequence[int] = (),
) -> list[Prediction]:
    """Return a sample's five largest outputs; empty without a classifier, or with NaN.

    Those of ``others`` that are not among them follow.

    Outputs for ``classes`` become probabilities by the softmax, which is meaningless for other
    outputs. A single output has its sigmoid beside the score, but from 0 to 1 it may be a
    probability itself. With logits of ``before``, outputs that were large then are ranked too.

    >>> import torch
    >>> [each.words for each in ranked(torch.tensor([[0.25, 0.75]]), 0, ["ball"])]
    ['75.0 %', '25.0 %']
    >>> ranked(torch.tensor([[2.0]]), 0, [])[0].words
    'score 2, sigmoid 88.1 %'
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
    numbers = chosen[row[chosen].argsort(descending=True, stable=True)].tolist()
    found = []
    for number in (*numbers, *(other for other in others if other not in numbers)):
        value = float(row[number])
        words = f"{100 * value:.1f} %" if softmax else f"score {in_words(value)}"
        if len(row) == 1 and not 0 <= value <= 1:
            words += f", sigmoid {100 * float(row.sigmoid()):.1f} %"
        name = class_name(number, class_names, classes)
        earlier, change = None, ""
        if was is not None:
            earlier = float(was[number])
            change = signed(100 * (value - earlier), ".1f") if softmax else signed(value - earlier)
            if softmax:
                change += (
                    f" pp · logit {signed(float(scores[number] - scores_before[number]), '.2f')}"
                )
        found.append(Prediction(number, name, value, words, earlier, change))
    return found


def prediction_moved(before: Sequence[Prediction], now: Sequence[Prediction]) -> str:
    """Return in words that another picture has another top class; empty if it has the same.

    >>> cat, dog = (Prediction(n, name, 0.9, "90.0 %") for n, name in enumerate(("cat", "dog")))
    >>> prediction_moved([cat], [dog]), prediction_moved([cat], [cat])
    ('The top class is dog now; before it was cat.', '')
    """
    if not before or not now or before[0].number == now[0].number:
        return ""
    return f"The top class is {now[0].name} now; before it was {before[0].name}."


def signed(value: float, how: str = ".3g") -> str:
    """Format a change, with its sign; zero has none, also after rounding.

    >>> signed(-0.25), signed(3.04, ".1f"), signed(-0.04, ".1f")
    ('−0.25', '+3.0', '0.0')
    """
    text = f"{value:+{how}}"
    return text.replace("-", "−", 1) if float(text) else text.lstrip("+-")


def are_classes(model: nn.Module, logits: Tensor | None, class_names: Sequence[str]) -> bool:
    """Return whether a model's outputs are known to be classes, by names or their number."""
    if logits is None or class_names:
        return bool(class_names)
    holders = (model, getattr(model, "config", None))
    said = [getattr(h, n, None) for h in holders for n in ("num_classes", "num_labels")]
    return logits.shape[1] in said


def class_labels(count: int, class_names: Sequence[str], classes: bool = True) -> list[str]:
    """Return `class_name` of each class, for a menu.

    It counts all names once; `class_name` would count them for each of, say, 20,000 classes.

    >>> class_labels(4, ["crane", "moon", "crane"])
    ['crane (0)', 'moon', 'crane (2)', 'class 3']
    """
    known = class_names[:count]
    names = [*known, *(class_name(i, (), classes) for i in range(len(known), count))]
    often = Counter(names)
    return [f"{name} ({i})" if often[name] > 1 else name for i, name in enumerate(names)]


def target_name(
    target: Target,
    sample: int,
    class_names: Sequence[str],
    predictions: list[Prediction],
    classes: bool = True,
) -> str:
    """Return the name of a sample's target.

    >>> target_name(["ball", (1, 0)], 1, ["ball", "moon"], [])
    'moon against ball'
    >>> target_name((1, 0), 0, [], [], classes=False)
    'output 1 against output 0'
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
    parts: Any = target if isinstance(target, tuple) else (target,)
    names = [c if isinstance(c, str) else class_name(c, class_names, classes) for c in parts]
    first, *others = names
    return f"{first} against {' and '.join(others)}" if others else first
