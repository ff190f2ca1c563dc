"""Each operation of a forward and a backward: in which layer, on which line, what it made."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..hooking.checkpoint import FORWARD, current_backward
from ..hooking.tables import number
from ..hooking.tensors import memory_of

OUTSIDE = "(outside)"
"""In place of a layer's name: the model had not begun, or had returned."""


@dataclass(frozen=True)
class Range:
    """From where to where a tensor's values go; both ends are NaN where one of them is."""

    low: float
    high: float
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def finite(self) -> bool:
        """Whether there is no NaN and no Inf."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def nan(self) -> bool:
        """Whether there is a NaN."""
        return math.isnan(self.low)

    @property
    def magnitude(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    def __str__(self) -> str:
        size = "×".join(map(str, self.shape)) or "one number"
        return f"{number(self.low)} … {number(self.high)} ({size})"


def range_of(tensor: Tensor) -> Range | None:
    """The range of a floating-point or complex tensor; None where it has no numbers to be read.

    >>> print(range_of(torch.tensor([[0.5, -2.0]])))
    −2 … 0.5 (1×2)
    """
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return None
    values = tensor.detach()
    try:
        values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
        values = values if values.dtype in (torch.float32, torch.float64) else values.float()
        low, high = torch.stack(values.aminmax()).tolist() if values.numel() else (0.0, 0.0)
    except (RuntimeError, NotImplementedError, TypeError):  # sparse, quantized, nested, meta
        return None
    return Range(low, high, tuple(tensor.shape), tensor.dtype)


@dataclass(eq=False)
class Operation:
    """One operation that ran, or where numbers came from that none had made.

    Attributes
    ----------
    index : int
        Its place in the run; −1 for what was there before it.
    name : str
        torch's, without what tells its variants apart: ``"log"``, ``"convolution"``.
    layer : str or None
        The innermost module that was running; `OUTSIDE` if none was.
    call : int
        Which run of that module, from 0.
    phase : str
        ``"forward"`` or ``"backward"``; a backward's layer, call and line are its forward's.
    made, given : tuple of Range
        Of its outputs; and of its inputs, where something that it made is not finite.
    origin : Operation or None
        Where those numbers arose that are not finite; itself, if here.
    """

    index: int
    name: str
    layer: str = OUTSIDE
    call: int = 0
    phase: str = "forward"
    file: str = ""
    line: int = 0
    made: tuple[Range, ...] = ()
    given: tuple[Range, ...] = ()
    origin: Operation | None = None
    constant: bool = False  # Inf that the code asks for, as a mask does
    overwrites: bool = False  # works in place
    again: bool = False  # run once more by activation checkpointing
    reached: bool = False  # whether what arose here left a layer, or reached a weight
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def finite(self) -> bool:
        """Whether all that it made is."""
        return all(each.finite for each in self.made)

    @property
    def nan(self) -> bool:
        """Whether a NaN is in what it made."""
        return any(each.nan for each in self.made)

    @property
    def where(self) -> str:
        """The line of the user's code, as `line_of` says it."""
        return line_of(self.file, self.line)

    @property
    def place(self) -> dict[str, Any]:
        """Where it ran, by the names that a `Finding` has for it."""
        return {
            "layer": "" if self.layer == OUTSIDE else self.layer,
            "call": self.call,
            "phase": self.phase,
            "operation": self.name if self.index >= 0 else "",
            "file": self.file,
            "line": self.line,
        }


Place = tuple[str, int]
"""A layer's name and which of its calls."""

# Their memory holds whatever was there, until something is written.
_UNWRITTEN = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"}
_UNWRITTEN |= {"empty_permuted"}
_CONSTANT = {"full", "full_like", "new_full", "fill", "masked_fill", "scalar_tensor", "where"}
_OURS, _TORCHS = str(Path(__file__).parents[1]), str(Path(torch.__file__).parent) + "/"


class Operations(TorchDispatchMode):
    """Within the block, every operation is written down, those of the backward too.

    Parameters
    ----------
    place : callable
        The layer that is running now, and its call; None outside of the model.
    look : callable
        ``look(operation, output, given, maker)`` after each one that is finite, to add facts;
        ``maker`` is who made the first tensor that it was given.
    """

    def __init__(
        self,
        place: Callable[[], tuple[Place, bool] | None],
        look: Callable[[Operation, Tensor, list[Tensor], Operation | None], None],
    ) -> None:
        super().__init__()
        self.done: list[Operation] = []
        self.raised: Operation | None = None
        self.sources: dict[int, Operation] = {}  # memory -> what was in it before the run
        self.used: set[int] = set()  # memory that was read
        self._place, self._look, self._silent = place, look, False
        self._wrote: dict[int, tuple[StorageWeakRef, Operation]] = {}
        self._unlabelled: tuple[list[Tensor], Operation] = ([], Operation(-1, ""))

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Within the block nothing is written down."""
        before, self._silent = self._silent, True
        try:
            yield
        finally:
            self._silent = before

    def wrote(self, tensor: Tensor) -> Operation | None:
        """Which operation wrote a tensor's memory last, or what was there before."""
        memory = memory_of(tensor)
        reference, operation = self._wrote.get(memory, (None, None))
        if reference is not None and not reference.expired():
            return operation
        return self.sources.get(memory)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._silent:
            return function(*args, **kwargs)
        operation = self._begun(function, (args, kwargs))
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        self.used.update(map(memory_of, given))
        # What is overwritten cannot be looked at afterwards.
        writes = function._schema.is_mutable and operation.name not in _UNWRITTEN
        before = [t.clone() if writes and t.is_floating_point() else t for t in given]
        sources = [self.wrote(each) for each in given]
        try:
            output = function(*args, **kwargs)
        except Exception:
            operation.given = tuple(filter(None, map(range_of, before)))
            self.raised = operation
            raise
        returned = [each for each in tree_leaves(output) if isinstance(each, Tensor)]
        if operation.name == "detach" and operation.phase == "forward" and operation.file:
            self._look(operation, returned[0], given, sources[0])
        if function.is_view or not returned or operation.name == "detach":
            self._unlabelled = returned, operation
            return output
        self._note(operation, returned, before, sources)
        return output

    def _begun(self, function: Any, given: Any) -> Operation:
        """What is known of an operation before it runs."""
        tensors, labelled = self._unlabelled
        for tensor in tensors:  # autograd has come to know them by now
            if tensor.grad_fn is not None:
                _labels(tensor.grad_fn).setdefault(_LABEL, labelled)
        self._unlabelled = [], labelled
        name = function.overloadpacket.__name__.strip("_").removeprefix("native_")
        found = Operation(len(self.done), name)
        running = self._place()
        node = torch._C._current_autograd_node()
        if running is None and current_backward() != FORWARD:
            found.phase = "backward"
            label = _labels(node).get(_LABEL) if node is not None else None
            if label is not None:
                found.layer, found.call = label.layer, label.call
                found.file, found.line = label.file, label.line
            own = users_line(sys._getframe(2)) if isinstance(node, BackwardCFunction) else ("", 0)
            if own[0]:  # within the backward of a Function of the user's own
                found.file, found.line = own
            elif label is not None:
                found.name = label.name
        else:
            if running is not None:
                (found.layer, found.call), found.again = running
            found.file, found.line = users_line(sys._getframe(2))
        found.overwrites = function._schema.is_mutable
        scalars = (each for each in tree_leaves(given) if isinstance(each, float))
        found.constant = name in _CONSTANT or any(math.isinf(each) for each in scalars)
        return found

    def _note(
        self,
        operation: Operation,
        returned: list[Tensor],
        given: list[Tensor],
        sources: list[Operation | None],
    ) -> None:
        unwritten = operation.name in _UNWRITTEN
        if not unwritten:
            operation.made = tuple(filter(None, map(range_of, returned)))
        if not operation.finite:
            operation.given = tuple(filter(None, map(range_of, given)))
            operation.origin = _origin(operation, given, sources)
        elif not operation.again:
            self._look(operation, returned[0], given, sources[0] if sources else None)
        self.done.append(operation)
        for tensor in returned:
            memory = memory_of(tensor)
            self._wrote[memory] = StorageWeakRef(tensor.untyped_storage()), operation
        self._unlabelled = returned, operation


_LABEL = "hookviz"


def _labels(node: Any) -> dict[str, Operation]:
    """What a node of autograd's graph carries along for others."""
    return node.metadata


def _origin(
    operation: Operation, given: list[Tensor], sources: list[Operation | None]
) -> Operation:
    """Where an operation's NaN or Inf arose: with those it was given, or here."""
    for tensor, source in zip(given, sources, strict=True):
        found = range_of(tensor)
        if found is None or found.finite:
            continue
        if source is None:  # written by nothing that was seen: a constant of the code
            source = Operation(-1, "constant", operation.layer, operation.call, constant=True)
        origin = source.origin or source
        # A mask of −Inf is meant, what makes a NaN of it is not.
        if not (origin.constant and operation.nan and not found.nan):
            return origin
    return operation


def users_line(frame: FrameType | None) -> tuple[str, int]:
    """The innermost line of code that is neither torch's nor hookviz's, and runs within it."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_OURS):
            # Ours, below the model: there is no line of the user's.
            if file != __file__:
                return "", 0
        elif not file.startswith(_TORCHS) and not file.startswith("<frozen"):
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0


def legible(file: str) -> str:
    """A notebook's cell by its number, where the notebook knows it."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    said = getattr(getattr(shell, "compile", None), "format_code_name", lambda name: None)(file)
    if said:
        return str(said[1])
    if number := re.search(r"ipython-input-(\d+)-", file):  # IPython 7, as in Colab
        return f"In[{number[1]}]"
    return "a notebook cell" if re.search(r"ipykernel_|ipython-input|__marimo__", file) else file


def line_of(file: str, line: int) -> str:
    """A line of code for people, a notebook's cell by its number; empty if there is none.

    >>> line_of("/home/me/net.py", 12), line_of("<ipython-input-3-aa>", 5), line_of("", 0)
    ('net.py:12', 'In[3], line 5', '')
    """
    if not file:
        return ""
    said = Path(legible(file))
    return f"{said.name}:{line}" if said.suffix else f"{said}, line {line}"
