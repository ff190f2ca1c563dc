"""The base of all checks, and the record of a run that they observe and read."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from types import NoneType
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from ...hooking.weights import stored_tensor
from ...run.operations import LAYER_KINDS, Kind
from ...run.recorder import Operation
from .findings import Finding
from .modules import LINEAR, is_zero, next_to_zero
from .records import OperationRecord, Place


@dataclass(eq=False)
class LayerCall:
    """One call of one module.

    Attributes
    ----------
    layer : str
    call : int
    module : torch.nn.Module
    given, shapes : tuple of tuple of int
        The shapes of its input and output tensors.
    made_by, made : tuple of OperationRecord
        The operations that made its input and its output tensors.
    size, gradient : float or None
        Root mean square of its first output, if it has weights, and Euclidean norm of the gradient
        that reached this output, if it has no submodules; None if there is none.
    tracked : bool
        True if autograd follows an output.
    """

    layer: str
    call: int
    module: nn.Module
    given: tuple[tuple[int, ...], ...] = ()
    made_by: tuple[OperationRecord, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    made: tuple[OperationRecord, ...] = ()
    size: float | None = None
    gradient: float | None = None
    tracked: bool = False
    finished: bool = False

    @property
    def leaf(self) -> bool:
        """True if it has no submodules."""
        return not self.module._modules

    @property
    def place(self) -> Place:
        return self.layer, self.call


@dataclass
class OutputGradient:
    """The gradients that reached the model's outputs.

    Attributes
    ----------
    arrived, nonzero : bool
        True if there was one, and if one was not 0 everywhere.
    alike : bool
        True if the gradient is the same for all samples.
    flat : bool
        True if it is the same everywhere, as that of a sum.
    """

    arrived: bool = False
    nonzero: bool = False
    alike: bool = False
    flat: bool = False

    def add(self, gradient: Tensor) -> None:
        """Take one more into account."""
        if not gradient.numel():
            return
        rows = gradient.detach().reshape(len(gradient), -1)
        self.nonzero = self.nonzero or bool((rows != 0).any())
        self.alike = (self.alike or not self.arrived) and bool((rows == rows[:1]).all())
        self.flat = (self.flat or not self.arrived) and bool((rows == rows[0, 0]).all())
        self.arrived = True


C = TypeVar("C", bound="Check")


@dataclass(eq=False)
class RunRecord:
    """The record of a model in one forward and one backward.

    Attributes
    ----------
    names : dict of torch.nn.Module to str
    checks : list of Check
    calls : list of LayerCall
    operations, sources : list of OperationRecord
        What ran; and weights, buffers and inputs.
    samples : int
        The size of the batch.
    gradient_norms : dict of str to float
        The norm of the gradient of each parameter that one reached.
    used : set of str
        The parameters that an operation read.
    weights : set of int
        The ids of the weights in a watched step, also of those that ``functional_call`` puts there.
    optimizers : list of torch.optim.Optimizer
    drew : bool
        True if one random number was drawn, as to leave out a layer.
    backward : bool
        True if a gradient reached a parameter.
    returned : type
        The type of the model's output.
    score : float or None
    judged : bool
        True if the user gave the score, such as a loss.
    loss : bool
        True if the score is the user's loss, not a sum over the batch.
    failed : OperationRecord or None
        The operation that raised.
    error : Exception or None
        The model's own.
    suspect : bool
        True if a gradient was not finite, or too large for its norm.
    half : bool
        True if a result is in half precision.
    scaler : torch.amp.GradScaler or None
    watched : bool
        True for a step that was only watched: the model's operations are not recorded.
    hidden_in : str
        The transform of torch.func within which layers ran unseen, if the step was only watched.
    scored_from : list of OperationRecord
        What made the score, or those outputs of the model that it was computed from.
    broken : dict of type to Exception
        The checks that failed themselves, and how.
    """

    model: nn.Module
    names: dict[nn.Module, str]
    checks: list[Check] = field(default_factory=list)
    calls: list[LayerCall] = field(default_factory=list)
    operations: list[OperationRecord] = field(default_factory=list)
    sources: list[OperationRecord] = field(default_factory=list)
    samples: int = 1
    gradient_norms: dict[str, float] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    weights: set[int] = field(default_factory=set)
    optimizers: list[Any] = field(default_factory=list)
    drew: bool = False
    backward: bool = False
    output_gradient: OutputGradient = field(default_factory=OutputGradient)
    returned: type = NoneType
    score: float | None = None
    judged: bool = True
    loss: bool = True
    failed: OperationRecord | None = None
    error: Exception | None = None
    suspect: bool = False
    half: bool = False
    scaler: Any = None
    watched: bool = False
    hidden_in: str = ""
    scored_from: list[OperationRecord] = field(default_factory=list)
    broken: dict[type[Check], Exception] = field(default_factory=dict)

    def show(self, step: Callable[..., object], *given: Any) -> None:
        """Call a method of a check; if it fails, that must not look like an error of the model."""
        try:
            step(*given, self)
        except Exception as error:
            self.broken.setdefault(type(step.__self__), error)  # type: ignore[attr-defined]

    @property
    def root(self) -> nn.Module:
        """The model without its wrappers."""
        return next(iter(self.names))

    @property
    def scored(self) -> bool:
        """True if a backward ran."""
        return self.backward if self.watched else self.score is not None

    @property
    def finite_score(self) -> bool:
        """False if the score is NaN or Inf."""
        return self.score is None or math.isfinite(self.score)

    @property
    def lost_outputs(self) -> list[OperationRecord]:
        """The origins of NaN and Inf in the model's output."""
        made = self.calls[0].made if self.calls else ()
        return [each.origin for each in made if each.origin is not None]

    @cached_property
    def modules(self) -> dict[str, nn.Module]:
        """The modules by their names."""
        return {name: module for module, name in self.names.items()}

    @cached_property
    def parameter_names(self) -> dict[int, str]:
        """The full names of the parameters by their ids."""
        return {id(parameter): name for name, parameter in self.root.named_parameters()}

    @cached_property
    def parameters(self) -> dict[str, set[str]]:
        """The full names of the parameters of each layer, those of its submodules included."""
        found: dict[str, set[str]] = {name: set() for name in self.modules}
        for name, _ in self.root.named_parameters():
            owner = name
            while owner:
                owner = owner.rpartition(".")[0]
                found.setdefault(owner, set()).add(name)
        return found

    @cached_property
    def weighted(self) -> dict[str, nn.Module]:
        """The convolutions, linear layers and norms that ran, in the order in which they ran."""
        ran = self.modules if self.watched else dict.fromkeys(call.layer for call in self.calls)
        kinds = (*LINEAR, _NormBase, nn.GroupNorm, nn.LayerNorm)
        return {name: m for name in ran if isinstance(m := self.modules[name], kinds)}

    @cached_property
    def zero_layers(self) -> dict[str, nn.Module]:
        """Layers whose weights are 0, stored or computed, such as by a gain of 0."""
        computed = {each.layer for each in self.operations if each.of_zero_weights}
        return {n: m for n, m in self.weighted.items() if n in computed or is_zero(m)}

    def trained_away(self, record: OperationRecord | None, mask: Tensor) -> int:
        """Count the channels of a mask that have a scale or a kernel next to zero."""
        away = torch.zeros_like(mask)
        for each in record.channelwise() if record is not None else ():
            module = self.modules.get(each.layer)
            weight = stored_tensor(module, "weight") if module is not None else None
            if weight is not None and not weight.is_meta and len(weight) == len(mask):
                away |= next_to_zero(weight).to(mask.device)
        return int((mask & away).sum())

    def learns(self, name: str) -> bool:
        """Return True if a gradient other than 0 reaches a layer's weights."""
        own = (each for each in self.parameters[name] if not each.endswith("bias"))
        return any(self.gradient_norms.get(each, 0.0) > 0 for each in own)

    def own_parameters(self, layer: str) -> set[str]:
        """Return the full names of a layer's parameters without those of its submodules."""
        return {each for each in self.parameters[layer] if each.rpartition(".")[0] == layer}

    def check(self, kind: type[C]) -> C:
        """Return the check of a class."""
        return next(each for each in self.checks if isinstance(each, kind))

    @cached_property
    def uses(self) -> dict[OperationRecord, set[Kind]]:
        """The weighted layers and norms that read each operation's values, passed on or not."""
        found: dict[OperationRecord, set[Kind]] = {}
        for record in self.operations:
            if record.phase == "backward":
                continue
            # The product of two computed matrices, as in attention, is not a layer.
            weights = any(each is not None and each.name == "weights" for each in record.makers)
            layer = record.kind in LAYER_KINDS and weights
            norm = record.kind is Kind.NORMALIZATION
            makers = record.makers if layer else record.makers[:1] if norm else ()
            for maker in filter(None, makers):
                for each in maker.passed_on():
                    found.setdefault(each, set()).add(Kind.PRODUCT if layer else record.kind)
        return found


EVERY = "*"
"""All operations, in `Check.operations`."""


class Check:
    """One kind of fault; a new check is made for each run and stores what it observes.

    Subclasses override `findings`, and of the other methods those that they need. Checks are listed
    in `all_checks.CHECKS`.

    Attributes
    ----------
    looks_at : str
        What it examines, in words, for `Diagnosis.looked_at`.
    needs_backward : bool
        True if it examines nothing without a backward.
    operations : collection of str
        The names of the operations after which `after` is called; ``"F.kl_div"`` stands for those
        within that function of ``torch.nn.functional``, and `EVERY` for all.
    backward : bool
        True if it also observes operations of the backward.
    live : bool
        True if it can also judge a step that is only watched: see `watching.StepWatch`.
    """

    looks_at: ClassVar[str] = ""
    needs_backward: ClassVar[bool] = False
    operations: ClassVar[Collection[str]] = ()
    backward: ClassVar[bool] = False
    live: ClassVar[bool] = False

    def enter(self, call: LayerCall, given: list[Tensor], run: RunRecord) -> None:
        """Observe a module's call before it runs, with its input tensors."""

    def leave(self, call: LayerCall, returned: list[Tensor], run: RunRecord) -> None:
        """Observe a module's call after it has run, with its output tensors."""

    def after(
        self, operation: Operation, record: OperationRecord, given: list[Tensor], run: RunRecord
    ) -> None:
        """Observe one of `operations`, views included; ``given`` are its inputs before it ran."""

    def finish(self, score: Tensor | None, run: RunRecord) -> None:
        """Look at the score, if there is one, while its graph still exists."""

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        """Yield what was found."""
        yield from ()

    def looked_at(self, run: RunRecord) -> str:
        """Say what was examined."""
        return self.looks_at if run.scored or not self.needs_backward else ""
