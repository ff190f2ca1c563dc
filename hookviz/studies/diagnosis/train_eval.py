"""How layers work: one way in training and another in eval, or in place."""

from __future__ import annotations

from collections.abc import Iterator

from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from ...hooking.tables import number
from .findings import Finding
from .observation import Observation


def batchnorm(seen: Observation) -> Iterator[Finding]:
    """BatchNorm layers that divide by hardly any variance."""
    for look in seen.calls:
        norm = look.module
        if not isinstance(norm, _BatchNorm) or norm.training or norm.running_var is None:
            continue
        low, count = norm.running_var.min().item(), int((norm.running_var < norm.eps).sum())
        if count:
            yield _flat(look.layer, look.call, count, norm, low)
    for operation in seen.operations:
        if not operation.name.endswith("batch_norm") or len(operation.made) < 3:
            continue
        norm = next((m for m, n in seen.names.items() if n == operation.layer), seen.model)
        if not isinstance(norm, _BatchNorm) or operation.phase == "backward":
            continue
        inverse = operation.made[2].high  # 1 / sqrt(variance + eps), of the batch
        if inverse and inverse**-2 - norm.eps < norm.eps / 10:
            low = max(inverse**-2 - norm.eps, 0.0)
            yield _flat(operation.layer, operation.call, 1, norm, low)


def _flat(layer: str, call: int, count: int, norm: _BatchNorm, low: float) -> Finding:
    of = "its batch" if norm.training else "training"
    return Finding(
        "batchnorm",
        "warning",
        f"Of the {norm.num_features} channels of BatchNorm {layer!r} {count} or more had, in {of}, "
        f"a variance of {number(low)}, below its eps ({norm.eps:g}): differences are blown up.",
        "Look at the layer before: these channels are the same everywhere.",
        layer,
        call,
        evidence={"channels": count, "smallest variance": low},
    )


def dropout(seen: Observation) -> Iterator[Finding]:
    """Dropout that drops although the model is in eval mode."""
    root = next(iter(seen.names))
    if root.training:
        return
    active = [n for m, n in seen.names.items() if isinstance(m, _DropoutNd) and m.training and m.p]
    if active:
        yield Finding(
            "dropout",
            "warning",
            f"The model is in eval mode, but {len(active)} of its dropout layers drop, such as "
            f"{active[0]!r}: it returns something else each time.",
            "Call model.eval() after the layers were added.",
            active[0],
        )
    for operation in seen.operations:
        if operation.name in ("dropout", "bernoulli") and operation.phase == "forward":
            module = next((m for m, n in seen.names.items() if n == operation.layer), None)
            if not isinstance(module, _DropoutNd):
                yield Finding(
                    "dropout",
                    "warning",
                    "The model is in eval mode, but dropout is called as a function and drops: it "
                    "returns something else each time.",
                    "Pass it training=self.training, or use nn.Dropout.",
                    **operation.place,
                )
                return


def training_mode(seen: Observation) -> Iterator[Finding]:
    """That a model in training mode is another than the one that is shown, and deployed."""
    root = next(iter(seen.names))
    kinds: dict[str, int] = {}
    for module in seen.names:
        if module.training and isinstance(module, (_BatchNorm, _DropoutNd)):
            name = type(module).__name__
            kinds[name] = kinds.get(name, 0) + 1
    if root.training and kinds:
        said = " and ".join(f"{count} {name}" for name, count in kinds.items())
        yield Finding(
            "training mode",
            "note",
            f"The model was examined in training mode, with {said}; explore, heatmap and trace "
            "show it in eval mode, where its output is another.",
            "Call model.eval() first to examine what is shown and deployed.",
        )


def in_place(seen: Observation) -> Iterator[Finding]:
    """Layers whose output is overwritten: a plain hook that keeps it shows the wrong thing."""
    found = [look for look in seen.calls if look.overwritten is not None]
    if not found:
        return
    first, by = found[0], found[0].overwritten
    assert by is not None
    names = list(dict.fromkeys(look.layer for look in found))
    yield Finding(
        "in place",
        "note",
        f"The outputs of {len(names)} layers are overwritten in place, that of {first.layer!r} by "
        f"{by.name} in {by.layer!r}: a plain forward hook that keeps them without a copy shows "
        "what came after.",
        "Use hookviz.capture, which copies, or clone() in a hook of your own.",
        **by.place | {"layer": first.layer, "call": first.call},
        evidence={"layers": names},
    )
