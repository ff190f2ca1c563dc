"""The weights, inputs and geometry by which a page tells why a value is what it is.

`static/terms.js` reads them. What a convolution was given is held as it was given: padding of any
mode, and a layer's own, is in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..studies.graph.kept import KeptRun, Origin
from ..view.exploration import ViewDifference
from ..view.map import share_graph
from ..view.view import View
from .packing import EXACT, Level, Packed, PagePart, Stream, half, raw


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


NO_ROOM = "its weights and inputs do not fit into this page."


@dataclass(eq=False)
class TermsPart(PagePart):
    """A layer's weights and input, which are of use only together: exact, or in half precision."""

    layer: str
    recipe: Recipe

    @property
    def header(self) -> dict[str, Any]:
        return self.recipe.facts

    def arrays(self, level: Level) -> list[Packed]:
        recipe, encode = self.recipe, raw if level == EXACT else half
        weight, given = _numbers(recipe.weight), _numbers(recipe.given)
        small = [raw(f"affine {n}", _numbers(each)) for n, each in enumerate(recipe.affine)]
        if recipe.bias is not None:
            small.append(raw("bias", _numbers(recipe.bias)))
        flat = weight.reshape(*weight.shape[:2], -1)
        rows = given.reshape(len(given), -1, given.shape[-1] if given.ndim > 1 else 1)
        return [*small, encode("weight", flat, planes=True), encode("given", rows, planes=True)]


def kept_layers(view: View, names: Sequence[str]) -> KeptRun | str:
    """Run the view's network once more, with the inputs of these layers and the last kept.

    The map of the network uses its graph. Returns why, if there is no such run.
    """
    if isinstance(view, ViewDifference):
        return "this page shows a difference of two."
    modules = [
        view.cache[name].module for name in names if not hasattr(view.cache[name], "attends")
    ]
    linear = [m for m in view.session.model.modules() if isinstance(m, nn.Linear)]
    only = {*(m for m in modules if m is not None), *linear[-1:]}
    try:
        kept = KeptRun(view.session, only=only)
    except Exception as error:  # the page is worth having without
        return str(error)
    share_graph(view, kept.graph)
    return kept


@dataclass(frozen=True, eq=False)
class PageTerms:
    """The numbers by which a page may tell why a value is what it is.

    Attributes
    ----------
    kept : KeptRun or str
        As `kept_layers`.
    order : list of str
        The layers that can be taken apart: the shown one, then from the smallest to the largest.
    reasons : dict of str to str
        Of the other layers.
    output : Recipe or None
        Of the predictions.
    """

    view: View
    names: Sequence[str]
    kept: KeptRun | str
    order: list[str]
    reasons: dict[str, str]
    output: Recipe | None

    @classmethod
    def of(cls, view: View, names: Sequence[str], kept: KeptRun | str) -> PageTerms:
        if isinstance(kept, str):
            return cls(view, names, kept, [], {}, None)
        sizes: dict[str, int] = {}
        reasons: dict[str, str] = {}
        for name in names:
            try:
                parts = kept.parts(name, view.settings.sample, _call(view, name))
                sizes[name] = parts.weight.numel() + parts.given.numel()
            except ValueError as error:
                reasons[name] = str(error)
        order = sorted(sizes, key=lambda name: (name != view.settings.layer, sizes[name]))
        return cls(view, names, kept, order, reasons, output_recipe(view, kept))

    def parts(self) -> Iterator[TermsPart]:
        """Yield the layers' numbers; a recipe is made only when it is needed."""
        for name in self.order:
            assert not isinstance(self.kept, str)  # otherwise there is no layer
            call = _call(self.view, name)
            recipe = recipe_of(self.kept, name, self.view.settings.sample, call)
            yield TermsPart(f"why-{self.names.index(name)}", name, recipe)

    def facts(self, held: Collection[TermsPart]) -> dict[str, Any]:
        """Return where the page has the numbers of each layer, or why it has not.

        ``layers``, by name the name of a block, or the reason why there is none; ``output``, the
        layer whose channels are the model's outputs, or None.
        """
        if isinstance(self.kept, str):
            return {"layers": {}, "output": None, "none": self.kept}
        layers = {name: {"none": NO_ROOM} for name in self.order}
        layers |= {name: {"none": reason} for name, reason in self.reasons.items()}
        output = None if self.output is None else self.output.facts["layer"]
        if output is not None:
            layers[output] = {"block": "why-output"}
        layers |= {part.layer: {"block": part.block} for part in held}
        return {"layers": layers, "output": output}

    def output_stream(self) -> Stream:
        """Compress the numbers of the predicted classes."""
        assert self.output is not None
        values = raw("values", _numbers(self.output.values))
        return Stream.of([*TermsPart("", "", self.output).arrays(EXACT), values])


def _call(view: View, name: str) -> int:
    return min(view.settings.call, len(view.cache[name].calls) - 1)


def network_terms(
    view: View, kept: KeptRun | str, calls: Sequence[tuple[str, str, int]], parts: Sequence[str]
) -> tuple[dict[str, Any], tuple[dict[str, Any], Stream]]:
    """Return how the layers of a page that runs its network compute; the numbers are its outputs.

    Parameters
    ----------
    view : View
    kept : KeptRun or str
        Of `kept_layers`.
    calls : sequence of (str, str, int)
        The names of the layers' calls in the page, the layers' own, and the calls.
    parts : sequence of str
        See `TracedNetwork`.

    Returns
    -------
    dict, (dict, Stream)
        As `PageTerms.facts`; and one block: the recipes by name, and the affine rules.
    """
    sample = view.settings.sample
    reasons: dict[str, str] = {}
    recipes: dict[str, Recipe] = {}
    if isinstance(kept, str):
        return {"layers": {}, "output": None, "none": kept}, ({}, Stream.of([]))
    for name, layer, call in calls:
        try:
            recipes[name] = recipe_of(kept, layer, sample, call)
            if f"weight:{name}" not in parts:
                reasons[name] = "the page does not know how this layer computes."
        except ValueError as error:
            reasons[name] = str(error)
    output = output_recipe(view, kept)
    last = None
    if output is not None and "weight:" in parts:
        last = output.facts["layer"]
        recipes.setdefault(last, recipe_of(kept, last, sample, output.facts["call"]))
    known = {name: each for name, each in recipes.items() if name not in reasons}
    arrays = [
        raw(f"{name} affine {n}", _numbers(tensor), planes=True)
        for name, each in known.items()
        for n, tensor in enumerate(each.affine)
    ]
    facts: dict[str, Any] = {name: {} for name in known}
    facts |= {name: {"none": reason} for name, reason in reasons.items()}
    header = {"recipes": {name: each.facts | {"sample": 0} for name, each in known.items()}}
    return {"layers": facts, "output": last}, (header, Stream.of(arrays))


def output_recipe(view: View, kept: KeptRun) -> Recipe | None:
    """Return the rows of the predicted classes, of the layer whose channels are the outputs."""
    sample = view.settings.sample
    numbers = [each.number for each in view.predictions]
    target = view.settings.target
    if isinstance(target, int):
        numbers.append(target)
    found = {number: kept.output_origins((sample, number)) for number in dict.fromkeys(numbers)}
    plain = [
        len(each) == 1 and each[0].exact and not each[0].position and each[0].channel == number
        for number, each in found.items()
    ]
    if not found or not all(plain):
        return None
    first = next(iter(found.values()))[0]
    try:
        return recipe_of(kept, first.layer, sample, first.call, rows=list(found))
    except ValueError:
        return None


def _numbers(tensor: Tensor) -> np.ndarray:
    own = tensor.detach().cpu()
    return np.ascontiguousarray((own if own.element_size() > 2 else own.float()).numpy())
