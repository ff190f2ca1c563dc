"""``hookviz.compare``: two models, or one on two inputs, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...hooking.capture import Capture, NamedTensors
from ...hooking.checkpoint import FORWARD
from ...hooking.records import Call, CapturedTensor, FeatureCache, LayerRecord, TensorStore
from ...hooking.select import Layers
from ...hooking.storage import StorageMap
from ...hooking.tensors import tensors
from ...run.inputs import Transform, as_the_model_takes, prepare_input
from ...run.session import PassResult, Session
from ...run.target import Target, logits_of
from ..showing import widget
from .comparison import Comparison
from .difference import LayerDifference, TensorDifference, difference, rows_of
from .pairing import CallOrder, Pairs, paired, paired_by_name


class SharedTensorStore(TensorStore):
    """Copies of tensors, one of each: what a layer gives on as it got it is not copied again.

    So the inputs of all layers, and what blocks return of their last layer, cost no memory.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        super().__init__(max_bytes=max_bytes)
        self._known: StorageMap[dict[Any, tuple[Any, CapturedTensor]]] = StorageMap()

    def store(self, layer: str, path: str, tensor: Tensor) -> CapturedTensor:
        """Copy a tensor as it is now, unless that has been done."""
        known = self._known.get(tensor)
        if known is None:
            known = self._known[tensor] = {}
        key, node = (tensor.requires_grad, *_state(tensor)), tensor.grad_fn
        # A view of the whole has its own gradient.
        if key in known and known[key][0] is node:
            return known[key][1]
        taken = super().store(layer, path, tensor)
        known[key] = node, taken
        return taken


def _state(tensor: Tensor) -> tuple[Any, ...]:
    """Return what tells a tensor from others, and from its former self, in the same memory."""
    state = tensor._version, tensor.dtype, tensor.shape
    if tensor.layout is not torch.strided:  # sparse tensors have no strides
        return state
    return *state, tensor.stride(), tensor.storage_offset()


@dataclass(eq=False)
class ComparedTensor(CapturedTensor):
    """The distance of a tensor and its gradient from those of the first run; no values.

    Attributes
    ----------
    of_value, of_gradient : Difference or None
        The gradient's is None where either run had none.
    """

    of_value: TensorDifference | None = None
    of_gradient: TensorDifference | None = None
    first: CapturedTensor | None = None
    reached: bool = False

    @property
    def has_gradient(self) -> bool:
        """True if a gradient arrived."""
        return self.reached


class QuietCapture(Capture):
    """A capture with inputs that notes what ran, and warns of no budget: that is for another run.

    Parameters
    ----------
    model, layers, store
        As for `Capture`.
    order : CallOrder
        On for as long as the capture.
    """

    def __init__(self, model: nn.Module, layers: Any, store: TensorStore, order: CallOrder) -> None:
        super().__init__(model, layers, store, inputs=True)
        self.order = order

    def _begin(self) -> None:
        super()._begin()
        self.exit_stack.enter_context(self.order)

    def _warn(self, kind: type[BaseException] | None, *error: object) -> None:
        pass


class ComparingCapture(QuietCapture):
    """Hooks on the second model that compare what its layers return with the first run.

    Parameters
    ----------
    model, layers, order
        As for `QuietCapture`; the layers are those that have a partner.
    first : FeatureCache
        The first run, with inputs.
    outputs, inputs : dict of str to str
        Names of the first run's layers, by those of these: whose outputs, and whose inputs, are
        compared with theirs.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Any,
        order: CallOrder,
        first: FeatureCache,
        outputs: Mapping[str, str],
        inputs: Mapping[str, str],
    ) -> None:
        super().__init__(model, layers, TensorStore(), order)
        self._first, self._side = first, "outputs"
        self._partners = {"outputs": outputs, "inputs": inputs}
        self._known: StorageMap[dict[Any, tuple[CapturedTensor, TensorDifference]]] = StorageMap()

    def _before(self, record: LayerRecord, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._side = "inputs"
        super()._before(record, module, args, kwargs)

    def _after(
        self, record: LayerRecord, module: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        self._side = "outputs"
        super()._after(record, module, args, kwargs, output)

    def _take(self, record: LayerRecord, found: NamedTensors) -> tuple[CapturedTensor, ...]:
        partner = self._call(record)
        firsts = getattr(partner, self._side) if partner is not None else ()
        taken = []
        for index, (path, tensor) in enumerate(found):
            first = firsts[index] if index < len(firsts) else None
            each = ComparedTensor(record.name, path, tensor.shape, tensor.dtype, 0, None)
            if first is not None and first.kept:
                each.first, each.of_value = first, self._apart(first, first.value, tensor)
            taken.append(each)
        for (_, tensor), each in zip(found, taken, strict=True):
            self._hook_gradient(tensor, each, FORWARD)
        return tuple(taken)

    def _apart(self, first: CapturedTensor, ours: Tensor, tensor: Tensor) -> TensorDifference:
        """Measure a distance once: what a layer returns is mostly what the next one takes."""
        if tensor.layout is not torch.strided:
            return difference(ours, tensor)
        known = self._known.get(tensor)
        if known is None:
            known = self._known[tensor] = {}
        key = id(first), *_state(tensor)
        if key not in known:
            known[key] = first, difference(ours, tensor)
        return known[key][1]

    def _call(self, record: LayerRecord) -> Call | None:
        name = self._partners[self._side].get(record.name)
        calls = self._first[name].calls if name is not None and name in self._first else []
        return calls[len(record.calls)] if len(record.calls) < len(calls) else None

    def _arrived(self, taken: CapturedTensor, gradient: Tensor | None) -> None:
        if gradient is None or not isinstance(taken, ComparedTensor):
            return
        taken.reached = True
        known = None if taken.first is None else taken.first.gradient
        if known is not None:
            assert taken.first is not None
            taken.of_gradient = self._apart(taken.first, known, gradient)


def compare(
    model_a: nn.Module,
    model_b: nn.Module,
    inputs: Any,
    target: Target = None,
    *,
    inputs_b: Any = None,
    layers: Layers = None,
    pairs: Mapping[str, str] | None = None,
    max_bytes: int | None = None,
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
) -> Comparison:
    """Compare two models on one input, layer by layer, or one model on two inputs.

    Both run in eval mode, one forward and one backward; compiled code runs eagerly. The first run
    is kept, the second compared with it as it passes: the memory is that of one capture.

    Parameters
    ----------
    model_a, model_b : torch.nn.Module
        Such as a network and its half-precision, quantized, fine-tuned or re-implemented self; they
        may be on different devices. Both stay as they are, to the bit.
    inputs
        As for `hookviz.explore`. Model b gets the same, on its device and in its weights' type.
    target : optional
        The score whose gradients are compared, as in `hookviz.explore`. None is, for both, the
        class that a puts first.
    inputs_b : optional
        For b, instead.
    layers : optional
        Which of a's layers, as in `hookviz.capture`; None is every module, since a difference may
        arise in any of them.
    pairs : dict of str to str, optional
        Names of a's layers, and of those of b to compare them with. For all others layers are
        matched by name, then by order and shape.
    max_bytes : int, optional
        Budget for what is kept of the first run; both run more often instead.
    weights, transform, class_names : optional
        As in `hookviz.explore`.

    Returns
    -------
    Comparison
        A sequence of `LayerDifference`, in the order in which the layers returned, which shows
        itself as a table. ``first()`` is the layer in which the difference arises; ``changed`` are
        the samples whose answer changed, ``worst_sample`` is the one whose outputs are furthest
        apart.

    Raises
    ------
    ValueError
        No layer of both can be compared; ``pairs`` names one that did not run; or as in
        `hookviz.explore`. A tensor alone needs more than ``max_bytes``.
    RuntimeError
        What a model raises, with the layer in which it arose.

    Notes
    -----
    A quantized or fused model computes without gradients: then only activations are compared. What
    ``torch.export`` returns has no modules within: only what it returns is compared.

    Examples
    --------
    >>> import copy, torch, hookviz
    >>> model = hookviz.demo_model()
    >>> port = copy.deepcopy(model)
    >>> port.layer2[0].bn1.eps = 1e-3
    >>> comparison = hookviz.compare(model, port, hookviz.demo_images()[0])
    >>> comparison.first().layer
    'layer2.0.bn1'
    >>> hookviz.compare(model, copy.deepcopy(model), hookviz.demo_images()[0]).first() is None
    True
    """
    how: Any = {"weights": weights, "transform": transform}
    known: Any = {"weights": weights, "class_names": class_names}
    given = prepare_input(inputs, model_a, **how)
    given_b = given if inputs_b is None else prepare_input(inputs_b, model_b, **how)
    first, second = Session(model_a, given, **known), Session(model_b, given_b, **known)
    one = _kept(first, _every if layers is None else layers, target, max_bytes)
    second.inputs = as_the_model_takes(first.inputs if inputs_b is None else given_b, second.model)
    kept, logits = one.observer, logits_of(one.output)
    shared = _for_both(target, logits)
    # By name nearly all are paired before b has run.
    guess = paired_by_name(kept.order.layers, second.given, pairs)
    two = _compared(second, kept, guess, list(guess.partners), shared)
    against, logits_b = two.observer, logits_of(two.output)
    matched = paired(kept.order.layers, against.order.layers, pairs)
    if not matched.partners:
        raise ValueError(
            f"No layer of {first.name} has a partner in {second.name}: name some by "
            "pairs={'layer of a': 'layer of b'}."
        )
    unmatched = matched.unmatched + _uneven(kept.order, against.order, matched.partners)
    index = {each: number for number, each in enumerate(kept.order.calls)}
    # Those that were guessed right are compared, if they fit into the budget.
    right = [name for name in matched.partners if matched.agrees(guess, name)]
    wrong = [name for name in matched.partners if name not in right]
    rows, left = _rows(kept, against, matched, right)
    if wrong:
        against = _compared(second, kept, matched, wrong, shared).observer
        more, over = _rows(kept, against, matched, wrong)
        rows, left = rows + more, left + over
    groups = _smaller(left, list(matched.partners), kept, max_bytes)
    while groups:
        names = groups.pop()
        begins = [matched.begin(name)[0] for name in names]
        modules = [first.model.get_submodule(name) for name in dict.fromkeys([*names, *begins])]
        kept = _kept(first, modules, target, max_bytes).observer
        against = _compared(second, kept, matched, names, shared).observer
        more, left = _rows(kept, against, matched, names)
        rows += more
        groups += _smaller(left, names, kept, max_bytes)
    rows.sort(key=lambda row: index[row.layer, row.call])
    both = _detached(logits), _detached(logits_b)
    opened = partial(_explored, first, second, shared)
    answers = _answer(one.output, logits), _answer(two.output, logits_b)
    return Comparison(
        first.name,
        second.name,
        rows,
        unmatched,
        both,
        first.class_names,
        opened,
        answers=answers,
    )


def _detached(logits: Tensor | None) -> Tensor | None:
    return None if logits is None else logits.detach()


def _answer(output: Any, logits: Tensor | None) -> Tensor | None:
    """Return the class scores, or else the first tensor of an output."""
    return logits if logits is not None else next(iter(tensors(output)), None)


def _explored(first: Session, second: Session, target: Target, layers: Layers) -> Any:
    return widget("SideBySide", first, second, layers, target)


def _every(name: str, module: nn.Module) -> bool:
    return not isinstance(module, torch.jit.ScriptModule)


def _kept(
    session: Session, layers: Layers, target: Target, max_bytes: int | None
) -> PassResult[QuietCapture]:
    """Run the first model, and keep its layers."""

    def observe() -> QuietCapture:
        store = SharedTensorStore(max_bytes)
        return QuietCapture(session.given, layers, store, CallOrder(session.given, layers))

    with _blamed("a"):
        return session.forward_backward(target, observe)


def _compared(
    session: Session, kept: FeatureCache, pairs: Pairs, names: list[str], target: Target
) -> PassResult[ComparingCapture]:
    """Run the second model, and compare layers with those of the first as it passes."""
    outputs = {pairs.partners[name]: name for name in names}
    inputs = {theirs: ours for ours, theirs in map(pairs.begin, names)}

    def observe() -> ComparingCapture:
        chosen = [session.model.get_submodule(name) for name in dict.fromkeys([*outputs, *inputs])]
        order = CallOrder(session.given, _every)
        return ComparingCapture(
            session.given, chosen or [session.model], order, kept, outputs, inputs
        )

    with _blamed("b"):
        return session.forward_backward(target, observe)


@contextmanager
def _blamed(whose: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"It was model {whose} of the two that are compared.")
        raise


def _rows(
    kept: FeatureCache, against: ComparingCapture, pairs: Pairs, names: list[str]
) -> tuple[list[LayerDifference], list[str]]:
    """Rows of some of a's layers, and those of them that went over the budget."""
    over_budget = set(kept.over_budget)
    left = [name for name in names if over_budget & {name, pairs.begin(name)[0]}]
    return rows_of(kept, against, pairs, [name for name in names if name not in left]), left


def _smaller(
    left: list[str], names: list[str], kept: FeatureCache, max_bytes: int | None
) -> list[list[str]]:
    """Return groups of layers to run again; those that do not fit together, half and half."""
    if set(left) != set(names):
        return [left] if left else []
    return _halves(left, kept, max_bytes)


def _for_both(target: Target, logits: Tensor | None) -> Target:
    """Return the gradients' source; without a target, each sample's class that a puts first."""
    if target is not None or logits is None:
        return target
    favourites = logits.argmax(1).tolist()
    return favourites if len(favourites) > 1 else favourites[0]


def _halves(names: list[str], cache: FeatureCache, max_bytes: int | None) -> list[list[str]]:
    """Split layers that do not fit into the budget together, half and half."""
    if len(names) == 1:
        every = (each for record in cache.values() for each in record.calls)
        tensors = {id(each): each for call in every for each in (*call.inputs, *call.outputs)}
        raise ValueError(
            f"max_bytes={max_bytes} is not enough for layer {names[0]!r}: give "
            f"{sum(each.needs for each in tensors.values())} or more."
        )
    middle = len(names) // 2
    return [names[:middle], names[middle:]]


def _uneven(
    ours: CallOrder, theirs: CallOrder, partners: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Layers that ran more often in one model than in the other."""
    found = []
    for name, partner in partners.items():
        in_a, in_b = ours.runs(name), theirs.runs(partner)
        if in_a != in_b:
            found.append(("a", name, f"it ran {in_a} times, in b {in_b}"))
    return found
