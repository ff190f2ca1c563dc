"""The optimizer: the parameters that it lacks, or holds in vain, and the length of its steps."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from ....tables import number
from ..check import Check, RunRecord
from ..findings import Finding, also
from ..loss_scale import factor_of

FEW = 8
"""The number of samples from which on a gradient is like that of a whole batch."""
MADE = "made in forward"
"""The symptom of parameters that were made while the step ran."""
ERASING = 0.1
"""The fraction of the weights that decay takes away in a step from which on nothing is learned."""
TOO_FAR = 0.5
"""A step that changes weights by this fraction of their norm is far too long."""
USUAL = 0.5
"""With the usual initializations the weights of an output channel have this norm, or a larger one.
Weights that begin far below it have to grow, by steps that are long beside them."""


def as_optimizers(optimizer: Any) -> tuple[Any, ...]:
    """Return one optimizer, or several in a list, as a tuple.

    Raises
    ------
    ValueError
        One of them has no ``param_groups``.
    """
    several = optimizer if isinstance(optimizer, (list, tuple)) else (optimizer,)
    given = tuple(each for each in several if each is not None)
    for each in given:
        if not hasattr(each, "param_groups"):
            raise ValueError(
                f"optimizer= is {type(each).__name__}, which has no param_groups: give a "
                "torch.optim.Optimizer, or a list of them."
            )
    return given


class Optimizers(Check):
    """Report parameters that no optimizer has or moves, lost gradients, and too large steps."""

    live = True

    def __init__(self) -> None:
        #: The parameters whose gradients were gone when their optimizer stepped.
        self.gone: set[str] = set()

    def looked_at(self, run: RunRecord) -> str:
        return "the optimizer" if run.optimizers else ""

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        # A critic's optimizer says nothing about the generator.
        own = [each for each in run.optimizers if held_by(each, run)] or run.optimizers
        if own:
            yield from _missing(run, own)
        if self.gone:
            names = [name for name in run.parameter_names.values() if name in self.gone]
            yield _about(
                names,
                f"The gradients of {len(names)} parameters came in backward(), and are None or 0 "
                f"when the optimizer steps, such as {names[0]!r}: it learns nothing.",
                "Call zero_grad() before backward() or after optimizer.step(), not between them; "
                "do not clip gradients to 0.",
            )
        for each in own:
            yield from _held_in_vain(run, each)
            yield from _groups(run, each)
            yield from _lengths(run, each)


def is_gone(gradient: Tensor | None) -> bool:
    """Return True if a gradient is None, or 0 everywhere."""
    if gradient is None:
        return True
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return not bool((values != 0).any())


def held_by(optimizer: Any, run: RunRecord) -> set[str]:
    """Return the names of the model's parameters that an optimizer holds."""
    own = run.parameter_names
    return {own[key] for key in ids_held_by(optimizer) if key in own}


def ids_held_by(optimizer: Any) -> list[int]:
    """Return the id of each parameter that an optimizer holds, of any model."""
    return [id(each) for group in optimizer.param_groups for each in group["params"]]


def _names(run: RunRecord, group: Mapping[str, Any]) -> list[str]:
    """Return the name of each parameter of a group; empty for those that are not the model's."""
    return [run.parameter_names.get(id(each), "") for each in group["params"]]


def _missing(run: RunRecord, optimizers: Sequence[Any]) -> Iterator[Finding]:
    """Report parameters that learn and are in no optimizer."""
    learns = [name for name, each in run.root.named_parameters() if each.requires_grad]
    held = set[str]().union(*(held_by(each, run) for each in optimizers))
    missing = [name for name in learns if name not in held]
    made = [name for name in missing if _is_made_meanwhile(name, run)]
    if made and held:
        found = _about(
            made,
            f"{len(made)} parameters were made while the step ran, such as {made[0]!r}: the "
            "optimizer, which was there before, does not train them.",
            "Make layers once, in __init__, not in forward, and the optimizer after them.",
        )
        yield replace(found, symptom=MADE)
        missing = [name for name in missing if name not in made]
    if missing and held:  # else that is reported as parameters of another model
        norms = run.gradient_norms.keys()
        elsewhere = bool(norms) and not norms & set(missing)
        yield _about(
            missing,
            f"{len(missing)} of {len(learns)} parameters that learn are not in the optimizer, such "
            f"as {missing[0]!r}.",
            "No fix is needed if they learn in another step: no gradient reached them."
            if elsewhere
            else "Create it after the model is complete, with model.parameters(), or freeze what "
            "should not learn with requires_grad_(False). If another optimizer trains them, pass "
            "both: optimizer=[one, other].",
            "note" if elsewhere else "warning",
        )


def _is_made_meanwhile(name: str, run: RunRecord) -> bool:
    """Return True if a parameter's layer is another one than before the run."""
    owner = name.rpartition(".")[0]
    return run.modules.get(owner) is not run.root.get_submodule(owner)


def _held_in_vain(run: RunRecord, optimizer: Any) -> Iterator[Finding]:
    """Report parameters that an optimizer holds twice, or of another model."""
    held = ids_held_by(optimizer)
    own = run.parameter_names
    twice = [own[key] for key, times in Counter(held).items() if times > 1 and key in own]
    foreign = set(held) - own.keys()
    if twice:
        yield _about(
            twice,
            f"The optimizer holds {len(twice)} parameters more than once, such as {twice[0]!r}: "
            "each step moves them as often.",
            "Pass it each parameter once.",
        )
    if foreign:
        some = bool(own.keys() & set(held))
        yield _about(
            [] if some else list(own.values()),
            f"The optimizer holds {len(foreign)} parameters that are not the model's"
            + ("." if some else ", and none of the model's own."),
            "Create it again if a layer was replaced, or the model copied, after it was created.",
        )


def _about(names: list[str], message: str, advice: str, severity: str = "warning") -> Finding:
    """Report a finding about parameters, named by their layers."""
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in names)) or [""]
    message += also(layers[1:])
    return Finding("optimizer", severity, message, advice, layers[0], layers=layers)


def _groups(run: RunRecord, optimizer: Any) -> Iterator[Finding]:
    """Report a learning rate of 0, and a decay that takes away a large part of the weights."""
    for index, group in enumerate(optimizer.param_groups):
        rate, decay = float(group.get("lr", 1.0)), float(group.get("weight_decay", 0.0))
        held = [name for name in _names(run, group) if name]
        if rate == 0 and group["params"]:
            yield _about(
                held,
                f"The learning rate of group {index} is 0: its {len(group['params'])} parameters "
                "do not change.",
                "Set one, such as optimizer.param_groups[0]['lr'] = 1e-3; no fix is needed if a "
                "scheduler raises it from there.",
                "note" if "initial_lr" in group else "warning",  # a warm-up begins so
            )
        # Adam adds the decay to the gradient, and its steps have the same length whatever that is.
        kind = type(optimizer).__name__
        subtracted = kind in ("SGD", "AdamW") or group.get("decoupled_weight_decay", False)
        if subtracted and rate * decay >= ERASING:
            yield _about(
                held,
                f"Weight decay erases the weights of group {index}: each step multiplies them by "
                f"1 − lr × weight_decay = 1 − {number(rate)} × {number(decay)} = "
                f"{number(1 - rate * decay)}.",
                "Set a smaller weight_decay, such as 1e-4 for SGD and 1e-2 for AdamW: "
                "lr × weight_decay should be far below 1.",
            )


def _lengths(run: RunRecord, optimizer: Any) -> Iterator[Finding]:
    """Report a step that is too long: Adam's by its rate, plain descent's by the loss's gradient.

    A gradient of a few samples is up to ten times as large as that of a whole batch.
    """
    kind = type(optimizer).__name__
    scale = factor_of(run.scaler)
    ratios: dict[str, float] = {}
    for group in optimizer.param_groups:
        rate = float(group.get("lr", 0.0))
        for name, each in zip(_names(run, group), group["params"], strict=True):
            if not name or each.ndim < 2 or not each.numel():
                continue
            size = max(_size(each), USUAL * len(each) ** 0.5)
            slope = run.gradient_norms.get(name) or (0.0 if each.grad is None else _size(each.grad))
            if kind == "SGD" and run.loss and slope:
                ratios[name] = rate * slope / scale / size
            elif kind in ("RMSprop", "Adam", "AdamW", "NAdam"):
                ratios[name] = rate * each.numel() ** 0.5 / size  # whatever the gradient
    middle = statistics.median(ratios.values()) if ratios else 0.0
    far = TOO_FAR * (10 if kind == "SGD" and run.samples < FEW else 1)
    if far < middle < math.inf:
        worst = max(ratios, key=ratios.__getitem__)
        rate = max(float(group.get("lr", 0.0)) for group in optimizer.param_groups)
        yield Finding(
            "learning rate",
            "warning",
            f"One step of {kind} with a learning rate of {number(rate)} changes the weights by "
            f"at least {number(middle)} of their own size, those of {worst!r} by "
            f"{number(ratios[worst])}.",
            f"Set it to about {number(rate * 0.01 / middle)}, which changes the weights by a "
            "hundredth in each step.",
            worst.rpartition(".")[0],
            evidence={"ratios": ratios},
        )


def _size(tensor: Tensor) -> float:
    return float(tensor.detach().float().norm()) if not tensor.is_meta else 0.0
