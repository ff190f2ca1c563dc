"""What every number of a run depends on: shadow memory beside the tensors' own.

Beside each number stands from where to where in the input lies what it was made of. The model runs
as always, under a mode that sees each operation: what an operation makes depends on all that went
into it, so its shadow is the hull of theirs. `rules.py` says, by kinds of operations, what goes
into what. Weights count as if none of them were zero, gates and maxima as if they let all through:
so the shadow is what the structure lets be seen, whatever the numbers are.

The shadow has the layout of the memory and goes by it, so that views need no rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ...hooking.tensors import memory_of
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

    memory: StorageWeakRef
    width: int  # bytes a number
    planes: Tensor
    doubt: Uncertainty | None


class DependencyMode(TorchDispatchMode):
    """Within the block each tensor has a shadow for as long as it lives.

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
        super().__init__()
        self.planes = 4 * dimensions
        self.extent = tuple(source.shape[source.ndim - dimensions :])
        self._doubt: Uncertainty | None = None  # about all that is still to come
        self._silent = False
        self._shades: dict[int, _Footprint] = {}
        self._weights = {memory_of(each) for each in model.parameters()}
        places = torch.meshgrid(*(torch.arange(n) for n in self.extent), indexing="ij")
        first = torch.stack(places).float().to(source.device)
        of_place = torch.cat([-first, first + 1, -first, first + 1])
        spread = of_place[(slice(None), *[None] * (source.ndim - dimensions))]
        self._write(source, spread.expand(-1, *source.shape), None)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Within the block operations are not looked at."""
        before, self._silent = self._silent, True
        try:
            with torch._C.DisableTorchFunction():
                yield
        finally:
            self._silent = before

    def of(self, tensor: Tensor) -> Tensor | None:
        """A tensor's shadow ``(P, *shape)``; None if nothing of the input is in it."""
        shade = self._shade(tensor)
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
        doubts = [self._doubt, *(shade.doubt for shade in map(self._shade, tensors) if shade)]
        return _worst(doubts)

    def doubtful(self, status: str, why: str) -> None:
        """Note that all that follows may depend on the input in ways that no shadow shows."""
        self._doubt = _worst([self._doubt, Uncertainty(status, why)])

    def is_weight(self, tensor: Tensor) -> bool:
        """Whether it is a parameter, whose zeros may be learned away."""
        return memory_of(tensor) in self._weights

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._silent:
            return function(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            for key in [key for key, shade in self._shades.items() if shade.memory.expired()]:
                del self._shades[key]
            operation = TracedOperation(self, function, args, kwargs)
            if not any(map(self._shade, operation.given)):
                # A mask on a weight's own memory makes its zeros count.
                self._weights -= set(map(memory_of, operation.written))
                return function(*args, **kwargs)
            if torch.Tag.data_dependent_output in function.tags:
                why = f"the code asks for a number that was computed ({operation.name})"
                self.doubtful("data-dependent", why)
            return self._followed(operation)

    def _followed(self, operation: TracedOperation) -> Any:
        doubt = self.doubt_of(*operation.given)
        if operation.written:  # the rule looks at numbers that will be gone
            shades = self._shades_of(operation, operation.written)
            output = operation.run()
        else:
            output = operation.run()
            made = [each for each in tree_leaves(output) if isinstance(each, Tensor)]
            if set(map(memory_of, made)) <= set(map(memory_of, operation.given)):
                return output  # views
            shades = self._shades_of(operation, made)
        doubt = _worst([doubt, Uncertainty(*operation.doubt) if operation.doubt else None])
        for tensor, planes in zip(operation.made, shades, strict=True):
            if planes is not None:
                self._write(tensor, planes, doubt)
        return output

    def _shades_of(self, operation: TracedOperation, made: list[Tensor]) -> list[Tensor | None]:
        """The shadows of what an operation makes, or is about to."""
        operation.made = made
        rule = rule_of(operation)
        found = rule(operation) if rule is not None else self._decomposed(operation)
        if found is NotImplemented:
            status, why = "unknown", f"{operation.function} is an operation without a rule"
            if torch.Tag.dynamic_output_shape in operation.function.tags:
                status, why = "data-dependent", f"{operation.name} finds what depends on numbers"
            operation.doubt = status, why
            found = operation.everything()
        return found if isinstance(found, list) else [found] * len(made)

    def _decomposed(self, operation: TracedOperation) -> Any:
        """The shadows by simpler operations, of which torch says that it is made."""
        simpler = operation.simpler()
        if simpler is None:
            return NotImplemented
        try:
            with self:
                found = simpler(*operation.args, **operation.kwargs)
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            found = NotImplemented
        if found is NotImplemented:
            return found
        parts = [each for each in tree_leaves(found) if isinstance(each, Tensor)]
        if [each.shape for each in parts] != [each.shape for each in operation.made]:
            return NotImplemented
        doubt = self.doubt_of(*parts)
        operation.doubt = None if doubt is None else (doubt.status, doubt.why)
        return [self.of(each) for each in parts]

    def _shade(self, tensor: Tensor) -> _Footprint | None:
        shade = self._shades.get(memory_of(tensor))
        return None if shade is None or shade.memory.expired() else shade

    def _write(self, tensor: Tensor, planes: Tensor, doubt: Uncertainty | None) -> None:
        try:
            storage, width = tensor.untyped_storage(), tensor.element_size()
        except (RuntimeError, NotImplementedError):
            self.doubtful("unknown", f"a {tensor.layout} tensor has no memory to be followed")
            return
        count = storage.nbytes() // width
        if tensor.is_contiguous() and tensor.numel() == count:
            flat = planes.reshape(self.planes, -1).contiguous()
        else:
            old = self._shade(tensor)
            if old is not None and old.width != width:
                doubt = Uncertainty("unknown", "memory is written as numbers of two widths")
            if old is not None and old.width == width:
                flat, doubt = old.planes.clone(), _worst([doubt, old.doubt])
            else:
                flat = planes.new_full((self.planes, count), -torch.inf)
            size, stride = (self.planes, *tensor.shape), (count, *tensor.stride())
            flat.as_strided(size, stride, tensor.storage_offset()).copy_(planes)
        self._shades[memory_of(tensor)] = _Footprint(StorageWeakRef(storage), width, flat, doubt)


class EscapeDetector(TorchFunctionMode):
    """Notes where numbers leave torch, and come back as others that no shadow is known of."""

    def __init__(self, shadows: DependencyMode) -> None:
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
