"""Check one model: hookviz is exact, leaves it unchanged, and can explore it."""

from __future__ import annotations

import random
import re
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from matplotlib import pyplot
from reference import CONVOLUTION, assert_exact, true_outputs
from seen import registered
from torch import Tensor
from untouched import changes, snapshot

import hookviz

from .running import ask, call, score, seed

GAINS = (1.0, 0.8, 0.6)
"""Of the random weights, the first at which gates and softmaxes are not so far out that they have
no gradient."""


class Case(Protocol):
    """A model to be checked: its name, its builder and its input."""

    name: str
    kind: str
    shape: tuple[int, ...]

    @property
    def refused(self):
        """Part of hookviz's message if it cannot show this model."""

    def build(self, gain=1.0): ...
    def input(self): ...


@dataclass
class Result:
    """The result for one model; its lists are empty if there is no fault."""

    name: str
    kind: str
    shape: tuple[int, ...]
    gain: float = 1.0  # scale of the random weights
    layer: str = ""  # the edited layer
    layers: int = 0  # all convolutions, including those that never ran
    ran: int = 0  # convolutions that ran
    calls: int = 0
    not_graded: int = 0  # calls that no gradient reaches
    zero: int = 0  # calls whose true gradient is zero everywhere
    wrong: list[str] = field(default_factory=list)  # calls that capture got wrong
    explored_wrong: list[str] = field(default_factory=list)  # calls that explore got wrong
    explored: int = 0  # layers that the explorer showed
    touched: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)  # widgets and figures that were not closed
    raised: list[str] = field(default_factory=list)  # errors of hookviz, with their step
    # State that the model itself changes when it runs.
    changing: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # hookviz's refusals
    absent: str = ""  # why the library cannot be imported
    error: str = ""

    @property
    def faults(self):
        """Return everything that is wrong with hookviz or the check itself."""
        found = [*self.wrong, *self.explored_wrong, *self.touched, *self.left, *self.raised]
        return [*found, self.error] if self.error else found

    @property
    def verdict(self):
        """Return the faults in words, or that there is none; or why the model is not checked."""
        if self.absent:
            return self.absent
        refused = [f"refused: {self.refused[0]}"] if self.refused else []
        return "; ".join([*(self.faults or ["exact, untouched"]), *refused])


Step = Callable[[Case, dict[str, list[Tensor]], Result], None]
"""One thing that is done with a model; what it raises is a fault."""


def check(case, steps=None):
    """Check hookviz on one model; never raises."""
    steps = (capture, explore) if steps is None else steps
    result = Result(case.name, case.kind, case.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if case.refused:
                _refuse(case, result)
                return result
            truths = _trusted(case, result)
        except Exception as error:
            result.error = said(error)
            return result
        for step in steps:
            try:
                step(case, truths, result)
            except Exception as error:
                result.raised.append(f"{step.__name__}: {said(error)}")
    return result


def said(error):
    """Describe an error in one line: its type, its message and its location."""
    lines = traceback.format_exception(error)
    message = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {message} | {' '.join(lines[-2].split())}"


def _trusted(case, result):
    """Run the model with the first gain that has gradients; return the truth of each call."""
    for result.gain in GAINS:
        model = build(case, result.gain)
        seed()
        before = snapshot(model)
        truths = find_truths(model, case.input())
        # For example anchors that a detector caches.
        result.changing = [_what(change) for change in changes(model, before)]
        if not (trivial := _count(model, truths, result)):
            return truths
    raise ArithmeticError(trivial)


def _refuse(case, result):
    """Check that hookviz refuses the model with one sentence and leaves it unchanged."""
    model = case.build()
    call(model, case.input())
    before = snapshot(model)
    try:
        hookviz.explore(model, case.input()).close()
    except (TypeError, ValueError) as error:
        result.refused.append(str(error))
        if case.refused not in str(error):
            result.raised.append(f"explore, not of {case.refused!r}: {said(error)}")
    else:
        result.raised.append("explore shows what it cannot know")
    note_changes("explore", model, before, result)


def capture(case, truths, result):
    """Capture every convolution of a new model, and compare each call."""
    model = build(case, result.gain)
    seed()
    before = snapshot(model)
    with hookviz.capture(model) as cache:
        value, sources = ask(model, case.input())
        torch.autograd.grad(value, sources, allow_unused=True)
    result.wrong = differences(cache, truths)
    del value, sources, cache
    note_changes("capture", model, before, result)


def note_changes(step, model, before, result):
    """Add to the result the state that a step has changed but a plain run does not."""
    for change in changes(model, before):
        if _what(change) not in result.changing:
            result.touched.append(f"{step}: {change}")


def _what(change):
    """Describe a change without torch's numbers of hooks."""
    return re.sub(r"hooks'\]\[\d+\]", "hooks']", change.partition(" is ")[0])


def build(case, gain):
    """Build a model with state that could be disturbed: flags, frozen parameters, `.grad`."""
    model = case.build(gain)
    for place, module in enumerate(m for m in model.modules() if isinstance(m, CONVOLUTION)):
        module.training = place % 2 == 0  # a convolution ignores the flag
    generator = torch.Generator().manual_seed(5)
    for place, parameter in enumerate(model.parameters()):
        if not parameter.is_floating_point():
            continue
        parameter.requires_grad_(parameter.ndim < 2 or place % 10 == 0)
        if place % 7 == 0 and parameter.numel() < 100_000 and not parameter.is_meta:
            parameter.grad = torch.rand(parameter.shape, generator=generator).to(parameter.dtype)
    return model


def find_truths(model, given):
    """Return each call's detached activation and ``.grad`` from the independent reference."""
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


def _count(model, truths, result):
    """Count layers and calls; return why they are no evidence, if so.

    Neither NaN nor zeros are evidence that hookviz is right.
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


def differences(cache, truths):
    """Return the names of calls that are not bitwise equal."""
    # Without the prefix of a wrapper.
    known = {cache[name].name for name in truths if name in cache}
    # The explorer of a model with attention also has its heads and blocks.
    more = {name for name in set(cache) - known if isinstance(cache[name].module, CONVOLUTION)}
    found = [f"{name} captured, and should not be" for name in more]
    for name, calls in truths.items():
        try:
            assert_exact({name: cache[name]}, {name: calls})
        except (AssertionError, KeyError) as error:
            found.append(f"{name}: {str(error).splitlines()[0] if str(error) else 'not equal'}")
    return found


def explore(case, truths, result):
    """Open an explorer of a new model, walk through its layers, change the target, close it.

    A new model shows whether values cached in the first run, such as attention biases, remain.
    """
    model = build(case, result.gain)
    chance = random.Random(4)
    for module in model.modules():
        module.training = chance.random() < 0.5
    alive, figures = registered(), set(pyplot.get_fignums())
    seed()
    before = snapshot(model)
    explorer = hookviz.explore(model, case.input())
    offered = explorer.frame.layers
    for name in offered:
        explorer.layer = name
        shown = explorer.layer == name  # includes heads and blocks of a model with attention
        result.explored += shown and isinstance(explorer.cache[name].module, CONVOLUTION)
    explorer.target = score
    result.explored_wrong = [f"explore: {each}" for each in differences(explorer.cache, truths)]
    result.touched += [f"explore, open: {each}" for each in changes(model, before)]
    explorer.close()
    result.touched += [f"explore, closed: {each}" for each in changes(model, before)]
    note_left(alive, figures, result)


def note_left(alive, figures, result):
    """Add to the result the widgets and figures that were not closed."""
    if more := registered() - alive:
        result.left.append(f"{len(more)} widgets")
    if more := set(pyplot.get_fignums()) - figures:
        result.left.append(f"{len(more)} figures")
