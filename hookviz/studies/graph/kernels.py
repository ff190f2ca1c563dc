"""The weights of a layer: kernels as pictures, norms, bias, and with BatchNorm folded in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...draw import html
from ...draw.colours import colour_ranges, palette
from ...draw.figures import ShownFigure, no_formula, small_png
from ...draw.mosaic import mosaic
from ...hooking.arguments import is_index, whole_number
from ...hooking.select import is_convolution, select_layer, type_name
from ...hooking.weights import stored_tensor
from ...run.follow import StopForward, follow
from ...run.recorder import ModuleCall
from ...run.session import Session
from ...tables import Tabular, cut, escape, for_terminal, html_table, number, plain, text_table
from .stages import NORMALIZED, StageListener

_MOST = 128  # kernels or slices in a figure
_TERMS = 24  # bars in a figure
_ROWS = 64  # of a table in a notebook


def layer_weights(
    session: Session,
    layer: str | nn.Module,
    *,
    channel: int | None = None,
    contributions: Tensor | None = None,
    position: Sequence[int] = (),
) -> LayerWeights:
    """Read a layer's weights, and find the BatchNorm that its output goes through.

    The model runs once, in eval mode, to find it: functional operations count as modules do.

    Parameters
    ----------
    session : Session
    layer : str or torch.nn.Module
        A convolution or a linear layer.
    channel : int, optional
        The output channel whose kernel is taken apart by input channel.
    contributions : torch.Tensor, optional
        ``(C_in,)``: by these the input channels are sorted instead of by their slices' norms, see
        `hookviz.results.Contributions.by_channel`.
    position : sequence of int
        Where in the map they were taken.

    Returns
    -------
    LayerWeights

    Raises
    ------
    ValueError
        The layer is unknown, has no kernels, or no such channel.

    Examples
    --------
    >>> model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4))
    >>> session = Session.of(model, torch.ones(1, 2, 8, 8))
    >>> found = layer_weights(session, "0", channel=1)
    >>> found.kernels.shape, found.folded.shape, len(found.norms)
    (torch.Size([4, 2, 3, 3]), torch.Size([4, 2, 3, 3]), 4)
    """
    module, name = select_layer(session.model, layer)
    kernel = is_convolution(module) or isinstance(module, nn.Linear)
    weight = computed_tensor(session, module, "weight") if kernel else None
    if weight is None:
        raise ValueError(
            f"Layer {name!r} ({type_name(module)}) has no kernels: name a convolution or a linear "
            "layer."
        )
    groups = getattr(module, "groups", 1)
    kernels = by_output(_shown(weight), groups, getattr(module, "transposed", False))
    bias = computed_tensor(session, module, "bias")
    bias = None if bias is None else _shown(bias)
    scale, shift = _norm_after(session, module, len(kernels))
    names = session.class_names if isinstance(module, nn.Linear) else []
    found = LayerWeights(
        name,
        type_name(module),
        kernels,
        bias,
        groups,
        scale,
        shift,
        channel,
        contributions,
        tuple(position),
        list(names) if len(names) == len(kernels) else [],
        weight.is_complex(),
    )
    if channel is not None:
        found._checked(channel)
    return found


def _shown(values: Tensor) -> Tensor:
    """Return real float64 values, of complex numbers their absolute values."""
    values = values.detach()
    return (values.abs() if values.is_complex() else values).double().cpu()


def by_output(weight: Tensor, groups: int, transposed: bool) -> Tensor:
    """Return kernels by output channel, also those of a transposed convolution.

    Its weight is ``(C_in, C_out / groups, …)``.
    """
    if not transposed:
        return weight
    inputs, outputs, *kernel = weight.shape
    grouped = weight.reshape(groups, inputs // groups, outputs, *kernel).transpose(1, 2)
    return grouped.reshape(groups * outputs, inputs // groups, *kernel)


def computed_tensor(session: Session, module: nn.Module, name: str) -> Tensor | None:
    """Return a module's weight or bias; a parametrization runs in eval mode and leaves no trace."""
    value: Any = stored_tensor(module, name)
    if value is None and name not in module._parameters:  # where a layer has no bias it is None
        with session.edited(()).active(grad=False):  # edits would warn that no layer ran
            value = getattr(module, name, None)
    return value if isinstance(value, Tensor) else None


class _NormListener(StageListener):
    """Ends the forward once the normalization that follows a layer has run.

    At the next end of a module: an exception from an operation would not get through TorchScript.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.modules = None

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        if any(NORMALIZED in stages for stages in self.calls):
            raise StopForward
        super().leave(call, returned, again)


def _norm_after(
    session: Session, module: nn.Module, channels: int
) -> tuple[Tensor | None, Tensor | None]:
    """Return factor and addition of the BatchNorm that follows, ``(C_out,)`` each; or None."""
    found = follow(session, lambda: _NormListener(module)).affine
    return (None, None) if found is None or len(found[0]) != channels else found


@dataclass(frozen=True, eq=False)
class LayerWeights(Tabular):
    """The kernels of a convolution, or the rows of a linear layer; `Explorer.weights` makes it.

    Attributes
    ----------
    layer, type : str
    kernels : torch.Tensor
        float64 ``(C_out, C_in / groups, *kernel)``, as the layer uses them: parametrized ones, and
        a transposed convolution's by output, too.
    bias : torch.Tensor or None
        ``(C_out,)``.
    groups : int
    scale, shift : torch.Tensor or None
        ``(C_out,)``: the BatchNorm that follows makes ``scale * value + shift`` of a value; None
        where none follows directly, or where it takes the batch's own statistics.
    channel : int or None
        The output channel that is taken apart by input channel.
    contributions : torch.Tensor or None
        ``(C_in,)``, what each input channel adds to the channel's value at ``position``.
    position : tuple of int
    class_names : list of str
        Of a linear layer whose outputs are the classes.
    is_complex : bool
        The layer computes with complex numbers, whose absolute values ``kernels`` and ``bias`` are.
    """

    layer: str
    type: str
    kernels: Tensor = field(repr=False)
    bias: Tensor | None = field(repr=False)
    groups: int
    scale: Tensor | None = field(repr=False)
    shift: Tensor | None = field(repr=False)
    channel: int | None = None
    contributions: Tensor | None = field(default=None, repr=False)
    position: tuple[int, ...] = ()
    class_names: list[str] = field(default_factory=list, repr=False)
    is_complex: bool = False

    @property
    def norms(self) -> Tensor:
        """The kernels' Euclidean norms, ``(C_out,)``."""
        return self.kernels.flatten(1).norm(dim=1)

    @property
    def order(self) -> list[int]:
        """The output channels, the largest norm first."""
        return falling(self.norms)

    @property
    def folded(self) -> Tensor | None:
        """The kernels with the BatchNorm in them: ``kernel * gamma / sqrt(var + eps)``."""
        if self.scale is None:
            return None
        return self.kernels * self.scale.reshape(-1, *[1] * (self.kernels.ndim - 1))

    @property
    def folded_bias(self) -> Tensor | None:
        """The bias with the BatchNorm in it: ``(bias − mean) * gamma / sqrt(var + eps) + beta``."""
        if self.scale is None or self.shift is None:
            return None
        return self.shift if self.bias is None else self.shift + self.scale * self.bias

    @property
    def in_colour(self) -> bool:
        """True if the kernels are pictures: two-dimensional, of three input channels."""
        return self.kernels.ndim == 4 and self.kernels.shape[1] == 3 and self.groups == 1

    @property
    def verdict(self) -> str:
        """The layer in one line."""
        outputs, inputs, *kernel = self.kernels.shape
        size = "×".join(map(str, kernel)) + " " if kernel else ""
        things = f"{outputs} {size}kernels" if kernel else f"{outputs} rows"
        of = f"{inputs} of {inputs * self.groups}" if self.groups > 1 else str(inputs)
        facts = f"{things} of {of} input channels, norm {number(float(self.norms.min()))} to "
        end = "; a BatchNorm follows" if self.scale is not None else ""
        largest = number(float(self.norms.max()))
        return f"{self.layer} ({self.type}): {facts}{largest}{self.note}{end}"

    @property
    def note(self) -> str:
        """A note beside the kernels of complex numbers, or an empty text."""
        return ", absolute values" if self.is_complex else ""

    def slices(self, channel: int | None = None) -> list[dict[str, Any]]:
        """Take a channel's kernel apart by input channel, the largest first.

        Sorted by the size of the contribution at the position if that is known, or else by norm.

        Parameters
        ----------
        channel : int, optional
            The result's own if left out.

        Returns
        -------
        list of dict
            ``channel`` (of the input), ``norm``, ``contribution`` (None where unknown) and
            ``kernel``, nested lists: of a linear layer a number.

        Raises
        ------
        ValueError
            No such channel, or none was chosen.
        """
        channel = self._checked(self.channel if channel is None else channel)
        kernel, inputs = self.kernels[channel], self.inputs_of(channel)
        added = self.contributions if channel == self.channel else None
        return [
            plain(
                {
                    "channel": inputs[each],
                    "norm": kernel[each].norm(),
                    "contribution": None if added is None else added[inputs[each]],
                    "kernel": kernel[each],
                }
            )
            for each in self.ranked(channel)[0]
        ]

    def ranked(self, channel: int) -> tuple[list[int], Tensor]:
        """Return the slices of a kernel, the largest first, and the number that ranks each.

        It is the contribution at the position if that is known, or else the weight of a slice of
        one tap, or the norm.
        """
        kernel = self.kernels[self._checked(channel)].reshape(self.kernels.shape[1], -1)
        values = kernel.norm(dim=1) if kernel.shape[1] > 1 else kernel[:, 0]
        if self.contributions is not None and channel == self.channel:
            values = self.contributions[self.inputs_of(channel)]
        return falling(values), values

    def inputs_of(self, channel: int) -> list[int]:
        """Return the input channels that an output channel takes: those of its group."""
        group = self._checked(channel) // (len(self.kernels) // self.groups)
        count = self.kernels.shape[1]
        return list(range(group * count, (group + 1) * count))

    def _checked(self, channel: int | None) -> int:
        if channel is None or not is_index(channel, len(self.kernels)):
            raise ValueError(
                f"Layer {self.layer!r} has no channel {channel!r}: there are {len(self.kernels)}, "
                "counted from 0."
            )
        return channel

    def records(self) -> list[dict[str, Any]]:
        """Make one dict an output channel, the largest norm first.

        Returns
        -------
        list of dict
            ``layer type channel name norm mean std min max bias folded_norm folded_bias``; None
            where there is no such number.
        """
        flat, folded = self.kernels.flatten(1), self.folded
        columns: dict[str, Tensor | None] = {
            "norm": self.norms,
            "mean": flat.mean(1),
            "std": flat.std(1, correction=0),
            "min": flat.amin(1),
            "max": flat.amax(1),
            "bias": self.bias,
            "folded_norm": None if folded is None else folded.flatten(1).norm(dim=1),
            "folded_bias": self.folded_bias,
        }
        return [
            plain(
                {"layer": self.layer, "type": self.type, "channel": n, "name": self._name(n)}
                | {key: None if each is None else each[n] for key, each in columns.items()}
            )
            for n in self.order
        ]

    def _name(self, channel: int) -> str | None:
        return self.class_names[channel] if self.class_names else None

    def rows(self, most: int = 12) -> list[tuple[str, ...]]:
        """Return the kernels as text, the largest norm first."""
        whole_number("most", most, 0)
        found = []
        for each in self.records()[:most]:
            name = f"{each['channel']} {each['name']}" if each["name"] else str(each["channel"])
            found.append((cut(name, 24), *(_said(each[key]) for key in _HEADER[1:])))
        if (left := len(self.kernels) - most) > 0:
            found.append((f"{left} more", *[""] * (len(_HEADER) - 1)))
        return found

    def figure(self) -> ShownFigure:
        """Draw the kernels.

        The kernels of a first layer are pictures in their own colours, sorted by norm, with grey
        for zero. Deeper ones are the slices of the chosen channel, by input channel, as in
        `slices`, or without one all kernels, their input channels below each other. A linear
        layer's row is bars.

        Returns
        -------
        matplotlib.figure.Figure
            Not registered with pyplot.
        """
        figure = ShownFigure(figsize=(6, 4.2), layout="constrained")
        axes = figure.subplots()
        figure.suptitle(no_formula(cut(self.verdict, 90)), fontsize="small")
        if self.in_colour:
            self._draw_colours(axes)
        elif self.channel is not None and self.kernels[0, 0].numel() == 1:
            self._draw_row(axes)
        else:
            self._draw_slices(axes)
        return figure

    def _draw_colours(self, axes: Any) -> None:
        chosen = self.order[:_MOST]
        picked = torch.nan_to_num(self.kernels[chosen])
        most = float(self.kernels.nan_to_num().abs().max()) or 1.0
        low, high = np.full(len(picked), -most), np.full(len(picked), most)
        colours = [mosaic(picked[:, n].numpy(), low, high) for n in range(3)]
        sheet = np.stack([each.levels for each in colours], -1)
        sheet[sheet > _TOP] = _TOP  # the gaps
        axes.imshow(sheet / _TOP)
        axes.set_axis_off()
        axes.set_title(_kept("kernels by norm", len(chosen), len(self.kernels)), fontsize="small")

    def _draw_slices(self, axes: Any) -> None:
        if self.channel is None:
            tiles, words = self.kernels[self.order], "kernels by norm: one row an input channel"
        else:
            tiles = self.kernels[self.channel][self.ranked(self.channel)[0]][:, None]
            place = ", ".join(map(str, self.position))
            by = "norm" if self.contributions is None else "contribution"
            by += f" at ({place})" * bool(place)
            words = f"channel {self.channel}: slices by {by}"
        count = len(tiles)
        kept = tiles[:_MOST].flatten(3) if tiles.ndim > 3 else tiles[:_MOST]
        flat = kept.reshape(len(kept), -1, kept.shape[-1]).numpy()
        finite = np.where(np.isfinite(flat), flat, 0)
        low, high = colour_ranges(
            flat, finite.min((1, 2)), finite.max((1, 2)), "layer", diverging=True
        )
        axes.imshow(palette("RdBu_r")[mosaic(flat, low, high).levels])
        axes.set_axis_off()
        axes.set_title(_kept(words, len(flat), count), fontsize="small")

    def _draw_row(self, axes: Any) -> None:
        channel = self.channel or 0
        order, values = self.ranked(channel)
        shown, inputs = order[:_TERMS][::-1], self.inputs_of(channel)
        colours = ["#b2182b" if values[each] > 0 else "#2166ac" for each in shown]
        axes.barh([str(inputs[each]) for each in shown], values[shown].numpy(), color=colours)
        axes.axvline(0, color="grey", linewidth=0.8)
        axes.tick_params(labelsize="x-small")
        axes.set_ylabel("input channel", fontsize="small")
        what = "weights" if self.contributions is None else "contributions"
        name = f", {self._name(channel)}" if self.class_names else ""
        words = f"{cut(f'channel {channel}{name}', 40)}: largest {what}"
        axes.set_title(no_formula(_kept(words, len(shown), len(order))), fontsize="small")

    @for_terminal
    def __repr__(self) -> str:
        return text_table(self.verdict, _HEADER, self.rows())

    def _repr_html_(self) -> str:
        picture = html.data_url(small_png(self.figure()))
        words = escape(f"The weights of {self.verdict}")
        table = html_table(self.verdict, _HEADER, self.rows(_ROWS))
        return f'<p><img alt="{words}" src="{picture}"></p>{table}'


_TOP = 251  # the last colour level
_HEADER = ("channel", "norm", "min", "max", "bias", "folded_norm", "folded_bias")


def falling(values: Tensor) -> list[int]:
    """Return indices, the largest size first; NaN counts as the largest."""
    sizes = values.abs().nan_to_num(torch.inf)
    return sizes.argsort(descending=True, stable=True).tolist()


def _said(value: float | str | None) -> str:
    return "–" if value is None else number(float(value))


def _kept(words: str, shown: int, count: int) -> str:
    return words if shown == count else f"{words}, {shown} of {count}"
