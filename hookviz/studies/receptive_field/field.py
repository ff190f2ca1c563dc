"""The receptive field of a layer: which pixels of the input a place of its map sees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ...draw.document import TablePage
from ...hooking.handles import HookManager
from ...hooking.maps import PatchGrid, as_maps
from ...hooking.select import Layers, select_layers
from ...hooking.tensors import tensors
from ...run.inputs import ModelInput, Transform, prepare_input
from ...run.session import Session, clone_inputs
from ...tables import html_table, paragraph, plain
from .dependency import Key, LayerFootprint, StopForward, Uncertainty, seen_by, spatial


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


@dataclass(frozen=True, eq=False)
class ReceptiveField(TablePage):
    """The part of the input that each position of a layer's map depends on, by `receptive_field`.

    Attributes
    ----------
    layer, call : str, int
        Which layer, and which of its runs, from 0.
    status : str
        ``"exact"``; ``"whole input"`` if every position sees all of it, and would of a larger one;
        ``"data-dependent"`` if computed numbers say where to look; ``"unknown"`` if something
        ran of which it is not known where it looks.
    why : str
        What made it data-dependent or unknown; else empty.
    size, stride, start : tuple of int
        For each dimension of the input, in pixels: how many a position sees, by how many the next
        position sees further on, and where the first one begins, negative in the padding. So
        position ``p`` sees from ``start + stride * p`` on. Where there is no such rule
        (interpolated maps, shifted windows) stride and start are None, and the size is the largest
        of a position; all are None if the status is data-dependent or unknown.
    input_size, map_size : tuple of int
        The input's spatial size, and how many positions the layer's map has.
    boxes : torch.Tensor
        int32 ``(2 * D, *map_size)``: each position's `box`, from and to.
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
    _session: Session
    _how: dict[str, Any]  # weights and transform, for other images

    @property
    def known(self) -> bool:
        """True if it is known where the positions look."""
        return self.status in ("exact", "whole input")

    def box(self, *position: int) -> Box:
        """Return the part of the input that a position depends on, cut off at its border.

        It is right for every position, at the border too, and where there is no one size. For a
        field that is data-dependent or unknown it is the whole input.

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
        found = self.boxes[here].tolist()
        half = len(self.input_size)
        begin, end = found[:half], found[half:]
        if begin[0] >= end[0]:  # nothing at all
            begin = end = [0] * half
        padding = []
        for axis, (size, stride, start) in enumerate(
            zip(self.size, self.stride, self.start, strict=True)
        ):
            if size is None or stride is None or start is None:
                return Box(begin, end)
            first = start + (stride * position[axis] if stride else 0)
            padding.append((begin[axis] - first, first + size - end[axis]))
        return Box(begin, end, tuple(padding))

    def effective(
        self, inputs: Any, *, position: Sequence[int] | None = None, channel: int | None = None
    ) -> Tensor:
        """Measure what each pixel counts for a position: the mean magnitude of the true gradient.

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
        position = tuple(n // 2 for n in self.map_size) if position is None else tuple(position)
        self._check(position)
        several = inputs.split(_BATCH) if isinstance(inputs, Tensor) else list(inputs)
        total, count = torch.zeros(self.input_size, dtype=torch.float64), 0
        for image in several:
            gradient = self._gradient(image, position, channel).double().abs().cpu()
            if gradient.shape[-len(self.input_size) :] != self.input_size:
                raise ValueError(
                    f"An image came in as {tuple(gradient.shape)}, but the field is that of an "
                    f"input of {_times(self.input_size)}: resize it."
                )
            batched = gradient.ndim == len(self.input_size) + 2
            count += len(gradient) if batched else 1
            total += gradient.reshape(-1, *self.input_size).sum(0) / _channels(gradient, batched)
        if not count:
            raise ValueError("inputs=[] holds no input: give at least one.")
        return (total / count).float()

    def _gradient(self, image: Any, position: tuple[int, ...], channel: int | None) -> Tensor:
        """Compute the gradient of a position, for a channel of the map or their sum."""
        model = self._session.given
        session, grid = Session(model, prepare_input(image, model, **self._how)), PatchGrid()
        module, runs = session.model.get_submodule(self.layer), []

        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            tensor = tensors(output)[0]
            runs.append(as_maps(tensor, module, grid.of(tuple(tensor.shape))))
            if len(runs) > self.call:
                raise StopForward

        with session.active():
            args, kwargs, sources = clone_inputs(
                session.model, session.inputs.args, session.inputs.kwargs
            )
            try:
                with HookManager([*grid.hooks(session.model), (module, "forward", after)]):
                    session.call(*args, **kwargs)
            except StopForward:
                pass
            here: Any = (slice(None), slice(None), *position)
            maps = runs[self.call][here]
            if channel is not None and not 0 <= channel < maps.shape[1]:
                raise ValueError(
                    f"Layer {self.layer!r} has no channel {channel}: 0 to {maps.shape[1] - 1}."
                )
            score = maps.sum() if channel is None else maps[:, channel].sum()
            return torch.autograd.grad(score, sources[0], materialize_grads=True)[0]

    def _check(self, position: Sequence[int]) -> None:
        fits = len(position) == len(self.map_size)
        if not fits or not all(
            0 <= n < size for n, size in zip(position, self.map_size, strict=True)
        ):
            raise ValueError(
                f"Layer {self.layer!r} has no position {tuple(position)}: its map is "
                f"{_times(self.map_size)}, counted from 0."
            )

    def records(self) -> list[dict[str, Any]]:
        """One dict, as ``pandas.DataFrame`` takes it: strict JSON, for one row beside others.

        Returns
        -------
        list of dict
            With the keys layer, call, status, why, size, stride, start, input_size and map_size;
            unknown ones are None.
        """
        names = ("layer", "call", "status", "why", "size", "stride", "start")
        return [plain({name: getattr(self, name) for name in (*names, "input_size", "map_size")})]

    def _heading(self) -> str:
        return f"Receptive field of {self.layer or 'the model'}"

    def _repr_html_(self) -> str:
        (record,) = self.records()
        cells = [_times(each) if isinstance(each, list) else str(each) for each in record.values()]
        return html_table("Receptive field", tuple(record), [cells])

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


_BATCH = 8


def _channels(gradient: Tensor, batched: bool) -> int:
    return gradient.shape[1] if batched else gradient.shape[0]


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

    It is read off the operations that run, not off a table of layers: the model runs once, in eval
    mode, and beside each number goes from where to where in the input lies what it was made of.
    So residual sums, concatenations, dilation, functional calls and code of your own are right by
    themselves. It says what the structure lets be seen: weights count as if none were zero, ReLU,
    gates and maxima as if they let everything through.

    Parameters
    ----------
    model : torch.nn.Module
        It stays as it is, to the bit.
    inputs
        As for `hookviz.explore`. Its size matters at the borders and where layers depend on
        it; its values do not. The first sample of a batch is used.
    layer : str or torch.nn.Module, or as ``layers=`` of `hookviz.capture`
        One layer by its name or as a module; or a pattern, a list, a type or a predicate for
        several, and None for every convolution, at hardly more work than for one.
    call : int
        Which run of a layer that runs several times: 0 is the first, −1 the last.
    weights, transform
        As for `hookviz.explore`.

    Returns
    -------
    ReceptiveField or dict of str to ReceptiveField
        A dict for several layers. Layers that do not run, or not that often, or return no map, are
        missing in it.

    Raises
    ------
    ValueError
        The one layer is unknown (close names are told); it does not run, or not that often, or
        its output is not a map.

    Notes
    -----
    Norms by their own statistics (GroupNorm, InstanceNorm) see the whole input, as do
    squeeze-and-excitation and attention. A mask of −Inf hides, or of the least number; one of −100,
    as in Swin, does not, since a large score overcomes it. If there are several tensors,
    the pixels are those of the first floating-point one.

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
    pattern = isinstance(layer, str) and set("*?[") & set(layer)
    if pattern or not isinstance(layer, str | nn.Module):
        return receptive_fields(
            model, inputs, layer, call=call, weights=weights, transform=transform
        )
    chosen = select_layers(model, [layer])
    ((_, (name, *_)),) = chosen.items()
    session, seen = _looked(model, chosen, inputs, weights, transform)
    runs = [key for key in seen if key[0] == name]
    if not runs:
        raise ValueError(f"Layer {name!r} did not run: it has no field for this input.")
    if not -len(runs) <= call < len(runs):
        raise ValueError(f"Layer {name!r} ran {len(runs)} times: call={call} is out of range.")
    found = seen[runs[call]]
    if found.planes is None:
        raise ValueError(f"Layer {name!r} {found.doubt.why}: it has no positions.")  # type: ignore[union-attr]
    return _field(runs[call], found, session, {"weights": weights, "transform": transform})


def receptive_fields(
    model: nn.Module,
    inputs: Any,
    layers: Layers = None,
    *,
    call: int = -1,
    weights: Any = None,
    transform: Transform | None = None,
) -> dict[str, ReceptiveField]:
    """Find the fields of many layers in one run; layers without one are missing."""
    chosen = select_layers(model, layers)
    session, seen = _looked(model, chosen, inputs, weights, transform)
    found = {}
    for name, *_ in chosen.values():
        runs = [key for key in seen if key[0] == name]
        if -len(runs) <= call < len(runs) and seen[runs[call]].planes is not None:
            how = {"weights": weights, "transform": transform}
            found[name] = _field(runs[call], seen[runs[call]], session, how)
    return found


def _looked(
    model: nn.Module,
    chosen: dict[nn.Module, list[str]],
    inputs: Any,
    weights: Any,
    transform: Transform | None,
) -> tuple[Session, dict[Key, LayerFootprint]]:
    session = Session(model, prepare_input(inputs, model, weights=weights, transform=transform))
    if session.inputs.main is not None and session.inputs.main.ndim == spatial(session) + 2:
        session.inputs = one_of(session.inputs, 0)  # one of a batch will do
    return session, seen_by(session, {module: names[0] for module, names in chosen.items()})


def one_of(inputs: ModelInput, sample: int) -> ModelInput:
    """One sample of a batch, where the model is given no more than that."""
    if len(inputs.args) != 1 or inputs.kwargs or not isinstance(inputs.args[0], Tensor):
        return inputs
    return replace(inputs, args=(inputs.args[0][sample : sample + 1],))


def _field(key: Key, seen: LayerFootprint, session: Session, how: dict[str, Any]) -> ReceptiveField:
    """Describe a footprint in words and whole numbers."""
    assert seen.planes is not None
    extent, map_size = seen.input_size, tuple(seen.planes.shape[1:])
    doubt = seen.doubt
    if doubt is None and seen.empty:
        doubt = Uncertainty("unknown", "nothing leads from the input to it")
    if doubt is not None:
        none, zeros = (None,) * len(extent), torch.zeros(len(extent), *map_size)
        to = torch.tensor(extent).view(-1, *[1] * len(map_size)).expand(-1, *map_size)
        boxes = torch.cat([zeros, to]).int()
        return ReceptiveField(
            *key, doubt.status, doubt.why, none, none, none, extent, map_size, boxes, session, how
        )
    numbers = [_numbers(seen, axis) for axis in range(len(extent))]
    size, stride, start = (tuple(each) for each in zip(*numbers, strict=True))
    whole = all(seen.whole(axis) for axis in range(len(extent))) and not any(stride)
    ends = [seen.exact(axis) for axis in range(len(extent))]
    boxes = torch.stack([*(low for low, _ in ends), *(high for _, high in ends)])
    boxes = boxes.nan_to_num(neginf=0, posinf=0).int()  # where nothing is seen
    status = "whole input" if whole else "exact"
    return ReceptiveField(
        *key, status, "", size, stride, start, extent, map_size, boxes, session, how
    )


def _numbers(seen: LayerFootprint, axis: int) -> tuple[int, int | None, int | None]:
    """Size, stride and start in a dimension."""
    rule = seen.rules[axis]
    if seen.whole(axis) and (rule is None or not rule.stride):
        return seen.input_size[axis], 0, 0
    if rule is not None:
        return rule.size, rule.stride, rule.start
    low, high = seen.exact(axis)
    return int((high - low).max()), None, None


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
    if field.status == "whole input":
        return "the whole input"
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
            return _lists(begin[line], end[line], along)
    return _lists(begin, end, None) if begin.numel() <= MOST_PLACES else None


def _lists(begin: Tensor, end: Tensor, along: int | None) -> dict[str, Any]:
    return {"along": along, "from": begin.flatten().tolist(), "to": end.flatten().tolist()}
