"""``hookviz.compare``: two models, or one on two inputs, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...hooking.records import FeatureCache
from ...hooking.select import Layers
from ...run.inputs import Transform, as_the_model_takes
from ...run.session import Session
from ...run.target import Target, logits_of
from ..showing import widget
from .comparing_capture import ComparingCapture, QuietCapture, SharedTensorStore
from .comparison import Comparison
from .pairing import CallOrder, Pairs, paired
from .row import LayerDifference, rows_of

Logits = tuple[Tensor | None, Tensor | None]
"""Class scores ``(N, K)`` of both."""


def compare(
    a: nn.Module,
    b: nn.Module,
    x: Any,
    *,
    x_b: Any = None,
    layers: Layers = None,
    target: Target = None,
    pairs: Mapping[str, str] | None = None,
    max_bytes: int | None = None,
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
) -> Comparison:
    """Compare two models on one input, layer by layer, or one model on two inputs.

    Both run in eval mode, one forward and one backward; compiled code runs eagerly. The first run
    is kept, the second compared with it as it passes: the memory is that of one capture.

    Parameters
    ----------
    a, b : torch.nn.Module
        Such as a network and its half-precision, quantized, fine-tuned or re-implemented self; they
        may be on different devices. Both stay as they are, to the bit.
    x
        As for `hookviz.explore`. Model b gets the same, on its device and in its weights' type.
    x_b : optional
        What b gets instead.
    layers : optional
        Which of a's layers, as in `hookviz.capture`; None is every module, since a difference may
        arise in any of them.
    target : optional
        What the gradients are of, as in `hookviz.explore`. None is, for both, the class that a puts
        first.
    pairs : dict of str to str, optional
        Names of a's layers, and of those of b to compare them with. For all others layers are
        matched by name, then by order and shape.
    max_bytes : int, optional
        Budget for what is kept of the first run; both run more often instead.
    weights, transform, class_names : optional
        As in `hookviz.explore`.

    Returns
    -------
    Comparison
        A sequence of `LayerDifference`, in the order in which the layers returned, which shows
        itself as a table. ``first()`` is the layer in which the difference arises.

    Raises
    ------
    ValueError
        No layer of both can be compared; ``pairs`` names one that did not run; or as in
        `hookviz.explore`. A tensor alone needs more than ``max_bytes``.
    RuntimeError
        What a model raises, with the layer in which it arose.

    Notes
    -----
    A quantized or fused model computes without gradients: then only activations are compared. What
    ``torch.export`` returns has no modules within: only what it returns is compared.

    Examples
    --------
    >>> import copy, torch, hookviz
    >>> model = hookviz.demo_model()
    >>> port = copy.deepcopy(model)
    >>> port.layer2[0].bn1.eps = 1e-3
    >>> comparison = hookviz.compare(model, port, hookviz.demo_images()[0])
    >>> comparison.first().layer
    'layer2.0.bn1'
    >>> hookviz.compare(model, copy.deepcopy(model), hookviz.demo_images()[0]).first() is None
    True
    """
    given: Any = {"weights": weights, "transform": transform, "class_names": class_names}
    first = Session(a, x, **given)
    second = Session(b, first.inputs if x_b is None else x_b, **given)
    second.inputs = as_the_model_takes(second.inputs, second.model)
    ours = _ran(first, "a", _every if layers is None else layers)
    theirs = _ran(second, "b", _every)
    matched = paired(ours.layers, theirs.layers, pairs)
    if not matched.partners:
        raise ValueError(
            f"No layer of {first.name} has a partner in {second.name}: name some by "
            "pairs={'layer of a': 'layer of b'}."
        )
    rows, logits = _rows(first, second, matched, target, max_bytes)
    place = {each: number for number, each in enumerate(ours.calls)}
    rows.sort(key=lambda row: place[row.layer, row.call])
    alone = matched.alone + _uneven(ours, theirs, matched.partners)
    target = _for_both(target, logits[0])
    opened = partial(_explored, first, second, target)
    return Comparison(first.name, second.name, rows, alone, logits, first.class_names, opened)


def _explored(first: Session, second: Session, target: Target, layers: Layers) -> Any:
    return widget("SideBySide", first, second, layers, target)


def _every(name: str, module: nn.Module) -> bool:
    return not isinstance(module, torch.jit.ScriptModule)


def _ran(session: Session, whose: str, layers: Layers) -> CallOrder:
    order = CallOrder(session.given, layers)
    try:
        session.forward(order)
    except Exception as error:
        error.add_note(f"It was model {whose} of the two that are compared.")
        raise
    return order


def _rows(
    first: Session, second: Session, pairs: Pairs, target: Target, max_bytes: int | None
) -> tuple[list[LayerDifference], Logits]:
    """All that is compared, in as many runs as the budget asks for."""
    rows: list[LayerDifference] = []
    groups = [list(pairs.partners)]
    logits: Logits = (None, None)
    while groups:
        names = groups.pop()
        cache, against, logits = _both(first, second, pairs, names, target, max_bytes)
        over_budget = set(cache.over_budget)
        left = [name for name in names if over_budget & {name, pairs.begin(name)[0]}]
        rows += rows_of(cache, against, pairs, [name for name in names if name not in left])
        if left:
            groups += [left] if left != names else _halves(left, cache, max_bytes)
    return rows, logits


def _both(
    first: Session,
    second: Session,
    pairs: Pairs,
    names: list[str],
    target: Target,
    max_bytes: int | None,
) -> tuple[FeatureCache, ComparingCapture, Logits]:
    """One run of each, the second against the first, of some of a's layers."""
    begins = dict(map(pairs.begin, names))  # of a -> of b
    outputs = {pairs.partners[name]: name for name in names}
    inputs = {theirs: ours for ours, theirs in begins.items()}

    def once() -> QuietCapture:
        chosen = [first.model.get_submodule(name) for name in dict.fromkeys([*names, *begins])]
        return QuietCapture(first.given, chosen, SharedTensorStore(max_bytes), inputs=True)

    one = first.forward_backward(target, once)
    kept, logits = one.observer.data(), logits_of(one.output)

    def again() -> ComparingCapture:
        chosen = [second.model.get_submodule(name) for name in dict.fromkeys([*outputs, *inputs])]
        return ComparingCapture(second.given, chosen, kept, outputs, inputs)

    two = second.forward_backward(_for_both(target, logits), again)
    both = (each if each is None else each.detach() for each in (logits, logits_of(two.output)))
    return kept, two.observer, (next(both), next(both))


def _for_both(target: Target, logits: Tensor | None) -> Target:
    """What the gradients are of; if nobody says, each sample's class that a puts first."""
    if target is not None or logits is None:
        return target
    favourites = logits.argmax(1).tolist()
    return favourites if len(favourites) > 1 else favourites[0]


def _halves(names: list[str], cache: FeatureCache, max_bytes: int | None) -> list[list[str]]:
    """Of layers that do not fit into the budget together, half and half."""
    if len(names) == 1:
        every = (each for record in cache.values() for each in record.calls)
        tensors = {id(each): each for call in every for each in (*call.inputs, *call.outputs)}
        raise ValueError(
            f"max_bytes={max_bytes} is not enough for layer {names[0]!r}: give "
            f"{sum(each.needs for each in tensors.values())} or more."
        )
    middle = len(names) // 2
    return [names[:middle], names[middle:]]


def _uneven(
    ours: CallOrder, theirs: CallOrder, partners: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Layers that ran more often in one model than in the other."""
    found = []
    for name, partner in partners.items():
        in_a, in_b = ours.runs(name), theirs.runs(partner)
        if in_a != in_b:
            found.append(("a", name, f"it ran {in_a} times, in b {in_b}"))
    return found
