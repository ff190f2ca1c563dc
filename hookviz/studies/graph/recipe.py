"""A layer's computation as numbers and arrays: a page takes values apart without PyTorch.

`static/terms.js` reads them. What the convolution was given is held as it was given: padding of any
mode, and a layer's own, is in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .kept import KeptRun, Origin


@dataclass(frozen=True, eq=False)
class Recipe:
    """A layer's call as numbers.

    Attributes
    ----------
    facts : dict
        JSON values: ``layer call sample``; ``linear groups transposed kernel stride padding
        dilation``; ``shape``, the sizes of its map; ``shift``, where the map begins in what the
        convolution made; ``given``, channels and sizes of its input; ``outputs``, the number of
        output channels; ``rows``, those whose weights are held, None for all; ``most``, the
        largest magnitude that it returned; ``sources``; ``branches``, see `branches_of`;
        ``after``, the names and rules of the operations that follow, and ``mixed``, the first that
        has no rule.
    affine : list of torch.Tensor
        ``(2, channels)``: factors and additions of the rules of this name, in their order.
    weight : torch.Tensor
        ``(rows, inputs of a group, *kernel)``, by output, also for a transposed convolution.
    bias : torch.Tensor or None
        ``(rows,)``.
    given : torch.Tensor
        ``(inputs, *sizes)``.
    values : torch.Tensor
        What it returned, ``(rows, *shape)``.
    """

    facts: dict[str, Any]
    weight: Tensor
    bias: Tensor | None
    given: Tensor
    values: Tensor
    affine: list[Tensor]


def recipe_of(
    kept: KeptRun, layer: str, sample: int = 0, call: int = -1, rows: Sequence[int] | None = None
) -> Recipe:
    """Return what it takes to take a layer's values apart.

    Raises
    ------
    ValueError
        The layer is not linear in its input, or its map is arranged in another way than what its
        convolution made.

    Examples
    --------
    >>> import hookviz
    >>> from hookviz.run.inputs import prepare_input
    >>> from hookviz.run.session import Session
    >>> model, x = hookviz.demo_model(), hookviz.demo_images()[6]
    >>> kept = KeptRun(Session(model, prepare_input(x, model)))
    >>> recipe = recipe_of(kept, "layer3.1.conv2")
    >>> recipe.facts["stride"], recipe.weight.shape[1:], recipe.given.shape
    ([1, 1], torch.Size([96, 3, 3]), torch.Size([96, 14, 14]))
    """
    parts = kept.parts(layer, sample, call)
    weight = parts.weight if rows is None else parts.weight[list(rows)]
    bias = parts.bias if parts.bias is None or rows is None else parts.bias[list(rows)]
    place = parts.place
    steps = kept.steps(*place)
    passed = kept.graph.after(*place)[len(steps) :]
    facts = {
        "layer": place[0],
        "call": place[1],
        "sample": sample,
        "linear": parts.linear,
        "groups": parts.groups,
        "transposed": parts.transposed,
        "kernel": list(parts.weight.shape[2:]),
        "stride": parts.stride,
        "padding": parts.padding,
        "dilation": parts.dilation,
        "shape": parts.shape,
        "shift": parts.shift,
        "given": list(parts.given.shape),
        "outputs": len(parts.weight),
        "rows": None if rows is None else list(rows),
        "most": parts.most,
        "sources": [list(each) for each in kept.graph.sources(*place)],
        "branches": branches_of(kept, layer, sample, call),
        "after": [step[:2] if step[1] == "affine" else step for step in steps],
        "mixed": passed[0] if passed else "",
    }
    affine = [step[2] for step in steps if step[1] == "affine"]
    values = parts.values if rows is None else parts.values[list(rows)]
    return Recipe(facts, weight, bias, parts.given, values, affine)


def branches_of(kept: KeptRun, layer: str, sample: int, call: int) -> list[dict[str, Any]]:
    """Return from where a layer's input channels come, in runs of neighbours.

    Returns
    -------
    list of dict
        ``from`` and ``to``, the first and last input channel of a run; ``ways``, for each branch
        of a sum ``layer call path exact``, ``channel``, that of the first of the run, ``sizes`` of
        its map, and ``at``, by axis: the number to add to a position, or, as a list of one, the
        position that all have; None where a pooling lies between, of which ``windows`` are by axis
        and place ``[start, stop, step]``.
    """
    channels, *sizes = kept.given_shape(layer, sample, call)
    middle = tuple(size // 2 for size in sizes)
    places = [middle, tuple(0 for _ in sizes), tuple(size - 1 for size in sizes)]

    def ways(channel: int, place: tuple[int, ...]) -> list[Origin]:
        return kept.origins_of_input(layer, channel, place, sample, call)

    found: list[dict[str, Any]] = []

    def split(first: int, last: int) -> None:
        one, other = ways(first, middle), ways(last, middle)
        between = {min(first + 1, last), (first + last) // 2}
        along = all(_beside(one, ways(n, middle), n - first) for n in between)
        if first < last and not (_beside(one, other, last - first) and along):
            half = (first + last) // 2
            split(first, half)
            split(half + 1, last)
        elif one:
            seen = [(place, ways(first, place)) for place in places]
            said = [_way(n, seen, kept) for n in range(len(one))]
            found.append({"from": first, "to": last, "ways": said})

    split(0, channels - 1)
    return found


def _beside(one: list[Origin], other: list[Origin], apart: int) -> bool:
    """Return whether two channels have the same ways, from channels that are as far apart."""
    if len(one) != len(other):
        return False
    return all(
        (a.layer, a.call, a.path, a.exact, a.channel + apart)
        == (b.layer, b.call, b.path, b.exact, b.channel)
        and (a.position == b.position or not a.exact)
        for a, b in zip(one, other, strict=True)
    )


def _way(
    number: int, seen: list[tuple[tuple[int, ...], list[Origin]]], kept: KeptRun
) -> dict[str, Any]:
    """Return one branch, with the rule of its positions as several places show it."""
    origin = seen[0][1][number]
    pairs = [(place, ways[number].position) for place, ways in seen if len(ways) == len(seen[0][1])]
    at: list[Any] | None = None
    if origin.exact and all(len(place) == len(came) for place, came in pairs):
        at = []
        for axis in range(len(origin.position)):
            shifts = {came[axis] - place[axis] for place, came in pairs}
            fixed = {came[axis] for _, came in pairs}
            at.append(shifts.pop() if len(shifts) == 1 else [*fixed] if len(fixed) == 1 else None)
        at = None if None in at else at
    over = [[[each.start, each.stop, each.step or 1] for each in axis] for axis in origin.windows]
    # A whole map that becomes one number has no place after it.
    pooled = [(place or tuple(0 for _ in over), came) for place, came in pairs]
    inside = over and all(
        len(place) == len(came) == len(over)
        and all(n < len(axis) for n, axis in zip(place, over, strict=True))
        and all(axis[n][0] <= m < axis[n][1] for n, m, axis in zip(place, came, over, strict=True))
        for place, came in pooled
    )
    return {
        "layer": origin.layer,
        "call": origin.call,
        "channel": origin.channel,
        "path": origin.path,
        "exact": origin.exact and at is not None,
        "at": at,
        "windows": over if inside and at is None else None,
        "sizes": kept.sizes(origin.layer, origin.call),
    }
