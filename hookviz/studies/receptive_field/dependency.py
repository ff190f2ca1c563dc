"""What every number of a run depends on: shadow memory beside the tensors' own.

Beside each number stands from where to where in the input lies what it was made of. The model runs
as always, under a mode that sees each operation: what an operation makes depends on all that went
into it, so its shadow is the hull of theirs. `rules.py` says, by kinds of operations, what goes
into what. Weights count as if none of them were zero, gates and maxima as if they let all through:
so the shadow is what the structure lets be seen, whatever the numbers are.

The shadow has the layout of the memory and goes by it, so that views need no rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...hooking.storage import StorageMap, share_memory
from ...run.recorder import Listener, Operation, tensors
from .operation import TracedOperation
from .rules import rule_of

_ESCAPES = {"numpy", "tolist", "__array__", "__deepcopy__", "__dlpack__", "to_dlpack", "data_ptr"}


@dataclass(frozen=True)
class Uncertainty:
    """Why a shadow is not all that there is to say."""

    status: str  # "data-dependent" or "unknown", which is worse
    why: str


@dataclass(eq=False)
class _Footprint:
    """The shadow of a memory: planes ``(P, numbers in it)``, which are never written into."""

    width: int  # bytes a number
    planes: Tensor
    doubt: Uncertainty | None


class DependencyTracker(Listener):
    """While it listens each tensor has a shadow for as long as it lives.

    A shadow has ``4 * D`` planes for an input with D spatial dimensions: −from and to (half-open)
    in each of them; and both once more as if the input and all maps went on past their borders,
    +inf where that has no end, NaN where it is not known. Nothing is −inf: so the hull of several
    is their maximum.

    Parameters
    ----------
    model : torch.nn.Module
        Its parameters count as nonzero.
    source : torch.Tensor
        What the model will be given, ``(..., *spatial)``.
    dimensions : int
        D, how many of its last dimensions are spatial.
    """

    def __init__(self, model: nn.Module, source: Tensor, dimensions: int) -> None:
        self.planes = 4 * dimensions
        self.extent = tuple(source.shape[source.ndim - dimensions :])
        self._doubt: Uncertainty | None = None  # about all that is still to come
        self._footprints: StorageMap[_Footprint] = StorageMap()
        self._weights: StorageMap[bool] = StorageMap()
        for parameter in model.parameters():
            self._weights[parameter] = True
        places = torch.meshgrid(*(torch.arange(n) for n in self.extent), indexing="ij")
        first = torch.stack(places).float().to(source.device)
        of_place = torch.cat([-first, first + 1, -first, first + 1])
        spread = of_place[(slice(None), *[None] * (source.ndim - dimensions))]
        self._write(source, spread.expand(-1, *source.shape), None)

    def of(self, tensor: Tensor) -> Tensor | None:
        """A tensor's shadow ``(P, *shape)``; None if nothing of the input is in it."""
        shade = self._footprints.get(tensor)
        if shade is None:
            return None
        size, stride, offset = tensor.shape, tensor.stride(), tensor.storage_offset()
        width, planes = tensor.element_size(), shade.planes
        if width == shade.width:
            size, stride = (self.planes, *size), (planes.stride(0), *stride)  # type: ignore[assignment]
            return planes.as_strided(size, stride, planes.storage_offset() + offset)
        # The memory is read as numbers of another width, such as a complex number's parts.
        bytes_at = width * torch.arange(tensor.untyped_storage().nbytes() // width)
        bytes_at = bytes_at.to(planes.device).as_strided(size, stride, offset)
        parts = range(0, width, min(width, shade.width))
        return torch.stack([planes[:, (bytes_at + each) // shade.width] for each in parts]).amax(0)

    def doubt_of(self, *tensors: Tensor) -> Uncertainty | None:
        """What is doubtful about tensors' shadows."""
        known = filter(None, map(self._footprints.get, tensors))
        doubts = [self._doubt, *(each.doubt for each in known)]
        return _worst(doubts)

    def doubtful(self, status: str, why: str) -> None:
        """Note that all that follows may depend on the input in ways that no shadow shows."""
        self._doubt = _worst([self._doubt, Uncertainty(status, why)])

    def is_weight(self, tensor: Tensor) -> bool:
        """Whether it is a parameter, whose zeros may be learned away."""
        return tensor in self._weights

    def before(self, operation: Operation) -> None:
        """Look at numbers that the operation is about to overwrite."""
        self._footprints.prune()
        if not any(each in self._footprints for each in operation.reads):
            for each in operation.written:  # a mask on a weight's own memory makes its zeros count
                self._weights.pop(each)
            return
        if torch.Tag.data_dependent_output in operation.function.tags:
            why = f"the code asks for a number that was computed ({operation.name})"
            self.doubtful("data-dependent", why)
        traced, doubt = TracedOperation(self, operation), self.doubt_of(*operation.reads)
        planes = self._planes_of(operation, traced, traced.written) if traced.written else None
        operation.notes[self] = traced, doubt, planes

    def after(self, operation: Operation) -> None:
        """Write down what the output depends on."""
        if self not in operation.notes:
            return
        traced, doubt, planes = operation.notes[self]
        if planes is None:
            made = operation.outputs
            if all(any(share_memory(each, one) for one in traced.given) for each in made):
                return  # views
            planes = self._planes_of(operation, traced, made)
        doubt = _worst([doubt, Uncertainty(*traced.doubt) if traced.doubt else None])
        for tensor, each in zip(traced.made, planes, strict=True):
            if each is not None:
                self._write(tensor, each, doubt)

    def _planes_of(
        self, running: Operation, operation: TracedOperation, made: list[Tensor]
    ) -> list[Tensor | None]:
        """The shadows of what an operation makes, or is about to."""
        operation.made = made
        rule = rule_of(operation)
        found = rule(operation) if rule is not None else self._decomposed(running, operation)
        if found is NotImplemented:
            status, why = "unknown", f"{operation.function} is an operation without a rule"
            if torch.Tag.dynamic_output_shape in operation.function.tags:
                status, why = "data-dependent", f"{operation.name} finds what depends on numbers"
            operation.doubt = status, why
            found = operation.everything()
        return found if isinstance(found, list) else [found] * len(made)

    def _decomposed(self, running: Operation, operation: TracedOperation) -> Any:
        """The shadows by simpler operations, of which torch says that it is made."""
        simpler = operation.simpler()
        if simpler is None:
            return NotImplemented
        try:
            found = running.run_simpler(simpler, self)
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            found = NotImplemented
        if found is NotImplemented:
            return found
        parts = tensors(found)
        if [each.shape for each in parts] != [each.shape for each in operation.made]:
            return NotImplemented
        doubt = self.doubt_of(*parts)
        operation.doubt = None if doubt is None else (doubt.status, doubt.why)
        return [self.of(each) for each in parts]

    def _write(self, tensor: Tensor, planes: Tensor, doubt: Uncertainty | None) -> None:
        try:
            size, width = tensor.untyped_storage().nbytes(), tensor.element_size()
        except (RuntimeError, NotImplementedError):
            self.doubtful("unknown", f"a {tensor.layout} tensor has no memory to be followed")
            return
        count = size // width
        if tensor.is_contiguous() and tensor.numel() == count:
            flat = planes.reshape(self.planes, -1).contiguous()
        else:
            old = self._footprints.get(tensor)
            if old is not None and old.width != width:
                doubt = Uncertainty("unknown", "memory is written as numbers of two widths")
            if old is not None and old.width == width:
                flat, doubt = old.planes.clone(), _worst([doubt, old.doubt])
            else:
                flat = planes.new_full((self.planes, count), -torch.inf)
            shape, stride = (self.planes, *tensor.shape), (count, *tensor.stride())
            flat.as_strided(shape, stride, tensor.storage_offset()).copy_(planes)
        self._footprints[tensor] = _Footprint(width, flat, doubt)


class EscapeDetector(TorchFunctionMode):
    """Notes where numbers leave torch, and come back as others that no shadow is known of."""

    def __init__(self, shadows: DependencyTracker) -> None:
        super().__init__()
        self._shadows = shadows

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        if name in _ESCAPES and self._shadows.of(args[0]) is not None:
            self._shadows.doubtful("unknown", f"numbers leave torch by .{name}()")
        return function(*args, **(kwargs or {}))


def _worst(doubts: list[Uncertainty | None]) -> Uncertainty | None:
    there = [each for each in doubts if each is not None]
    return next((each for each in there if each.status == "unknown"), there[0] if there else None)
