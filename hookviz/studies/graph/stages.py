"""A layer's output after the normalization and the activation that follow the layer.

Functional ones count as well as modules, because a recorder reports operations.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...run.follow import Follower, follow
from ...run.operations import BATCH_NORMS, Kind, uses_running_statistics
from ...run.recorder import ModuleCall, Operation
from ...run.session import Session

RETURNED, NORMALIZED, ACTIVATED = "output", "norm", "activation"
SHOWN_AFTER = (RETURNED, NORMALIZED, ACTIVATED)
"""The values of the setting ``shown_after``, in the order in which the network reaches them."""

WORDS = {
    RETURNED: "raw output",
    NORMALIZED: "after normalization",
    ACTIVATED: "after activation",
}


def stages_of(session: Session, module: nn.Module) -> list[dict[str, Tensor]]:
    """Run the model once, and return a layer's outputs after normalization and activation.

    An output is followed through one normalization and one activation that come directly after the
    layer. ``x * sigmoid(x)`` is an activation.

    Returns
    -------
    list of dict
        For each call of the layer, the tensors after ``"norm"`` and after ``"activation"`` in the
        output's shape, as far as they exist.

    Examples
    --------
    >>> import torch
    >>> model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.ReLU())
    >>> session = Session.of(model, torch.ones(1, 1, 4, 4))
    >>> [sorted(each) for each in stages_of(session, model[0])]
    [['activation', 'norm']]
    """
    return follow(session, lambda: StageListener(module)).calls


class StageListener(Follower[tuple[int, str]]):
    """Follows a layer's outputs; a mark is the number of the call and the latest stage.

    Attributes
    ----------
    calls : list of dict
        For each call, the tensors after the norm and after the activation.
    affine : tuple of torch.Tensor or None
        Factor and addition, see `affine_of`, if the norm is a BatchNorm.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.calls: list[dict[str, Tensor]] = []
        self.affine: tuple[Tensor, Tensor] | None = None
        self._module, self._shapes = module, list[torch.Size]()
        self.modules = [module]

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Start to follow an output."""
        if call.module is self._module:
            if returned:
                self.marks[returned[0]] = len(self.calls), RETURNED
            self.calls.append({})
            self._shapes.append(returned[0].shape if returned else torch.Size())

    def mark_of_result(
        self, operation: Operation, made: Tensor, reads: list[tuple[Tensor, tuple[int, str]]]
    ) -> tuple[int, str] | None:
        """Store the result of a normalization or an activation."""
        _, (call, reached) = reads[0]
        stages, shape, kind = self.calls[call], self._shapes[call], operation.kind
        if made.numel() != shape.numel():
            return None
        if kind is Kind.COPY:
            return call, reached
        gates = len(reads) > 1 and operation.name == "mul"
        gates = gates and ACTIVATED in {step for _, (_, step) in reads}
        if kind is Kind.NORMALIZATION and reached == RETURNED and NORMALIZED not in stages:
            reached = NORMALIZED
            self.affine = affine_of(operation) if operation.name in BATCH_NORMS else None
        elif gates or (kind is Kind.ACTIVATION and ACTIVATED not in (reached, *stages)):
            reached = ACTIVATED
        else:
            return None
        stages[reached] = made.detach().clone().reshape(shape)
        return call, reached


def affine_of(operation: Operation) -> tuple[Tensor, Tensor] | None:
    """Return a BatchNorm's factor and addition for each channel, ``(C,)`` in float64.

    They are ``gamma / sqrt(var + eps)`` and ``beta − mean * factor``; None if it normalizes by the
    batch's own statistics.
    """
    given = operation.argument
    if not uses_running_statistics(operation.name, given):
        return None
    mean, variance = given["running_mean"], given["running_var"]
    mean, variance = mean.detach().double().cpu(), variance.detach().double().cpu()
    factor = (variance + given.get("eps", given.get("epsilon", 1e-5))).rsqrt()
    gamma, beta = given.get("weight"), given.get("bias")
    if gamma is not None:
        factor = factor * gamma.detach().double().cpu()
    added = -mean * factor
    return factor, added if beta is None else added + beta.detach().double().cpu()


def tensor_after(stages: dict[str, Tensor], shown_after: str) -> Tensor | None:
    """Return the tensor after a stage, or after the previous one; None for the output itself."""
    if shown_after == ACTIVATED:
        return stages.get(ACTIVATED, stages.get(NORMALIZED))
    return stages.get(shown_after)


def words_after(stages: dict[str, Tensor], shown_after: str) -> str:
    """Describe the stage that is shown; the requested one may be missing.

    Examples
    --------
    >>> words_after({}, "activation")
    'raw output (no activation follows directly)'
    """
    if shown_after == RETURNED or shown_after in stages:
        return WORDS[shown_after]
    if shown_after == ACTIVATED and NORMALIZED in stages:
        return f"{WORDS[NORMALIZED]} (no activation follows directly)"
    what = "activation" if shown_after == ACTIVATED else "normalization"
    return f"{WORDS[RETURNED]} (no {what} follows directly)"
