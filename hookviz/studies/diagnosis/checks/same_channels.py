"""Layers all of whose channels have the same weights."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ....hooking.weights import stored_tensor
from ..check import Check, RunRecord
from ..findings import Finding
from ..modules import LINEAR
from .zero_weights import CONSTANT


class SameChannels(Check):
    """Report layers whose channels return the same, get the same gradient and so stay the same."""

    looks_at = "channels with the same weights"
    live = True

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        if run.error is not None:
            return
        for name, module in run.weighted.items():
            weight = stored_tensor(module, "weight")
            if not isinstance(module, LINEAR) or weight is None or not weight.requires_grad:
                continue
            if not _alike(weight, getattr(module, "groups", 1)) or name in run.zero_layers:
                continue
            yield Finding(
                "same channels",
                "warning",
                f"All {len(weight)} channels of {name!r} ({type(module).__name__}) have the same "
                "weights: they return the same, get the same gradient and stay the same.",
                "Initialise them at random: nn.init.kaiming_normal_(layer.weight).",
                name,
                cause="same channels",
                explains=CONSTANT,
            )


def _alike(weight: Tensor, groups: int) -> bool:
    """Return True if all rows of each group are equal; a depthwise convolution has a single one."""
    if weight.ndim < 2 or len(weight) // groups < 2 or weight.is_meta:
        return False
    rows = weight.detach()
    if not bool((rows[0] == rows[1]).all()):  # nearly always the end of it
        return False
    rows = rows.unflatten(0, (groups, -1))
    return bool((rows == rows[:, :1]).all())
