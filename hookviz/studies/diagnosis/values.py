"""What an operation's values say: dead, constant or saturated; lost in half precision."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ...hooking.tables import number
from .facts import HALF, MAPS
from .findings import Finding
from .observation import Observation
from .operations import OperationRecord

FEW = 16
"""Of fewer values of a channel nothing can be said."""


def silent_maps(seen: Observation) -> Iterator[Finding]:
    """Layers in which more than half of the channels are zero, or constant, or saturated.

    Where all of them are, what is made of them alone can be nothing else, and is not told.
    """
    silent: set[str] = set()
    for operation in seen.operations:
        facts = operation.facts
        if "saturated" in facts and facts["saturated"] > 0.9:
            share = 100 * facts["saturated"]
            yield Finding(
                "saturated",
                "warning",
                f"{share:.3g} % of what {operation.name} returned is at its ends, over "
                f"{seen.samples} inputs: hardly any gradient comes through.",
                "Make smaller what it is given: a normalization before it, or smaller weights.",
                **operation.place,
                evidence={"share": facts["saturated"], "after": facts["after"]},
            )
        if "channels" not in facts or facts["channels"][1] < FEW:
            continue
        channels, values = facts["channels"]
        follows = facts["after"] in silent
        if facts["dead"] + facts["constant"] == channels:
            silent.add(operation.layer)
        for kind in ("dead", "constant"):
            count = facts[kind]
            if count <= channels / 2 or follows:
                continue
            what = "zero" if kind == "dead" else "the same number"
            weighty = operation.name in MAPS or not facts["after"]
            yield Finding(
                kind,
                "warning",
                f"{count} of {channels} channels are {what} everywhere, over {seen.samples} "
                f"inputs ({values} values a channel).",
                _ADVICE[kind].format(operation.layer if weighty else facts["after"]),
                **operation.place,
                evidence={
                    "channels": count,
                    "of": channels,
                    "values": values,
                    "after": facts["after"],
                },
            )


_ADVICE = {
    "dead": "Look at the bias and the scale of {!r}, which this was made from; a smaller learning "
    "rate or LeakyReLU keeps channels alive.",
    "constant": "Look at the weights of {!r}: zero, or overwhelmed by the bias.",
}


LOST = 0.1
"""The share of numbers lost to half precision that is worth a word."""


def half_precision(seen: Observation) -> Iterator[Finding]:
    """What overflows in half precision or is about to, and what becomes 0."""
    near = [(_share_of_largest(each), each) for each in seen.operations if each.phase == "forward"]
    share, worst = max(near, key=lambda each: each[0], default=(0.0, None))
    if worst is not None and share > 0.5 and not worst.reached:  # else its Inf is told
        made = max(worst.made, key=lambda each: each.magnitude)
        name, largest = _name(made.dtype), torch.finfo(made.dtype).max
        over = share == float("inf")
        yield Finding(
            "half precision",
            "warning",
            f"{worst.name.capitalize()} "
            + ("is beyond" if over else f"reaches {number(made.magnitude)} of the {largest:g} of")
            + f" what {name} holds"
            + (f" ({largest:g})." if over else "."),
            "Scale down what goes into this layer, compute it in float32, or use bfloat16.",
            **worst.place,
            evidence={"share of the largest": share},
        )
    for operation in seen.operations:
        lost = operation.facts.get("underflow", 0.0)
        if lost > LOST:
            yield Finding(
                "half precision",
                "warning",
                f"{100 * lost:.3g} % of the {_WHAT[operation.phase]} other than 0 become 0 in "
                f"{_name(operation.made[0].dtype)}.",
                "Scale them up before the cast, as GradScaler does gradients, or use bfloat16.",
                **operation.place,
                evidence={"lost": lost},
            )
            return


_WHAT = {"forward": "numbers", "backward": "gradients"}


def _share_of_largest(operation: OperationRecord) -> float:
    """How near an operation's results came to the largest number of their half-precision type."""
    halves = [each for each in operation.made if each.dtype in HALF]
    if not halves or operation.constant or operation.origin not in (None, operation):
        return 0.0
    shares = [each.magnitude / torch.finfo(each.dtype).max for each in halves if not each.nan]
    return max(shares, default=0.0)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
