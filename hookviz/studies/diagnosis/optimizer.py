"""An optimizer and a model: whether it holds the model's weights, and moves them by how much."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from ...hooking.tables import number
from .findings import Finding, also

LOOKED = "the optimizer"
TOO_FAR = 0.5
"""A step that takes weights by this fraction of their own size is far too long."""


def optimizers(
    model: nn.Module, optimizer: Any, slopes: Mapping[str, float] | None = None
) -> Iterator[Finding]:
    """Report parameters that an optimizer lacks, holds twice or in vain, and too long steps.

    ``slopes`` are the norms of the gradients that reached the parameters.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    held = [(id(each), group) for group in optimizer.param_groups for each in group["params"]]
    counts = Counter(key for key, _ in held)
    learns = [name for key, name in names.items() if model.get_parameter(name).requires_grad]
    missing = [names[key] for key in names if names[key] in learns and key not in counts]
    if missing:
        whole = len(missing) == len(learns)
        yield _about(
            missing,
            f"The optimizer holds {'none' if whole else len(learns) - len(missing)} of "
            f"{len(learns)} parameters that learn: it lacks {missing[0]!r}.",
            "Make it after the model is complete, with model.parameters(); or freeze what is not "
            "to learn, requires_grad_(False).",
        )
    twice = [names.get(key, "") for key, count in counts.items() if count > 1]
    if twice:
        yield _about(
            twice,
            f"The optimizer holds {len(twice)} parameters more than once, such as {twice[0]!r}: "
            "each step moves them as often.",
            "Give it each parameter once.",
        )
    if foreign := sum(key not in names for key in counts):
        yield _about(
            [],
            f"The optimizer holds {foreign} parameters that are not the model's.",
            "Make it anew where a layer was replaced, or the model copied, after it was made.",
        )
    frozen = [names[key] for key in counts if key in names and names[key] not in learns]
    if frozen:
        yield _about(
            frozen,
            f"The optimizer holds {len(frozen)} frozen parameters, such as {frozen[0]!r}.",
            "Nothing, if they are to stay as they are.",
            "note",
        )
    yield from _rates(optimizer, names)
    yield from _lengths(model, optimizer, names, slopes or {})


def _about(names: list[str], message: str, advice: str, severity: str = "warning") -> Finding:
    """Report a finding about parameters, named by their layers."""
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in names)) or [""]
    more = also(layers[1:]) if len(layers) > 1 else ""
    return Finding("optimizer", severity, message + more, advice, layers[0], layers=layers)


def _rates(optimizer: Any, names: Mapping[int, str]) -> Iterator[Finding]:
    for place, group in enumerate(optimizer.param_groups):
        if float(group.get("lr", 1.0)) == 0.0 and group["params"]:
            scheduled = "initial_lr" in group  # a warm-up begins so
            held = [names[id(each)] for each in group["params"] if id(each) in names]
            yield _about(
                held,
                f"The learning rate of group {place} is 0: its {len(group['params'])} parameters "
                "stay as they are.",
                "Nothing, if a scheduler raises it from there." if scheduled else "Give it one.",
                "note" if scheduled else "warning",
            )


def _lengths(
    model: nn.Module, optimizer: Any, names: Mapping[int, str], slopes: Mapping[str, float]
) -> Iterator[Finding]:
    """Return the length of a first step: Adam's by its rate, plain descent's by the gradient."""
    kind = type(optimizer).__name__
    ratios: dict[str, float] = {}
    for group in optimizer.param_groups:
        rate = float(group.get("lr", 0.0))
        for each in group["params"]:
            name = names.get(id(each), "")
            size = _size(each) if name and each.ndim > 1 else 0.0
            if not size:
                continue
            if "Adam" in kind:
                ratios[name] = rate * each.numel() ** 0.5 / size
            elif kind == "SGD" and (slope := _slope(each, slopes.get(name))):
                ratios[name] = rate * slope / size
    if ratios and statistics.median(ratios.values()) > TOO_FAR:
        worst = max(ratios, key=lambda name: ratios[name])
        rate = max(float(group.get("lr", 0.0)) for group in optimizer.param_groups)
        middle = statistics.median(ratios.values())
        yield Finding(
            "learning rate",
            "warning",
            f"One step of {kind} with a learning rate of {number(rate)} takes the weights by "
            f"{number(middle)} of their own size, those of {worst!r} by {number(ratios[worst])}.",
            f"Make it about {number(rate * 0.01 / middle)}: a hundredth of the weights a step.",
            worst.rpartition(".")[0],
            evidence={"ratios": ratios},
        )


def _size(parameter: Tensor) -> float:
    return float(parameter.detach().float().norm()) if not parameter.is_meta else 0.0


def _slope(parameter: Tensor, known: float | None) -> float:
    if known is not None:
        return known
    return float(parameter.grad.detach().float().norm()) if parameter.grad is not None else 0.0
