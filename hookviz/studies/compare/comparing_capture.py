"""The second run, compared with the first as it passes: of it nothing is kept but numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ...hooking.capture import Capture, Found
from ...hooking.checkpoint import FORWARD
from ...hooking.records import Call, CapturedTensor, FeatureCache, LayerRecord, TensorStore
from ...hooking.storage import StorageMap
from .difference import TensorDifference, difference
from .pairing import CallOrder


class SharedTensorStore(TensorStore):
    """Copies of tensors, one of each: what a layer gives on as it got it is not copied again.

    So the inputs of all layers, and what blocks return of their last layer, cost no memory.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        super().__init__(max_bytes=max_bytes)
        self._known: StorageMap[dict[Any, tuple[Any, CapturedTensor]]] = StorageMap()

    def take(self, layer: str, path: str, tensor: Tensor) -> CapturedTensor:
        """Copy a tensor as it is now, unless that has been done."""
        known = self._known.get(tensor)
        if known is None:
            known = self._known[tensor] = {}
        layout = tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()
        key, node = (tensor._version, tensor.requires_grad, *layout), tensor.grad_fn
        # A view of the whole has its own gradient.
        if key in known and known[key][0] is node:
            return known[key][1]
        taken = super().take(layer, path, tensor)
        known[key] = node, taken
        return taken


@dataclass(eq=False)
class ComparedTensor(CapturedTensor):
    """How far a tensor, and its gradient, are from those of the first run; no values.

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
        """Whether a gradient arrived."""
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
        self.around.enter_context(self.order)

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

    def _before(self, record: LayerRecord, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._side = "inputs"
        super()._before(record, module, args, kwargs)

    def _after(
        self, record: LayerRecord, module: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        self._side = "outputs"
        super()._after(record, module, args, kwargs, output)

    def _take(self, record: LayerRecord, found: Found) -> tuple[CapturedTensor, ...]:
        partner = self._call(record)
        firsts = getattr(partner, self._side) if partner is not None else ()
        taken = []
        for place, (path, tensor) in enumerate(found):
            first = firsts[place] if place < len(firsts) else None
            each = ComparedTensor(record.name, path, tensor.shape, tensor.dtype, 0, None)
            if first is not None and first.kept:
                each.first, each.of_value = first, difference(first.value, tensor)
            taken.append(each)
        for (_, tensor), each in zip(found, taken, strict=True):
            self._watch(tensor, each, FORWARD)
        return tuple(taken)

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
            taken.of_gradient = difference(known, gradient)
