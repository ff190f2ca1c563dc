"""Why a value is what it is: the bias and one term for each input channel and kernel tap."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...draw.document import plain_document
from ...files import page_to
from ...hooking.select import select_layers, type_name
from ...hooking.tables import html_table, number, text_table
from ...hooking.tensors import StorageMap, share_memory
from ...run.inputs import Transform, prepare_input
from ...run.recorder import Listener, ModuleCall, Operation
from ...run.session import Session
from .graph import chosen_layers, observing
from .listening import GraphListener, Place
from .terms import Terms, convolution_terms, index_at, linear_terms, offset_of


def contributions(
    model: nn.Module,
    inputs: Any,
    layer: str | nn.Module,
    *,
    channel: int,
    position: Sequence[int] = (),
    sample: int = 0,
    call: int = -1,
    weights: Any = None,
    transform: Transform | None = None,
) -> Contributions:
    """Take one value of a layer apart: its bias and one term for each input channel and tap.

    The layer is a convolution, in one to three dimensions, transposed or not, in groups, dilated,
    with any padding, or a linear layer. The numbers are those that the convolution itself was
    given when it ran: weights that are parametrized, and padding that the layer's own code does,
    are right by themselves.

    Parameters
    ----------
    model : torch.nn.Module
        It runs once, in eval mode, and stays as it is, to the bit.
    inputs
        What the model takes: whatever `hookviz.explore` does.
    layer : str or torch.nn.Module
    channel : int
        Which of the layer's output channels; of a linear layer which output, such as a class.
    position : sequence of int
        Where in the map: row and column, or one number for each of its dimensions. Of a linear
        layer ``()``, or which token.
    sample : int
        Which of the batch.
    call : int
        Which run of a layer that runs several times: 0 is the first, −1 the last.
    weights, transform : optional
        As in `hookviz.explore`.

    Returns
    -------
    Contributions

    Raises
    ------
    ValueError
        The layer is unknown, did not run or not that often, has no such channel, position or
        sample, or is not linear in its input.

    Examples
    --------
    >>> import hookviz, torch
    >>> layer = torch.nn.Conv2d(1, 1, 2, bias=False)
    >>> layer.weight = torch.nn.Parameter(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]))
    >>> model, x = torch.nn.Sequential(layer, torch.nn.ReLU()), torch.ones(1, 1, 3, 3)
    >>> why = hookviz.contributions(model, x, "0", channel=0, position=(1, 1))
    >>> why.value, why.products.tolist()
    (10.0, [[[1.0, 2.0], [3.0, 4.0]]])
    >>> why.sources, why.after
    ([('input', 0)], [('relu', 10.0)])
    """
    ((module, (name, *_)),) = _one(select_layers(model, [layer]))
    session = Session(model, prepare_input(inputs, model, weights=weights, transform=transform))
    chosen = chosen_layers(model, None) | {module: name}
    listeners: list[tuple[GraphListener, _Listener]] = []

    def observe() -> Any:
        pair = GraphListener(chosen), _Listener(module, chosen, channel, tuple(position), sample)
        listeners.append(pair)
        return observing(session, chosen, *pair)

    session.forward(observe, grad=False)
    seen, found = listeners[-1]
    named = f"Layer {name!r} ({type_name(module)})"
    count = len(found.values)
    if not count:
        raise ValueError(f"{named} did not run: there is no value to take apart.")
    if not -count <= call < count:
        raise ValueError(f"{named} ran {count} time{'s' * (count != 1)}: there is no call={call}.")
    value = found.values[call]
    if isinstance(value, str):
        raise ValueError(f"{named} {value}")
    place = name, call % count
    terms = value.terms
    products = terms.kernel * terms.patch
    return Contributions(
        *place,
        channel,
        tuple(position),
        sample,
        value.value,
        terms.bias,
        terms.kernel,
        terms.patch,
        products,
        products.flatten(1).sum(1) if products.ndim > 1 else products,
        seen.sources[place],
        value.after,
        value.value - (terms.bias + float(products.sum())),
    )


def _one(chosen: dict[nn.Module, list[str]]) -> list[tuple[nn.Module, list[str]]]:
    if len(chosen) != 1:
        names = ", ".join(repr(each[0]) for each in list(chosen.values())[:3])
        raise ValueError(f"layer= names {len(chosen)} layers ({names}, …): name one.")
    return list(chosen.items())


@dataclass(frozen=True, eq=False)
class Contributions:
    """One value of a layer as ``bias + products.sum()``; `hookviz.contributions` makes it.

    Attributes
    ----------
    layer, call, channel, position, sample
        Which value.
    value, bias : float
        What the layer returned there, and its bias.
    kernel, patch, products : torch.Tensor
        float64 ``(C_in, *kernel)``: the weights, the inputs that they meet, and ``kernel *
        patch``. For input channels of other groups all three are zero, in the padding the patch.
    by_channel : torch.Tensor
        ``(C_in,)``: the products' sums, which add up to ``value - bias``.
    sources : list of (str, int)
        The layers, by call, whose channels these are, as in `Graph.sources`.
    after : list of (str, float)
        The value on its way: the operations that it goes through number by number until the next
        layer takes it, each with the value after it.
    remainder : float
        ``value - (bias + products.sum())``, the float's rounding within the layer.
    """

    layer: str
    call: int
    channel: int
    position: tuple[int, ...]
    sample: int
    value: float
    bias: float
    kernel: Tensor = field(repr=False)
    patch: Tensor = field(repr=False)
    products: Tensor = field(repr=False)
    by_channel: Tensor = field(repr=False)
    sources: list[Place] = field(repr=False)
    after: list[tuple[str, float]] = field(repr=False)
    remainder: float = 0.0

    @property
    def verdict(self) -> str:
        """The value in one line."""
        place = ", ".join(map(str, self.position))
        where = f"channel {self.channel}" + f" at ({place})" * bool(place)
        rest = self.value - self.bias
        return (
            f"{self.layer}, {where}: {number(self.value)} = bias {number(self.bias)} + "
            f"{number(rest)} from {len(self.by_channel)} input channels"
        )

    def records(self) -> list[dict[str, Any]]:
        """Make one dict an input channel, the largest contribution first.

        Returns
        -------
        list of dict
            ``channel contribution`` and the nested lists ``kernel patch products``; None in place
            of numbers that are not finite.
        """
        order = self.by_channel.abs().nan_to_num(torch.inf).argsort(descending=True, stable=True)
        return [
            {
                "channel": each,
                "contribution": _finite(self.by_channel[each].item()),
                "kernel": _finite(self.kernel[each].tolist()),
                "patch": _finite(self.patch[each].tolist()),
                "products": _finite(self.products[each].tolist()),
            }
            for each in order.tolist()
        ]

    def rows(self, most: int = 12) -> list[tuple[str, str]]:
        """Return the terms as text: the bias, the largest channels, the rest, and what follows."""
        order = self.by_channel.abs().argsort(descending=True, stable=True).tolist()
        rows = [("bias", number(self.bias))]
        rows += [(f"channel {n}", number(float(self.by_channel[n]))) for n in order[:most]]
        if rest := order[most:]:
            rows.append((f"{len(rest)} others", number(float(self.by_channel[rest].sum()))))
        rows.append(("value", number(self.value)))
        return rows + [(f"after {name}", number(value)) for name, value in self.after]

    def to_html(
        self, path: str | os.PathLike | None = None, *, title: str | None = None
    ) -> str | None:
        """Write the terms as one page, which needs no network; without a path it is returned."""
        title = title or f"Why {self.layer}, channel {self.channel} is {number(self.value)}"
        sheet = "body {margin: 1rem; font: 14px system-ui; color-scheme: light dark}"
        table = html_table(self.verdict, _HEADER, self.rows(len(self.by_channel)))
        return page_to(path, plain_document(title, sheet, table))

    def __repr__(self) -> str:
        return text_table(self.verdict, _HEADER, self.rows())

    def _repr_html_(self) -> str:
        return html_table(self.verdict, _HEADER, self.rows())


_HEADER = ("term", "value")


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value if abs(value) < float("inf") else None  # NaN is not less, either


@dataclass(eq=False)
class _Value:
    """One call's value, its terms, and what became of it."""

    value: float
    terms: Terms
    after: list[tuple[str, float]]


class _Listener(Listener):
    """Takes the value apart in each call of a layer, and follows it until a layer takes it.

    Attributes
    ----------
    values : list of _Value or str
        By call; or why there is none, as the end of a sentence.
    """

    def __init__(
        self,
        module: nn.Module,
        layers: dict[nn.Module, str],
        channel: int,
        position: tuple[int, ...],
        sample: int,
    ) -> None:
        self.values: list[_Value | str] = []
        self._module, self._layers = module, layers
        self._channel, self._position, self._sample = channel, position, sample
        self._given: Tensor | None = None
        self._ran: list[tuple[Operation, dict[str, Any], Tensor, int]] = []
        self._at: StorageMap[tuple[int, _Value]] = StorageMap()  # where the value stands

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """Stop following what a layer takes; copy what this one is given."""
        if call.module in self._layers:
            for each in given:
                self._at.pop(each)
        if call.module is self._module:
            self._ran, self._given = [], given[0].detach().clone() if given else None

    def after(self, operation: Operation) -> None:
        """Keep the layer's convolutions; follow the value."""
        if operation.call is not None and operation.call.module is self._module:
            if operation.name == "convolution":
                kept = dict(operation.argument)
                kept["input"] = kept["input"].detach().clone()
                self._ran.append((operation, kept, operation.output, operation.output._version))
        elif not operation.is_view:
            self._follow(operation)

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Take the value apart."""
        if call.module is not self._module:
            return
        found = self._apart(returned[0]) if len(returned) == 1 else _NOT_LINEAR
        self.values.append(found)
        if isinstance(found, _Value):
            index = self._index(returned[0], isinstance(self._module, nn.Linear))
            self._at[returned[0]] = offset_of(returned[0], index), found
        self._ran, self._given = [], None

    # The value

    def _apart(self, returned: Tensor) -> _Value | str:
        made = next((each for each in self._ran if share_memory(each[2], returned)), None)
        is_linear = isinstance(self._module, nn.Linear)
        if made is None and not is_linear:
            if self._ran:
                return "does more than a convolution: it is not linear in its input."
            return _NOT_LINEAR
        if made is not None and made[2]._version != made[3]:
            return "overwrites what its convolution made: it is not linear in its input."
        try:
            index = self._index(returned, is_linear)
        except ValueError as error:
            return str(error)
        if made is not None:
            inside = index_at(made[2], offset_of(returned, index))
            if inside is None:
                return "does more than a convolution: it is not linear in its input."
            sample, channel, *position = inside
            terms = convolution_terms(made[1], sample, channel, position)
        else:
            assert self._given is not None
            weight: Any = self._module.weight
            bias: Any = self._module.bias
            terms = linear_terms(self._given[index[:-1]], weight, bias, self._channel)
        value = float(returned[index])
        if not _adds_up(value, terms, returned):
            return "does more than multiply and add: it is not linear in its input."
        return _Value(value, terms, [])

    def _index(self, returned: Tensor, channels_last: bool) -> tuple[int, ...]:
        """Return the value's index in the layer's output."""
        batched = returned.ndim == len(self._position) + 2
        inner = (
            (*self._position, self._channel) if channels_last else (self._channel, *self._position)
        )
        index = (self._sample, *inner) if batched else inner
        if len(index) != returned.ndim or (not batched and self._sample):
            shape = "×".join(map(str, returned.shape))
            raise ValueError(f"returned {shape}: position={self._position} is none of its map.")
        names = ["sample"] * batched + (
            ["position"] * len(self._position) + ["channel"]
            if channels_last
            else ["channel"] + ["position"] * len(self._position)
        )
        for name, each, size in zip(names, index, returned.shape, strict=True):
            if not 0 <= each < size:
                raise ValueError(f"has no {name} {each}: there are {size}, counted from 0.")
        return index

    # What becomes of it

    def _follow(self, operation: Operation) -> None:
        self._at.prune()
        for tensor in operation.reads:
            held = self._at.get(tensor)
            made = operation.outputs
            if held is None or not made:
                continue
            index = index_at(tensor, held[0])
            moved = None if index is None else _moved(operation, tensor, made[0], index)
            if moved is not None:
                held[1].after.append((operation.name, float(made[0][moved])))
                self._at[made[0]] = offset_of(made[0], moved), held[1]
                return


_NOT_LINEAR = (
    "is no convolution and no linear layer: contributions need a layer that is linear in its input."
)


def _moved(
    operation: Operation, tensor: Tensor, made: Tensor, index: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return a number's index after an operation that works number by number, or joins."""
    if operation.name == "cat":
        axis, shift = operation.argument["dim"] % made.ndim, 0
        for each in operation.argument["tensors"]:
            if each is tensor:
                return (*index[:axis], index[axis] + shift, *index[axis + 1 :])
            shift += each.shape[axis] if each.ndim == made.ndim else 0
        return None
    return index if made.shape == tensor.shape and made.is_floating_point() else None


def _adds_up(value: float, terms: Terms, returned: Tensor) -> bool:
    """Return True if the terms' sum is the value, up to rounding in the layer's dtype."""
    products = terms.kernel * terms.patch
    total = terms.bias + float(products.sum())
    if not torch.isfinite(torch.tensor([value, total])).all():
        return True  # NaN and Inf are told as they are
    eps = torch.finfo(returned.dtype).eps
    if returned.is_cuda and returned.dtype == torch.float32:
        eps = 2.0**-10  # TF32
    size = abs(terms.bias) + float(products.abs().sum())
    return abs(value - total) <= (products.numel() + 4) * eps * size
