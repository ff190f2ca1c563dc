"""One call of the whole model, with all that is needed to repeat it."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...hooking.tensors import tensors
from ...run.state import restore_tensor


@dataclass(eq=False)
class RecordedCall:
    """One call of the whole model: all that is needed to repeat it."""

    model: nn.Module

    args: Any
    kwargs: Any
    versions: list[int]  # of the arguments and the weights
    autocast: Callable[[], AbstractContextManager[Any]]
    state: list[tuple[Callable[[Any], object], Any]]  # buffers and random numbers
    gradients: dict[int, Tensor] = field(default_factory=dict)  # that reached each output
    finished: bool = False

    @property
    def changed(self) -> bool:
        """True if an argument or a weight was overwritten since."""
        return versions_of(self.model, self.args, self.kwargs) != self.versions

    def restore(self) -> None:
        """Restore buffers and random numbers; within a block that puts them back."""
        for restore, content in self.state:
            restore(content)

    def score(self, output: Any, *_: object) -> Tensor | None:
        """Return a score whose gradient at each output is the recorded one."""
        returned = tensors(output)
        weighted = [(returned[i] * sent).sum() for i, sent in self.gradients.items()]
        return sum(weighted[1:], weighted[0]) if weighted else None


def recorded_call(model: nn.Module, args: Any, kwargs: Any) -> RecordedCall:
    """Record a call that is about to begin."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    kind, dtype = device.type, torch.get_autocast_dtype(device.type)
    state: list[tuple[Callable[[Any], object], Any]] = [
        (partial(restore_tensor, each), each.detach().clone()) for each in model.buffers()
    ]
    state.append((random.setstate, random.getstate()))
    state.append((np.random.set_state, np.random.get_state()))
    state.append((torch.set_rng_state, torch.get_rng_state()))
    if kind == "cuda":
        restore = partial(torch.cuda.set_rng_state, device=device)
        state.append((restore, torch.cuda.get_rng_state(device)))
    autocast = partial(torch.autocast, kind, dtype, torch.is_autocast_enabled(kind))
    return RecordedCall(model, args, kwargs, versions_of(model, args, kwargs), autocast, state)


def versions_of(model: nn.Module, args: Any, kwargs: Any) -> list[int]:
    """Return how often each argument and weight was overwritten."""
    given = (*tensors(args, kwargs), *model.parameters())
    return [0 if each.is_inference() else each._version for each in given]
