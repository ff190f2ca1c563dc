"""Checks of the mode: layers that differ between training and eval, or work in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from ...tables import number
from .findings import Finding
from .observation import Observation
from .operations import OperationRecord
from .values import is_zero, next_to_zero, weighted


def batchnorm(seen: Observation) -> Iterator[Finding]:
    """BatchNorm layers that divide by hardly any variance.

    A channel that was trained away has none, neither then nor now, and does no harm.
    """
    named = {name for name, module in weighted(seen) if is_zero(module)}
    for operation in seen.operations:
        facts = operation.facts
        flat, channels = facts.get("flat") or facts.get("blown up") or (0, 1)
        if not flat or facts["after"] in named:
            continue
        if "blown up" in facts:
            yield Finding(
                "batchnorm",
                "warning",
                f"{flat} of {channels} channels of BatchNorm {operation.layer!r} had hardly any "
                f"variance in training ({number(facts['least variance'])}), and have some in this "
                f"batch: what it returns is up to {number(facts['factor'])} times too large.",
                "Load its statistics, or let it see training batches again: "
                "reset_running_stats(), then batches in training mode.",
                operation.layer,
                operation.call,
                evidence={"channels": flat, "of": channels, "factor": facts["factor"]},
                cause="blown up",
            )
            continue
        whole = flat - _taken_away(seen, operation) > channels / 2
        yield Finding(
            "batchnorm",
            "warning" if whole and seen.samples > 1 else "note",
            f"{flat} of {channels} channels of BatchNorm {operation.layer!r} are the same "
            f"everywhere in this batch (variance {number(facts['least variance'])}, eps "
            f"{facts['eps']:g}): " + ("it makes noise of them." if whole else "trained away."),
            f"Look at {facts['after']!r}, which returns the same whatever it is given."
            if whole
            else "Nothing is wrong; such channels could be pruned.",
            operation.layer,
            operation.call,
            evidence={"channels": flat, "of": channels, "variance": facts["least variance"]},
            cause="flat" if whole else "trained away",
        )


def _taken_away(seen: Observation, operation: OperationRecord) -> int:
    """Count the channels without variance whose kernels are next to zero, as pruning makes them."""
    weight = getattr(seen.modules.get(operation.facts["after"]), "weight", None)
    flat: Tensor = operation.facts["which"]
    if not isinstance(weight, Tensor) or weight.is_meta or weight.ndim < 2:
        return 0
    return (
        int((next_to_zero(weight).to(flat.device) & flat).sum()) if len(weight) == len(flat) else 0
    )


def other_mode(seen: Observation) -> Iterator[Finding]:
    """Single BatchNorms and dropouts in another mode than the model."""
    root = next(iter(seen.names))
    ran = {look.module for look in seen.calls}
    acts = {m: n for m, n in seen.names.items() if m in ran}
    yield from modes_apart(root.training, acts)


def modes_apart(training: bool, named: Mapping[nn.Module, str]) -> Iterator[Finding]:
    """Tell of BatchNorms and dropouts, by their names, in another mode than the model's."""
    for kind, types in (("batchnorm", _BatchNorm), ("dropout", _DropoutNd)):
        acts = [(m, n) for m, n in named.items() if isinstance(m, types)]
        other = [n for m, n in acts if m.training != training and getattr(m, "p", True)]
        if not other:
            continue
        if training:
            yield Finding(
                kind,
                "note",
                f"The model is in training mode, but {len(other)} of its {len(acts)} "
                f"{_CALLED[kind]} layers are in eval mode: they {_RESTS[kind]}.",
                "Nothing, if they are to stay as they are; else call model.train().",
                other[0],
                layers=list(other),
            )
            continue
        yield Finding(
            kind,
            "warning",
            f"The model is in eval mode, but {len(other)} of its {_CALLED[kind]} layers are in "
            f"training mode, such as {other[0]!r}: {_ACTS[kind]}.",
            "Call model.eval() after the layers were added.",
            other[0],
            layers=list(other),
        )


_CALLED = {"batchnorm": "BatchNorm", "dropout": "dropout"}
_RESTS = {"batchnorm": "keep the statistics they have", "dropout": "drop nothing"}
_ACTS = {
    "batchnorm": "what is returned for a picture depends on the others in its batch, and each run "
    "changes the statistics",
    "dropout": "it drops, and the model returns something else each time",
}


def dropout(seen: Observation) -> Iterator[Finding]:
    """Dropout as a function that drops although the model is in eval mode."""
    if next(iter(seen.names)).training:
        return
    for operation in seen.operations:
        if operation.name in ("dropout", "bernoulli") and operation.phase == "forward":
            module = seen.modules.get(operation.layer)
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
    """Report that the model is in training mode."""
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
        layers=names,
    )
