"""Why a value is what it is: the bias and one term for each input channel and kernel tap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ...hooking.arguments import whole_number
from ...hooking.select import select_layer
from ...run.inputs import Transform
from ...run.session import Session
from ...tables import Tabular, for_terminal, html_table, number, plain, text_table
from .cut import CutRun, Value
from .kernels import falling
from .listener import Place


def contributions(
    model: nn.Module,
    inputs: Any,
    layer: str | nn.Module,
    *,
    channel: int,
    position: Sequence[int] | None = None,
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
        Which of the layer's output channels; for a linear layer which output, such as a class.
    position : sequence of int, optional
        Where in the map: row and column, or one number for each of its dimensions; for a linear
        layer on tokens which token. None where the layer has no positions.
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
    module, name = select_layer(model, layer)
    session = Session.of(model, inputs, weights=weights, transform=transform)
    run = CutRun(session, only=module)
    return contributions_in(run, run.value(name, channel, position, sample, call))


def contributions_in(run: CutRun, value: Value) -> Contributions:
    """Return the terms of a value of a run."""
    terms = value.terms
    products = terms.kernel * terms.patch
    layer, call = value.call.place
    return Contributions(
        layer,
        call,
        value.channel,
        value.position or None,
        value.sample,
        value.value,
        terms.bias,
        terms.kernel,
        terms.patch,
        products,
        products.flatten(1).sum(1) if products.ndim > 1 else products,
        run.graph.sources(layer, call),
        run.after(value),
        value.value - (terms.bias + float(products.sum())),
        value.edited,
    )


@dataclass(frozen=True, eq=False)
class Contributions(Tabular):
    """One value of a layer as ``bias + products.sum()``; `hookviz.contributions` makes it.

    Attributes
    ----------
    layer, call, channel, position, sample
        Which value; the position is None where the layer has none.
    value, bias : float
        What the layer returned there, before its own edits, and its bias.
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
    edited : float or None
        What an explorer's edits of the layer make of the value; None without one.
    """

    layer: str
    call: int
    channel: int
    position: tuple[int, ...] | None
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
    edited: float | None = None

    @property
    def verdict(self) -> str:
        """The value in one line."""
        place = ", ".join(map(str, self.position or ()))
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
            ``channel contribution`` and the nested lists ``kernel patch products``, as strict JSON.
        """
        columns = {"kernel": self.kernel, "patch": self.patch, "products": self.products}
        return [
            plain(
                {"channel": channel, "contribution": self.by_channel[channel]}
                | {name: column[channel] for name, column in columns.items()}
            )
            for channel in falling(self.by_channel)
        ]

    def rows(self, most: int = 12) -> list[tuple[str, str]]:
        """Return the terms as text: the bias, the largest channels, the rest, and what follows."""
        whole_number("most", most, 0)
        order = falling(self.by_channel)
        rows = [("bias", number(self.bias))]
        rows += [(f"channel {n}", number(float(self.by_channel[n]))) for n in order[:most]]
        if rest := order[most:]:
            rows.append((f"{len(rest)} others", number(float(self.by_channel[rest].sum()))))
        rows.append(("value", number(self.value)))
        rows += [("after its edit", number(self.edited))] if self.edited is not None else []
        return rows + [(f"after {name}", number(value)) for name, value in self.after]

    def _heading(self) -> str:
        return f"Why {self.layer}, channel {self.channel} is {number(self.value)}"

    @for_terminal
    def __repr__(self) -> str:
        return text_table(self.verdict, _HEADER, self.rows())

    def _repr_html_(self) -> str:
        return html_table(self.verdict, _HEADER, self.rows(_ROWS))


_HEADER = ("term", "value")
_ROWS = 64  # of a table in a notebook
