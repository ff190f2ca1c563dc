"""The records of a capture: FeatureCache -> LayerRecord -> Call -> CapturedTensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ..tables import Row, Tabular, counted, megabytes, number, plain
from .arguments import check_device, check_number
from .select import close_names
from .tensors import as_real, count_nonzero
from .transforms import without_wrappers


@dataclass(frozen=True)
class Statistics:
    """A tensor in seven numbers; NaN and Inf are left out of the first three.

    Attributes
    ----------
    min, max, mean : float
        Over the finite values; NaN where there is none.
    zeros : float
        Share of values that are exactly zero, 0 to 1.
    nans, infs : int
        How many values are NaN, how many are infinite.
    norm : float
        Euclidean norm of the finite values, ``sqrt(sum(x**2))``.
    """

    min: float
    max: float
    mean: float
    zeros: float
    nans: int
    infs: int
    norm: float


def statistics(tensor: Tensor) -> Statistics:
    """Return statistics of all values of a tensor, of any shape and dtype."""
    values = as_real(tensor).flatten()
    size, nan = values.numel(), math.nan
    zeros = (size - int(count_nonzero(values))) / max(size, 1)
    nans = infs = 0
    low, high = (end.item() for end in values.aminmax()) if size else (nan, nan)
    # The minimum and maximum of values with NaN are NaN. Most tensors are finite, and need no
    # further passes.
    if not (math.isfinite(low) and math.isfinite(high)):
        nans, infs = int(values.isnan().sum()), int(values.isinf().sum())
        values = values[values.isfinite()]
        if not values.numel():
            return Statistics(nan, nan, nan, zeros, nans, infs, nan)
        low, high = (end.item() for end in values.aminmax())
    return Statistics(low, high, values.mean().item(), zeros, nans, infs, values.norm().item())


@dataclass(eq=False)
class CapturedTensor:
    """One input or output tensor of a layer's call, and the gradient that reached it.

    Attributes
    ----------
    layer, path : str
        The layer's name, and the tensor's path in its output (or input):
        ``""``, ``"[0]"``, ``"['out']"``.
    shape : torch.Size
    dtype : torch.dtype
        Both as the layer had them.
    value : torch.Tensor
        A detached copy. Raises ``RuntimeError`` if it exceeded the budget.
    gradient : torch.Tensor or None
        d(score)/d(value) of the latest backward, the same shape.
    """

    layer: str
    path: str
    shape: torch.Size
    dtype: torch.dtype
    needs: int  # bytes: the copy, and its gradient if it requires one
    max_bytes: int | None
    _value: Tensor | Statistics | None = field(default=None, repr=False)
    _gradient: Tensor | Statistics | None = field(default=None, repr=False)
    # The backward during which the gradient's hook was set, or FORWARD; see checkpoint.py.
    hooked_in_task: int | None = None

    def keep(self, value: Tensor | Statistics) -> None:
        """Set the values, or their statistics."""
        self._value = value

    def keep_gradient(self, gradient: Tensor | Statistics | None) -> None:
        """Set the gradient, or its statistics; None for no gradient."""
        self._gradient = gradient
        self.__dict__.pop("gradient_statistics", None)

    @property
    def kept(self) -> bool:
        """True if the values are stored, not only their statistics."""
        return isinstance(self._value, Tensor)

    @property
    def value(self) -> Tensor:
        if not isinstance(self._value, Tensor):
            raise self._over_budget("activation")
        return self._value

    @property
    def gradient(self) -> Tensor | None:
        if isinstance(self._gradient, Statistics):
            raise self._over_budget("gradient")
        return self._gradient

    @property
    def has_gradient(self) -> bool:
        """True if a gradient arrived, stored or not."""
        return self._gradient is not None

    @cached_property
    def statistics(self) -> Statistics:
        """Statistics of the values, also if these were not stored."""
        stored = self._value
        return stored if isinstance(stored, Statistics) else statistics(self.value)

    @cached_property
    def gradient_statistics(self) -> Statistics | None:
        """Statistics of the gradient, also if it was not stored; None if none arrived."""
        stored = self._gradient
        return statistics(stored) if isinstance(stored, Tensor) else stored

    @property
    def nbytes(self) -> int:
        """Bytes held by the copy and its gradient."""
        stored = (self._value, self._gradient)
        return sum(t.numel() * t.element_size() for t in stored if isinstance(t, Tensor))

    def _over_budget(self, what: str) -> RuntimeError:
        return RuntimeError(
            f"The {what} of layer {self.layer!r}, shape {tuple(self.shape)}, went over "
            f"max_bytes={self.max_bytes} and only its statistics were kept: capture it alone with "
            f"layers={self.layer!r}, or raise max_bytes (this layer needs {self.needs} bytes)."
        )


@dataclass(eq=False)
class Call:
    """One run of a layer: its outputs and, with ``inputs=True``, its inputs."""

    outputs: tuple[CapturedTensor, ...]
    inputs: tuple[CapturedTensor, ...] = ()
    layer: str = ""
    module: nn.Module | None = field(default=None, repr=False)
    # In a transformer: rows and columns of the patches behind the output's tokens.
    grid: tuple[int, ...] | None = None

    @property
    def activation(self) -> Tensor:
        """The (first) tensor that the layer returned, as it was then."""
        return self._first("outputs").value

    @property
    def gradient(self) -> Tensor | None:
        """d(score)/d(activation); None before a backward, or where none arrives."""
        return self._first("outputs").gradient

    @property
    def input(self) -> Tensor:
        """The layer's (first) input tensor, as it was then."""
        return self._first("inputs").value

    @property
    def input_gradient(self) -> Tensor | None:
        """d(score)/d(input), over all ways from the input to the score."""
        return self._first("inputs").gradient

    def _first(self, side: str) -> CapturedTensor:
        tensors = getattr(self, side)
        if not tensors:
            why = "it returned no tensor"
            if side == "inputs":
                why = "capture with inputs=True to keep them"
            raise RuntimeError(f"No {side} of layer {self.layer!r} were kept: {why}.")
        return tensors[0]


@dataclass(eq=False)
class LayerRecord:
    """One layer and all its calls; the short properties are those of the last call.

    Attributes
    ----------
    name : str
    module : torch.nn.Module
    calls : list of Call
        In the order in which they happened.
    """

    name: str
    module: nn.Module = field(repr=False)
    aliases: tuple[str, ...] = ()
    calls: list[Call] = field(default_factory=list)

    @property
    def activation(self) -> Tensor:
        """The output of the last call, detached, in the shape that the layer returned."""
        return self.last.activation

    @property
    def gradient(self) -> Tensor | None:
        """The gradient that reached the last call's output; None if none did."""
        return self.last.gradient

    @property
    def input(self) -> Tensor:
        """The input of the last call (``inputs=True``)."""
        return self.last.input

    @property
    def input_gradient(self) -> Tensor | None:
        """The gradient that reached the last call's input (``inputs=True``)."""
        return self.last.input_gradient

    @property
    def nbytes(self) -> int:
        """Bytes held by all calls."""
        return sum(t.nbytes for call in self.calls for t in (*call.outputs, *call.inputs))

    @property
    def last(self) -> Call:
        """The last call; raises ``RuntimeError`` if the layer has not run."""
        if not self.calls:
            raise RuntimeError(f"Layer {self.name!r} has not run: run the model within the block.")
        return self.calls[-1]

    def __repr__(self) -> str:
        shapes = [tuple(t.shape) for call in self.calls[-1:] for t in call.outputs]
        return (
            f"LayerRecord({self.name!r}, {type(self.module).__name__}, {len(self.calls)} "
            f"call{'s' * (len(self.calls) != 1)}, {', '.join(map(str, shapes)) or 'not run'})"
        )


class FeatureCache(Tabular, Mapping[str, LayerRecord]):
    """Layer name -> `LayerRecord`, in the order in which the layers first ran; read-only.

    Made by `hookviz.capture`. A module with several names goes by its first one;
    the others find it too. Shown at the end of a notebook cell it is a table.

    Attributes
    ----------
    unseen : str
        One sentence about layers like a convolution that ``layers=None`` left out.
    """

    def __init__(
        self,
        hooked: Sequence[LayerRecord],
        ran: dict[str, LayerRecord] | None = None,
        unseen: str = "",
    ) -> None:
        self._hooked, self._ran, self.unseen = hooked, {} if ran is None else ran, unseen
        self._names = {
            name: record.name for record in hooked for name in (record.name, *record.aliases)
        }

    def __getitem__(self, name: str) -> LayerRecord:
        try:
            return self._ran[self._names[name]]
        except KeyError:
            pass
        if name in self._names:
            raise KeyError(f"Layer {name!r} was hooked, but the model did not run it.")
        raise KeyError(f"No layer {name!r} was captured; {close_names(str(name), self._names)}.")

    def __iter__(self) -> Iterator[str]:
        return iter(self._ran)

    def __len__(self) -> int:
        return len(self._ran)

    def only(self, names: Sequence[str]) -> FeatureCache:
        """Return a cache of these layers alone, which shares their records."""
        records = [self[name] for name in names]
        return FeatureCache(records, {record.name: record for record in records})

    def with_records(
        self, added: Sequence[LayerRecord], ran: dict[str, LayerRecord]
    ) -> FeatureCache:
        """Return a cache with more records; ``ran`` has those that ran, in order."""
        return FeatureCache([*self._hooked, *added], ran, self.unseen)

    # Two caches are equal only if they are the same object: comparing tensors gives no single bool.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    @property
    def not_called(self) -> list[str]:
        """Layers that were hooked and never ran."""
        return [record.name for record in self._hooked if record.name not in self._ran]

    @property
    def nbytes(self) -> int:
        """Bytes held by all copies, activations and gradients."""
        return sum(record.nbytes for record in self._ran.values())

    @property
    def over_budget(self) -> list[str]:
        """Layers with a call of which only statistics were stored, because of ``max_bytes``."""
        return [
            record.name
            for record in self._ran.values()
            if any(not t.kept for call in record.calls for t in (*call.outputs, *call.inputs))
        ]

    @property
    def missing_gradients(self) -> bool:
        """True if an output that requires a gradient got none."""
        every = (t for r in self._ran.values() for call in r.calls for t in call.outputs)
        return any(t.hooked_in_task is not None and not t.has_gradient for t in every)

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per layer, of its last call's first tensor, for ``pandas.DataFrame``.

        Returns
        -------
        list of dict
            ``layer``, ``type``, ``calls``, ``shape``, ``dtype``, the `Statistics` ``min`` ``max``
            ``mean`` ``zeros`` ``nans`` ``infs`` ``norm``, ``gradient_norm`` (None where no gradient
            arrived), ``nbytes`` of all calls, and ``kept``: False if only statistics were kept.
            Values that a layer without tensors, or on the meta device, lacks are None. Strict JSON:
            NaN is None, an infinity is ``"inf"`` or ``"-inf"``.
        """
        return plain(self._facts())

    def _facts(self) -> list[dict[str, Any]]:
        """Return one dict per layer, with NaN and infinities unchanged."""
        over_budget = set(self.over_budget)
        rows = []
        for record in self._ran.values():
            tensor = next(iter(record.calls[-1].outputs), None)
            values, gradient = None, None
            # On the meta device, tensors have a shape but no values.
            if tensor is not None and not (tensor.kept and tensor.value.is_meta):
                values, gradient = tensor.statistics, tensor.gradient_statistics
            rows.append(
                {
                    "layer": record.name,
                    "type": type(record.module).__name__,
                    "calls": len(record.calls),
                    "shape": None if tensor is None else tuple(tensor.shape),
                    "dtype": None if tensor is None else str(tensor.dtype).removeprefix("torch."),
                    **{item.name: getattr(values, item.name, None) for item in fields(Statistics)},
                    "gradient_norm": None if gradient is None else gradient.norm,
                    "nbytes": record.nbytes,
                    "kept": record.name not in over_budget,
                }
            )
        return rows

    def _title(self) -> str:
        facts = [counted(len(self), "layer"), megabytes(self.nbytes)]
        facts += [f"{len(self.not_called)} never ran"] if self.not_called else []
        return f"FeatureCache: {', '.join(facts)}{'; ' * bool(self.unseen)}{self.unseen}"

    def _as_table(self) -> tuple[Row, Sequence[Row], Sequence[str]]:
        every = zip(self._ran.values(), self._facts(), strict=True)
        rows = [_table_row(row, record.calls[-1].outputs) for record, row in every]
        return _COLUMNS, rows, _SPARE_COLUMNS


class TensorStore:
    """Makes copies of tensors until the budget is spent, and statistics from then on.

    ``device``, ``dtype`` and ``max_bytes`` as in `hookviz.capture`.
    """

    def __init__(
        self,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        max_bytes: int | None = None,
    ) -> None:
        if max_bytes is not None:
            check_number("max_bytes", max_bytes)
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise ValueError(
                f"dtype={dtype!r} is not a floating-point type of torch: give one, such as "
                "torch.float16, or leave it out."
            )
        if device is not None:
            check_device(device)
        self.device, self.dtype, self.max_bytes = device, dtype, max_bytes
        self._reserved = 0

    def reserve(self, needs: int) -> bool:
        """Take bytes out of the budget; return whether there is room for them."""
        if self.max_bytes is not None and self._reserved + needs > self.max_bytes:
            return False
        self._reserved += needs
        return True

    def store(self, layer: str, path: str, tensor: Tensor) -> CapturedTensor:
        """Copy a tensor's present values, and reserve room for its gradient."""
        needs = tensor.numel() * self._kept_as(tensor).itemsize * (1 + tensor.requires_grad)
        stored = self.copy(tensor) if self.reserve(needs) else statistics(tensor)
        description = layer, path, tensor.shape, tensor.dtype, needs, self.max_bytes
        return CapturedTensor(*description, stored)

    def store_gradient(self, captured: CapturedTensor, gradient: Tensor) -> None:
        """Copy the gradient that has arrived at a tensor; the latest counts."""
        captured.keep_gradient(self.copy(gradient) if captured.kept else statistics(gradient))

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a detached copy that shares no memory."""
        tensor = without_wrappers(tensor)
        # Within inference_mode a copy would be an inference tensor, of little use outside.
        with torch.inference_mode(False):
            kept_as = self._kept_as(tensor)
            if self.device is None and kept_as == tensor.dtype:
                return tensor.detach().clone()  # quantized tensors support no other way
            return tensor.detach().to(self.device, kept_as, copy=True)

    def are(self, tensors: Sequence[Tensor], copies: Sequence[CapturedTensor]) -> bool:
        """Return whether the tensors equal the stored copies."""
        return all(
            copy.kept and copy.shape == tensor.shape and torch.equal(self.copy(tensor), copy.value)
            for tensor, copy in zip(tensors, copies, strict=False)
        )

    def _kept_as(self, tensor: Tensor) -> torch.dtype:
        return self.dtype if self.dtype and tensor.is_floating_point() else tensor.dtype


_SPARE_COLUMNS = ("memory", "type", "calls", "dtype", "min", "max")

_COLUMNS = (
    *("layer", "type", "calls", "shape", "dtype", "min", "max", "mean", "zeros", "NaN, Inf"),
    *("gradient norm", "memory"),
)


def _table_row(row: Mapping[str, Any], tensors: Sequence[Any]) -> tuple[str, ...]:
    """Format a row of ``FeatureCache.records()``, with shapes and dtypes of all tensors."""
    numbers = [row[name] for name in ("min", "max", "mean", "gradient_norm")]
    *values, slope = ("–" if value is None else number(value) for value in numbers)
    wrong = [
        f"{row[name]} {word}" for name, word in (("nans", "NaN"), ("infs", "Inf")) if row[name]
    ]
    return (
        row["layer"] or "(model)",
        row["type"],
        str(row["calls"]),
        " ".join("×".join(map(str, tensor.shape)) for tensor in tensors),
        " ".join(dict.fromkeys(str(tensor.dtype).removeprefix("torch.") for tensor in tensors)),
        *values,
        "–" if row["zeros"] is None else f"{100 * row['zeros']:.3g} %",
        ", ".join(wrong) or ("–" if row["nans"] is None else "0"),
        slope,
        megabytes(row["nbytes"]) if row["kept"] else "statistics only",
    )
