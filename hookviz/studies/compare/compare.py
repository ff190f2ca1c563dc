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
from .difference import TensorDifference, difference, rows_of
from .pairing import CallOrder, Pairs, paired, paired_by_name


class SharedTensorStore(TensorStore):
    """Copies of tensors, one of each: a tensor that several layers take or return is stored once.

    So the inputs of all layers, and the outputs of blocks, cost no memory.
    """

    def __init__(self) -> None:
        super().__init__()
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
    """Return what distinguishes tensors in the same memory, and versions of one tensor."""
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


class OrderedCapture(Capture):
    """A capture with inputs that notes the order in which layers return.

    Parameters
    ----------
    model, layers, store
        As for `Capture`.
    order : CallOrder
        Its hooks are on as long as the capture's.
    """

    def __init__(self, model: nn.Module, layers: Any, store: TensorStore, order: CallOrder) -> None:
        super().__init__(model, layers, store, inputs=True)
        self.order = order

    def _begin(self) -> None:
        super()._begin()
        self.exit_stack.enter_context(self.order)


class ComparingCapture(OrderedCapture):
    """Hooks on the second model that compare what its layers return with the first run.

    Parameters
    ----------
    model, layers, order
        As for `OrderedCapture`; the layers are those that have a partner.
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

    def _warn(self, kind: type[BaseException] | None, *error: object) -> None:
        """Warn of no budget: the tensors of the second run are not stored on purpose."""

    def _before(self, record: LayerRecord, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._side = "inputs"
        super()._before(record, module, args, kwargs)

    def _after(
        self, record: LayerRecord, module: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        self._side = "outputs"
        super()._after(record, module, args, kwargs, output)

    def _take(self, record: LayerRecord, named: NamedTensors) -> tuple[CapturedTensor, ...]:
        partner = self._call(record)
        firsts = getattr(partner, self._side) if partner is not None else ()
        taken = []
        for index, (path, tensor) in enumerate(named):
            first = firsts[index] if index < len(firsts) else None
            each = ComparedTensor(record.name, path, tensor.shape, tensor.dtype, 0, None)
            if first is not None and first.kept:
                each.first, each.of_value = first, self._apart(first, first.value, tensor)
            taken.append(each)
        for (_, tensor), each in zip(named, taken, strict=True):
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

    def _arrived(self, copy: CapturedTensor, gradient: Tensor | None) -> None:
        if gradient is None or not isinstance(copy, ComparedTensor):
            return
        copy.reached = True
        known = None if copy.first is None else copy.first.gradient
        if known is not None:
            assert copy.first is not None
            copy.of_gradient = self._apart(copy.first, known, gradient)


def compare(
    model_a: nn.Module,
    model_b: nn.Module,
    inputs: Any,
    target: Target = None,
    *,
    inputs_b: Any = None,
    layers: Layers = None,
    pairs: Mapping[str, str] | None = None,
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
) -> Comparison:
    """Compare two models on one input, layer by layer, or one model on two inputs.

    Both run in eval mode, one forward and one backward; compiled code runs eagerly. The tensors of
    the first run are stored, and those of the second compared with them as they appear: the memory
    is that of one capture.

    Parameters
    ----------
    model_a, model_b : torch.nn.Module
        For example a network and its half-precision, quantized, fine-tuned or re-implemented
        version; they may be on different devices. Both stay unchanged, to the bit.
    inputs
        As for `hookviz.explore`. Model b gets the same, on its device and in its weights' type.
    target : optional
        The score whose gradients are compared, as in `hookviz.explore`. None is, for both, a's top
        class.
    inputs_b : optional
        Other inputs for b.
    layers : optional
        Which of a's layers, as in `hookviz.capture`; None is every module, since a difference may
        arise in any of them. Fewer layers take less memory.
    pairs : dict of str to str, optional
        Names of a's layers, and of the layers of b to compare them with. All others are matched by
        name, then by order and shape.
    weights, transform, class_names : optional
        As in `hookviz.explore`.

    Returns
    -------
    Comparison
        A sequence of `LayerDifference`, in the order in which the layers returned. It is displayed
        as a table. ``first()`` is the layer in which the difference arises; ``changed`` are the
        samples whose prediction changed, ``worst_sample`` is the one whose outputs differ most.

    Raises
    ------
    ValueError
        No layer of a has a partner in b; ``pairs`` names a layer that did not run; or as in
        `hookviz.explore`.
    RuntimeError
        An error of a model, with the layer in which it arose.

    Notes
    -----
    A quantized or fused model computes without gradients: then only activations are compared. The
    result of ``torch.export`` contains no modules: only its outputs are compared.

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
    one = _stored(first, _every if layers is None else layers, target)
    second.inputs = as_the_model_takes(first.inputs if inputs_b is None else given_b, second.model)
    stored, logits = one.observer, logits_of(one.output)
    shared = _for_both(target, logits)
    # The names match nearly always: then b has to run only once.
    guess = paired_by_name(stored.order.layers, second.given, pairs)
    two = _compared(second, stored, guess, shared)
    matched = paired(stored.order.layers, two.observer.order.layers, pairs)
    if not matched.partners:
        raise ValueError(
            f"No layer of {first.name} has a partner in {second.name}: name some by "
            "pairs={'layer of a': 'layer of b'}."
        )
    if (matched.partners, matched.begins) != (guess.partners, guess.begins):
        two = _compared(second, stored, matched, shared)
    position = {call: number for number, call in enumerate(stored.order.calls)}
    rows = rows_of(stored, two.observer, matched)
    rows.sort(key=lambda row: position[row.layer, row.call])
    logits_b = logits_of(two.output)
    return Comparison(
        first.name,
        second.name,
        rows,
        matched.unmatched + _uneven(stored.order, two.observer.order, matched.partners),
        (_detached(logits), _detached(logits_b)),
        first.class_names,
        partial(_explored, first, second, shared),
        answers=(_answer(one.output, logits), _answer(two.output, logits_b)),
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


def _stored(session: Session, layers: Layers, target: Target) -> PassResult[OrderedCapture]:
    """Run the first model, and store the tensors of its layers."""

    def observe() -> OrderedCapture:
        order = CallOrder(session.given, layers)
        return OrderedCapture(session.given, layers, SharedTensorStore(), order)

    with _blamed("a"):
        return session.forward_backward(target, observe)


def _compared(
    session: Session, stored: FeatureCache, pairs: Pairs, target: Target
) -> PassResult[ComparingCapture]:
    """Run the second model, and compare its layers with those of the first."""
    outputs = {theirs: ours for ours, theirs in pairs.partners.items()}
    inputs = {theirs: ours for ours, theirs in map(pairs.begin, pairs.partners)}

    def observe() -> ComparingCapture:
        chosen = [session.model.get_submodule(name) for name in dict.fromkeys([*outputs, *inputs])]
        order = CallOrder(session.given, _every)
        return ComparingCapture(
            session.given, chosen or [session.model], order, stored, outputs, inputs
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


def _for_both(target: Target, logits: Tensor | None) -> Target:
    """Return the target of both models; None becomes a's top class of each sample."""
    if target is not None or logits is None:
        return target
    top = logits.argmax(1).tolist()
    return top if len(top) > 1 else top[0]


def _uneven(
    ours: CallOrder, theirs: CallOrder, partners: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Return the layers that ran more often in one model than in the other."""
    found = []
    for name, partner in partners.items():
        in_a, in_b = ours.runs(name), theirs.runs(partner)
        if in_a != in_b:
            found.append(("a", name, f"it ran {in_a} times, in b {in_b}"))
    return found
