"""The receptive field of a layer: which pixels of the input a position of its map depends on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...hooking.arguments import is_index, is_position
from ...hooking.handles import HookManager
from ...hooking.maps import PatchGrid, as_maps
from ...hooking.select import Layers, check_model, module_names, select_layers
from ...hooking.tensors import tensors
from ...run.follow import StopForward
from ...run.inputs import ModelInput, Transform, prepare_input
from ...run.session import Session, clone_inputs
from ...tables import Row, Tabular, counted, for_terminal, html_table, paragraph, plain
from .dependency import Key, LayerFootprint, Uncertainty, seen_by, spatial


class Box(tuple[int, ...]):
    """A part of the input: where it begins in each dimension, then where it ends (half-open).

    In a picture ``(top, left, bottom, right)``, in a signal ``(begin, end)``.

    Attributes
    ----------
    padding : tuple of (int, int), or None
        How many pixels of the field's size are missing before and behind the box, in each
        dimension: they lie in the padding. None where the field has no one size.
    """

    padding: tuple[tuple[int, int], ...] | None

    def __new__(cls, begin: Iterable[int], end: Iterable[int], padding: Any = None) -> Box:
        """Make a box of its begin and its end."""
        box = super().__new__(cls, (*begin, *end))
        box.padding = padding
        return box

    @property
    def slices(self) -> tuple[slice, ...]:
        """Slices that cut it out: ``x[(..., *box.slices)]``."""
        half = len(self) // 2
        return tuple(map(slice, self[:half], self[half:]))


Numbers = tuple[int | None, ...]
_BATCH = 8


class _Origin(NamedTuple):
    """The model and the settings of a field, for other images."""

    model: nn.Module
    weights: Any
    transform: Transform | None


@dataclass(frozen=True, eq=False)
class ReceptiveField(Tabular):
    """The part of the input that each position of a layer's map depends on, by `receptive_field`.

    Attributes
    ----------
    layer, call : str, int
        The layer, and the index of its call, from 0.
    status : str
        ``"exact"``; ``"whole input"`` if every position depends on all of it, and would on all of
        a larger one; ``"data-dependent"`` if computed or random numbers choose the pixels;
        ``"unknown"`` if an operation ran that cannot be followed.
    why : str
        What made it data-dependent or unknown; else empty.
    size, stride, start : tuple of int
        For each dimension of the input, in pixels: how many a position sees, the distance from one
        position's pixels to the next one's, and where those of position 0 begin, negative in the
        padding. So position ``p`` sees ``size`` pixels from ``start + stride * p`` on. Without such
        a rule (interpolated maps, shifted windows) stride and start are None, and the size is the
        largest of a position; all are None if the status is data-dependent or unknown.
    input_size, map_size : tuple of int
        The input's spatial size, and the number of positions in the layer's map.
    boxes : torch.Tensor
        int32 ``(2 * D, *map_size)``: where each position's `box` begins and ends.
    input : int
        The index of the input tensor with the pixels, positional arguments first: of several, the
        first that the layer depends on.
    """

    layer: str
    call: int
    status: str
    why: str
    size: Numbers
    stride: Numbers
    start: Numbers
    input_size: tuple[int, ...]
    map_size: tuple[int, ...]
    boxes: Tensor
    input: int
    _origin: _Origin

    @property
    def known(self) -> bool:
        """True if the pixels of each position are known."""
        return self.status in ("exact", "whole input")

    def box(self, *position: int) -> Box:
        """Return the part of the input that a position depends on, cut off at its border.

        It is right for every position, also at the border and where sizes differ. For a field that
        is data-dependent or unknown it is the whole input.

        Parameters
        ----------
        *position : int
            Row and column of the layer's map, or one number for each of its
            dimensions.

        Raises
        ------
        ValueError
            The map has no such position.
        """
        self._check(position)
        here: Any = (slice(None), *position)
        half, box = len(self.input_size), self.boxes[here].tolist()
        if None in self.start:
            return Box(box[:half], box[half:])
        padding = []
        for axis, place in enumerate(position if any(self.stride) else [0] * half):
            first = self.start[axis] + self.stride[axis] * place  # type: ignore[operator]
            last = first + self.size[axis]  # type: ignore[operator]
            padding.append((box[axis] - first, last - box[half + axis]))
        return Box(box[:half], box[half:], tuple(padding))

    def effective(
        self, inputs: Any, *, position: Sequence[int] | None = None, channel: int | None = None
    ) -> Tensor:
        """Measure the weight of each pixel for a position: the mean magnitude of the gradient.

        ``mean over the inputs, and their channels, of |d(map[position]) / d(input)|``, where the
        map is summed over its channels. Weights, gates and maxima are those of the model.

        Parameters
        ----------
        inputs
            Tensors ``(N, C, *spatial)`` of the input's size; or a list of whatever the model was
            given: paths, PIL images, arrays, tensors.
        position : sequence of int, optional
            The centre of the map if left out.
        channel : int, optional
            One channel of the map instead of their sum.

        Returns
        -------
        torch.Tensor
            ``(*spatial)``, of the input's size, on the CPU.

        Raises
        ------
        ValueError
            The map has no such position or channel, no image is given, or one of another size.

        References
        ----------
        Luo et al., *Understanding the Effective Receptive Field in Deep Convolutional Neural
        Networks*, NeurIPS 2016.
        """
        position = [n // 2 for n in self.map_size] if position is None else position
        self._check(position)
        position = tuple(position)
        images = inputs.split(_BATCH) if isinstance(inputs, Tensor) else list(inputs)
        sums = []
        for image in images:
            gradient = self._gradient(image, position, channel).double().abs().cpu()
            channels = gradient.ndim > len(self.input_size)
            magnitude = gradient.mean(-1 - len(self.input_size)) if channels else gradient
            sums.append(magnitude.reshape(-1, *self.input_size))
        if not sums:
            raise ValueError("inputs=[] holds no input: give at least one.")
        return torch.cat(sums).mean(0).float()

    def _gradient(self, image: Any, position: tuple[int, ...], channel: int | None) -> Tensor:
        """Compute the gradient of a position, for a channel of the map or their sum."""
        model, weights, transform = self._origin
        inputs = prepare_input(image, model, weights=weights, transform=transform)
        session = Session(model, inputs)
        return session.observed(lambda: self._gradient_in(session, inputs, position, channel))

    def _gradient_in(
        self, session: Session, inputs: ModelInput, position: tuple[int, ...], channel: int | None
    ) -> Tensor:
        grid, calls = PatchGrid(), list[Tensor]()
        module = session.model.get_submodule(self.layer)

        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            tensor = tensors(output)[0]
            calls.append(as_maps(tensor, module, grid.of(tuple(tensor.shape))))
            if len(calls) > self.call:
                raise StopForward

        with session.active():
            args, kwargs, sources = clone_inputs(session.model, inputs.args, inputs.kwargs)
            before = tensors(args, kwargs)[: self.input]
            source = sources[sum(tensor.requires_grad for tensor in before)]
            if source.shape[-len(self.input_size) :] != self.input_size:
                raise ValueError(
                    f"An image came in as {tuple(source.shape)}, but the field is that of an "
                    f"input of {_times(self.input_size)}: resize it."
                )
            with (
                suppress(StopForward),
                HookManager([*grid.hooks(session.model), (module, "forward", after)]),
            ):
                session.call(*args, **kwargs)
            here: Any = (slice(None), slice(None), *position)
            maps = calls[self.call][here]
            if channel is not None and not is_index(channel, maps.shape[1]):
                raise ValueError(
                    f"Layer {self.layer!r} has no channel {channel!r}: 0 to {maps.shape[1] - 1}."
                )
            score = maps.sum() if channel is None else maps[:, channel].sum()
            return torch.autograd.grad(score, source, materialize_grads=True)[0]

    def _check(self, position: Sequence[int]) -> None:
        if not is_position(position, self.map_size):
            raise ValueError(
                f"Layer {self.layer!r} has no position {position!r}: its map is "
                f"{_times(self.map_size)}, counted from 0."
            )

    def records(self) -> list[dict[str, Any]]:
        """Return one dict, strict JSON, for a row of a table such as a ``pandas.DataFrame``.

        Returns
        -------
        list of dict
            With the keys layer, call, status, why, size, stride, start, input_size, map_size and
            input; unknown values are None.
        """
        names = ["layer", "call", "status", "why", "size", "stride", "start"]
        names += ["input_size", "map_size", "input"]
        return [plain({name: getattr(self, name) for name in names})]

    def _heading(self) -> str:
        return f"Receptive field of {self.layer or 'the model'}"

    def _repr_html_(self) -> str:
        return html_table("Receptive field", HEADER, [self._row()])

    def _row(self) -> tuple[str, ...]:
        """Return the cells below `HEADER`."""
        name = self.layer or "(model)"
        start = (
            "" if None in self.start else ", ".join(str(n).replace("-", "−") for n in self.start)
        )
        stride = "" if None in self.stride else _times(self.stride)
        sizes = _times(self.size) if self.known else "", stride, start
        status = f"{self.status}: {self.why}" if self.why else self.status
        return name, status, *sizes, _times(self.map_size), _times(self.input_size)

    @for_terminal
    def __repr__(self) -> str:
        """Return the layer, its status and its numbers."""
        said = [f"{self.layer!r} {self.status}"]
        if self.why:
            said.append(self.why)
        elif self.status == "exact":
            said.append(f"sees {_times(self.size)}")
            if None not in self.start:
                said.append(f"stride {_times(self.stride)}, start {_times(self.start)}")
        said.append(f"{_times(self.map_size)} positions on {_times(self.input_size)}")
        return paragraph(f"ReceptiveField({', '.join(said)})")


HEADER = ("layer", "status", "sees", "stride", "starts at", "positions", "of the input")
"""The columns of a table of fields; all sizes are in pixels."""


class ReceptiveFields(Tabular, dict[str, ReceptiveField]):
    """The receptive fields of several layers, by name."""

    def _title(self) -> str:
        return f"Receptive fields of {counted(len(self), 'layer')}, in pixels"

    def _as_table(self) -> tuple[Row, Sequence[Row], Sequence[str]]:
        return HEADER, [field._row() for field in self.values()], ("of the input",)

    def records(self) -> list[dict[str, Any]]:
        """Return one dict for each layer, as `ReceptiveField.records`."""
        return [record for field in self.values() for record in field.records()]


def _times(numbers: Sequence[int | None]) -> str:
    return "×".join("?" if n is None else str(n).replace("-", "−") for n in numbers)


def receptive_field(
    model: nn.Module,
    inputs: Any,
    layer: Layers = None,
    *,
    call: int = -1,
    weights: Any = None,
    transform: Transform | None = None,
) -> ReceptiveField | dict[str, ReceptiveField]:
    """Find the pixels of the input that each position of a layer's map depends on.

    They follow from the operations that run, not from a table of layers: the model runs once, in
    eval mode, and each element of a tensor is stored with the range of input pixels that it was
    computed from. So residual sums, concatenations, dilation, functional calls and your own code
    need no rules. The field is what the structure allows: weights count as if none were zero, and
    ReLU, gates and maxima as if they let everything through.

    Parameters
    ----------
    model : torch.nn.Module
        It stays unchanged, to the bit.
    inputs
        As for `hookviz.explore`. Its size matters at the borders and where layers depend on
        it; its values do not. The first sample of a batch is used.
    layer : str or torch.nn.Module, or as ``layers=`` of `hookviz.capture`
        One layer by its name or as a module; or a pattern, a list, a type or a predicate for
        several, and None for every convolution, at hardly more work than for one.
    call : int
        The call of a layer that runs several times: 0 is the first, −1 the last.
    weights, transform
        As for `hookviz.explore`.

    Returns
    -------
    ReceptiveField or dict of str to ReceptiveField
        A dict, printed as a table, for several layers, without those that do not run, or not that
        often, or return no map.

    Raises
    ------
    ValueError
        The one layer is unknown (close names are suggested); it does not run, or not that often, or
        its output is not a map.

    Notes
    -----
    Norms by their own statistics (GroupNorm, InstanceNorm) see the whole input, as do
    squeeze-and-excitation and attention. A mask of −Inf, or of the least number, hides; one of
    −100, as in Swin, does not, since a large score overcomes it. The operations that are followed
    are listed in ``hookviz/studies/receptive_field/rules.py``; after any other one the status is
    unknown, with its name.

    Examples
    --------
    >>> import hookviz, torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.MaxPool2d(2), nn.Conv2d(1, 1, 3))
    >>> field = hookviz.receptive_field(model, torch.zeros(1, 1, 32, 32), "2")
    >>> field.status, field.size, field.stride, field.start
    ('exact', (8, 8), (2, 2), (-1, -1))
    >>> field.box(0, 1), field.box(0, 1).padding
    ((0, 1, 7, 9), ((1, 0), (0, 0)))
    """
    check_model(model)
    if isinstance(inputs, str) and any(inputs in names for names in module_names(model).values()):
        raise ValueError(
            f"{inputs!r} is a layer, and the second argument is the input: give "
            f"receptive_field(model, image, {inputs!r})."
        )
    origin = model, weights, transform
    chosen = {module: aliases[0] for module, aliases in select_layers(model, layer).items()}
    session = Session.of(model, inputs, weights=weights, transform=transform)
    main = session.inputs.main
    if main is not None and main.ndim == spatial(session, main) + 2:
        session.inputs = _first_sample(session.inputs)
    seen, found = seen_by(session, chosen), ReceptiveFields()
    calls_of = {name: [key for key in seen if key[0] == name] for name in chosen.values()}
    pattern = isinstance(layer, str) and set("*?[") & set(layer)
    if pattern or not isinstance(layer, str | nn.Module):
        for name, calls in calls_of.items():
            if -len(calls) <= call < len(calls) and seen[calls[call]].planes is not None:
                found[name] = field_of_footprint(calls[call], seen[calls[call]], *origin)
        return found
    ((name, calls),) = calls_of.items()
    if not calls:
        raise ValueError(f"Layer {name!r} did not run: it has no field for this input.")
    if not is_index(call, len(calls), from_end=True):
        raise ValueError(
            f"Layer {name!r} ran {counted(len(calls), 'time')}: call={call!r} is out of range."
        )
    footprint = seen[calls[call]]
    if footprint.planes is None:
        assert footprint.doubt is not None
        raise ValueError(f"Layer {name!r} {footprint.doubt.why}: it has no positions.")
    return field_of_footprint(calls[call], footprint, *origin)


def _first_sample(inputs: ModelInput) -> ModelInput:
    """Return the first sample of a batch, if the model has no other input."""
    if len(inputs.args) != 1 or inputs.kwargs or not isinstance(inputs.args[0], Tensor):
        return inputs
    return replace(inputs, args=(inputs.args[0][:1],))


def field_of_footprint(
    key: Key,
    seen: LayerFootprint,
    model: nn.Module,
    weights: Any = None,
    transform: Transform | None = None,
) -> ReceptiveField:
    """Return the receptive field of a call that has positions."""
    assert seen.planes is not None
    extent, map_size = seen.input_size, tuple(seen.planes.shape[1:])
    axes, doubt = range(len(extent)), seen.doubt
    if doubt is None and seen.empty:
        doubt = Uncertainty("unknown", "nothing leads from the input to it")
    if doubt is not None:
        status, why = doubt
        rules: Any = [(None, None, None)] * len(extent)
        sides = [torch.full(map_size, side) for side in (*[0] * len(extent), *extent)]
    else:
        rules, why = [seen.rule(axis) for axis in axes], ""
        whole = all(seen.whole(axis) and rules[axis].stride == 0 for axis in axes)
        status = "whole input" if whole else "exact"
        low, high = zip(*(seen.ends(axis) for axis in axes), strict=True)
        sides = [side.where(low[0] < high[0], 0) for side in (*low, *high)]  # or it sees nothing
    size, stride, start = zip(*rules, strict=True)
    boxes, origin = torch.stack(sides).int(), _Origin(model, weights, transform)
    return ReceptiveField(
        *key, status, why, size, stride, start, extent, map_size, boxes, seen.source, origin
    )


Shares = tuple[float, float, float, float]

AXES = (("places",), ("rows", "columns"), ("slices", "rows", "columns"))
"""Units along the dimensions of a signal, a picture, a volume."""

MOST_PLACES = 4096
"""Positions of a map without a rule whose boxes are sent one by one."""


def place_in(field: ReceptiveField, depth: int, row: int, column: int) -> tuple[int, ...]:
    """Return the field's position, by its place in a shown map."""
    return (depth, row, column)[3 - len(field.map_size) :]


def outline(field: ReceptiveField, place: Sequence[int]) -> Shares | None:
    """Return a position's field as left, top, width and height, in fractions of the picture.

    None where it is not known, or nothing.
    """
    if not field.known:
        return None
    box, half = field.box(*place), len(field.input_size)
    if half == 1:  # a signal's picture is a band
        left, right, top, bottom = *box, 0, 1
    else:
        left, right, top, bottom = (box[n] for n in (half - 1, -1, half - 2, -2))
    high, wide = (1, *field.input_size)[-2:]
    found = left / wide, top / high, (right - left) / wide, (bottom - top) / high
    return found if right > left else None


def words(field: ReceptiveField, place: Sequence[int]) -> str:
    """Describe a position's field.

    Examples
    --------
    >>> import hookviz, torch
    >>> layer = torch.nn.Conv2d(1, 1, 5, padding=2)
    >>> field = hookviz.receptive_field(torch.nn.Sequential(layer), torch.zeros(1, 1, 9, 9), "0")
    >>> words(field, (0, 4))
    '3×5 pixels, rows 0–2 and 2 in the padding, columns 2–6'
    """
    if not field.known:
        return f"{field.status}: {field.why}"
    box, half = field.box(*place), len(field.input_size)
    if box[0] >= box[half]:
        return "nothing of the input"
    if box[:half] == (0,) * half and box[half:] == tuple(field.input_size):
        return "the whole input"
    said = [f"{box[2] - box[0]}×{box[3] - box[1]} pixels"] if half == 2 else []
    for axis, name in enumerate(AXES[half - 1]):
        hidden = sum(box.padding[axis]) if box.padding else 0
        part = stretch(name, box[axis], box[half + axis] - 1)
        said.append(part + (f" and {hidden} in the padding" if hidden else ""))
    return ", ".join(said)


def stretch(units: str, first: int, last: int) -> str:
    """Say from where to where.

    >>> stretch("rows", 2, 5), stretch("rows", 2, 2)
    ('rows 2–5', 'row 2')
    """
    return f"{units} {first}–{last}" if first < last else f"{units.removesuffix('s')} {first}"


def payload(field: ReceptiveField) -> dict[str, Any]:
    """All places' boxes, as JSON.

    Returns
    -------
    dict
        ``status`` and ``why`` as the field's; ``input`` and ``map``, its sizes; ``size``, pixels a
        place sees where that is by a rule, else None; ``ends``, for each dimension of the input
        ``along``, ``from``, ``to``: two lists, by the place's number in the dimension ``along`` of
        the map, or among all places if that is None. ``ends`` is None where it would be too long.
    """
    half, boxes = len(field.input_size), field.boxes
    ruled = field.known and None not in field.start
    ends = [_ends(boxes[axis], boxes[half + axis]) for axis in range(half)] if field.known else []
    return {
        "status": field.status,
        "why": field.why,
        "input": field.input_size,
        "map": field.map_size,
        "axes": AXES[half - 1],
        "size": field.size if ruled else None,
        "ends": ends if ends and all(ends) else None,
    }


def _ends(begin: Tensor, end: Tensor) -> dict[str, Any] | None:
    """Fit one dimension of the input by one dimension of the map, if they depend on no other."""
    for along in range(begin.ndim):
        line = tuple(slice(None) if axis == along else slice(0, 1) for axis in range(begin.ndim))
        if all((each == each[line]).all() for each in (begin, end)):
            begin, end = begin[line], end[line]
            break
    else:
        along = None
        if begin.numel() > MOST_PLACES:
            return None
    return {"along": along, "from": begin.flatten().tolist(), "to": end.flatten().tolist()}
