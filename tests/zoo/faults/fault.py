"""A planted fault: a model, the change that breaks it, and the expected finding."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import MethodType
from typing import Any

import timm
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

from ..models import OPTIONS
from ..running import call, seed

PLANTED = "# planted"
"""At the end of a planted line."""


def built(name, training=True, **options):
    """Build a model as its library initialises it, the same each time."""
    seed()
    source, name = name.split("/")
    if source == "timm":
        return timm.create_model(name, pretrained=False, **options).train(training)
    return torchvision.models.get_model(name, **OPTIONS["*"] | options).train(training)


def picture(*shape):
    """Return random pictures ``(N, C, H, W)``, the same each time."""
    return torch.randn(shape or (2, 3, 64, 64), generator=torch.Generator().manual_seed(1))


def cross_entropy(output):
    """Return the loss of a classifier; for a dictionary, its first tensor's mean square."""
    if isinstance(output, Tensor) and output.ndim == 2:
        return F.cross_entropy(output.float(), torch.arange(len(output)))
    tensors = output.values() if isinstance(output, dict) else output
    return next(iter(tensors)).float().square().mean()


@dataclass(frozen=True)
class Truth:
    """The expected finding; a layer or operation of None is not compared."""

    kind: str
    layer: str | None
    operation: str | None
    call: int
    phase: str
    line: bool  # whether the finding must name a planted line

    @property
    def words(self):
        """Return the expected finding in one line."""
        call = f", call {self.call}" if self.call else ""
        name = f", {self.operation}" if self.operation else ""
        phase = ", backward" if self.phase == "backward" else ""
        layer = "anywhere" if self.layer is None else self.layer or "the model"
        return f"{self.kind}: {layer}{call}{name}{phase}"

    def wrong(self, finding):
        """Return the parts of a finding that differ from the truth."""
        asked = {"layer": self.layer, "operation": self.operation, "kind": self.kind}
        asked |= {"call": self.call if self.layer is not None else None, "phase": self.phase}
        given = {name: value for name, value in asked.items() if value is not None}
        found = [name for name, value in given.items() if getattr(finding, name) != value]
        return [*found, "line"] if self.line and PLANTED not in finding.code else found

    def judged(self, findings):
        """Return whether the fault is named, and the closest finding.

        For NaN and Inf, only the first finding counts.
        """
        told = [each for each in findings if each.severity != "note"]
        if self.kind in ("nan", "inf"):
            told = [each for each in told if each.kind in ("nan", "inf")][:1]
        nearest = min(told, key=lambda each: len(self.wrong(each)), default=None)
        return nearest is not None and not self.wrong(nearest), nearest


@dataclass(frozen=True)
class Fault:
    """A fault, as `fault` makes it.

    Attributes
    ----------
    name : str
        The name of the function that plants it.
    kind : str
        The group, which is a heading of the page.
    model : str
        The model in which it is planted.
    plant : callable
        Changes the model; its docstring says how.
    truth : Truth
    given : callable
        Returns the model's input.
    loss : callable
        Output -> scalar.
    around : callable
        The context in which the model runs, such as autocast.
    unnamed : str
        Why `hookviz.diagnose` does not name it; empty if it should.
    """

    name: str
    kind: str
    model: str
    plant: Callable[[nn.Module], object]
    truth: Truth
    given: Callable[[], Any] = picture
    loss: Callable[[Any], Tensor] = cross_entropy
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    training: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    unnamed: str = ""
    shape = ()  # the page does not show it

    @property
    def numeric(self):
        """Return whether the fault produces NaN or Inf."""
        return self.truth.kind in ("nan", "inf")

    @property
    def outside(self):
        """Return whether the fault is in the input or the loss, not in the model."""
        return self.words.startswith("Nothing in the model")

    @property
    def words(self):
        """Describe the fault by the docstring of the function that plants it."""
        return " ".join((self.plant.__doc__ or "").split()).rstrip(".")

    def build(self, planted=True):
        """Build the model, with the fault or without it."""
        model = built(self.model, self.training, **self.options)
        if planted:
            self.plant(model)
        seed()
        return model

    def step(self, model):
        """Run a forward and a backward with a loss, without an optimizer."""
        with self.around():
            loss = self.loss(call(model, self.given()))
        loss.backward()


FAULTS: dict[str, Fault] = {}
"""All of them by name, as the files that plant them are imported."""


def fault(model, kind, layer, operation=None, *, call=0, phase="forward", line=False, **others):
    """Turn a function that changes a model into a fault; the arguments are the expected finding.

    ``line`` is for a planted line outside this function; one inside it is detected.
    """

    def made(plant):
        planted = line or PLANTED in inspect.getsource(plant)
        truth = Truth(kind, layer, operation, call, phase, planted)
        name = plant.__name__.replace("_", " ")
        file = inspect.getmodule(plant)
        group = (
            (getattr(file, "__doc__", None) or "").partition("\n")[0].partition(":")[0].strip(".")
        )
        FAULTS[name] = Fault(name, group, model, plant, truth, **others)
        return FAULTS[name]

    return made


def patch(module, forward):
    """Replace the forward of one module."""
    module.forward = MethodType(forward, module)


def own(module, *given):
    """Run the forward of the module's class."""
    return type(module).forward(module, *given)


def heads(attention, x):
    """Return the queries, keys and values of an attention of timm, ``(N, heads, tokens, size)``."""
    qkv = attention.qkv(x).unflatten(-1, (3, attention.num_heads, -1))
    return qkv.permute(2, 0, 3, 1, 4).unbind(0)


def joined(attention, x):
    """Join the heads and project them."""
    return attention.proj(x.transpose(1, 2).flatten(2))


def replace(model, name, module):
    """Replace a layer by another module, in the model's mode."""
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module.train(model.training))
