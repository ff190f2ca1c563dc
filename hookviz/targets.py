"""What is asked of the model: its output and a target become one score to go backward from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from .layers import close_names

Target = None | int | str | Callable[[Any], Tensor]


def logits_of(output: Any) -> Tensor | None:
    """The class scores ``(N, K)`` in a model's output; None if it is no classifier's.

    Looks at the output itself, then at ``output.logits`` and ``output["logits"]``.

    Examples
    --------
    >>> logits_of({"logits": torch.zeros(1, 10)}).shape
    torch.Size([1, 10])
    """
    if isinstance(output, Mapping):
        output = output.get("logits")
    elif not isinstance(output, Tensor):
        output = getattr(output, "logits", None)
    if isinstance(output, Tensor) and output.ndim == 2 and output.is_floating_point():
        return output
    return None


def probabilities(logits: Tensor) -> Tensor:
    """Softmax over the classes, ``(N, K)``; left alone if the rows are probabilities already."""
    logits = logits.detach().float()
    rows = logits.sum(1)
    if (logits >= 0).all() and torch.allclose(rows, torch.ones_like(rows), atol=1e-3):
        return logits
    return logits.softmax(1)


def class_index(target: int | str, classes: int, class_names: Sequence[str] = ()) -> int:
    """The number of the class that a user named.

    Raises
    ------
    ValueError
        No such class; the message names what there is.

    Examples
    --------
    >>> class_index("Moon", 3, ["ball", "moon", "star"])
    1
    """
    if isinstance(target, str):
        folded = [name.casefold() for name in class_names]
        if target.casefold() in folded:
            return folded.index(target.casefold())
        if not class_names:
            raise ValueError(
                f"target={target!r} is a name, but no class names are known: give the class's "
                "number, or class_names=."
            )
        raise ValueError(f"No class is called {target!r}; {close_names(target, class_names)}.")
    if not 0 <= target < classes:
        raise ValueError(
            f"target={target} is no class of this model: its classes are 0 to {classes - 1}."
        )
    return int(target)


def check_target(target: Target) -> Target:
    """Refuse what can never be a target.

    Raises
    ------
    TypeError
        Not None, an integer, a name or a callable.
    """
    if target is None or isinstance(target, str) or callable(target):
        return target
    if isinstance(target, Integral) and not isinstance(target, bool):
        return int(target)
    raise TypeError(
        f"target={target!r} is none of: None (the top prediction), a class number, a class name, "
        "a function output -> scalar."
    )


def score_of(output: Any, target: Target, class_names: Sequence[str] = ()) -> Tensor | None:
    """The scalar to go backward from.

    Parameters
    ----------
    output
        What the model returned.
    target
        None: each sample's own top class. A class: its logit, summed over the batch, so that
        each sample gets the gradient of its own logit. A callable: what it returns.

    Returns
    -------
    torch.Tensor or None
        A scalar. None if ``target`` is None and the model is no classifier, or one that
        computes without a graph.

    Raises
    ------
    ValueError
        No such class, or the callable did not return one number that depends on the output.
    """
    if callable(target):
        score = target(output)
        if not isinstance(score, Tensor) or score.numel() != 1:
            shape = f"shape {tuple(score.shape)}" if isinstance(score, Tensor) else repr(score)
            raise ValueError(f"target= returned {shape}, not one number: sum or index it.")
        if not score.requires_grad:
            raise ValueError("target= returned a number without a gradient: do not detach it.")
        return score.reshape(())
    logits = logits_of(output)
    if logits is None:
        if target is None:
            return None
        raise ValueError(
            f"target={target!r} needs class scores (N, K), but the model returned "
            f"{_described(output)}: give a function output -> scalar as target."
        )
    if target is not None:
        chosen = logits[:, class_index(target, logits.shape[1], class_names)].sum()
    else:
        chosen = logits.amax(1).sum()
    return chosen if chosen.requires_grad else None


def _described(output: Any) -> str:
    if isinstance(output, Tensor):
        return f"a tensor of shape {tuple(output.shape)}"
    if isinstance(output, Mapping):
        return f"a {type(output).__name__} with {', '.join(map(repr, output))}"
    return f"a {type(output).__name__}"
