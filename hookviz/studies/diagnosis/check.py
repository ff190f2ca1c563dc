"""What a check is: it observes a run, and then says what it found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from ...run.recorder import Listener, Operation
from .findings import Finding
from .records import OperationRecord, RanOperation

if TYPE_CHECKING:
    from .examination import LayerCall, RunRecord
    from .step import Step


class Check:
    """One kind of fault; a new check is made for each run and stores what it observes.

    Subclasses override `findings`, and of the other methods those that they need. Checks are listed
    in `checks.CHECKS`.

    Attributes
    ----------
    looks_at : str
        What it examines, in words, for `Diagnosis.looked_at`.
    operations : collection of str
        The names of the operations after which `after` is called.
    live : bool
        True if it can also judge a step that is only watched: see `step.StepWatch`.
    """

    looks_at: ClassVar[str] = ""
    operations: ClassVar[Collection[str]] = ()
    live: ClassVar[bool] = False

    def listeners(self, model: nn.Module) -> Iterable[Listener]:
        """Return listeners to add to the recorder of the run."""
        return ()

    def enter(self, call: LayerCall, given: list[Tensor], run: RunRecord) -> None:
        """Observe a module's call before it runs, with its input tensors."""

    def leave(self, call: LayerCall, returned: list[Tensor], run: RunRecord) -> None:
        """Observe a module's call after it has run, with its output tensors."""

    def heard(self, operation: Operation, record: OperationRecord, run: RunRecord) -> None:
        """Observe any operation of the forward, views included."""

    def after(self, ran: RanOperation, run: RunRecord) -> None:
        """Observe one of `operations` that returned finite values."""

    def finish(self, score: Tensor | None, run: RunRecord) -> None:
        """Look at the score, if there is one, while its graph still exists."""

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        """Yield what was found."""
        yield from ()

    def looked_at(self, run: RunRecord) -> str:
        """Say what was examined."""
        return self.looks_at

    def suspects(self, step: Step) -> bool:
        """Return True if a step that was only watched should be examined."""
        return False


def overridden(checks: Iterable[Check], name: str) -> list[Callable[..., Any]]:
    """Return the methods of the checks that override this one."""
    own = getattr(Check, name)
    return [getattr(each, name) for each in checks if getattr(type(each), name) is not own]
