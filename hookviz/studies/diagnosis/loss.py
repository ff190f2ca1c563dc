"""Checks of the training step: a loss's arguments, a loss without a gradient, the optimizer."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from ...hooking.checkpoint import FORWARD, current_backward
from ...hooking.storage import StorageMap
from ...run.operations import RECTIFIERS
from ...run.recorder import Listener, Operation
from ...tables import number
from .domains import Broken, as_range, backward_cause, forward_cause
from .findings import Finding, also
from .observation import (
    Observation,
    address_of_result,
    by_zero,
    cuts,
    is_kept,
)
from .operations import (
    OUTSIDE,
    PAIRED,
    WIRED,
    Cause,
    Ends,
    OperationContext,
    OperationRecord,
    culprit,
    ends_of,
    look_at_wiring,
    origin_of,
    record_of,
)


def wiring(seen: Observation) -> Iterator[Finding]:
    """Losses that are given what they do not take."""
    within = [each for each in seen.operations if each.phase == "forward" and each.layer != OUTSIDE]
    for operation in seen.operations:
        facts = operation.facts
        if "wired" in facts:
            made: OperationRecord = facts["wired"]
            why, advice = WIRED[operation.name, made.name]
            if made.name == "relu" and operation.layer != OUTSIDE:
                continue
            message = f"{_said(operation)} is given {_said(made)}: {why}."
            yield _wrong(operation, message, advice, made)
        elif facts.get("positive"):
            yield _wrong(
                operation,
                f"{_said(operation)} takes logarithms of probabilities, which are 0 at most, and "
                "is given numbers above 0.",
                "Give it log_softmax of the logits."
                if operation.name == "kl_div"
                else "Use cross_entropy on the logits, or log_softmax before it.",
            )
        if facts.get("over the batch") and facts["over the batch"] == seen.samples:
            yield _wrong(
                operation,
                f"{_said(operation)} runs over dimension 0, the batch: for each class it is the "
                "samples that sum to 1.",
                "Give it dim=1 (or dim=-1).",
            )
        if facts.get("over one") and (operation.layer == OUTSIDE or operation is within[-1]):
            found = _wrong(
                operation,
                f"{_said(operation)} runs over one class: it returns the same for every sample, "
                "and nothing is learnt.",
                "For two classes return two numbers a sample, or one without softmax, and use "
                "binary_cross_entropy_with_logits.",
            )
            yield replace(found, evidence={"slope": 0})
        if facts.get("pairs"):
            yield _wrong(
                operation,
                f"{_said(operation)} is given (N, 1) and (N,), which become (N, N): each sample is "
                "compared with the truth of all others.",
                "Give both the same shape: output.squeeze(1), or y[:, None].",
            )


def _wrong(
    operation: OperationRecord, message: str, advice: str, made: OperationRecord | None = None
) -> Finding:
    """Report a finding in the operation's layer; for a loss, in the layer that made its input."""
    place = operation.place
    severity = "note" if made is not None and made.name == "relu" else "warning"
    if made is not None and operation.layer == OUTSIDE:
        place |= {"layer": made.place["layer"], "call": made.call}
    return Finding("loss", severity, message[0].upper() + message[1:], advice, **place)


def _said(operation: OperationRecord) -> str:
    """Name an operation, its layer and its line."""
    name = operation.name.removesuffix("_forward")
    owner = repr(operation.layer) if operation.layer else "the model itself"
    layer = "" if operation.layer == OUTSIDE else f" of {owner}"
    return f"{name}{layer}" + (f" ({operation.where})" if operation.where else "")


def no_slope_of_score(seen: Observation) -> Iterator[Finding]:
    """Report a score whose gradient is 0 for every sample."""
    lost = seen.score is not None and not math.isfinite(seen.score)
    if not seen.backward or seen.error is not None or lost or not seen.graded or seen.sloped:
        return
    # A loss with a margin is 0 once all answers are right beyond it, and a ranking loss of a single
    # sample has nothing to compare it with.
    settled = seen.samples == 1 or (seen.score == 0 and not _shut(seen))
    meant = settled and seen.zeroed is None
    place: dict[str, Any] = seen.zeroed.place if seen.zeroed is not None else {}
    yield Finding(
        "no gradient",
        "note" if meant else "warning",
        f"The gradient of the score is 0 for all {seen.samples} samples: this step changes "
        "nothing.",
        "Nothing, if the loss has a margin; else look for a clamp in it that is closed."
        if meant
        else "Look at the loss: a clamp or ReLU in it that is closed, or a factor of 0.",
        **{**place, "phase": "backward"},
        evidence={"samples": seen.samples},
    )


def _shut(seen: Observation) -> bool:
    """Return whether the loss, one number, went through a ReLU or a clamp that made 0 of it."""
    outside = (each for each in seen.operations if each.layer == OUTSIDE and each.made)
    closed = (e for e in outside if e.name in RECTIFIERS and e.made[0].magnitude == 0)
    return any(math.prod(each.made[0].shape) == 1 for each in closed)


class LossListener(Listener):
    """Hears what a loss is given in a guarded block, outside of the model.

    Attributes
    ----------
    operations : list of OperationRecord
        Losses and softmaxes, with what made their input as far as autograd's graph tells.
    doubtful : bool
        Whether the model ends in a softmax, or in a loss of its own, that autograd's graph shows to
        be wired in a wrong way.
    zeroed : OperationRecord or None
        What multiplied with 0.
    cut : OperationRecord or None
        What came last of all at which autograd's graph ends.
    last : torch.Tensor or None
        The last single number that was computed with a graph: the loss.
    """

    labels_backward = True

    def __init__(self) -> None:
        self.operations: list[OperationRecord] = []
        self.doubtful = False
        self.zeroed: OperationRecord | None = None
        self.cut: OperationRecord | None = None
        self.last: Tensor | None = None
        self._root: Tensor | None = None  # what backward() was called on
        self._ran_backward = False
        self._kept = 0
        self._makers: StorageMap[OperationRecord] = StorageMap()
        self._measured: list[_Measured] = []
        self._writers: StorageMap[_Measured] = StorageMap()

    def returned(self, outputs: Iterable[Tensor]) -> None:
        """Note which operation made what the model returned; its layer is not known yet."""
        for each in outputs:
            if (ends := ends_of(each)) is not None:
                self._writers[each] = _Measured(OperationRecord(-1, "output", ""), [ends], [])
            title = _title(each.grad_fn)
            self.doubtful |= "softmax" in title and each.ndim == 2 and _doubtful(each.grad_fn)
            title = _title(behind_views(each.grad_fn))
            self.doubtful |= not each.ndim and _wired_within(each.grad_fn)
            if any(title == made for _, made in WIRED):
                self._makers[each] = OperationRecord(-1, title, "")
            else:
                self._makers.pop(each)

    def after(self, operation: Operation) -> None:
        if current_backward() != FORWARD:
            self._ran_backward = True
            if operation.labelled:
                self._measure(operation)
            return
        if operation.name == "ones_like" and not operation.inputs[0].ndim:
            self._root = operation.inputs[0]  # the gradient that backward() begins with
            return
        self._note(operation)
        self._kept = address_of_result(operation)
        if torch.is_grad_enabled() and any(each.requires_grad for each in operation.inputs):
            self._measure(operation)
        if operation.name not in _HEARD:
            return
        record = record_of(operation, len(self.operations))
        given = operation.inputs
        makers = [self._makers.get(each) for each in given]
        look_at_wiring(OperationContext(record, operation, given, makers, False))
        for each in operation.outputs:
            self._makers[each] = record
        self.operations.append(record)

    def _note(self, operation: Operation) -> None:
        """Note a factor of 0, and where the graph ends."""
        given = operation.inputs[0] if operation.inputs else None
        if given is None or not any(each.requires_grad for each in operation.inputs):
            return
        if by_zero(operation):
            self.zeroed = record_of(operation, 0)
        # A number that is taken out is for a log; it is told if nothing else ends the graph.
        item = operation.name == "local_scalar_dense" and self.cut is not None
        kept = not given.requires_grad or is_kept(given, self._kept)
        if cuts(operation) and torch.is_grad_enabled() and not item and not kept:
            self.cut = record_of(operation, -1)

    # NaN and Inf

    def _measure(self, operation: Operation) -> None:
        """Keep both ends of what an operation makes; they are read only if the loss is lost."""
        made = [ends for each in operation.outputs if (ends := ends_of(each)) is not None]
        if operation.is_view or not made:
            return
        given = [self._writers.get(t) or self._given(t, operation) for t in operation.inputs]
        record = record_of(operation, len(self._measured))
        same_line = (each for each in self._measured if each.is_forward_of(record))
        forward = next(same_line, None) if record.phase == "backward" else None
        by_id = {id(t): each for t, each in zip(operation.inputs, given, strict=True)}
        arguments = {name: by_id.get(id(e), e) for name, e in operation.argument.items()}
        arguments = {n: each for n, each in arguments.items() if not isinstance(each, Tensor)}
        found = _Measured(record, made, given, operation.name, arguments, forward)
        if operation.mutates and given:
            found.record.facts["overwrote"] = given[0].record if given[0] is not None else None
        self._measured.append(found)
        for each in operation.outputs:
            self._writers[each] = found
        if operation.phase == "forward" and not operation.outputs[0].ndim:
            self.last = operation.outputs[0].detach()

    def _given(self, tensor: Tensor, operation: Operation) -> _Measured | None:
        """Measure what no operation of the loss has made, such as its labels, where it is read."""
        labels = not (tensor.is_floating_point() or tensor.is_complex())
        if (
            current_backward() != FORWARD
            or (ends := ends_of(tensor.float() if labels else tensor)) is None
        ):
            return None
        file, line = operation.line
        source = OperationRecord(-1, "truth", OUTSIDE, file=file, line=line)
        self._writers[tensor] = found = _Measured(source, [ends], [])
        return found

    def forget(self) -> None:
        """Let go of what was measured, once it is known to be finite."""
        self._measured.clear()

    def release(self) -> None:
        """Let go of all tensors."""
        self.forget()
        self.last = self._root = None

    def lost(self) -> tuple[OperationRecord | None, list[OperationRecord]]:
        """Return where the NaN or Inf of a loss, or of its gradient, arose, and all operations."""
        for each in self._measured:
            each.read()
        records = [each.record for each in self._measured]
        for phase in ("forward", "backward"):
            ran = [each for each in records if each.phase == phase]
            last = next((each for each in reversed(ran) if not each.finite), None)
            if last is not None and (phase == "backward" or not ran[-1].finite):
                origin = last.origin
                known = origin is not None and origin.name != "output" and not origin.constant
                return origin if known else None, records
        return None, records

    def overwritten(self, error: BaseException) -> tuple[OperationRecord, str, str] | None:
        """Return what wrote over a tensor that the backward of the loss needs, and who needs it."""
        for each in self._measured:
            each.read()
        return culprit([each.record for each in self._measured], error, self._root)

    # A loss without a way to the model

    def cut_off(self) -> bool:
        """Return True if there was a backward, from a loss whose graph leads to no weights."""
        if not self._ran_backward or self._root is None:
            return False
        if self._root.grad_fn is None:
            return True
        waiting, known = [self._root.grad_fn], {self._root.grad_fn}
        while waiting:
            node = waiting.pop()
            if isinstance(getattr(node, "variable", None), nn.Parameter):
                return False
            behind = {each for each, _ in node.next_functions if each is not None} - known
            known |= behind
            waiting += behind
        return True


@dataclass(eq=False)
class _Measured:
    """An operation of a loss, with both ends of what it made and what made its inputs."""

    record: OperationRecord
    made: list[Ends]
    given: list[_Measured | None]
    name: str = ""  # in a backward, of the operation that runs there
    arguments: Mapping[str, Any] = field(default_factory=dict)
    forward: _Measured | None = None  # the operation of which this is a part of the gradient
    _read: bool = False

    def is_forward_of(self, record: OperationRecord) -> bool:
        """Return whether an operation of the backward computes the gradient of this one."""
        own = self.record
        here = own.phase == "forward" and own.index >= 0
        same = (own.name, own.file, own.line) == (record.name, record.file, record.line)
        return here and same

    def read(self) -> None:
        """Fill in the record's ranges, and where numbers that are not finite arose."""
        if self._read:
            return
        self._read = True
        self.record.made = tuple(each.read() for each in self.made)
        if self.record.index < 0:
            self.record.constant = self.record.name == "truth" and not self.record.nan
            return
        for each in filter(None, self.given):
            each.read()
        if not self.record.finite:
            before = [e.record.made[0] if e is not None else None for e in self.given]
            self.record.given = tuple(filter(None, before))
            makers = [each.record if each is not None else None for each in self.given]
            self.record.origin = origin_of(self.record, before, makers)
            if self.record.origin is self.record:
                maker = next((each.name for each in makers if each is not None), "")
                self.record.cause = self._cause(maker)

    def _cause(self, maker: str) -> Cause | None:
        """Find the cause by ranges alone: the values are gone."""
        record = self.record
        made = record.made
        broken = Broken(self.name, record.kind, self._ranges(), made, record.nan, maker)
        if record.phase == "forward":
            return forward_cause(broken)
        forward = self.forward
        saved = {} if forward is None else forward._ranges() | {"result": forward.record.made[0]}
        return backward_cause(record.name, saved, broken)

    def _ranges(self) -> dict[str, Any]:
        return {
            name: each.record.made[0] if isinstance(each, _Measured) else as_range(each)
            for name, each in self.arguments.items()
        }


def _title(node: Any) -> str:
    """Name the operation whose gradient a node of autograd's graph computes."""
    name = type(node).__name__.removesuffix("Backward0") if node is not None else ""
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()


def behind_views(node: Any) -> Any:
    """Return the node that made the numbers of which this one makes a view, as ``squeeze`` does."""
    while node is not None and _VIEW.match(type(node).__name__) and node.next_functions:
        node = node.next_functions[0][0]
    return node


_VIEW = re.compile(
    "(View|UnsafeView|ReshapeAlias|Squeeze|Unsqueeze|Select|Slice|Transpose|Permute|T|Alias)"
    r"Backward\d$"
)


def _doubtful(node: Any) -> bool:
    """Return True if a softmax of a matrix runs over its rows, or is taken of another one."""
    dim = int(getattr(node, "_saved_dim", 1))
    before = _title(node.next_functions[0][0]) if node.next_functions else ""
    return (dim if dim < 1 << 63 else dim - (1 << 64)) in (0, -2) or before in _ENDS


def _wired_within(node: Any) -> bool:
    """Return True if a loss that the model computed itself is given what it does not take."""
    for _ in range(_BEFORE_A_LOSS):
        if node is None or not node.next_functions:
            return False
        given = node.next_functions[0][0]
        spread = _title(given) == "expand" and _title(node) in PAIRED
        if spread or (_title(node), _title(given)) in WIRED:
            return True
        node = given
    return False


_BEFORE_A_LOSS = 16
"""So many operations lie between a loss and the last layer, at most."""

_ENDS = {made for name, made in WIRED if "softmax" in name}
_HEARD = {"softmax", "log_softmax", "nll_loss_forward", "clone", "to_copy", *PAIRED}
_HEARD |= {"mul", "exp", "xlogy"}  # parts of kl_div
_HEARD |= {made for _, made in WIRED}


LOOKED = "the optimizer"
FEW = 8
"""So many samples have a gradient as a batch has."""
TOO_FAR = 0.5
"""A step that takes weights by this fraction of their own size is far too long."""


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


def held_by(optimizer: Any, model: nn.Module) -> set[str]:
    """Return the names of the model's parameters that an optimizer holds."""
    held = {key for key, _ in _held(optimizer)}
    return {name for name, parameter in model.named_parameters() if id(parameter) in held}


def _held(optimizer: Any) -> list[tuple[int, dict[str, Any]]]:
    """Return the id of each parameter that an optimizer holds, and its group."""
    return [(id(each), group) for group in optimizer.param_groups for each in group["params"]]


def with_optimizers(
    found: Sequence[Finding],
    model: nn.Module,
    optimizers: Sequence[Any],
    slopes: Mapping[str, float | None],
    samples: int,
) -> list[Finding]:
    """Add the findings about the optimizers.

    Where values are far too large, the length of a step follows from that. ``slopes`` are the norms
    of the gradients that reached the parameters, None where ``.grad`` has it; a gradient of few
    ``samples`` is larger than in training.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    # A critic's optimizer says nothing about the generator.
    own = [each for each in optimizers if held_by(each, model)] or optimizers
    more = [*_missing(model, own, slopes)]
    for each in own:
        more += [*_held_in_vain(model, each, names), *_rates(each, names)]
        more += _lengths(each, names, slopes, 10 if samples < FEW else 1)
    if any(each.kind in _LARGE and each.severity != "note" for each in found):
        more = [each for each in more if each.kind != "learning rate"]
    return [*found, *more]


_LARGE = {"nan", "inf", "exploding", "input scale", "empty"}


def _missing(
    model: nn.Module, optimizers: Sequence[Any], slopes: Mapping[str, float | None]
) -> Iterator[Finding]:
    """Report parameters that learn, and that no optimizer holds."""
    learns = [name for name, each in model.named_parameters() if each.requires_grad]
    held = set[str]().union(*(held_by(each, model) for each in optimizers))
    missing = [name for name in learns if name not in held]
    replaced = len(missing) == len(learns) and any(_foreign(model, each) for each in optimizers)
    if not missing or replaced:  # that is reported as parameters of another model
        return
    elsewhere = bool(slopes) and not slopes.keys() & set(missing)
    where = "not in the optimizer" if len(optimizers) == 1 else "in none of the optimizers"
    yield _about(
        missing,
        f"{len(missing)} of {len(learns)} parameters that learn are {where}, such as "
        f"{missing[0]!r}.",
        "Nothing, if they learn in a step of their own: no gradient reached them."
        if elsewhere
        else "Make it after the model is complete, with model.parameters(), or freeze what is not "
        "to learn with requires_grad_(False). If another optimizer trains them, give both: "
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
            "Give it each parameter once.",
        )
    own = [names[key] for key in counts if key in names]
    if foreign := _foreign(model, optimizer):
        learns = [name for name, each in model.named_parameters() if each.requires_grad]
        none = bool(learns) and not set(learns) & set(own)
        yield _about(
            learns if none else [],
            f"The optimizer holds {foreign} parameters that are not the model's"
            + (", and none of the model's own." if none else "."),
            "Make it again where a layer was replaced, or the model copied, after it was made.",
        )
    frozen = [name for name in own if not model.get_parameter(name).requires_grad]
    if frozen:
        yield _about(
            frozen,
            f"The optimizer holds {len(frozen)} frozen parameters, such as {frozen[0]!r}.",
            "Nothing, if they are to stay as they are.",
            "note",
        )


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
    optimizer: Any,
    names: Mapping[int, str],
    slopes: Mapping[str, float | None],
    noise: float,
) -> Iterator[Finding]:
    """Return the length of a step: Adam's by its rate, plain descent's by the gradient.

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
            slope = _slope(each, slopes.get(name))
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
            f"One step of {kind} with a learning rate of {number(rate)} takes the weights by "
            f"{number(middle)} of their own size, those of {worst!r} by {number(ratios[worst])}.",
            f"Make it about {number(rate * 0.01 / middle)}: a hundredth of the weights a step.",
            worst.rpartition(".")[0],
            evidence={"ratios": ratios},
        )


def _by_each(kind: str, group: Mapping[str, Any], state: Mapping[str, Any]) -> float:
    """Return by how much a step moves each weight, whatever its gradient; 0 if that counts."""
    rate, first = float(group.get("lr", 0.0)), not float(state.get("step", 0.0))
    if kind == "Adagrad":  # its steps are soon shorter
        return rate / 10 if first and not group["initial_accumulator_value"] else 0.0
    return rate if kind == "RMSprop" or ("Adam" in kind and kind != "RAdam") else 0.0


def _size(parameter: Tensor) -> float:
    return float(parameter.detach().float().norm()) if not parameter.is_meta else 0.0


def _slope(parameter: Tensor, known: float | None) -> float:
    if known is not None:
        return known
    return float(parameter.grad.detach().float().norm()) if parameter.grad is not None else 0.0
