"""The optimizer: the parameters that it lacks, or holds in vain, and the length of its steps."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from ....tables import number
from ..check import Check, RunRecord
from ..findings import Finding, also

FEW = 8
"""The number of samples from which on a gradient is like that of a whole batch."""
ERASING = 0.1
"""The fraction of the weights that decay takes away in a step from which on nothing is learned."""
TOO_FAR = 0.5
"""A step that changes weights by this fraction of their norm is far too long."""


def as_optimizers(optimizer: Any) -> tuple[Any, ...]:
    """Return one optimizer, or several in a list, as a tuple.

    Raises
    ------
    ValueError
        One of them has no ``param_groups``.
    """
    several = optimizer if isinstance(optimizer, (list, tuple)) else (optimizer,)
    given = tuple(each for each in several if each is not None)
    wrong = [type(each).__name__ for each in given if not hasattr(each, "param_groups")]
    if wrong:
        raise ValueError(
            f"optimizer= is {wrong[0]}, which has no param_groups: give a torch.optim.Optimizer, "
            "or a list of them."
        )
    return given


class Optimizers(Check):
    """Report what the optimizers lack, hold in vain or do not move, and steps that are too long."""

    live = True

    def looked_at(self, run: RunRecord) -> str:
        return "the optimizer" if run.optimizers else ""

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        model = run.root
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        # A critic's optimizer says nothing about the generator.
        own = [each for each in run.optimizers if held_by(each, model)] or run.optimizers
        if own:
            yield from _missing(model, own, run.gradient_norms)
        for each in own:
            yield from _held_in_vain(model, each, names)
            yield from _rates(each, names)
            yield from _decays(each, names)
            yield from _lengths(each, names, run.gradient_norms, 10 if run.samples < FEW else 1)


def held_by(optimizer: Any, model: nn.Module) -> set[str]:
    """Return the names of the model's parameters that an optimizer holds."""
    held = {key for key, _ in _held(optimizer)}
    return {name for name, parameter in model.named_parameters() if id(parameter) in held}


def _held(optimizer: Any) -> list[tuple[int, dict[str, Any]]]:
    """Return the id of each parameter that an optimizer holds, and its group."""
    return [(id(each), group) for group in optimizer.param_groups for each in group["params"]]


def _missing(
    model: nn.Module, optimizers: Sequence[Any], norms: Mapping[str, float]
) -> Iterator[Finding]:
    """Report parameters that learn and are in no optimizer."""
    learns = [name for name, each in model.named_parameters() if each.requires_grad]
    held = set[str]().union(*(held_by(each, model) for each in optimizers))
    missing = [name for name in learns if name not in held]
    replaced = len(missing) == len(learns) and any(_foreign(model, each) for each in optimizers)
    if not missing or replaced:  # that is reported as parameters of another model
        return
    elsewhere = bool(norms) and not norms.keys() & set(missing)
    where = "not in the optimizer" if len(optimizers) == 1 else "in none of the optimizers"
    yield _about(
        missing,
        f"{len(missing)} of {len(learns)} parameters that learn are {where}, such as "
        f"{missing[0]!r}.",
        "No fix is needed if they learn in another step: no gradient reached them."
        if elsewhere
        else "Create it after the model is complete, with model.parameters(), or freeze what "
        "should not learn with requires_grad_(False). If another optimizer trains them, pass both: "
        "optimizer=[one, other].",
        "note" if elsewhere else "warning",
    )


def _foreign(model: nn.Module, optimizer: Any) -> int:
    """Return how many parameters that are not the model's an optimizer holds."""
    own = {id(each) for each in model.parameters()}
    return len({key for key, _ in _held(optimizer)} - own)


def _held_in_vain(model: nn.Module, optimizer: Any, names: Mapping[int, str]) -> Iterator[Finding]:
    """Report parameters that an optimizer holds twice, of another model, or frozen."""
    counts = Counter(key for key, _ in _held(optimizer))
    twice = [names.get(key, "") for key, count in counts.items() if count > 1]
    if twice:
        yield _about(
            twice,
            f"The optimizer holds {len(twice)} parameters more than once, such as {twice[0]!r}: "
            "each step moves them as often.",
            "Pass it each parameter once.",
        )
    own = [names[key] for key in counts if key in names]
    if foreign := _foreign(model, optimizer):
        learns = [name for name, each in model.named_parameters() if each.requires_grad]
        none = bool(learns) and not set(learns) & set(own)
        yield _about(
            learns if none else [],
            f"The optimizer holds {foreign} parameters that are not the model's"
            + (", and none of the model's own." if none else "."),
            "Create it again if a layer was replaced, or the model copied, after it was created.",
        )
    frozen = [name for name in own if not model.get_parameter(name).requires_grad]
    if frozen:
        yield _about(
            frozen,
            f"The optimizer holds {len(frozen)} frozen parameters, such as {frozen[0]!r}.",
            "No fix is needed if they should stay unchanged.",
            "note",
        )


def _about(names: list[str], message: str, advice: str, severity: str = "warning") -> Finding:
    """Report a finding about parameters, named by their layers."""
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in names)) or [""]
    more = also(layers[1:]) if len(layers) > 1 else ""
    return Finding("optimizer", severity, message + more, advice, layers[0], layers=layers)


def _rates(optimizer: Any, names: Mapping[int, str]) -> Iterator[Finding]:
    for index, group in enumerate(optimizer.param_groups):
        if float(group.get("lr", 1.0)) == 0.0 and group["params"]:
            scheduled = "initial_lr" in group  # a warm-up begins so
            held = [names[id(each)] for each in group["params"] if id(each) in names]
            yield _about(
                held,
                f"The learning rate of group {index} is 0: its {len(group['params'])} parameters "
                "do not change.",
                "No fix is needed if a scheduler raises it from there."
                if scheduled
                else "Set one, such as optimizer.param_groups[0]['lr'] = 1e-3.",
                "note" if scheduled else "warning",
            )


def _decays(optimizer: Any, names: Mapping[int, str]) -> Iterator[Finding]:
    """Report weight decay of which one step takes away the weights, or a large part of them."""
    kind = type(optimizer).__name__
    for index, group in enumerate(optimizer.param_groups):
        rate, decay = float(group.get("lr", 0.0)), float(group.get("weight_decay", 0.0))
        # Adam adds the decay to the gradient, and its steps have the same length whatever that is.
        subtracted = kind in ("SGD", "AdamW") or group.get("decoupled_weight_decay", False)
        if not subtracted or rate * decay < ERASING:
            continue
        held = [names[id(each)] for each in group["params"] if id(each) in names]
        factor = number(1 - rate * decay)
        yield _about(
            held,
            f"Weight decay erases the weights of group {index}: each step multiplies them by "
            f"1 − lr × weight_decay = 1 − {number(rate)} × {number(decay)} = {factor}.",
            f"Set weight_decay to {number(1e-4 if kind == 'SGD' else 1e-2)}, for example: "
            "lr × weight_decay should be far below 1.",
        )


def _lengths(
    optimizer: Any, names: Mapping[int, str], norms: Mapping[str, float], noise: float
) -> Iterator[Finding]:
    """Report a step that is too long: Adam's by its rate, plain descent's by the gradient.

    A gradient is up to ``noise`` times as large as that of a whole batch.
    """
    kind = type(optimizer).__name__
    ratios: dict[str, float] = {}
    for group in optimizer.param_groups:
        rate = float(group.get("lr", 0.0))
        for each in group["params"]:
            name = names.get(id(each), "")
            size = _size(each) if name and each.ndim > 1 else 0.0
            if not size:
                continue
            slope = norms.get(name) or (_size(each.grad) if each.grad is not None else 0.0)
            if kind == "SGD" and slope:
                ratios[name] = rate * slope / size
            elif alike := _by_each(kind, group, optimizer.state.get(each, {})):
                ratios[name] = alike * each.numel() ** 0.5 / size
    middle = statistics.median(ratios.values()) if ratios else 0.0
    far = TOO_FAR * (noise if kind == "SGD" else 1.0)
    if far < middle < math.inf:
        worst = max(ratios, key=lambda name: ratios[name])
        rate = max(float(group.get("lr", 0.0)) for group in optimizer.param_groups)
        yield Finding(
            "learning rate",
            "warning",
            f"One step of {kind} with a learning rate of {number(rate)} changes the weights by "
            f"{number(middle)} of their own size, those of {worst!r} by {number(ratios[worst])}.",
            f"Set it to about {number(rate * 0.01 / middle)}, which changes the weights by a "
            "hundredth in each step.",
            worst.rpartition(".")[0],
            evidence={"ratios": ratios},
        )


def _by_each(kind: str, group: Mapping[str, Any], state: Mapping[str, Any]) -> float:
    """Return by how much a step moves each weight if the gradient does not matter; else 0."""
    rate, first = float(group.get("lr", 0.0)), not float(state.get("step", 0.0))
    if kind == "Adagrad":  # its steps are soon shorter
        return rate / 10 if first and not group["initial_accumulator_value"] else 0.0
    return rate if kind == "RMSprop" or ("Adam" in kind and kind != "RAdam") else 0.0


def _size(tensor: Tensor) -> float:
    return float(tensor.detach().float().norm()) if not tensor.is_meta else 0.0
