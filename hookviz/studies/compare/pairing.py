"""Pairs of layers, one of each model, and the layers without a partner."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any

from torch import nn

from ...hooking.records import LayerRecord
from ...hooking.select import close_names

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_FOLDED = (*_NORMS, nn.ReLU, nn.ReLU6, nn.Hardswish, nn.SiLU)


@dataclass(frozen=True)
class Pairs:
    """The layers that are compared, and those that are not.

    Attributes
    ----------
    partners : dict of str to str
        Names of a's layers, and of b's.
    unmatched : list of (str, str, str)
        ``"a"`` or ``"b"``, a layer's name, and why it has no partner.
    begins : dict of str to (str, str)
        For a layer at whose end b is compared with what it has folded: the first of these in a, and
        the layer of b, whose inputs are to be compared.
    """

    partners: dict[str, str]
    unmatched: list[tuple[str, str, str]]
    begins: dict[str, tuple[str, str]]

    def begin(self, name: str) -> tuple[str, str]:
        """Pair the layers of a and of b that get the inputs of a layer of a and of its partner."""
        return self.begins.get(name, (name, self.partners[name]))


def paired(
    first: Mapping[str, LayerRecord],
    second: Mapping[str, LayerRecord],
    given: Mapping[str, str] | None = None,
) -> Pairs:
    """Match layers, each model's in the order in which they returned.

    First those ``given``, then by name, then by order: what is left of both is aligned as two texts
    are in a diff, by class and shape, then by shape alone. What b has folded into one layer is
    compared at its end: for a convolution, a BatchNorm and a ReLU of which b has the first alone,
    or ``Identity`` for the others, what the last of them returned. Layers in ``given`` stay paired.

    Raises
    ------
    ValueError
        A name in ``given`` is not a layer that ran.
    """
    # Layers that return no tensors cannot be compared.
    a, b = (
        {name: record for name, record in side.items() if record.calls[0].outputs}
        for side in (first, second)
    )
    partners = dict(given or {})
    _check(partners.keys(), a, "a")
    _check(partners.values(), b, "b")
    taken = set(partners.values())
    partners |= {name: name for name in a if name not in partners and name in b.keys() - taken}
    for key in (_kind_and_shape, _shape):
        rest = [record for name, record in a.items() if name not in partners]
        others = [record for name, record in b.items() if name not in partners.values()]
        partners |= _aligned(rest, others, key)
    matched = dict(partners)
    folded, firsts = _folded(a, b, partners, given or {})
    why = dict.fromkeys(a.keys() - partners.keys(), "b has no such layer") | folded
    unmatched = [("a", name, why[name]) for name in a if name in why]
    compared = set(partners.values())
    unmatched += [("b", name, "a has no such layer") for name in b if name not in compared]
    begins = {last: (first, matched[first]) for last, first in firsts.items() if first in matched}
    return Pairs(partners, unmatched, begins)


def _kind_and_shape(layer: LayerRecord) -> Hashable:
    return type(layer.module).__name__, _shape(layer)


def _shape(layer: LayerRecord) -> Hashable:
    return layer.calls[0].outputs[0].shape


def _aligned(
    a: list[LayerRecord], b: list[LayerRecord], key: Callable[[LayerRecord], Hashable]
) -> dict[str, str]:
    matcher = SequenceMatcher(None, [*map(key, a)], [*map(key, b)], autojunk=False)
    blocks = matcher.get_matching_blocks()
    return {a[i + n].name: b[j + n].name for i, j, size in blocks for n in range(size)}


def _folded(
    a: Mapping[str, LayerRecord],
    b: Mapping[str, LayerRecord],
    partners: dict[str, str],
    given: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str]]:
    """Take the partners, except those given, from layers that b has folded with the next one.

    Why, by their names; and of the last of them, which is the first.
    """
    found: dict[str, str] = {}
    firsts: dict[str, str] = {}
    normalized = {layer.name for layer, after in _steps(b) if isinstance(after.module, _NORMS)}
    for layer, after in _steps(a):
        foldable = isinstance(after.module, _FOLDED) and _shape(layer) == _shape(after)
        if not foldable or layer.name in given:
            continue
        partner, other = partners.get(after.name), partners.get(layer.name)
        if partner is None and other is not None and isinstance(after.module, _NORMS):
            if other in normalized or _shape(b[other]) != _shape(after):
                continue
            partners[after.name] = partners.pop(layer.name)
        elif partner is not None and isinstance(b[partner].module, nn.Identity):
            partners.pop(layer.name, None)
        else:
            continue
        found[layer.name] = f"b has folded it with {after.name}"
        firsts[after.name] = firsts.pop(layer.name, layer.name)
    return found, firsts


def _steps(layers: Mapping[str, LayerRecord]) -> Iterable[tuple[LayerRecord, LayerRecord]]:
    """Return each layer without children, and the next one that returned."""
    return pairwise(each for each in layers.values() if not next(each.module.children(), None))


def check_pairs(given: Any) -> None:
    """Raise ``TypeError`` for anything but a dict from names to names, or None."""
    if given is None:
        return
    names = [*given, *given.values()] if isinstance(given, Mapping) else [None]
    if not all(isinstance(name, str) for name in names):
        raise TypeError(
            f"pairs={given!r} is not a dict of names: give {{'layer of a': 'layer of b'}}."
        )


def _check(names: Iterable[str], known: Mapping[str, LayerRecord], whose: str) -> None:
    for name in names:
        if name not in known:
            raise ValueError(
                f"pairs= names {name!r}, but no such layer of model {whose} ran; "
                f"{close_names(name, known)}."
            )
