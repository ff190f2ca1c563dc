"""Parameters that no gradient reaches, and the reason."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

import torch
from torch import Tensor, nn

from ....run.operations import Kind
from ....run.recorder import Operation, graph_nodes, labelled
from ..check import EVERY, Check, LayerCall, RunRecord
from ..deliberate import deliberate_cut
from ..findings import Finding
from ..modules import outermost
from ..records import OUTSIDE, OperationRecord, Place, behind


@dataclass(eq=False)
class GraphBreak:
    """A place where autograd's graph ends, or where every slope is 0.

    Attributes
    ----------
    record : OperationRecord
        A detach, numbers that leave torch, or a result without a slope, such as a comparison's.
    after : int
        The number of layers' calls that had begun.
    behind : frozenset of str
        The layers in the graph up to there; empty if unknown.
    """

    record: OperationRecord
    after: int
    node: Any = field(default=None, repr=False)  # autograd's, until the run is over
    behind: frozenset[str] = frozenset()

    def find_layers(self) -> None:
        """Find the layers behind it, and release the graph."""
        if self.node is not None:
            self.behind = _layers(self.node)
            self.node = None


def _layers(*nodes: Any) -> frozenset[str]:
    """Return the layers in autograd's graph behind some of its nodes."""
    labels = (label for node in nodes for _, label in labelled(node))
    return frozenset(each.call.layer for each in labels if each.call is not None)


def break_at(record: OperationRecord, operation: Operation, run: RunRecord) -> GraphBreak:
    """Record that the graph of an operation's inputs ends there."""
    nodes = (each.grad_fn for each in operation.inputs if each.requires_grad)
    return GraphBreak(record, len(run.calls), next(filter(None, nodes), None))


@dataclass
class NoGradient(Check):
    """Report weights that no gradient reaches, and frozen weights."""

    looks_at = "parameters that no gradient reaches"
    needs_backward = True
    live = True
    operations = (EVERY,)

    breaks: list[GraphBreak] = field(default_factory=list)
    chosen: bool = False  # whether the model returned whole numbers, as a detector its labels
    floats: bool = False  # whether it returned others
    untracked: set[Place] = field(default_factory=set)  # calls that read under torch.no_grad()
    #: Of the last operation, whose results autograd may be about to keep.
    instruction: tuple[int, int] | None = None
    taken: list[OperationRecord] = field(default_factory=list)  # numbers that left torch
    outputs: list[Any] = field(default_factory=list, repr=False)  # their nodes, until the end
    leads: frozenset[str] = frozenset()  # the layers in the graph of the model's outputs
    cut_off: bool = False  # whether the score's graph leads to no weights

    # Where the graph ends

    def after(
        self, operation: Operation, record: OperationRecord, given: list[Tensor], run: RunRecord
    ) -> None:
        if operation.inputs and record.file:
            if not torch.is_grad_enabled():
                self._under_no_grad(operation, record, run)
            elif self._ends(operation, record):
                self.breaks.append(break_at(record, operation, run))
        if operation.name == "local_scalar_dense":
            self.taken.append(record)
        if operation.name != "detach":
            self.instruction = operation.instruction
        elif self.instruction != operation.instruction:
            self.instruction = None

    def _ends(self, operation: Operation, record: OperationRecord) -> bool:
        given, name = operation.inputs[0], operation.name
        if name == "lift_fresh":  # torch.tensor, maybe of what tolist() returned
            return operation.call is not None and given.is_floating_point() and given.ndim > 0
        kinds = [each.dtype for each in operation.outputs]
        whole = kinds and not any(d.is_floating_point or d.is_complex for d in kinds)
        if not given.requires_grad or not (whole or name in ("detach", "local_scalar_dense")):
            return False
        # Autograd detaches each result that the gradient needs, within the call that made it.
        return name != "detach" or operation.instruction != self.instruction

    def _under_no_grad(self, operation: Operation, record: OperationRecord, run: RunRecord) -> None:
        """Note under which ``torch.no_grad()`` a layer reads what has a gradient."""
        place, graded = (record.layer, record.call), any(t.requires_grad for t in operation.inputs)
        if operation.call is not None and graded and place not in self.untracked:
            self.untracked.add(place)
            file, line = operation.no_grad_line
            found = OperationRecord(0, "no_grad", *place, file=file, line=line)
            self.breaks.append(break_at(found, operation, run))

    def leave(self, call: LayerCall, returned: list[Tensor], run: RunRecord) -> None:
        if call is run.calls[0]:
            self.chosen = any(tensor.dtype is torch.int64 for tensor in returned)
            self.floats = any(tensor.is_floating_point() for tensor in returned)
            self.outputs = [tensor.grad_fn for tensor in returned if tensor.requires_grad]

    def finish(self, score: Tensor | None, run: RunRecord) -> None:
        # A walk through the graph is only worth it if a gradient is missing.
        if run.used - run.gradient_norms.keys() or run.error is not None or not run.gradient_norms:
            for each in self.breaks:
                each.find_layers()
            self.leads = _layers(*self.outputs)
        else:
            self.breaks.clear()
        self.outputs.clear()
        self.cut_off = (
            score is not None and not run.gradient_norms and _leads_nowhere(score, run.weights)
        )

    def last_break(self) -> OperationRecord | None:
        """Return where the score's graph ended: behind the model, if it did so there."""
        ends = [each for each in self.breaks if each.behind or each.node is not None]
        records = [each.record for each in ends or self.breaks]
        behind = [each for each in records if each.layer == OUTSIDE]
        # A number that is taken out is for a log; it counts if nothing else ends the graph.
        behind = [each for each in behind if each.name != "local_scalar_dense"] or behind
        return next(reversed(behind or records), None)

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
            yield _cut_off(self.last_break())
        # Whole numbers have no gradient, and other objects may hold tensors that nobody finds.
        expected = self.floats or run.returned in (NoneType, float)
        if not (run.scored or run.watched) and expected and learning & run.used:
            yield self._unscored(run)
        if not run.backward:
            return
        reached = run.gradient_norms.keys()
        own = {name: run.parameters[name] - frozen for name in run.modules}
        without = outermost(n for n, held in own.items() if held & run.used and not held & reached)
        for name in without:
            yield self._without(name, own[name], without, run)

    def _unscored(self, run: RunRecord) -> Finding:
        """Report an output from which no backward can begin."""
        end = None if run.returned is NoneType else self.last_break()
        why = f"the model returned a {run.returned.__name__}, not a tensor"
        if self.floats:
            why = "the model's output has no gradient"
        why += f": {end.name} ends the graph in {place_of(end)}" if end is not None else ""
        # A choice, such as an argmax or a policy's sample, or a model that only predicts.
        drawn = any(each.kind is Kind.RANDOM for each in run.calls[0].made)
        chosen = self.chosen or drawn or (end is not None and end.name not in _WORDS)
        deliberate = not run.judged and (chosen or not run.root.training)
        return Finding(
            "no gradient",
            "note" if deliberate else "error" if run.judged else "warning",
            f"No backward ran, and no gradient reaches any weight, since {why}.",
            ("No fix is needed if the model only predicts; else return" if deliberate else "Return")
            + " a tensor with its graph: without detach(), .data, item(), numpy() and no_grad().",
            **backward_place(end, ""),
        )

    def _without(self, name: str, weights: set[str], without: list[str], run: RunRecord) -> Finding:
        calls = [call for call in run.calls if call.module is run.modules[name]]
        untracked = not any(call.tracked for call in calls)
        end = self._end(name, run, calls, untracked)
        if end is None and not untracked:
            why, advice = "the score does not depend on its output", _USE
        else:
            ends = end.name if end is not None else "detach"
            why, advice = _WORDS.get(ends, (f"{ends} returns booleans or integers", _SOFT))
            why += f" in {place_of(end)}" if end is not None else ""
        # A model may choose in eval mode where it draws, or rounds softly, in training; and a
        # detector detaches its proposals, and learns them by a loss that it has in training.
        detached = untracked and (end is None or end.name == "detach")
        deliberate = deliberate_cut(name, without, run)
        if not run.root.training and (advice is _SOFT or (self.chosen and detached)):
            deliberate = "eval mode differs from training mode here; examine that, too"
        return Finding(
            "no gradient",
            "note" if deliberate else "warning",
            f"No gradient reaches the weights of {name or 'the model'!r}: {why}.",
            f"No fix is needed if this is deliberate: {deliberate}." if deliberate else advice,
            **backward_place(end, name),
            cause=why,
            evidence={"parameters": sorted(weights)},
        )

    def _end(
        self, name: str, run: RunRecord, calls: list[LayerCall], untracked: bool
    ) -> OperationRecord | None:
        """Return the operation that keeps the gradient from a module; None if none does."""
        within = {run.names[each] for each in run.modules[name].modules() if each in run.names}
        ends = [e for e in self.breaks if e.record.layer in within] if untracked else self.breaks
        found = [each for each in ends if each.behind & within]
        if not found and untracked:
            found = ends
        elif not found and calls:
            # Nobody knows from where tolist() or numpy() took the numbers of a new tensor.
            last = run.calls.index(calls[-1])
            found = [e for e in ends if e.record.name == "lift_fresh" and e.after > last]
        if not untracked and not self._may_use(name, within, run):
            return None
        # A number that is taken out may be for a log; it counts if nothing else ends the graph.
        found = [each for each in found if each.record.name != "local_scalar_dense"] or found
        return found[-1].record if found else None

    def _may_use(self, name: str, within: set[str], run: RunRecord) -> bool:
        """Return False if no value of a module leads to the score, which a log does not change."""
        used = behind(*run.scored_from)

        def leads(records: set[OperationRecord]) -> bool:
            own = run.parameters[name]
            return any(e.layer in within or e.title in own for e in records)

        if not run.scored_from or leads(used):
            return True
        # Numbers may return as others, or as an array: then nobody knows what became of them.
        arrays = any(e.index < 0 and e.name == "constant" and not e.stored for e in used)
        return (arrays or leads(behind(*self.taken))) and not self.leads & within


def _leads_nowhere(score: Tensor, weights: Container[int]) -> bool:
    """Return True if autograd's graph of a score leads to no parameter and none of these ids."""
    variables = (getattr(node, "variable", None) for node in graph_nodes(score.grad_fn))
    return not any(isinstance(each, nn.Parameter) or id(each) in weights for each in variables)


def _cut_off(end: OperationRecord | None) -> Finding:
    """Report a loss whose graph leads to none of the weights."""
    at = f": {end.name} ends the graph in {place_of(end)}" if end is not None else ""
    return Finding(
        "no gradient",
        "error",
        f"The loss is cut off from the model, and no gradient reaches any weight{at}.",
        "Compute the loss from the model's output, without detach(), .data, item(), numpy() and "
        "torch.tensor(); requires_grad_() does not bring the graph back.",
        **backward_place(end, ""),
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


def backward_place(record: OperationRecord | None, layer: str) -> dict[str, Any]:
    """Place the finding of a missing gradient in a layer, at an operation's line."""
    place = record.place if record is not None else {}
    return place | {"layer": layer, "call": 0, "phase": "backward"}


def place_of(record: OperationRecord) -> str:
    """Name the layer and the line of an operation, in words."""
    named = "the score" if record.layer == OUTSIDE else record.layer or "the model"
    return named + (f" at {record.where}" if record.where else "")


_USE = "Use its output in what the loss is computed from, or remove the layer."
_SOFT = (
    "Use something with a slope in its place: a sigmoid for a comparison, a softmax for argmax; or "
    "freeze the layer with requires_grad_(False)."
)
_REMOVE = (
    "Remove the no_grad(), detach() or .data, or freeze the layer with requires_grad_(False). "
    "One step does not show whether it is deliberate: if the layer learns in another step, pass "
    "this one's optimizer=."
)
_WORDS = {
    "lift_fresh": (
        "numbers are made into a new tensor",
        "Compute with tensors throughout: without tolist(), item(), numpy() and torch.tensor().",
    ),
    "detach": ("its output is detached", _REMOVE),
    "local_scalar_dense": ("its output is taken out as a number", _REMOVE),
    "no_grad": ("its output, or it itself, is computed under torch.no_grad()", _REMOVE),
}
"""Operations that end the graph -> a reason in words, and the fix."""
