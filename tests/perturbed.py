"""The receptive field of each position, measured by changing pixels one by one.

Not every change reaches the map: a ReLU or a maximum stops it, or rounding hides it. So each pixel
is changed in several rounds, with other weights and values; every second round has a zero input and
no biases, in which even the smallest change is visible.
"""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

from hookviz.hooking.maps import as_maps

BATCH = 64


def randomize(model, generator, biases):
    """Draw random weights with which values neither vanish nor explode."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            normal = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            if name.endswith(("bias", "embedding", "token")):
                parameter.copy_(normal * 0.1 * biases)
            elif parameter.ndim < 2:
                parameter.copy_(1 + normal.abs() / 2)
            else:
                parameter.copy_(normal * (2 / max(parameter[0].numel(), 1)) ** 0.5)


class StopForward(Exception):
    """All layers have run, so the rest of the forward can be skipped."""


class Perturbed:
    """The box around the pixels that changed each position of some layers so far.

    ``boxes`` are ``(2 * D, *places)``, from and to (half-open), zero where nothing changed.
    """

    def __init__(self, model, layers, x):
        self.model, self.x = model, x
        self._extent, self._layers = tuple(x.shape[2:]), list(layers)
        self._from: dict[str, Tensor] = {}
        self._to: dict[str, Tensor] = {}
        self._runs = 0  # calls of all layers in one run of the model; 0 before the first run

    @property
    def boxes(self):
        """By the layers' names."""
        pairs = {name: torch.cat([low, self._to[name]]) for name, low in self._from.items()}
        return {name: pair.where(pair[:1] < torch.inf, 0) for name, pair in pairs.items()}

    def round(self, seed):
        """Give the model new weights, and change each pixel once."""
        generator = torch.Generator().manual_seed(seed)
        empty = seed % 2 == 0
        randomize(self.model, generator, biases=not empty)
        base = torch.randn(self.x.shape, generator=generator, dtype=self.x.dtype) * (not empty)
        before = self._maps(base)
        for pixels in torch.cartesian_prod(*map(torch.arange, self._extent)).split(BATCH):
            pixels = pixels.view(-1, len(self._extent))
            batch = base.repeat(len(pixels), *[1] * (base.ndim - 1))
            change = torch.randn(batch.shape[:2], generator=generator, dtype=self.x.dtype)
            batch[(range(len(batch)), slice(None), *pixels.T)] += change * 1e3
            for name, maps in self._maps(batch).items():
                # Rounding differs with the size of the batch.
                least = before[name].abs().max() * 1e-11
                self._note(name, ((maps - before[name]).abs() > least).any(1), pixels)

    def _maps(self, x):
        kept: dict[str, Tensor] = {}
        runs = 0

        def keep(name, module, output):
            nonlocal runs
            kept[name], runs = as_maps(output.clone(), module), runs + 1
            if runs == self._runs:
                raise StopForward

        hooks = [
            self.model.get_submodule(name).register_forward_hook(
                lambda module, args, output, name=name: keep(name, module, output)
            )
            for name in self._layers
        ]
        with torch.no_grad(), contextlib.suppress(StopForward):
            self.model(x)
        self._runs = runs
        for hook in hooks:
            hook.remove()
        return kept

    def _note(self, name, changed, pixels):
        """Widen the boxes of the positions that changed with a pixel, ``(B, *places)``."""
        at = pixels.T.float().reshape(*pixels.T.shape, *[1] * (changed.ndim - 1))
        low = torch.where(changed, at, torch.inf).amin(1)
        high = torch.where(changed, at + 1, -torch.inf).amax(1)
        self._from[name] = torch.minimum(self._from.get(name, low), low)
        self._to[name] = torch.maximum(self._to.get(name, high), high)


def all_boxes(found):
    """Return the boxes of all positions of a `hookviz.results.ReceptiveField`, as `boxes` above."""
    places = torch.ones(found.map_size).nonzero().tolist()
    boxes = torch.tensor([found.box(*place) for place in places]).float()
    return boxes.T.reshape(-1, *found.map_size)
