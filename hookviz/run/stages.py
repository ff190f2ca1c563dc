"""A layer's output as the network goes on with it: after normalization, and after activation.

Functional operations count as modules do: a recorder reports what is done with the output.
"""

from __future__ import annotations

from contextlib import ExitStack

from torch import Tensor, nn

from ..hooking.tensors import StorageMap
from .recorder import Listener, ModuleCall, Operation, OperationRecorder
from .session import Session

RETURNED, NORMALIZED, ACTIVATED = "output", "norm", "activation"
SHOWN_AFTER = (RETURNED, NORMALIZED, ACTIVATED)
"""The values of the setting ``shown_after``, in the order in which the network reaches them."""

WORDS = {
    RETURNED: "as returned",
    NORMALIZED: "after normalization",
    ACTIVATED: "after activation",
}

NORMS = (
    "batch_norm",
    "cudnn_batch_norm",
    "miopen_batch_norm",
    "group_norm",
    "layer_norm",
    "rms_norm",
    "fused_rms_norm",
)
"""The beginnings of the names of normalizations."""

ACTIVATIONS = {"relu", "relu6", "hardtanh", "clamp", "clamp_min", "threshold", "leaky_relu"}
ACTIVATIONS |= {"prelu", "rrelu", "rrelu_with_noise", "elu", "celu", "selu", "gelu", "silu"}
ACTIVATIONS |= {"mish", "hardswish", "hardsigmoid", "sigmoid", "tanh", "softplus"}

_COPIES = {"clone", "contiguous", "to_copy", "dropout"}


def stages_of(session: Session, module: nn.Module) -> list[dict[str, Tensor]]:
    """Run the model once, and return what it makes of a layer's outputs.

    An output is followed through one normalization and one activation, as long as nothing else
    happens to it. ``x * sigmoid(x)`` is an activation.

    Returns
    -------
    list of dict
        For each call of the layer the tensors after ``"norm"`` and after ``"activation"``, of the
        output's shape; only those that exist.

    Examples
    --------
    >>> import torch
    >>> from hookviz.run.inputs import prepare_input
    >>> model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.ReLU())
    >>> session = Session(model, prepare_input(torch.ones(1, 1, 4, 4), model))
    >>> [sorted(each) for each in stages_of(session, model[0])]
    [['activation', 'norm']]
    """
    listeners: list[_Stages] = []

    def observe() -> ExitStack:
        listeners.append(_Stages(module))
        return _Observing(session, listeners[-1])

    session.forward(observe, grad=False)
    return [found for _, found in listeners[-1].calls]


class _Observing(ExitStack):
    def __init__(self, session: Session, listener: Listener) -> None:
        super().__init__()
        self._session, self._listener = session, listener

    def __enter__(self) -> _Observing:
        self.enter_context(
            OperationRecorder(self._listener, model=self._session.model, backward=False)
        )
        return self


class _Stages(Listener):
    """Follows what one layer returns.

    Attributes
    ----------
    calls : list of (Size, dict)
        For each call the shape of the output, and the tensors that came of it.
    """

    def __init__(self, module: nn.Module) -> None:
        self.calls: list[tuple[tuple[int, ...], dict[str, Tensor]]] = []
        self._module = module
        self._at: StorageMap[tuple[int, str]] = StorageMap()  # call and stage

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Begin to follow an output."""
        if call.module is self._module and not again:
            self.calls.append((tuple(returned[0].shape) if returned else (), {}))
            if returned:
                self._at[returned[0]] = len(self.calls) - 1, RETURNED

    def after(self, operation: Operation) -> None:
        """Keep what a normalization or an activation makes of the output."""
        if operation.is_view or not operation.outputs:
            return
        made, held = operation.outputs[0], None
        reads = [(each, self._at.get(each)) for each in operation.reads]
        known = [(tensor, place) for tensor, place in reads if place is not None]
        for each in operation.written:
            self._at.pop(each)
        if known and made.numel() == known[0][0].numel():
            held = known[0][1]
        if held is None:
            return
        call, stage = held
        shape, found = self.calls[call]
        name, reached = operation.name.removesuffix("_"), ""
        gated = name == "mul" and len(known) > 1 and ACTIVATED in {at for _, (_, at) in known}
        acts = name in ACTIVATIONS and len(known) == 1 and ACTIVATED not in (stage, *found)
        if name.startswith(NORMS) and stage == RETURNED and NORMALIZED not in found:
            reached = NORMALIZED
        elif gated or acts:
            reached = ACTIVATED
        elif name in _COPIES:
            self._at[made] = held
        if reached and made.numel() == _numel(shape):
            found[reached] = made.detach().clone().reshape(shape)
            self._at[made] = call, reached


def _numel(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def tensor_after(found: dict[str, Tensor], shown_after: str) -> Tensor | None:
    """Return the tensor after a step, or after the one before it; None for the output itself."""
    if shown_after == ACTIVATED:
        return found.get(ACTIVATED, found.get(NORMALIZED))
    return found.get(shown_after)


def words_after(found: dict[str, Tensor], shown_after: str) -> str:
    """Return what the maps are shown after, in words; the wanted step may be missing.

    Examples
    --------
    >>> words_after({}, "activation")
    'as returned (no activation follows directly)'
    """
    if shown_after == RETURNED or shown_after in found:
        return WORDS[shown_after]
    if shown_after == ACTIVATED and NORMALIZED in found:
        return f"{WORDS[NORMALIZED]} (no activation follows directly)"
    what = "activation" if shown_after == ACTIVATED else "normalization"
    return f"{WORDS[RETURNED]} (no {what} follows directly)"
