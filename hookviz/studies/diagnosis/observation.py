"""One forward and one backward under observation: all that the checks look at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from ...hooking.checkpoint import FORWARD, ModuleCallStack, current_backward, repeated
from ...hooking.handles import HookManager
from ...hooking.select import module_names, type_name
from ...hooking.tensors import at_least_float32, memory_of, tensors_in
from ...run.operations import Operation, Operations, Place, range_of
from ...run.session import Session
from ...run.target import Target
from .facts import look_at_maps, look_at_precision

LOOKS = (look_at_maps, look_at_precision)
"""Who adds facts to an operation that has just run."""


@dataclass(eq=False)
class LayerCall:
    """One call of one module, as its hooks saw it.

    Attributes
    ----------
    layer, type : str
    call : int
    module : torch.nn.Module
    given, shapes : tuple of tuple of int
        The shapes of the tensors that it took and gave out.
    made_by : tuple of Operation
        What made the tensors that it took.
    size, gradient : float or None
        Root mean square of its first output, and Euclidean norm of the gradient that reached it;
        None where there is none.
    tracked : bool
        Whether autograd follows what it gave out.
    overwritten : Operation or None
        What wrote over what it gave out.
    detached : Operation or None
        What took it out of autograd's graph.
    leaf : bool
        Whether there are no modules in it.
    """

    layer: str
    type: str
    call: int
    module: nn.Module
    given: tuple[tuple[int, ...], ...]
    made_by: tuple[Operation, ...]
    shapes: tuple[tuple[int, ...], ...] = ()
    size: float | None = None
    gradient: float | None = None
    tracked: bool = False
    finished: bool = False
    overwritten: Operation | None = None
    detached: Operation | None = None

    @property
    def leaf(self) -> bool:
        return next(self.module.children(), None) is None

    @property
    def place(self) -> Place:
        return self.layer, self.call


@dataclass(eq=False)
class Observation:
    """What was seen of a model in one forward and one backward."""

    model: nn.Module
    names: dict[nn.Module, str]
    calls: list[LayerCall] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    sources: list[Operation] = field(default_factory=list)  # weights and inputs
    samples: int = 1  # of the batch
    reached: set[str] = field(default_factory=set)  # parameters that a gradient reached
    used: set[str] = field(default_factory=set)  # parameters that an operation read
    backward: bool = False  # whether there was one
    raised: Operation | None = None  # the operation that failed
    error: Exception | None = None  # the model's own
    scale: float = 0.0  # of the GradScaler whose doing NaN and Inf are; 0 if they are not


class RunRecorder(HookManager):
    """The block within which a forward and a backward are examined.

    Parameters
    ----------
    model : torch.nn.Module
        In its wrappers, or without.
    begin : callable, optional
        Called when the hooks are on, before the model runs.
    """

    missing_gradients = False  # nothing has to run again for its sake

    def __init__(self, model: nn.Module, begin: Callable[[], object] = lambda: None) -> None:
        names = {module: known[0] for module, known in module_names(model).items()}
        self.found = Observation(model, names)
        self.operations = Operations(self._place, self._look_at)
        super().__init__(self._wanted())
        self._start = begin
        self._running: ModuleCallStack[tuple[LayerCall, bool]] = ModuleCallStack()
        self._calls: dict[nn.Module, list[tuple[LayerCall, Any]]] = {}
        self._repeated: set[tuple[int, int]] = set()
        self._returned: dict[int, tuple[StorageWeakRef, LayerCall]] = {}  # by memory

    def _wanted(self) -> Iterable[tuple[nn.Module, str, Callable[..., Any]]]:
        for module in self.found.names:
            if not isinstance(module, torch.jit.ScriptModule):
                yield module, "forward_pre", self._before
                yield module, "forward", self._after

    def _begin(self) -> None:
        super()._begin()
        self._start()
        for name, parameter in self._parameters():
            if parameter.requires_grad:
                self.add(parameter, "tensor", partial(self._arrived_at_weights, name))
        self._note_sources()
        # What autocast has cached before would stand in for the weights.
        self.around.callback(torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled())
        torch.set_autocast_cache_enabled(False)
        self.around.callback(self._conclude)
        self.around.enter_context(self.operations)

    def _parameters(self) -> list[tuple[str, nn.Parameter]]:
        root = next(iter(self.found.names))
        return list(root.named_parameters())

    def _note_sources(self) -> None:
        """Weights and buffers: numbers that no operation made."""
        root = next(iter(self.found.names))
        for kind, tensors in (("weights", self._parameters()), ("buffer", root.named_buffers())):
            for name, tensor in tensors:
                extent = range_of(tensor)
                if extent is not None:
                    self._source(kind, name, tensor, extent)

    def _source(self, kind: str, name: str, tensor: Tensor, extent: Any) -> None:
        layer = name.rpartition(".")[0]
        meant = kind == "buffer" and not extent.nan  # a mask that is kept as a buffer
        source = Operation(-1, kind, layer, made=(extent,), constant=meant, facts={"name": name})
        self.operations.sources[memory_of(tensor)] = source
        self.found.sources.append(source)

    def _conclude(self) -> None:
        self.found.operations, self.found.raised = self.operations.done, self.operations.raised
        used = self.operations.used
        self.found.used = {name for name, p in self._parameters() if memory_of(p) in used}

    # The hooks

    def _place(self) -> tuple[Place, bool] | None:
        """Which call of which layer is running, and whether it runs again."""
        running = self._running.innermost()
        # What checkpointing runs again it leaves before the end, once it has what it needs. The
        # backward itself keeps no graph.
        left = current_backward() != FORWARD and not torch.is_grad_enabled()
        return None if running is None or left else (running[0].place, running[1])

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        with self.operations.silent():
            given = [tensor for _, tensor in tensors_in((args, kwargs))]
            if not self.found.calls:
                self._note_inputs(module, given)
            marks = [_mark(tensor) for tensor in given]
            calls = self._calls.setdefault(module, [])
            task = current_backward()
            if again := task != FORWARD and bool(calls):
                left = [each for each in calls if (task, id(each[0])) not in self._repeated]
                look, _ = repeated(left or calls, lambda call: call[1] == marks) or calls[-1]
                self._repeated.add((task, id(look)))
            else:
                look = self._look(module, len(calls), given)
                calls.append((look, marks))
            self._running.begin(module, (look, again))

    def _look(self, module: nn.Module, call: int, given: list[Tensor]) -> LayerCall:
        makers = (self.operations.wrote(tensor) for tensor in given)
        made_by = tuple(dict.fromkeys(each for each in makers if each is not None))
        shapes = tuple(tuple(tensor.shape) for tensor in given)
        name = self.found.names[module]
        look = LayerCall(name, type_name(module), call, module, shapes, made_by)
        self.found.calls.append(look)
        return look

    def _note_inputs(self, module: nn.Module, given: list[Tensor]) -> None:
        first = next((t for t in given if t.is_floating_point() and t.ndim), None)
        self.found.samples = len(first) if first is not None else 1
        for tensor in given:
            extent = range_of(tensor)
            if extent is not None:
                self._source("input", "input", tensor, extent)

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        running = self._running.end(module)
        with self.operations.silent():
            returned = [tensor for _, tensor in tensors_in(output)]
            for tensor in returned:
                self._reaches(tensor)
            if running is None:
                return
            look, again = running
            look.finished = True
            if not again:
                look.shapes = tuple(tuple(tensor.shape) for tensor in returned)
                look.tracked = any(tensor.requires_grad for tensor in returned)
                self._keep_an_eye_on(returned, look)
            first = next((t for t in returned if t.is_floating_point() and t.numel()), None)
            if first is None:
                return
            look.size = _norm(first) / first.numel() ** 0.5
            if first.requires_grad:
                self.add(first, "tensor", partial(self._arrived, look))

    def _keep_an_eye_on(self, returned: list[Tensor], look: LayerCall) -> None:
        """From now on whoever overwrites what this layer returned is noted."""
        for tensor in returned:
            memory = memory_of(tensor)
            known = self._returned.get(memory)
            if tensor.layout is torch.strided and (known is None or known[0].expired()):
                self._returned[memory] = StorageWeakRef(tensor.untyped_storage()), look

    def _arrived(self, look: LayerCall, gradient: Tensor | None) -> None:
        if gradient is not None:
            with self.operations.silent():
                look.gradient = _norm(gradient)
                self._reaches(gradient)

    def _arrived_at_weights(self, name: str, gradient: Tensor | None) -> None:
        if gradient is not None:
            self.found.reached.add(name)
            self.found.backward = True
            with self.operations.silent():
                self._reaches(gradient)

    def _reaches(self, tensor: Tensor) -> None:
        """Note for what arose somewhere that it has come as far as this."""
        writer = self.operations.wrote(tensor)
        if writer is None or writer.finite:
            return
        extent = range_of(tensor)  # maybe a part of the memory that is finite
        origin = writer.origin or writer
        if extent is not None and not extent.finite and (extent.nan or not origin.constant):
            origin.reached = True
            origin.facts.setdefault("as", "nan" if extent.nan else "inf")

    def _look_at(
        self, operation: Operation, output: Tensor, given: list[Tensor], maker: Operation | None
    ) -> None:
        if operation.phase == "backward":
            look_at_precision(operation, output, given, maker)
            return
        if operation.overwrites or operation.name == "detach":
            reference, look = self._returned.get(memory_of(output), (None, None))
            if reference is None or look is None or reference.expired():
                pass
            elif operation.overwrites:
                look.overwritten = operation
                del self._returned[memory_of(output)]  # it is another layer's from now on
            elif current_backward() == FORWARD:
                look.detached = look.detached or operation
        for add_facts in LOOKS:
            add_facts(operation, output, given, maker)


def _norm(tensor: Tensor) -> float:
    """Euclidean norm, ``sqrt(sum(x**2))``, summed in single precision at least."""
    return float(torch.linalg.vector_norm(at_least_float32(tensor.detach().to_dense())))


def _mark(tensor: Tensor) -> tuple[Any, ...]:
    """What tells one input of a layer from another: its shape, and one value in its middle."""
    if not tensor.numel() or tensor.layout is not torch.strided:
        return tuple(tensor.shape), None
    return tuple(tensor.shape), repr(tensor[tuple(size // 2 for size in tensor.shape)].item())


def examine(
    session: Session,
    target: Target = None,
    *,
    score_of: Callable[..., Tensor | None],
    begin: Callable[[], object] = lambda: None,
    told: bool = True,
) -> Observation:
    """Run the model as it stands, forward and backward, and write down what happens.

    ``score_of`` is called with the output, the target and the names of the classes, and ``told``
    says whether what it computes is written down, too; ``begin`` is called before the model.
    """
    observers: list[RunRecorder] = []

    def observe() -> RunRecorder:
        observers.append(RunRecorder(session.given, begin))
        return observers[-1]

    def score(*given: Any) -> Tensor | None:
        with nullcontext() if told else observers[-1].operations.silent():
            return score_of(*given)

    try:
        session.forward_backward(target, observe, goal="parameters", keep_mode=True, score_of=score)
    except Exception as error:
        if not observers:
            raise
        own = error.__cause__
        observers[-1].found.error = own if isinstance(own, Exception) else error
    return observers[-1].found
