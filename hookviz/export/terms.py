"""The weights, inputs and geometry by which a page tells why a value is what it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..studies.graph.kept import KeptRun
from ..studies.graph.recipe import Recipe, recipe_of
from ..view.exploration import ViewDifference
from ..view.map import share_graph
from ..view.view import View
from .packing import PackedTerms, Stream, ends_of, raw

SHARE = 0.25
"""The most of a page's room that terms take where not all numbers fit into it."""

NO_ROOM = "its weights and inputs do not fit into this page."

Block = tuple[dict[str, Any], Stream, list[PackedTerms]]


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


def held_terms(
    view: View, names: Sequence[str], kept: KeptRun | str, room: float, maps: int
) -> tuple[dict[str, Any], dict[str, Block]]:
    """Return what a page holds for why, for each of its layers and for the predictions.

    Parameters
    ----------
    view : View
    names : sequence of str
        The page's layers.
    kept : KeptRun or str
        Of `kept_layers`.
    room : float
        The bytes that there are for all of the page's numbers.
    maps : int
        The bytes of all its maps and gradients, as they are.

    Returns
    -------
    dict, dict
        ``layers``, by name the id of a block, or the reason why there is none; ``output``, the
        layer whose channels are the model's outputs, or None. And the blocks by id: header, small
        arrays, and what is packed into the page's budget.
    """
    if isinstance(kept, str):
        return {"layers": {}, "output": None, "none": kept}, {}
    at = view.settings
    reasons: dict[str, str] = {}
    recipes: dict[str, Recipe] = {}
    for name in names:
        call = min(at.call, len(view.cache[name].calls) - 1)
        try:
            recipes[name] = recipe_of(kept, name, at.sample, call)
        except ValueError as error:
            reasons[name] = str(error)
    chosen = _chosen(recipes, at.layer, room, maps)
    reasons |= {name: NO_ROOM for name in recipes if name not in chosen}
    blocks = {f"why-{names.index(name)}": _block(recipes[name], packed=True) for name in chosen}
    ids: dict[str, Any] = {name: {"block": f"why-{names.index(name)}"} for name in chosen}
    output = output_recipe(view, kept)
    if output is not None and output.facts["layer"] not in chosen:
        blocks["why-output"] = _block(output, packed=False)
        ids[output.facts["layer"]] = {"block": "why-output"}
    facts = {
        "layers": {name: {"none": reason} for name, reason in reasons.items()} | ids,
        "output": None if output is None else output.facts["layer"],
    }
    return facts, blocks


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
        As `held_terms`; and one block, whose header is the recipes by name, with the affine rules.
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


def _chosen(recipes: dict[str, Recipe], shown: str, room: float, maps: int) -> list[str]:
    """Return the layers whose terms may be in the page: the shown one, then the smallest."""
    counts = {name: each.weight.numel() + each.given.numel() for name, each in recipes.items()}
    if maps + 4 * sum(counts.values()) <= room:
        return list(recipes)
    found, left = [], SHARE * room
    for name in sorted(counts, key=lambda each: (each != shown, counts[each])):
        left -= counts[name]
        if left >= 0:
            found.append(name)
    return found


def _block(recipe: Recipe, *, packed: bool) -> Block:
    weight, given = _numbers(recipe.weight), _numbers(recipe.given)
    small = [raw(f"affine {n}", _numbers(each)) for n, each in enumerate(recipe.affine)]
    if recipe.bias is not None:
        small.append(raw("bias", _numbers(recipe.bias)))
    flat = weight.reshape(*weight.shape[:2], -1)
    rows = given.reshape(len(given), -1, given.shape[-1] if given.ndim > 1 else 1)
    if not packed:
        small += [raw("weight", flat), raw("given", rows), raw("values", _numbers(recipe.values))]
        return recipe.facts, Stream.of(small), []
    return recipe.facts, Stream.of(small), [PackedTerms("terms", flat, *ends_of(flat), given=rows)]


def _numbers(tensor: Tensor) -> np.ndarray:
    own = tensor.detach().cpu()
    return np.ascontiguousarray((own if own.element_size() > 2 else own.float()).numpy())
