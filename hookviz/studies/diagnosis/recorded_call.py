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

from ...hooking.tensors import tensors, version_of
from ...run.state import restore_tensor


@dataclass(eq=False)
class RecordedCall:
    """One call of the whole model: all that is needed to repeat it."""

    args: Any
    kwargs: Any
    versions: list[tuple[Tensor, int]]  # of the arguments and the weights when it began
    autocast: Callable[[], AbstractContextManager[Any]]
    state: list[tuple[Callable[[Any], object], Any]]  # buffers and random numbers
    gradients: dict[int, Tensor] = field(default_factory=dict)  # that reached each output
    finished: bool = False

    @property
    def changed(self) -> bool:
        """True if an argument or a weight was overwritten since."""
        # The weights of a layer that forward makes and stores in the model do not count.
        return any(version_of(tensor) != version for tensor, version in self.versions)

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
    versions = [(each, version_of(each)) for each in (*tensors(args, kwargs), *model.parameters())]
    return RecordedCall(args, kwargs, versions, autocast, state)
