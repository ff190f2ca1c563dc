"""Weights that cannot learn, or were never meant to: all zero, all the same, not registered."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from .findings import Finding
from .observation import Observation

Held = tuple[str, nn.Module]


def zero_weights(seen: Observation) -> Iterator[Finding]:
    """Layers whose weights are 0 throughout: by design where a gradient reaches them, or a fault.

    What lies before a layer that begins at zero gets no gradient in the first step, and that is
    no fault either.
    """
    if seen.error is not None:
        return
    zero = {name: module for name, module in weighted(seen) if is_zero(module)}
    learning = {name for name in zero if learns(seen, name)}
    for name, module in zero.items():
        faulty = not _by_design(seen, name, learning)
        if not faulty and not isinstance(module, LINEAR):
            continue  # a shortcut's way to begin
        yield Finding(
            "zero weights",
            "warning" if faulty else "note",
            f"All weights of {name!r} ({type(module).__name__}) are zero"
            + (": it returns the same whatever it is given." if faulty else ", as a layer begins."),
            "Initialise them, nn.init.kaiming_normal_(layer.weight), or load the trained ones."
            if faulty
            else "Nothing, if it is to begin at zero: a gradient reaches it.",
            name,
            cause="zero" if faulty else "begins at zero",
        )


def same_channels(seen: Observation) -> Iterator[Finding]:
    """Layers all of whose channels have the same weights, and so learn the same."""
    if seen.error is not None:
        return
    for name, module in weighted(seen):
        weight = getattr(module, "weight", None)
        if not isinstance(module, LINEAR) or weight is None or not weight.requires_grad:
            continue
        if _channels_alike(weight, getattr(module, "groups", 1)) and not is_zero(module):
            yield Finding(
                "same channels",
                "warning",
                f"All {len(weight)} channels of {name!r} ({type(module).__name__}) have the same "
                "weights: they return the same, get the same gradient and stay the same.",
                "Initialise them at random: nn.init.kaiming_normal_(layer.weight).",
                name,
                cause="same channels",
            )


LINEAR = (nn.modules.conv._ConvNd, nn.Linear)


def _channels_alike(weight: Tensor, groups: int) -> bool:
    """Return True if all rows of each group are equal; a depthwise convolution has a single one."""
    if weight.ndim < 2 or len(weight) // groups < 2 or weight.is_meta:
        return False
    rows = weight.detach()
    if not bool((rows[0] == rows[1]).all()):  # nearly always the end of it
        return False
    rows = rows.unflatten(0, (groups, -1))
    return bool((rows == rows[:, :1]).all())


def weighted(seen: Observation) -> list[Held]:
    """Convolutions, linear layers and norms that ran, by their names, in the order they ran."""
    ran = dict.fromkeys(look.layer for look in seen.calls)
    kinds = (*LINEAR, nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)
    return [(name, m) for name in ran if isinstance(m := seen.modules[name], kinds)]


def is_zero(module: nn.Module) -> bool:
    """Return True if a layer's weight is 0 throughout."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.is_meta or not weight.numel():
        return False
    first = weight.detach().flatten()[:1]
    return not bool(first.any()) and not bool(weight.detach().any())


def learns(seen: Observation, name: str) -> bool:
    """Return True if a gradient other than 0 reaches a layer's weight."""
    return seen.gradient_norms.get(f"{name}.weight" if name else "weight", 0.0) > 0


def _by_design(seen: Observation, name: str, learning: set[str]) -> bool:
    """Return True if a layer of zeros begins so: the next step moves it, or the one behind it."""
    made = [each for each in seen.operations if each.layer == name and each.phase == "forward"]
    if any(each.facts.get("normed") or each.facts.get("feeds") for each in made):
        return False  # a norm makes noise of it, and the next layer has nothing to learn from
    # Without a backward nobody knows.
    return name in learning or bool(learning) or not seen.backward


def not_registered(seen: Observation) -> Iterator[Finding]:
    """Weights that the model reads and that are not in its ``parameters()``."""
    for operation in seen.foreign.values():
        yield Finding(
            "not registered",
            "warning",
            f"{operation.name.capitalize()} reads weights that are not in model.parameters(): no "
            "optimizer trains them, and neither state_dict() nor to(device) has them.",
            "Keep layers in nn.ModuleList or nn.Sequential, not in a list or dict; lone weights in "
            "nn.ParameterList.",
            **operation.place,
            evidence={"weights": len(seen.foreign)},
            cause="not registered",
        )


def one_under_many_names(seen: Observation) -> Iterator[Finding]:
    """One module with weights that stands several times in a list, as ``[block] * 4`` makes it."""
    root = next(iter(seen.names))
    for name, owner in root.named_modules():
        if not isinstance(owner, (nn.Sequential, nn.ModuleList)):
            continue
        places: dict[nn.Module, list[str]] = {}
        for place, module in owner._modules.items():
            if module is not None and next(module.parameters(), None) is not None:
                places.setdefault(module, []).append(f"{name}.{place}" if name else place)
        for module, names in places.items():
            if len(names) > 1:
                yield Finding(
                    "one module",
                    "warning",
                    f"{', '.join(map(repr, names[:4]))}{' …' * (len(names) > 4)} are one "
                    f"{type(module).__name__} under {len(names)} names: they share their weights.",
                    "Make each anew: [make() for _ in range(n)] in place of [block] * n.",
                    names[0],
                    layers=names,
                )
