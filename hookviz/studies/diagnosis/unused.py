"""What takes no part: layers that never run, weights that no gradient reaches, hooks of before."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator

from torch import nn
from torch.utils.hooks import RemovableHandle

from ..hook_table import HookTable, hooks
from .findings import Finding
from .observation import Observation
from .operations import OUTSIDE


def unused(seen: Observation) -> Iterator[Finding]:
    """Layers with weights that never ran, and whose weights nobody read."""
    if seen.error is not None:
        return
    ran = {look.module for look in seen.calls}
    idle = {
        module: name
        for module, name in seen.names.items()
        if module not in ran and (own := _parameters(module, name)) and not own & seen.used
    }
    training = next(iter(seen.names)).training
    for name in _outermost(idle.values()):
        module = next(each for each, known in idle.items() if known == name)
        yield Finding(
            "unused",
            "warning" if training else "note",
            f"Layer {name!r} ({type(module).__name__}) never ran, and nothing read its weights.",
            "Call it in forward, or remove it: its weights are never trained.",
            name,
            cause="unused",
            evidence={"parameters": sorted(_parameters(module, name))},
        )


def no_gradient(seen: Observation) -> Iterator[Finding]:
    """Parameters that no gradient reached, by layer and with the reason."""
    every = dict(next(iter(seen.names)).named_parameters())
    frozen = {name for name, parameter in every.items() if not parameter.requires_grad}
    if frozen:
        whole = len(frozen) == len(every)
        yield Finding(
            "no gradient",
            "warning" if whole else "note",
            f"{len(frozen)} of {len(every)} parameters are frozen (requires_grad=False), such as "
            f"{min(frozen)!r}: they are not trained.",
            "Call requires_grad_() on the layers that are to learn.",
            "" if whole else min(frozen).rpartition(".")[0],
            phase="backward",
            evidence={"parameters": sorted(frozen)},
        )
    if not seen.backward or seen.error is not None:
        return
    lacking = {
        module: name
        for module, name in seen.names.items()
        if (own := _parameters(module, name) - frozen) & seen.used and not own & seen.reached.keys()
    }
    for name in _outermost(lacking.values()):
        module = next(each for each, known in lacking.items() if known == name)
        why, advice = _reason(module, name, seen)
        yield Finding(
            "no gradient",
            "warning",
            f"No gradient reaches the weights of {name or 'the model'!r}: {why}.",
            advice,
            name,
            phase="backward",
            cause=why,
            evidence={"parameters": sorted(_parameters(module, name) - frozen)},
        )


def hooks_left_behind(seen: Observation) -> Iterator[Finding]:
    """Hooks that are set more than once, and hooks that nobody can take off by their handle."""
    standing = hooks(seen.model)
    known = standing.repeated
    if known:
        yield _left(known, "warning", "is set {0} times", "A cell that sets it was run again: ")
    held = {each.id for each in gc.get_objects() if type(each) is RemovableHandle}
    left = [hook for hook in standing.removable if hook.key not in held and hook not in list(known)]
    if left:
        yield _left(HookTable(left, ""), "note", "stands without a handle", "To be rid of it, ")


def _parameters(module: nn.Module, name: str) -> set[str]:
    """The full names of all parameters in a module."""
    return {f"{name}.{each}" if name else each for each, _ in module.named_parameters()}


def _outermost(names: Iterable[str]) -> list[str]:
    """Those that are in none of the others."""
    every = list(names)
    return [n for n in every if not any(n != o and (not o or n.startswith(o + ".")) for o in every)]


def _reason(module: nn.Module, name: str, seen: Observation) -> tuple[str, str]:
    calls = [look for look in seen.calls if look.module is module]
    if calls and not any(look.tracked for look in calls):
        return (
            "its output is not tracked, since it ran under torch.no_grad() or detached",
            _REMOVE,
        )
    last = max((seen.calls.index(look) for look in calls), default=-1)
    within = {name, *(n for m, n in seen.names.items() if m in set(module.modules()))}
    known = [cut for cut in seen.cuts if cut.behind & within]
    # Where numbers came back that tolist() or numpy() had taken out, nobody knows from where.
    known = known or [cut for cut in seen.cuts if not cut.behind and cut.after > last >= 0]
    if known:
        cut = known[-1].record
        line = f" at {cut.where}" if cut.where else ""
        layer = "the score" if cut.layer == OUTSIDE else cut.layer or "the model"
        if not known[-1].behind:
            return f"numbers are made into a new tensor in {layer}{line}, without a graph", _NUMBERS
        taken = "taken out as a number" if cut.name == "local_scalar_dense" else "detached"
        return f"its output is {taken} in {layer}{line}", _REMOVE
    return (
        "the score does not depend on its output",
        "Use its output in what the loss is computed from, or remove the layer.",
    )


_NUMBERS = "Compute with tensors throughout: without tolist(), item(), numpy() and torch.tensor()."
_REMOVE = (
    "Take the no_grad(), detach() or .data away, or freeze the layer with requires_grad_(False)."
)


def _left(found: HookTable, severity: str, what: str, why: str) -> Finding:
    first = found[0]
    others = len({(hook.layer, hook.kind, hook.function) for hook in found}) - 1
    more = f", and {others} more like it" if others else ""
    return Finding(
        "hooks left behind",
        severity,
        f"The {first.kind} hook {first.function} on {first.name} {what.format(first.times)}{more}.",
        f"{why}hookviz.remove_hooks(model, of={first.function!r}); hookviz.hooks(model) lists all.",
        first.layer,
        file=first.file,
        line=first.line or 0,
        evidence={"hooks": len(found)},
    )
