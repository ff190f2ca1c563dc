"""Parameters that no gradient reaches, or only one of 0, and the reason."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ....hooking.checkpoint import FORWARD, current_backward
from ....run.errors import line_of
from ....run.operations import CLAMPS, STEPS
from ....run.recorder import Operation, labelled
from ..check import Check, LayerCall, RunRecord
from ..findings import Finding
from ..modules import learns, outermost, zero_layers
from ..records import OUTSIDE, OperationRecord, RanOperation, range_of
from ..step import WatchedStep
from .optimizer import held_by
from .score import by_zero, learned_product
from .zero_weights import CONSTANT

SOME = 16
"""This many numbers are not all beyond a clamp by chance."""
FEW = 16
"""At most this many parts are kept from learning on purpose: a generator, a target network."""
ALIKE = 0.5
"""Least cosine of the weights of a network and of another one that follows it."""


@dataclass(eq=False)
class GraphBreak:
    """A place where autograd's graph ends, or where every slope is 0.

    Attributes
    ----------
    record : OperationRecord
        A detach, numbers that leave torch, or a result without a slope, such as a comparison's.
    after : int
        The number of layers' calls that had begun.
    flat : bool
        True if the graph goes on and each gradient in it is 0, as behind ``round``.
    apart : bool
        True for a product with zeros of another line, such as a recurrence's first state.
    behind : frozenset of str
        The layers in the graph up to there; empty if unknown.
    """

    record: OperationRecord
    after: int
    flat: bool = False
    apart: bool = False
    behind: frozenset[str] = frozenset()
    node: Any = field(default=None, repr=False)  # autograd's, until the run is over

    def find_layers(self) -> None:
        """Find the layers behind it, and release the graph."""
        if self.node is not None:
            labels = (label for _, label in labelled(self.node))
            self.behind = frozenset(each.call.layer for each in labels if each.call is not None)
            self.node = None


@dataclass
class NoGradient(Check):
    """Report weights that no gradient reaches, layers with a gradient of 0, and frozen weights."""

    looks_at = "parameters that no gradient reaches"
    live = True
    operations = tuple(CLAMPS)

    breaks: list[GraphBreak] = field(default_factory=list)
    chosen: bool = False  # whether the model returned whole numbers, as a detector its labels
    result: int = 0  # the address of the last result, which autograd may be about to keep
    cut_off: bool = False  # whether the score's graph leads to no weights

    # Where the graph ends

    def heard(self, operation: Operation, record: OperationRecord, run: RunRecord) -> None:
        if operation.inputs and record.file and current_backward() == FORWARD:
            if torch.is_grad_enabled():
                found = self._graph_break(operation, record, len(run.calls))
            else:
                found = _under_no_grad(operation, run)
            if found is not None:
                self.breaks.append(found)
        returned = operation.outputs
        self.result = returned[0].data_ptr() if returned and operation.name != "detach" else 0

    def _graph_break(
        self, operation: Operation, record: OperationRecord, begun: int
    ) -> GraphBreak | None:
        given, name = operation.inputs[0], operation.name
        if name == "mul":
            zeros = [m for m in record.makers if m is not None and m.name in _ZEROS]
            if not by_zero(operation) and not (zeros and _by_zeros(operation, record)):
                return None
            graded = next(each for each in operation.inputs if each.requires_grad)
            apart = bool(zeros) and all(each.line != record.line for each in zeros)
            return GraphBreak(record, begun, True, apart, node=graded.grad_fn)
        if name == "lift_fresh":  # torch.tensor, maybe of what tolist() returned
            inside = operation.call is not None and given.is_floating_point() and given.ndim > 0
            return GraphBreak(record, begun) if inside else None
        flat = name in STEPS
        if not given.requires_grad or not (flat or _ends_graph(operation)):
            return None
        # Autograd detaches a result that the gradient needs.
        kept = given.data_ptr() == self.result and hasattr(given.grad_fn, "_saved_result")
        return None if kept else GraphBreak(record, begun, flat, node=given.grad_fn)

    def after(self, ran: RanOperation, run: RunRecord) -> None:
        """Note a clamp whose whole input is out of range; if it returns 0, that is "dead"."""
        record, given = ran.record, ran.given
        if record.phase != "forward" or not given or not record.made:
            return
        made, graded = record.made[0], torch.is_grad_enabled() and given[0].requires_grad
        if not graded or not made.low == made.high != 0 or math.prod(made.shape) < SOME:
            return
        extent = range_of(given[0])
        if extent is not None and (extent.low > made.high or extent.high < made.low):
            self.breaks.append(GraphBreak(record, len(run.calls), True, node=given[0].grad_fn))

    def leave(self, call: LayerCall, returned: list[Tensor], run: RunRecord) -> None:
        if call is run.calls[0]:
            self.chosen = any(tensor.dtype is torch.int64 for tensor in returned)

    def finish(self, score: Tensor | None, run: RunRecord) -> None:
        # A walk through the graph is only worth it if a gradient is missing.
        missing = run.used - run.gradient_norms.keys()
        norms = run.gradient_norms.values()
        if missing or run.error is not None or not norms or not all(norms):
            for each in self.breaks:
                each.find_layers()
        else:
            self.breaks.clear()
        self.cut_off = score is not None and not run.gradient_norms and leads_nowhere(score)

    def last_break(self) -> OperationRecord | None:
        """Return where the score's graph ended: behind the model, if it did so there."""
        ends = [each.record for each in self.breaks if not each.flat]
        behind = [each for each in ends if each.layer == OUTSIDE]
        # A number that is taken out is for a log; it counts if nothing else ends the graph.
        behind = [each for each in behind if each.name != "local_scalar_dense"] or behind
        return next(reversed(behind or ends), None)

    # What it means

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        every = dict(run.root.named_parameters())
        frozen = {name for name, parameter in every.items() if not parameter.requires_grad}
        if frozen and (run.backward or not run.watched):
            yield _frozen(frozen, len(every))
        if run.error is not None:
            return
        learning = every.keys() - frozen
        if self.cut_off and (learning if run.watched else learning & run.used):
            yield cut_off(self.last_break())
        if not run.backward:
            return
        lacking = {
            name: module
            for module, name in run.names.items()
            if (own := run.parameters[name] - frozen) & run.used
            and not own & run.gradient_norms.keys()
        }
        without = outermost(lacking)
        learners = _learners(run, without) if len(without) <= FEW else {}
        for name in without:
            yield self._without(lacking[name], name, frozen, learners, run)
        yield from self._without_slope(run)

    def _without(
        self,
        module: nn.Module,
        name: str,
        frozen: set[str],
        learners: Mapping[str, nn.Module],
        run: RunRecord,
    ) -> Finding:
        why, advice, end = self._reason(module, name, run)
        # A model may choose in eval mode where it draws, or rounds softly, in training; and a
        # detector detaches its proposals, and learns them by a loss that it has in training.
        untracked = not any(call.tracked for call in run.calls if call.module is module)
        detached = untracked and (end is None or end.name == "detach")
        answers = not run.root.training and (advice is _SOFT or (self.chosen and detached))
        meant = _meant(module, name, run, learners)
        if meant:
            advice = f"No fix is needed if this is deliberate: {meant}."
        elif answers:
            advice = (
                "No fix is needed if this happens in eval mode only; examine training mode, too."
            )
        return Finding(
            "no gradient",
            "note" if answers or meant else "warning",
            f"No gradient reaches the weights of {name or 'the model'!r}: {why}.",
            advice,
            name,
            phase="backward",
            cause=why,
            operation="" if end is None else end.name,
            file="" if end is None else end.file,
            line=0 if end is None else end.line,
            evidence={"parameters": sorted(run.parameters[name] - frozen)},
        )

    def _reason(
        self, module: nn.Module, name: str, run: RunRecord
    ) -> tuple[str, str, OperationRecord | None]:
        """Say why no gradient reaches a module, what to do, and the operation that is to blame."""
        calls = [call for call in run.calls if call.module is module]
        inner = set(module.modules())
        within = {name, *(run.names[each] for each in inner if each in run.names)}
        ends = [each for each in self.breaks if not each.flat]
        if calls and not any(call.tracked for call in calls):
            off = [c.no_grad for c in run.calls if c.module in inner and c.no_grad[0]]
            if off:
                why = f"it ran under torch.no_grad() at {line_of(*off[0])}"
                return why, _REMOVE, OperationRecord(-1, "", name, file=off[0][0], line=off[0][1])
            own = [each for each in ends if each.record.layer in within]
            own = [each for each in own if each.behind & within] or own
            return _explained(own[-1].record) if own else (_UNTRACKED, _REMOVE, None)
        last = max((run.calls.index(call) for call in calls), default=-1)
        behind = [each for each in ends if each.behind & within]
        # Nobody knows from where tolist() or numpy() took the numbers of a new tensor.
        made = [each for each in self.breaks if each.record.name == "lift_fresh"]
        behind = behind or [each for each in made if each.after > last >= 0]
        if behind:
            return _explained(behind[-1].record)
        return (
            "the score does not depend on its output",
            "Use its output in what the loss is computed from, or remove the layer.",
            None,
        )

    def _without_slope(self, run: RunRecord) -> Iterator[Finding]:
        """Report layers whose gradient is 0, since the slope of what follows is 0.

        In a branch the last layer before it is one of them; what lies before the branch has another
        way open.
        """
        norms = run.gradient_norms
        some = (run.output_gradient.nonzero and run.finite_score) or any(norms.values())
        begins = any(learns(run, name) for name in zero_layers(run))  # then all before it gets none
        for each in (each for each in self.breaks if each.flat and some):
            record, zero = each.record, each.record.name == "mul"
            ran = dict.fromkeys(call.layer for call in run.calls[: each.after])
            sums = {
                name: sum(norms.get(parameter, 0.0) for parameter in own)
                for name in ran
                if name in each.behind and (own := run.own_parameters(name))
            }
            layers = [name for name in sums if sums[name] == 0]
            # A branch may be left out at random by a factor of 0.
            at_random = zero and run.drew and run.root.training
            if not layers or next(reversed(sums)) != layers[-1] or at_random:
                continue
            if (begins and not zero) or (each.apart and any(norms.values())):
                continue
            yield _slopeless(
                record, layers, begun=record.layer == OUTSIDE and len(layers) < len(sums)
            )

    def suspects(self, step: WatchedStep) -> bool:
        """Return True if there was a backward in which some weights had no part."""
        return bool(step.graded) and (step.idle or bool(step.learning - step.graded))


_ZEROS = {"zeros", "zeros_like", "new_zeros"}


def _by_zeros(operation: Operation, record: OperationRecord) -> bool:
    """Return True if a tensor with a gradient is multiplied by zeros that the code makes."""
    pairs = zip(operation.inputs, record.makers, strict=True)
    zeros = (m is not None and m.name in _ZEROS for each, m in pairs if not each.requires_grad)
    return learned_product(operation) and any(zeros)


def _ends_graph(operation: Operation) -> bool:
    """Return True if the result is boolean, integer or detached."""
    if operation.name in ("detach", "local_scalar_dense", "lift_fresh"):
        return True
    kinds = [t.dtype for t in operation.outputs]
    return bool(kinds) and not any(d.is_floating_point or d.is_complex for d in kinds)


def _under_no_grad(operation: Operation, run: RunRecord) -> GraphBreak | None:
    """Note the line of the ``torch.no_grad()`` under which a layer reads what has a gradient."""
    if operation.call is None:
        return None
    place = operation.call.layer, operation.call.call
    call = next((each for each in reversed(run.calls) if each.place == place), None)
    graded = [each for each in operation.inputs if each.requires_grad]
    if call is None or call.no_grad[0] or not graded:
        return None
    call.no_grad = operation.no_grad_line
    behind = next((each.grad_fn for each in graded if each.grad_fn is not None), None)
    if behind is None:
        return None
    record = OperationRecord(0, "no_grad", call.layer, call.call, "forward", *call.no_grad)
    return GraphBreak(record, len(run.calls), node=behind)


def leads_nowhere(score: Tensor) -> bool:
    """Return True if autograd's graph of a score leads to no parameter."""
    waiting = [score.grad_fn] if score.grad_fn is not None else []
    known = set(waiting)
    while waiting:
        node = waiting.pop()
        if isinstance(getattr(node, "variable", None), nn.Parameter):
            return False
        behind = {each for each, _ in node.next_functions if each is not None} - known
        known |= behind
        waiting += behind
    return True


def cut_off(end: OperationRecord | None) -> Finding:
    """Report a loss whose graph leads to none of the weights."""
    at = ""
    if end is not None:
        at = f": {end.name} ends the graph" + (f" at {end.where}" if end.where else "")
    return Finding(
        "no gradient",
        "error",
        f"The loss is cut off from the model, and no gradient reaches any weight{at}.",
        "Compute the loss from the model's output, without detach(), .data, item(), numpy() and "
        "torch.tensor(); requires_grad_() does not bring the graph back.",
        phase="backward",
        operation=end.name if end is not None else "",
        file=end.file if end is not None else "",
        line=end.line if end is not None else 0,
    )


def _frozen(frozen: set[str], count: int) -> Finding:
    whole, first = len(frozen) == count, min(frozen)
    return Finding(
        "no gradient",
        "warning" if whole else "note",
        f"{len(frozen)} of {count} parameters are frozen (requires_grad=False), such as "
        f"{first!r}: they are not trained.",
        "Call requires_grad_() on the layers that should learn.",
        "" if whole else first.rpartition(".")[0],
        phase="backward",
        evidence={"parameters": sorted(frozen)},
    )


def _slopeless(record: OperationRecord, layers: list[str], *, begun: bool) -> Finding:
    line = f" at {record.where}" if record.where else ""
    why = f"the slope of {record.name} in {_place_of(record)}{line} is 0 everywhere"
    advice = "Let the gradient pass it: x + (x.round() - x).detach(), with your operation."
    if record.name == "mul":
        why = f"it is multiplied by 0 in {_place_of(record)}{line}"
        advice = "Remove the factor 0; what is added to the product has no graph."
    elif record.name in CLAMPS:
        advice = "Compare its bounds with its input, all of which lies beyond them."
    if begun:
        advice = "No fix is needed if a part of the loss begins with the weight 0."
    explains = {"gradient of 0", "no slope"}
    if record.name == "mul" or record.name in CLAMPS:
        explains |= CONSTANT
    return Finding(
        "no gradient",
        "note" if begun else "warning",
        f"The gradient that reaches {layers[-1]!r} is 0: {why}.",
        advice,
        layers[-1],
        phase="backward",
        operation=record.name,
        file=record.file,
        line=record.line,
        layers=[layers[-1], *layers[:-1]],
        symptom="factor of 0" if record.name == "mul" else "",
        explains=frozenset() if begun else frozenset(explains),
    )


def _place_of(record: OperationRecord) -> str:
    """Name the layer of an operation, in words."""
    return "the score" if record.layer == OUTSIDE else record.layer or "the model"


def _explained(end: OperationRecord) -> tuple[str, str, OperationRecord]:
    """Say where the graph ends, what to do, and the operation that ends it."""
    there = f"in {_place_of(end)}" + (f" at {end.where}" if end.where else "")
    if end.name == "lift_fresh":
        return f"numbers are made into a new tensor {there}, without a graph", _NUMBERS, end
    if end.name == "local_scalar_dense":
        return f"its output is taken out as a number {there}", _REMOVE, end
    if end.name == "no_grad":
        return f"its output goes through torch.no_grad() {there}", _REMOVE, end
    if end.name == "detach":
        return f"its output is detached {there}", _REMOVE, end
    return f"{end.name} {there} returns booleans or integers, without a slope", _SOFT, end


_SOFT = (
    "Use something with a slope in its place: a sigmoid for a comparison, a softmax for argmax; or "
    "freeze the layer with requires_grad_(False)."
)
_UNTRACKED = "its output is not tracked, since it ran under torch.no_grad() or detached"
_NUMBERS = "Compute with tensors throughout: without tolist(), item(), numpy() and torch.tensor()."
_REMOVE = (
    "Remove the no_grad(), detach() or .data, or freeze the layer with requires_grad_(False). "
    "One step does not show whether it is deliberate: if the layer learns in another step, pass "
    "this one's optimizer=."
)


# What is kept from learning on purpose


def _learners(run: RunRecord, without: Collection[str]) -> dict[str, nn.Module]:
    """Return the outermost modules that a gradient reaches and in which none lacks it."""
    learns = {
        name: module
        for module, name in run.names.items()
        if not any(not name or each.startswith(f"{name}.") for each in without)
        and run.parameters[name] & run.gradient_norms.keys()
    }
    return {name: learns[name] for name in outermost(learns)}


def _meant(module: nn.Module, name: str, run: RunRecord, learners: Mapping[str, nn.Module]) -> str:
    """Say what shows that a part is kept from learning on purpose; empty if nothing does."""
    apart = {known: each for known, each in learners.items() if not _in_one_row(name, known)}
    for known, other in apart.items():
        if _is_copy(module, other):
            return f"they are a copy of those of {known!r}, as a target network's are"
    within = {name, *(run.names[each] for each in module.modules() if each in run.names)}
    for known in apart:
        if _is_shared(within, known, run):
            return f"{known!r} also takes other samples, as in a critic's step"
    own = run.parameters[name]
    steps = [held_by(each, run.root) for each in run.optimizers]
    steps = [held for held in steps if held & run.gradient_norms.keys()]
    if steps and not any(held & own for held in steps):  # another optimizer's step
        return "the optimizer of this step holds none of these weights"
    return ""


def _is_shared(within: set[str], layer: str, run: RunRecord) -> bool:
    """Return True if a layer takes the output of some layers and, beside it, other tensors.

    In two calls, or concatenated in one.
    """
    made = [each for each in run.operations if each.layer in within]
    calls = [call for call in run.calls if call.layer == layer and call.made_by and call.given[0]]
    if not made or not calls:
        return False
    before = [all(each.index < made[0].index for each in call.made_by) for call in calls]
    after = [any(each.layer in within for each in call.made_by) for call in calls]
    twice = [c.made_by[0].name == "cat" and c.given[0][0] == 2 * run.samples for c in calls]
    return (any(before) and any(after)) or any(twice)


def _in_one_row(one: str, other: str) -> bool:
    """Return True if two layers stand in one Sequential or list."""
    (parent, _, own), (beside, _, its) = one.rpartition("."), other.rpartition(".")
    return parent == beside and own.isdigit() and its.isdigit()


def _is_copy(module: nn.Module, other: nn.Module) -> bool:
    """Return True if one module's weights are, or follow, those of the other.

    Weights that are drawn independently have next to nothing in common.
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
