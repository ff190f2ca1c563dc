"""Signs that a part of a model is kept from learning on purpose."""

from __future__ import annotations

import torch
from torch import nn

from .check import RunRecord
from .checks.optimizer import held_by
from .modules import outermost

ALIKE = 0.5
"""Least cosine of the weights of a network and of another one that follows it."""


def deliberate_cut(name: str, without: list[str], run: RunRecord) -> str:
    """Say what shows that a part is kept from learning on purpose; empty if nothing does."""
    norms, own = run.gradient_norms.keys(), run.parameters[name]
    held = [each for optimizer in run.optimizers if (each := held_by(optimizer, run)) & norms]
    if held and not any(each & own for each in held):
        return "the optimizer of this step holds none of these weights"
    cut = [n for n in run.modules if any(not n or f"{w}.".startswith(f"{n}.") for w in without)]
    learning = outermost(o for o in run.modules if run.parameters[o] & norms and o not in cut)
    for other in learning:
        (parent, _, one), (beside, _, two) = name.rpartition("."), other.rpartition(".")
        if parent == beside and one.isdigit() and two.isdigit():
            continue  # in one Sequential, or list
        if _is_copy(run.modules[name], run.modules[other]):
            return f"they are a copy of those of {other!r}, as a target network's are"
        if _is_critic(other, name, run):
            return f"{other!r} also receives other samples, as a critic does"
    return ""


def _is_copy(module: nn.Module, other: nn.Module) -> bool:
    """Return True if one module's weights are, or follow, those of the other.

    Weights that are drawn independently have next to nothing in common.
    """
    one, two = (
        [p.detach().flatten().float() for p in each.parameters() if p.ndim > 1 and not p.is_meta]
        for each in (module, other)
    )
    if not one or list(map(len, one)) != list(map(len, two)):
        return False
    return bool(torch.cosine_similarity(torch.cat(one), torch.cat(two), dim=0) > ALIKE)


def _is_critic(layer: str, name: str, run: RunRecord) -> bool:
    """Return True if a layer takes the output of another one and, beside it, other tensors.

    In two calls, or concatenated in one.
    """
    within = [e for e in run.operations if f"{e.layer}.".startswith(f"{name}.")]
    calls = [call for call in run.calls if call.layer == layer and call.made_by and call.given[0]]
    if not within or not calls:
        return False
    before = any(all(e.index < within[0].index for e in call.made_by) for call in calls)
    twice = [c.made_by[0].name == "cat" and c.given[0][0] == 2 * run.samples for c in calls]
    return any(twice) or (before and any(e in within for call in calls for e in call.made_by))
