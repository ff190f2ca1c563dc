"""How the score is wired: what is given to a loss that it does not take, and what comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .findings import Finding
from .observation import Observation
from .operations import OUTSIDE, OperationRecord
from .wiring import WIRED


def wiring(seen: Observation) -> Iterator[Finding]:
    """Losses that are given what they do not take."""
    for operation in seen.operations:
        facts = operation.facts
        if "wired" in facts:
            made: OperationRecord = facts["wired"]
            why, advice = WIRED[operation.name, made.name]
            yield _wrong(operation, f"{_said(operation)} is given {_said(made)}: {why}.", advice)
        elif facts.get("positive"):
            yield _wrong(
                operation,
                f"{_said(operation)} takes logarithms of probabilities, which are 0 at most, and "
                "is given numbers above 0.",
                "Use cross_entropy on the logits, or log_softmax before it.",
            )
        if facts.get("over the batch") and operation.made[0].shape[0] == seen.samples:
            yield _wrong(
                operation,
                f"{_said(operation)} runs over dimension 0, the batch: for each class it is the "
                "samples that sum to 1.",
                "Give it dim=1 (or dim=-1).",
            )
        if facts.get("pairs"):
            yield _wrong(
                operation,
                f"{_said(operation)} is given (N, 1) and (N,), which become (N, N): each sample is "
                "compared with the truth of all others.",
                "Give both the same shape: output.squeeze(1), or y[:, None].",
            )


def _wrong(operation: OperationRecord, message: str, advice: str) -> Finding:
    return Finding("loss", "warning", message[0].upper() + message[1:], advice, **operation.place)


def _said(operation: OperationRecord) -> str:
    """Name an operation, its layer and its line."""
    name = operation.name.removesuffix("_forward")
    owner = repr(operation.layer) if operation.layer else "the model itself"
    layer = "" if operation.layer == OUTSIDE else f" of {owner}"
    return f"{name}{layer}" + (f" ({operation.where})" if operation.where else "")


MANY = 16
"""So many samples are not all right beyond a margin."""


def idle_samples(seen: Observation) -> Iterator[Finding]:
    """Samples of the batch that have no part in the score."""
    idle, count = seen.idle, seen.samples
    if not seen.backward or seen.error is not None or idle <= count / 2:
        return
    if idle == count:
        # A loss with a margin is 0 once all answers of a small batch are right beyond it.
        done = seen.score == 0 and count < MANY and seen.zeroed is None
        place: dict[str, Any] = seen.zeroed.place if seen.zeroed is not None else {}
        yield Finding(
            "no gradient",
            "note" if done else "warning",
            f"The gradient of the score is 0 for all {count} samples: this step changes nothing.",
            "Nothing, if the loss has a margin; else look for a clamp in it that is closed."
            if done
            else "Look at the loss: a clamp or ReLU in it that is closed, or a factor of 0.",
            **{**place, "phase": "backward"},
        )
        return
    cut = seen.sliced
    there: dict[str, Any] = cut.place if cut is not None else {}
    at = f", since {cut.name} leaves them out at {cut.where}" if cut is not None else ""
    yield Finding(
        "no gradient",
        "warning" if there else "note",
        f"The gradient of the score is 0 for {idle} of {count} samples{at}.",
        "Use all samples in the loss."
        if there
        else "Nothing, if the loss has a margin; else look for a clamp or an index in it.",
        **{**there, "phase": "backward"},
    )
