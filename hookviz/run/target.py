"""Compute the score to run backward from, from a model's output and a target."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from ..hooking.select import close_names, unwrapped
from ..hooking.tensors import tensors
from .output import Output, described, read_output


def class_names_of(
    model: nn.Module, weights: Any = None, class_names: Sequence[str] | None = None
) -> list[str]:
    """Return class names, in the order of the classes; empty if unknown.

    Sources are the argument, the categories of torchvision's weights, ``model.class_names``,
    ``model.config.id2label`` (transformers), ``model.names`` (ultralytics), and timm's own lists.
    """
    if class_names is not None:
        if isinstance(class_names, str) or not all(isinstance(name, str) for name in class_names):
            raise TypeError("class_names must be a list of strings, one for each class in order.")
        return list(class_names)
    model, _ = unwrapped(model)
    return next((names for source in _known(model, weights) if (names := _listed(source))), [])


def _known(model: nn.Module, weights: Any) -> Iterator[Any]:
    yield (getattr(weights, "meta", None) or {}).get("categories")
    yield getattr(model, "class_names", None)
    yield getattr(getattr(model, "config", None), "id2label", None)
    yield getattr(model, "names", None)
    if "timm" in sys.modules and hasattr(model, "pretrained_cfg"):
        from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset

        subset = infer_imagenet_subset(model)
        info = ImageNetInfo(subset) if subset else None
        count = info.num_classes() if info else 0
        if info and count == getattr(model, "num_classes", None):
            yield [info.index_to_description(index) for index in range(count)]


def _listed(names: Any) -> list[str]:
    """Return names as a list, from a list or a dict number -> name; empty for anything else."""
    if isinstance(names, Mapping):
        names = [names.get(index) for index in range(len(names))]
    if isinstance(names, str) or not isinstance(names, Sequence):
        return []
    # Placeholder names that transformers gives a model without labels.
    made_up = all(name == f"LABEL_{index}" for index, name in enumerate(names))
    return list(names) if all(isinstance(n, str) for n in names) and not made_up else []


MOST_NUMBERS = 5
"""The number of classes of one name that an error lists."""

Class = int | str
Target = None | Class | tuple[Class, ...] | list[Any] | Callable[[Any], Tensor]


def logits_of(output: Any) -> Tensor | None:
    """Return the class scores ``(N, K)`` in a model's output; None without a classifier.

    Looks at the output itself, then at ``output.logits`` and ``output["logits"]``.
    """
    if isinstance(output, Mapping):
        output = output.get("logits")
    elif not isinstance(output, Tensor):
        output = getattr(output, "logits", None)
    if isinstance(output, Tensor) and output.ndim == 2 and output.is_floating_point():
        return output if output.numel() else None
    return None


def probabilities(logits: Tensor) -> Tensor:
    """Apply softmax over the classes, ``(N, K)``, unless the rows are probabilities already."""
    logits = logits.detach().float()
    rows = logits.sum(1)
    if (logits >= 0).all() and torch.allclose(rows, torch.ones_like(rows), atol=1e-3):
        return logits
    return logits.softmax(1)


def class_index(target: Class, classes: int, class_names: Sequence[str] = ()) -> int:
    """Return the number of a class from its name or number; a ``ValueError`` lists similar names.

    >>> class_index("Moon", 3, ["ball", "moon", "star"])
    1
    """
    if isinstance(target, str):
        alike = [n for n, name in enumerate(class_names) if name.casefold() == target.casefold()]
        found = [number for number in alike if class_names[number] == target] or alike
        if len(found) > 1:
            numbers = ", ".join(map(str, found[:MOST_NUMBERS]))
            more = ", …" if len(found) > MOST_NUMBERS else ""
            raise ValueError(
                f"{len(found)} classes are called {target!r}, {numbers}{more}: give the number of "
                "one."
            )
        if found:
            return found[0]
        raise _unknown_class(target, class_names)
    if not 0 <= target < classes:
        raise ValueError(
            f"target={target} is not a class of this model: its classes are 0 to {classes - 1}."
        )
    return int(target)


def _unknown_class(name: str, class_names: Sequence[str]) -> ValueError:
    if class_names:
        return ValueError(f"No class is called {name!r}; {close_names(name, class_names)}.")
    return ValueError(
        f"target={name!r} is a name, but no class names are known: give the class's number, "
        "class_names=, or a number in the output, output[…]."
    )


def check_target(target: Target) -> Target:
    """Return a valid target; raise ``ValueError`` for values of any other form."""
    target = _plain(target)
    if isinstance(target, list) and target:
        for one in target:
            if isinstance(one, list) or callable(one):
                raise ValueError(f"target=[{one!r}, …] does not hold one target for each sample.")
        return [check_target(one) for one in target]
    if isinstance(target, tuple) and len(target) > 1 and all(map(_is_class, target)):
        return tuple(int(one) if isinstance(one, Integral) else one for one in target)
    if target is None or callable(target) or _is_class(target):
        return int(target) if isinstance(target, Integral) else target
    raise ValueError(
        f"target={target!r} is none of: None (the top prediction), a class number or name, a "
        "tuple of classes (the first against the others), a list with one of these for each "
        "sample, a number in the output such as hookviz.output[0, 3], a function output -> scalar."
    )


def write_target(target: Target, classes: int, class_names: Sequence[str] = ()) -> Any:
    """Return a target that is not a function as a plain value that `named_target` can read.

    Examples
    --------
    >>> write_target([1, None, ("moon", 0)], 3, ["ball", "moon", "star"])
    [1, None, '1 - 0']
    >>> write_target(read_output("output[0, 3]"), 0)
    'output[0, 3]'
    """
    if isinstance(target, Output):
        return str(target)
    if isinstance(target, list):
        return [write_target(one, classes, class_names) for one in target]
    if isinstance(target, tuple):  # by number: names may hold " - "
        return " - ".join(str(class_index(one, classes, class_names)) for one in target)
    return target


def named_target(target: Target, class_names: Sequence[str] = ()) -> Target:
    """Return a valid target whose texts, except class names, are parsed by `read_target`.

    >>> named_target(["moon", "0 - 1"], ["ball", "moon"])
    ['moon', (0, 1)]
    """
    target = check_target(target)
    if isinstance(target, list):
        return [named_target(one, class_names) for one in target]
    if not isinstance(target, str) or target.casefold() in map(str.casefold, class_names):
        return target
    return read_target(target, class_names)


def read_target(text: str, class_names: Sequence[str] = ()) -> Target:
    """Parse a target from text: a class, one class against others, or a number in the output.

    Raises
    ------
    ValueError
        Unknown class, or it is not an expression of the output.

    Examples
    --------
    >>> read_target("3"), read_target("moon - Ball", ["ball", "moon"])
    (3, ('moon', 'Ball'))
    >>> read_target("3 - 5 - 7")  # the first against the others, as the tuple
    (3, 5, 7)
    >>> read_target("output[0, 3] - output[0, 2]")
    output[0, 3] - output[0, 2]
    """
    text = text.strip()
    names = {name.casefold() for name in class_names}
    whole = text.casefold() in names
    if not whole and re.match(r"\(*(hookviz\.)?output($|[\[.]| [-+] )", text):
        return read_output(text)
    sides = [text] if whole else [side.strip() for side in re.split(r" [-−] ", text)]
    classes: list[Class] = [int(side) if side.isdecimal() else side for side in sides]
    for one in classes:
        if isinstance(one, str) and one.casefold() not in names:
            raise _unknown_class(one, class_names)
    first, *others = classes
    return (first, *others) if others else first


def _plain(target: Any) -> Any:
    """Return the class's number in a tensor, as ``scores.argmax()`` returns it, or the target."""
    whole = isinstance(target, Tensor) and target.ndim == 0 and not target.is_floating_point()
    return target.item() if whole else target


def _is_class(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, Integral) and not isinstance(value, bool))


def score_of(output: Any, target: Target, class_names: Sequence[str] = ()) -> Tensor | None:
    """Return the scalar to run backward from.

    For None it is the logit of each sample's top class; for a class its logit; for a tuple of
    classes the logit of the first minus the mean logit of the others; for a list one of these for
    each sample. The samples' scores are summed, so that each sample gets the gradient of its score.
    A callable returns the score itself.

    Return None if ``target`` is None and the model is not a classifier or computes without a graph.
    """
    if callable(target):
        return differentiable(target, output)
    if target is None and logits_of(output) is None:
        return None
    scores = sample_scores(needed_logits(output, target), target, class_names).sum()
    return scores if scores.requires_grad else None


def needed_logits(output: Any, target: Target) -> Tensor:
    """Return the logits of the output; raise ``ValueError`` if a class target has none."""
    logits = logits_of(output)
    if logits is None:
        raise ValueError(
            f"target={target!r} needs class scores (N, K), but the model returned "
            f"{described(output)}: give a number in it as target, hookviz.output[…], or a function "
            "output -> scalar."
        )
    return logits


def sample_scores(logits: Tensor, target: Target, class_names: Sequence[str] = ()) -> Tensor:
    """Return each sample's score ``(N,)`` from logits ``(N, K)``; ``target`` is not a callable.

    >>> logits = torch.tensor([[1.0, 5.0, 2.0], [4.0, 0.0, 1.0]])
    >>> sample_scores(logits, None).tolist()
    [5.0, 4.0]
    >>> sample_scores(logits, (1, 0)).tolist()
    [4.0, -4.0]
    >>> sample_scores(logits, [2, (0, 1)]).tolist()
    [2.0, 4.0]
    """
    if isinstance(target, list):
        if len(target) != len(logits):
            raise ValueError(
                f"target= is a list of {len(target)} for a batch of {len(logits)}: give one for "
                "each sample, or one for all."
            )
        rows = zip(logits.split(1), target, strict=True)
        return torch.cat([sample_scores(row, one, class_names) for row, one in rows])
    if target is None:
        return logits.amax(1)
    classes: Any = target if isinstance(target, tuple) else (target,)
    first, *others = (class_index(one, logits.shape[1], class_names) for one in classes)
    return logits[:, first] - logits[:, others].mean(1) if others else logits[:, first]


class TargetError(ValueError):
    """A target's result is not a score; ``advice`` says what to return instead."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(f"{message}: {advice}." if advice else f"{message}.")
        self.message, self.advice = message, advice


class NoGradientError(TargetError):
    """A target's number has no gradient."""


def one_number(target: Callable[[Any], Tensor], output: Any) -> Tensor:
    """Call a function as target; raise ``ValueError`` unless it returns one number."""
    score = target(output)
    if not isinstance(score, (list, tuple)):  # whose tensors would lose their gradients
        with suppress(RuntimeError, TypeError, ValueError):
            return torch.as_tensor(score).reshape(())
    if isinstance(target, Output):
        what = f"{target} is {described(score)}"
    else:
        shape = f"shape {tuple(score.shape)}" if isinstance(score, Tensor) else repr(score)
        what = f"target= returned {shape}"
    raise TargetError(f"{what}, not one number", "sum or index it")


def differentiable(target: Callable[[Any], Tensor], output: Any) -> Tensor:
    """Call a function as target; raise ``ValueError`` unless its number has a gradient."""
    score = one_number(target, output)
    if score.requires_grad:
        return score
    if isinstance(target, Output):
        raise NoGradientError(
            f"{target} has no gradient: it is {score.dtype}, or detached in the model"
        )
    outputs, why = tensors(output), ""
    advice = "compute it from the output without float(), item(), detach() or argmax()"
    if outputs and not any(each.requires_grad for each in outputs):
        why = ", nor has the model's output one"
        advice = "see whether the model detaches or rounds its input, or runs under torch.no_grad()"
    raise NoGradientError(f"target= returned a number without a gradient{why}", advice)
