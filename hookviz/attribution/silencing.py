"""Edits of attention's heads: their weights are multiplied, in fused operations, too."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..hooking.edit import EditError, LayerEdit, check_change, select_channels
from ..hooking.select import unwrapped
from ..run.recorder import ModuleCall, Operation, OperationRecorder
from ..run.session import Session
from ..run.target import Target
from .attending import Attended, AttentionListener
from .fused import is_fused_backward
from .perturbation import Scorer


@dataclass(frozen=True, eq=False)
class HeadEdit(LayerEdit):
    """An edit that multiplies the weights of heads; 0 silences them.

    Attributes
    ----------
    attends : str
        The name of the module that attends; ``layer`` is that of its `AttentionRecord`.

    Examples
    --------
    >>> print(HeadEdit("blocks.3.attn.heads", 0, 2, attends="blocks.3.attn"))
    blocks.3.attn.heads, head 2: off
    """

    attends: str = ""

    def __post_init__(self) -> None:
        check_change(self.change)
        if self.factor is None or self.where is not None:
            raise ValueError(
                f"Heads of {self.layer!r} can be multiplied by a number, at all positions: give "
                "change=0 to silence them, or edit the layer that attends with hookviz.edit."
            )

    @property
    def of_heads(self) -> bool:
        return True

    def block(self, model: nn.Module) -> HeadScaler:
        """Return the ``with`` block that makes this edit."""
        return HeadScaler(unwrapped(model)[0], self)

    def __str__(self) -> str:
        return super().__str__().replace("channel", "head")


class HeadScaler(OperationRecorder):
    """The block of a `HeadEdit`."""

    def __init__(self, model: nn.Module, edit: HeadEdit) -> None:
        self._scaling, self._edit = _Scaling(model, edit), edit
        super().__init__(self._scaling, model=model)

    def _begin(self) -> None:
        self.exit_stack.push(self._warn)
        # With it a whole encoder layer is one operation.
        self.exit_stack.callback(
            torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled()
        )
        torch.backends.mha.set_fastpath_enabled(False)
        super()._begin()

    def _warn(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None and not self._scaling.count:
            warnings.warn(
                f"The edit of {self._edit.layer} changed nothing: it did not attend within the "
                "block.",
                RuntimeWarning,
                stacklevel=5,
            )


class _Scaling(AttentionListener):
    """Multiplies the weights ``A`` of some heads of one module by a factor ``f``.

    ``O = f A V`` for these. Below autograd, so that the backward has to be told, too: what it has
    kept is ``f A``, or ``f O``.
    """

    def __init__(self, model: nn.Module, edit: HeadEdit) -> None:
        module = model.get_submodule(edit.attends)
        super().__init__(model, set())  # nothing is kept
        self._module, self._edit, self.count = module, edit, 0
        assert edit.factor is not None
        self._factor = edit.factor

    def before(self, operation: Operation) -> None:
        super().before(operation)
        if operation.phase != "backward":
            return
        if operation.name == "softmax_backward_data":
            self._before_backward(operation, "output")
        elif is_fused_backward(operation):
            self._before_backward(operation, "out")

    def _before_backward(self, operation: Operation, name: str) -> None:
        attended = self._results.get(operation.argument[name])
        if attended is None or not self._is_meant(attended.path):
            return
        place = [*operation.argument].index(name)
        args: list[Any] = [*operation.args]
        with self._silent(), torch.no_grad():
            args[0], args[place] = args[0].clone(), args[place].clone()
            if self._factor:
                self._scale(attended, args[place], 1 / self._factor)
            # dS/dO of O = f A V at the one; dS/dA at the other, of which the result is scaled.
            self._scale(attended, args[0], self._factor)
            operation.replace(operation.function(*args, **operation.kwargs))

    def _take_fused(self, operation: Operation) -> None:
        super()._take_fused(operation)
        self._edit_result(operation)

    def _take_softmax(self, operation: Operation) -> None:
        super()._take_softmax(operation)
        self._edit_result(operation)

    def _edit_result(self, operation: Operation) -> None:
        result = operation.outputs[0]
        attended = self._results.get(result)
        call = None if attended is None else self._is_meant(attended.path)
        if attended is None or call is None:
            return
        if not attended.confirmed:
            attended.module, attended.given = call.module, self._given.get(call, ())
        with self._silent(), torch.no_grad():
            self._scale(attended, result, self._factor)
        self.count += not operation.again

    def _is_meant(self, path: tuple[ModuleCall, ...]) -> ModuleCall | None:
        """Return the call of the edited module among those that were running."""
        return next((each for each in path if each.module is self._module), None)

    def _scale(self, attended: Attended, tensor: Tensor, factor: float) -> None:
        """Multiply these heads of a tensor of the weights' or the result's shape, in place."""
        by_head = self._by_head(attended, tensor.movedim(attended.dimension, -1))
        flags = torch.zeros(by_head.shape[-3], dtype=torch.bool)
        try:
            select_channels(flags, self._edit.channels, f"layer {self._edit.layer!r}")
        except EditError as error:
            raise type(error)(str(error).replace("channels", "heads")) from None
        for head in flags.nonzero().flatten().tolist():
            by_head.select(-3, head).mul_(factor)


def head_scores(session: Session, layer: str, attends: str, heads: int, target: Target) -> Tensor:
    """Compute the drop of the score without each head, ``(N, heads)``: a run for each."""
    with session.active(grad=False):
        scorer = Scorer(session, target, 8)
        whole, without = scorer.scores(), []
        for head in range(heads):
            with HeadEdit(layer, 0, head, attends=attends).block(session.given):
                without.append(scorer.scores())
    return whole[:, None] - torch.stack(without, 1)
