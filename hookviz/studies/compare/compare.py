"""``hookviz.compare``: two models, or one on two inputs, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...hooking.capture import Capture
from ...hooking.records import CapturedTensor, FeatureCache, LayerRecord, TensorStore
from ...hooking.select import Layers
from ...hooking.storage import StorageMap
from ...run.inputs import Transform, as_the_model_takes, prepare_input
from ...run.session import PassResult, Session
from ...run.target import Target, logits_of, named_target, score_of
from ...tables import counted
from ..showing import widget
from .comparison import Comparison
from .difference import layer_differences
from .pairing import check_pairs, paired


class SharedTensorStore(TensorStore):
    """Copies of tensors, one of each: a tensor that several layers take or return is stored once.

    So the inputs of all layers, and the outputs of blocks, cost no memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: StorageMap[dict[Any, tuple[Any, CapturedTensor]]] = StorageMap()

    def store(self, layer: str, path: str, tensor: Tensor) -> CapturedTensor:
        """Copy a tensor as it is now, unless that has been done."""
        if tensor.is_inference():  # nothing counts how often it is overwritten
            return super().store(layer, path, tensor)
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


class OrderedCapture(Capture):
    """A capture with inputs that notes the order in which layers return.

    Attributes
    ----------
    order : dict of (str, int) to int
        The position of each call of a layer among all calls.
    """

    def __init__(self, model: nn.Module, layers: Layers) -> None:
        super().__init__(model, layers, SharedTensorStore(), inputs=True)
        self.order: dict[tuple[str, int], int] = {}

    def _after(
        self, record: LayerRecord, module: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        # A checkpointed block that runs again in the backward adds calls that no layer has.
        self.order[record.name, len(record.calls)] = len(self.order)
        super()._after(record, module, args, kwargs, output)


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
    both runs are stored until they are compared: the memory is that of two captures.

    Parameters
    ----------
    model_a, model_b : torch.nn.Module
        For example a network and its half-precision, quantized, fine-tuned or re-implemented
        version; they may be on different devices. Both stay unchanged, to the bit.
    inputs
        As for `hookviz.explore`. Model b gets the same, on its device and in its weights' type.
    target : optional
        The score whose gradients are compared, as in `hookviz.explore`. None is, for both, a's top
        class; if b has another number of classes, each one's own top class.
    inputs_b : optional
        Other inputs for b.
    layers : optional
        Which of a's layers, as in `hookviz.capture`; None is every module, since a difference may
        arise in any of them. Fewer layers take less memory if b has layers of the same names.
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
    TypeError
        ``pairs`` is not a dict of names.
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
    check_pairs(pairs)
    how: Any = {"weights": weights, "transform": transform}
    known: Any = {"weights": weights, "class_names": class_names}
    given = prepare_input(inputs, model_a, **how)
    given_b = given if inputs_b is None else prepare_input(inputs_b, model_b, **how)
    first, second = Session(model_a, given, **known), Session(model_b, given_b, **known)
    target = named_target(target, first.class_names)
    one = _captured("a", first, _every if layers is None else layers, target)
    second.inputs = as_the_model_takes(first.inputs if inputs_b is None else given_b, second.model)
    logits = logits_of(one.output)
    shared = _for_both(target, logits)

    def of_b(output: Any) -> Target:
        """Return the target of both; None, b's own top class, if b has other classes."""
        own = logits_of(output)
        others = logits is not None and own is not None and own.shape[1] != logits.shape[1]
        return None if target is None and others else shared

    def score(output: Any, _: Target, class_names: Sequence[str]) -> Tensor | None:
        return score_of(output, of_b(output), class_names)

    partners = _partners(one.observer, second, layers, pairs)
    two = _captured("b", second, partners, shared, score)
    pairing = paired(one.observer, two.observer, pairs)
    if not pairing.partners:
        raise ValueError(
            f"No layer of {first.name} has a partner in {second.name}: name some by "
            "pairs={'layer of a': 'layer of b'}."
        )
    rows = layer_differences(one.observer, two.observer, pairing)
    rows.sort(key=lambda row: one.observer.order[row.layer, row.call])
    return Comparison(
        (first.name, second.name),
        rows,
        pairing.unmatched + _uneven(one.observer, two.observer, pairing.partners),
        (one.output, two.output),
        first.class_names,
        partial(_explored, first, second, of_b(two.output)),
    )


def _explored(
    first: Session, second: Session, target: Target, layers: Layers, found: Comparison
) -> Any:
    return widget("SideBySide", first, second, layers, target, found)


def _every(name: str, module: nn.Module) -> bool:
    return not isinstance(module, torch.jit.ScriptModule)


def _partners(
    stored: FeatureCache, second: Session, layers: Layers, pairs: Mapping[str, str] | None
) -> Layers:
    """Return b's layers of the same names as the chosen ones of a; all if b lacks one."""
    modules = dict(second.model.named_modules(remove_duplicate=False))
    names = [(pairs or {}).get(name, name) for name in stored]
    if layers is None or not modules.keys() >= {*names}:
        return _every
    return [modules[name] for name in names]


def _captured(
    whose: str,
    session: Session,
    layers: Layers,
    target: Target,
    score: Callable[..., Tensor | None] = score_of,
) -> PassResult[OrderedCapture]:
    """Run a model, and store the tensors of its layers."""
    try:
        return session.forward_backward(
            target, lambda: OrderedCapture(session.given, layers), score_of=score
        )
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
    a: FeatureCache, b: FeatureCache, partners: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Return the layers that ran more often in one model than in the other."""
    return [
        ("a", name, f"it ran {counted(len(a[name].calls), 'time')}, in b {len(b[other].calls)}")
        for name, other in partners.items()
        if len(a[name].calls) != len(b[other].calls)
    ]
