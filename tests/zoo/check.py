"""One model: is hookviz exact on it, does it leave it untouched, can it be explored?"""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ipywidgets
import numpy as np
import torch
from matplotlib import pyplot
from reference import CONVOLUTION, Truths, assert_exact, true_outputs
from torch import Tensor, nn
from untouched import changes, snapshot

import hookviz
from hookviz.hooking.nested import tensors_in

from .models import Case
from .rivals import RIVALS, Rival, Subject, Tally, measure

GAINS = (1.0, 0.8, 0.6)
"""Of the random weights, the first at which gates and softmaxes are not so far out that they have
no gradient."""


@dataclass
class Result:
    """What was found on one model; lists of faults are empty if all is well."""

    name: str
    kind: str
    shape: tuple[int, ...]
    gain: float = 1.0  # of the random weights
    layers: int = 0  # convolutions, also those that never ran
    ran: int = 0  # those that ran
    calls: int = 0
    not_graded: int = 0  # calls that no gradient reaches
    zero: int = 0  # calls whose gradient is zero everywhere, truly
    wrong: list[str] = field(default_factory=list)  # by capture
    explored_wrong: list[str] = field(default_factory=list)  # by explore
    explored: int = 0  # layers that the explorer offered and showed
    touched: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)  # widgets, figures
    rivals: dict[str, Tally] = field(default_factory=dict)
    error: str = ""

    @property
    def faults(self) -> list[str]:
        """All that is wrong with hookviz, or with the check itself."""
        found = [*self.wrong, *self.explored_wrong, *self.touched, *self.left]
        return [*found, self.error] if self.error else found


def check(case: Case, rivals: Sequence[Rival] = RIVALS) -> Result:
    """Check hookviz, and measure its rivals, on one model; never raises."""
    result = Result(case.name, case.kind, case.shape)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _check(case, result, rivals)
    except Exception as error:
        lines = traceback.format_exception(error)
        result.error = f"{type(error).__name__}: {str(error).strip()[:300]} | {lines[-2].strip()}"
    return result


def _check(case: Case, result: Result, rivals: Sequence[Rival]) -> None:
    for result.gain in GAINS:
        model = _build(case, result.gain)
        seed()
        before = snapshot(model)
        truths = find_truths(model, case.input())
        by_itself = changes(model, before)  # such as anchors that a detector keeps
        if not (trivial := _count(model, truths, result)):
            break
    else:
        raise ArithmeticError(trivial)

    seed()
    before = snapshot(model)
    with hookviz.capture(model) as cache:
        value, sources = ask(model, case.input())
        torch.autograd.grad(value, sources, allow_unused=True)
    result.wrong = _differences(cache, truths)
    del value, sources, cache
    names = {change.partition(" is ")[0] for change in by_itself}
    result.touched = [
        f"capture: {change}"
        for change in changes(model, before)
        if change.partition(" is ")[0] not in names
    ]
    del model, before
    _explore(case, truths, result)
    build = partial(_build, case, result.gain)
    subject = Subject(build, partial(ask, given=case.input()), case.input(), score, truths)
    for rival in rivals:
        seed()
        result.rivals |= measure(rival, subject)


def _build(case: Case, gain: float) -> nn.Module:
    """Build a model with something to disturb: flags, frozen parameters, an earlier `.grad`."""
    model = case.build(gain)
    for place, module in enumerate(m for m in model.modules() if isinstance(m, CONVOLUTION)):
        module.training = place % 2 == 0  # which a convolution does not care for
    generator = torch.Generator().manual_seed(5)
    for place, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(parameter.ndim < 2 or place % 10 == 0)
        if place % 7 == 0 and parameter.numel() < 100_000:
            parameter.grad = torch.rand(parameter.shape, generator=generator)
    return model


def find_truths(model: nn.Module, given: Any) -> Truths:
    """Each call's activation and ``.grad``, detached, by the independent reference."""
    with true_outputs(model) as truths:
        value, _ = ask(model, given)
        outputs = [call for calls in truths.values() for call in calls if call.requires_grad]
        gradients = torch.autograd.grad(value, outputs, allow_unused=True)
    found = dict(zip(map(id, outputs), gradients, strict=True))
    for calls in truths.values():
        for place, output in enumerate(calls):
            calls[place] = output.detach()
            calls[place].grad = found.get(id(output))
    return truths


def ask(model: nn.Module, given: Any) -> tuple[Tensor, list[Tensor]]:
    """Run the model: a score, and all that it may be differentiated by."""
    images = given if isinstance(given, list) else [given]
    images = [image.clone().requires_grad_() for image in images]
    output = model(images if isinstance(given, list) else images[0])
    return score(output), [*images, *(p for p in model.parameters() if p.requires_grad)]


def score(output: Any) -> Tensor:
    """All floating-point numbers in a model's output, each with a random weight of its own.

    A plain sum would be constant where the output is a softmax.
    """
    generator = torch.Generator().manual_seed(2)
    tensors = [t for _, t in tensors_in(output) if t.is_floating_point()]
    found = [t for t in tensors if t.requires_grad or not torch.is_grad_enabled()]
    weighted = [(t * torch.randn(t.shape, generator=generator)).sum() for t in found]
    return torch.stack(weighted).sum()


def seed() -> None:
    """The same random numbers for every run."""
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)


def _count(model: nn.Module, truths: Truths, result: Result) -> str:
    """Count layers and calls; say why they show nothing, if so.

    NaN equals nothing and zeros equal everything: neither shows that hookviz is right.
    """
    calls = [call for each in truths.values() for call in each]
    gradients = [call.grad for call in calls if call.grad is not None]
    result.layers = sum(isinstance(module, CONVOLUTION) for module in model.modules())
    result.ran, result.calls = len(truths), len(calls)
    result.not_graded = len(calls) - len(gradients)
    result.zero = sum(not gradient.any() for gradient in gradients)
    if not all(values.isfinite().all() for values in (*calls, *gradients)):
        return "the model itself computes NaN or Inf"
    if result.zero > len(gradients) / 10 or not gradients:
        return f"{result.zero} of {len(gradients)} gradients are all zero"
    return ""


def _differences(cache: Any, truths: Truths) -> list[str]:
    """Calls that are not equal to the bit, by name."""
    found = [f"{name} captured, and should not be" for name in cache if name not in truths]
    for name, calls in truths.items():
        try:
            assert_exact({name: cache[name]}, {name: calls})
        except (AssertionError, KeyError) as error:
            found.append(f"{name}: {str(error).splitlines()[0] if str(error) else 'not equal'}")
    return found


def _explore(case: Case, truths: Truths, result: Result) -> None:
    """Open an explorer of a new model, walk through its layers, change the target, close it.

    New, because what models keep from their first run, such as attention biases, must not stay.
    """
    model = _build(case, result.gain)
    chance = random.Random(4)
    for module in model.modules():
        module.training = chance.random() < 0.5
    widgets, figures = _widgets(), set(pyplot.get_fignums())
    seed()
    before = snapshot(model)
    explorer = hookviz.explore(model, case.input())
    offered = explorer.frame.layers
    for name in offered:
        explorer.layer = name
        result.explored += explorer.layer == name
    explorer.target = score
    result.explored_wrong = [f"explore: {each}" for each in _differences(explorer.cache, truths)]
    result.touched += [f"explore, open: {each}" for each in changes(model, before)]
    explorer.close()
    result.touched += [f"explore, closed: {each}" for each in changes(model, before)]
    if more := _widgets() - widgets:
        result.left.append(f"{len(more)} widgets")
    if more := set(pyplot.get_fignums()) - figures:
        result.left.append(f"{len(more)} figures")


def _widgets() -> set[str]:
    """Ids of all widgets that are alive, in ipywidgets 7 and 8."""
    module: Any = ipywidgets.widgets.widget
    return set(module._instances if hasattr(module, "_instances") else ipywidgets.Widget.widgets)
