"""Pairs of layers, one of each model, and the layers without a partner."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import pairwise
from typing import Any

from torch import nn

from ...hooking.checkpoint import FORWARD, current_backward
from ...hooking.handles import HookManager
from ...hooking.select import Layers, close_names, module_names, select_layers
from ...hooking.tensors import tensors

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_FOLDED = (*_NORMS, nn.ReLU, nn.ReLU6, nn.Hardswish, nn.SiLU)


@dataclass(frozen=True)
class LayerRun:
    """A layer that has run: what it is known by before any number is compared."""

    name: str
    module: nn.Module
    shape: tuple[int, ...]  # of the first tensor that it returned


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


def paired(a: list[LayerRun], b: list[LayerRun], given: Mapping[str, str] | None = None) -> Pairs:
    """Match layers, each model's in the order in which they returned.

    First those ``given``, then by name, then by order: what is left of both is aligned as two texts
    are in a diff, by class and shape, then by shape alone. What b has folded into one layer is
    compared at its end: for a convolution, a BatchNorm and a ReLU of which b has the first alone,
    or ``Identity`` for the others, what the last of them returned.

    Raises
    ------
    ValueError
        A name in ``given`` is not a layer that ran.
    """
    of_a, of_b = {each.name: each for each in a}, {each.name: each for each in b}
    partners = dict(given or {})
    _check(partners.keys(), of_a, "a")
    _check(partners.values(), of_b, "b")
    taken = set(partners.values())
    same = [name for name in of_a if name not in partners and name in of_b and name not in taken]
    partners |= {name: name for name in same}
    for key in (_kind_and_shape, _shape):
        rest = [each for each in a if each.name not in partners]
        others = [each for each in b if each.name not in set(partners.values())]
        for one, two in _aligned(rest, others, key):
            partners[one.name] = two.name
    matched = dict(partners)
    folded, firsts = _folded(a, of_b, partners)
    lacking = dict.fromkeys(of_a.keys() - partners.keys(), "b has no such layer") | folded
    unmatched = [("a", name, lacking[name]) for name in of_a if name in lacking]
    compared = set(partners.values())
    unmatched += [("b", name, "a has no such layer") for name in of_b if name not in compared]
    begins = {last: (first, matched[first]) for last, first in firsts.items() if first in matched}
    return Pairs({name: partners[name] for name in of_a if name in partners}, unmatched, begins)


def paired_by_name(
    a: list[LayerRun], b: nn.Module, given: Mapping[str, str] | None = None
) -> Pairs:
    """Match layers before b has run, as if its layers of a's names ran as those of a did."""
    known = {names[0]: module for module, names in module_names(b).items()}
    of_a = {each.name: each for each in a}
    chosen = {ours: two for ours, two in (given or {}).items() if ours in of_a and two in known}
    likely = {name: name for name in of_a if name in known} | {v: k for k, v in chosen.items()}
    of_b = [LayerRun(two, known[two], of_a[ours].shape) for two, ours in likely.items()]
    return paired(a, of_b, chosen)


def _kind_and_shape(layer: LayerRun) -> Hashable:
    return type(layer.module).__name__, layer.shape


def _shape(layer: LayerRun) -> Hashable:
    return layer.shape


def _aligned(
    a: list[LayerRun], b: list[LayerRun], key: Callable[[LayerRun], Hashable]
) -> Iterator[tuple[LayerRun, LayerRun]]:
    matcher = SequenceMatcher(None, [*map(key, a)], [*map(key, b)], autojunk=False)
    for i, j, size in matcher.get_matching_blocks():
        yield from zip(a[i : i + size], b[j : j + size], strict=True)


def _folded(
    a: list[LayerRun], of_b: Mapping[str, LayerRun], partners: dict[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Take the partners from layers that b has folded with the next one.

    Why, by their names; and of the last of them, which is the first.
    """
    leaves = [each for each in a if not next(each.module.children(), None)]
    found: dict[str, str] = {}
    firsts: dict[str, str] = {}
    for layer, after in pairwise(leaves):
        if not isinstance(after.module, _FOLDED) or layer.shape != after.shape:
            continue
        partner = partners.get(after.name)
        if partner is None and isinstance(after.module, _NORMS) and layer.name in partners:
            partners[after.name] = partners.pop(layer.name)
        elif partner is not None and isinstance(of_b[partner].module, nn.Identity):
            partners.pop(layer.name, None)
        else:
            continue
        found[layer.name] = f"b has folded it with {after.name}"
        firsts[after.name] = firsts.pop(layer.name, layer.name)
    return found, firsts


def _check(names: Iterable[str], known: Mapping[str, LayerRun], whose: str) -> None:
    for name in names:
        if name not in known:
            raise ValueError(
                f"pairs= names {name!r}, but no such layer of model {whose} ran; "
                f"{close_names(name, known)}."
            )


class CallOrder(HookManager):
    """While its hooks are on it notes what runs.

    Attributes
    ----------
    layers : list of LayerRun
        Each layer that ran, in the order in which they first returned.
    calls : list of (str, int)
        Each run of each, by the layer's name and the run's number, in order.
    """

    def __init__(self, model: nn.Module, layers: Layers) -> None:
        chosen = select_layers(model, layers)
        super().__init__([(m, "forward", partial(self._after, n[0])) for m, n in chosen.items()])
        self.layers: list[LayerRun] = []
        self.calls: list[tuple[str, int]] = []
        self._runs: dict[str, int] = {}

    def runs(self, name: str) -> int:
        """Count a layer's runs."""
        return self._runs.get(name, 0)

    def _after(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        shapes = [tuple(tensor.shape) for tensor in tensors(output)]
        # Without tensors nothing can be compared; and a checkpoint's second run is the same.
        if not shapes or current_backward() != FORWARD:
            return
        if name not in self._runs:
            self.layers.append(LayerRun(name, module, shapes[0]))
        self.calls.append((name, self.runs(name)))
        self._runs[name] = self.runs(name) + 1
