"""Checks of unused parts: layers that never run, weights without gradients, leftover hooks."""

from __future__ import annotations

import gc
import math
from collections.abc import Collection, Iterable, Iterator, Mapping

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ...run.errors import line_of
from ...run.operations import CLAMPS
from ..hook_table import HookTable, hooks
from .findings import Finding
from .observation import Observation
from .operations import OUTSIDE, OperationRecord
from .values import learns, of_zeros


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
        why = "routed" if _is_routed(seen, name) else "unused"
        if why == "unused" and training and seen.drew:
            why = "left out"
        if why == "unused" and not any(p.requires_grad for p in module.parameters()):
            why = "frozen"
        yield Finding(
            "unused",
            "warning" if training and why == "unused" else "note",
            f"Layer {name!r} ({type(module).__name__}) never ran, and nothing read its weights.",
            _UNUSED[why],
            name,
            cause=why,
            evidence={"parameters": sorted(_parameters(module, name))},
        )


_UNUSED = {
    "routed": "Nothing, if inputs are sent to some of these layers alone: none was sent to this "
    "one.",
    "left out": "Nothing, if layers are left out at random, as this model draws numbers to do; "
    "else call it in forward.",
    "frozen": "Nothing, if it is kept for later: its weights are frozen.",
    "unused": "Call it in forward, or remove it: its weights are never trained.",
}


def _is_routed(seen: Observation, name: str) -> bool:
    """Return True if layers beside this one share the batch among them, as experts do.

    One of them may get it all: then their owner reads from its numbers which of them are to run.
    """
    beside = name.rpartition(".")[0]
    rows: dict[str, int] = {}
    for each in seen.calls:
        if each.layer.rpartition(".")[0] == beside and each.given and each.given[0]:
            rows[each.layer] = rows.get(each.layer, 0) + each.given[0][0]
    shares = set(rows.values())
    if not (beside and shares):
        return False
    decided = bool({beside, beside.rpartition(".")[0]} & seen.decided)
    return decided or len(shares) > 1 or max(shares) < seen.samples


def no_gradient(seen: Observation) -> Iterator[Finding]:
    """Parameters that no gradient reached, by layer and with the reason."""
    every = dict(next(iter(seen.names)).named_parameters())
    frozen = {name for name, parameter in every.items() if not parameter.requires_grad}
    yield from not_learning(every)
    if seen.error is not None:
        return
    if not seen.backward:
        if seen.score is not None and (every.keys() - frozen) & seen.used:
            yield cut_off(_last_cut(seen))
        return
    lacking = {
        module: name
        for module, name in seen.names.items()
        if (own := _parameters(module, name) - frozen) & seen.used
        and not own & seen.gradient_norms.keys()
    }
    without = _outermost(lacking.values())
    learns = _learners(seen, without) if len(without) <= FEW else {}
    steps = [held for held in seen.optimized if held & seen.gradient_norms.keys()]
    for name in without:
        module = next(each for each, known in lacking.items() if known == name)
        why, advice, cut = _reason(module, name, seen)
        # A model may choose in eval mode where it draws, or rounds softly, in training; and a
        # detector detaches what it proposes, and learns it by a loss that it has in training.
        training = next(iter(seen.names)).training
        untracked = not any(look.tracked for look in seen.calls if look.module is module)
        detached = untracked and (cut is None or cut.name == "detach")
        answers = not training and (advice is _SOFT or (seen.chosen and detached))
        nothing = "Nothing, if that is so in eval mode alone; in training mode look again."
        if meant := _meant(module, name, seen, learns, steps):
            nothing = f"Nothing, if that is meant: {meant}."
        yield Finding(
            "no gradient",
            "note" if answers or meant else "warning",
            f"No gradient reaches the weights of {name or 'the model'!r}: {why}.",
            nothing if answers or meant else advice,
            name,
            phase="backward",
            cause=why,
            operation="" if cut is None else cut.name,
            file="" if cut is None else cut.file,
            line=0 if cut is None else cut.line,
            evidence={"parameters": sorted(_parameters(module, name) - frozen)},
        )
    yield from _no_slope(seen)


def not_learning(every: Mapping[str, nn.Parameter]) -> Iterator[Finding]:
    """Tell of parameters, by their names, that are frozen."""
    frozen = [name for name, parameter in every.items() if not parameter.requires_grad]
    if not frozen:
        return
    whole, first = len(frozen) == len(every), min(frozen)
    yield Finding(
        "no gradient",
        "warning" if whole else "note",
        f"{len(frozen)} of {len(every)} parameters are frozen (requires_grad=False), such as "
        f"{first!r}: they are not trained.",
        "Call requires_grad_() on the layers that are to learn.",
        "" if whole else first.rpartition(".")[0],
        phase="backward",
        evidence={"parameters": sorted(frozen)},
    )


FEW = 16
"""So many parts, at most, are kept from learning on purpose: a generator, a target network."""


def _learners(seen: Observation, without: list[str]) -> dict[str, nn.Module]:
    """Return the outermost modules that a gradient reaches and in which none lacks it."""
    learns = {
        name: module
        for module, name in seen.names.items()
        if not any(not name or each.startswith(f"{name}.") for each in without)
        and _parameters(module, name) & seen.gradient_norms.keys()
    }
    return {name: learns[name] for name in _outermost(learns)}


def _meant(
    module: nn.Module,
    name: str,
    seen: Observation,
    learns: Mapping[str, nn.Module],
    steps: Collection[set[str]],
) -> str:
    """Say what tells that a part is kept from learning on purpose; empty where nothing does."""
    own = _parameters(module, name)
    for known, other in learns.items():
        if not _in_one_row(name, known) and _is_copy(module, other):
            return f"they are a copy of those of {known!r}, as a target network's are"
    within = _names_within(module, name, seen)
    for known in learns:
        if not _in_one_row(name, known) and _is_shared(within, known, seen):
            return f"{known!r} is given other samples, too, as in a critic's step"
    if steps and not any(held & own for held in steps):  # another optimizer's step
        return "the optimizer of this step holds none of these weights"
    return ""


def _is_shared(within: set[str], layer: str, seen: Observation) -> bool:
    """Return whether a layer takes what some layers make and, beside it, what they do not.

    In two calls, or put together in one.
    """
    made = [each for each in seen.operations if each.layer in within]
    calls = [look for look in seen.calls if look.layer == layer and look.made_by and look.given[0]]
    if not made or not calls:
        return False
    before = [all(each.index < made[0].index for each in look.made_by) for look in calls]
    after = [any(each.layer in within for each in look.made_by) for look in calls]
    twice = [
        look.made_by[0].name == "cat" and look.given[0][0] == 2 * seen.samples for look in calls
    ]
    return (any(before) and any(after)) or any(twice)


def _in_one_row(one: str, other: str) -> bool:
    """Return whether two layers stand in one Sequential or list."""
    (parent, _, own), (beside, _, its) = one.rpartition("."), other.rpartition(".")
    return parent == beside and own.isdigit() and its.isdigit()


def _is_copy(module: nn.Module, other: nn.Module) -> bool:
    """Return whether one module's weights are, or follow, those of the other.

    Weights that are drawn apart have next to nothing in common.
    """
    own, theirs = ([*each.parameters()] for each in (module, other))
    if module is other or [p.shape for p in own] != [p.shape for p in theirs]:
        return False
    pairs = [(a.detach().flatten(), b.detach().flatten()) for a, b in zip(own, theirs, strict=True)
             if a.ndim > 1 and not a.is_meta]  # fmt: skip
    if not pairs:
        return False
    one, two = (torch.cat([pair[side].float() for pair in pairs]) for side in range(2))
    return bool(torch.cosine_similarity(one, two, dim=0) > ALIKE)


ALIKE = 0.5
"""Cosine of the weights of a network and of another one that follows it, at least."""


def _last_cut(seen: Observation) -> OperationRecord | None:
    """Return where the score's graph ended: behind the model, if it did so there."""
    cuts = [each.record for each in seen.cuts if not each.flat]
    behind = [each for each in cuts if each.layer == OUTSIDE]
    return next(reversed(behind or cuts), None)


def cut_off(cut: OperationRecord | None) -> Finding:
    """Report a loss that has a gradient, and no way from there to any weight."""
    at = f": {cut.name} ends the graph" + (f" at {cut.where}" if cut.where else "") if cut else ""
    return Finding(
        "no gradient",
        "error",
        f"The loss is cut off from the model, and no gradient reaches any weight{at}.",
        "Compute the loss from what the model returns, without detach(), .data, item(), numpy() "
        "and torch.tensor(); requires_grad_() brings no graph back.",
        phase="backward",
        operation=cut.name if cut else "",
        file=cut.file if cut else "",
        line=cut.line if cut else 0,
    )


def _no_slope(seen: Observation) -> Iterator[Finding]:
    """Find layers to which a gradient comes that is 0, since what follows has no slope.

    In a branch the last layer before it is one of them; what lies before the branch has another
    way open.
    """
    finite = seen.score is None or math.isfinite(seen.score)  # else that is the cause
    some = (seen.sloped and finite) or any(seen.gradient_norms.values())
    begins = any(learns(seen, name) for name in of_zeros(seen))  # then all before it gets none
    for cut in (each for each in seen.cuts if each.flat and some):
        zero = cut.record.name == "mul"
        ran = dict.fromkeys(look.layer for look in seen.calls[: cut.after])
        norms = {
            name: sum(seen.gradient_norms.get(each, 0.0) for each in own)
            for name in ran
            if name in cut.behind and (own := _own(seen.modules[name], name))
        }
        layers = [name for name in norms if norms[name] == 0]
        # At random a branch may be left out by a factor of 0.
        at_random = zero and seen.drew and next(iter(seen.names)).training
        if not layers or next(reversed(norms)) != layers[-1] or at_random or (begins and not zero):
            continue
        if cut.apart and any(seen.gradient_norms.values()):
            continue
        line = f" at {cut.record.where}" if cut.record.where else ""
        why = f"the slope of {cut.record.name} in {_place_of(cut.record)}{line} is 0 everywhere"
        if zero:
            why = f"it is multiplied by 0 in {_place_of(cut.record)}{line}"
        begun = cut.record.layer == OUTSIDE and len(layers) < len(norms)
        yield Finding(
            "no gradient",
            "note" if begun else "warning",
            f"The gradient that reaches {layers[-1]!r} is 0: {why}.",
            "Nothing, if a part of the loss begins with the weight 0."
            if begun
            else _PASSING.get(cut.record.name, _ROUNDED),
            layers[-1],
            phase="backward",
            operation=cut.record.name,
            file=cut.record.file,
            line=cut.record.line,
            layers=[layers[-1], *layers[:-1]],
            evidence={"slope": 0, "everywhere the same": cut.record.name in _PASSING},
        )


_ROUNDED = "Let the gradient pass it: x + (x.round() - x).detach(), with your operation."
_PASSING = {"mul": "Take the factor 0 away; what is added to it has no graph."} | dict.fromkeys(
    CLAMPS,
    "Look at its ends and at what it is given, all of which lies beyond them.",
)


def _own(module: nn.Module, name: str) -> set[str]:
    """Return the full names of a module's own parameters."""
    own = module.named_parameters(recurse=False)
    return {f"{name}.{each}" if name else each for each, _ in own}


def _place_of(record: OperationRecord) -> str:
    """Name the layer of an operation, in words."""
    return "the score" if record.layer == OUTSIDE else record.layer or "the model"


def set_again(model: nn.Module) -> Iterator[Finding]:
    """Tell of hooks that are set more than once; quick where no module has two of a kind."""
    several = any(len(getattr(m, held)) > 1 for m in model.modules() for held in _HELD)
    if several and (known := hooks(model).repeated):
        yield _left(known, "warning", "is set {0} times", "A cell that sets it was run again: ")


_HELD = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"


def hooks_left_behind(seen: Observation) -> Iterator[Finding]:
    """Hooks that are set more than once, and hooks that nobody can take off by their handle."""
    standing = hooks(seen.model)
    known = standing.repeated
    if known:
        yield _left(known, "warning", "is set {0} times", "A cell that sets it was run again: ")
    removable = standing.removable
    # All objects are looked through: not unless there is a hook.
    held = {e.id for e in gc.get_objects() if type(e) is RemovableHandle} if removable else set()
    left = [hook for hook in removable if hook.key not in held and hook not in list(known)]
    if left:
        yield _left(HookTable(left, ""), "note", "stands without a handle", "To be rid of it, ")


def _parameters(module: nn.Module, name: str) -> set[str]:
    """Return the full names of all parameters in a module."""
    return {f"{name}.{each}" if name else each for each, _ in module.named_parameters()}


def _names_within(module: nn.Module, name: str, seen: Observation) -> set[str]:
    """Return the names of a module and of all modules in it."""
    return {name, *(seen.names[each] for each in module.modules() if each in seen.names)}


def _outermost(names: Iterable[str]) -> list[str]:
    """Those that are in none of the others."""
    every = list(names)
    return [n for n in every if not any(n != o and (not o or n.startswith(o + ".")) for o in every)]


def _reason(
    module: nn.Module, name: str, seen: Observation
) -> tuple[str, str, OperationRecord | None]:
    """Say why no gradient reaches a module, what to do, and the operation that is to blame."""
    calls = [look for look in seen.calls if look.module is module]
    within = _names_within(module, name, seen)
    if calls and not any(look.tracked for look in calls):
        inner = set(module.modules())
        off = [look.no_grad for look in seen.calls if look.module in inner and look.no_grad[0]]
        if off:
            why = f"it ran under torch.no_grad() at {line_of(*off[0])}"
            return why, _REMOVE, OperationRecord(-1, "", name, file=off[0][0], line=off[0][1])
        own = [e for e in seen.cuts if not e.flat and e.record.layer in within]
        own = [each for each in own if each.behind & within] or own
        return _said_of(own[-1].record) if own else (_UNTRACKED, _REMOVE, None)
    last = max((seen.calls.index(look) for look in calls), default=-1)
    known = [cut for cut in seen.cuts if cut.behind & within and not cut.flat]
    # Where numbers came back that tolist() or numpy() had taken out, nobody knows from where.
    made = [each for each in seen.cuts if each.record.name == "lift_fresh"]
    known = known or [cut for cut in made if cut.after > last >= 0]
    if known:
        return _said_of(known[-1].record)
    return (
        "the score does not depend on its output",
        "Use its output in what the loss is computed from, or remove the layer.",
        None,
    )


def _said_of(cut: OperationRecord) -> tuple[str, str, OperationRecord]:
    """Say where the graph ends, what to do, and the operation that ends it."""
    line = f" at {cut.where}" if cut.where else ""
    there = f"in {_place_of(cut)}{line}"
    if cut.name == "lift_fresh":
        return f"numbers are made into a new tensor {there}, without a graph", _NUMBERS, cut
    if cut.name == "local_scalar_dense":
        return f"its output is taken out as a number {there}", _REMOVE, cut
    if cut.name == "no_grad":
        return f"its output goes through torch.no_grad() {there}", _REMOVE, cut
    if cut.name == "detach":
        return f"its output is detached {there}", _REMOVE, cut
    return f"{cut.name} {there} returns truths or whole numbers, without a slope", _SOFT, cut


_SOFT = (
    "Use something with a slope in its place: a sigmoid for a comparison, a softmax for argmax; or "
    "freeze the layer with requires_grad_(False)."
)
_UNTRACKED = "its output is not tracked, since it ran under torch.no_grad() or detached"
_NUMBERS = "Compute with tensors throughout: without tolist(), item(), numpy() and torch.tensor()."
_REMOVE = (
    "Take the no_grad(), detach() or .data away, or freeze the layer with requires_grad_(False). "
    "One step does not show whether it is meant: if the layer learns in another, give this one's "
    "optimizer=."
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
