"""Check one model: whether edits of a layer are exact, and whether it stays unchanged."""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from untouched import snapshot

from ..check import GAINS, Result, note_changes, said
from ..running import score, seed
from .written import Edit, ask, by_hookviz, by_reference, written

CHANNELS = {  # attribute with their number, and their dimension in the output
    nn.modules.conv._ConvNd: ("out_channels", 1),
    nn.modules.batchnorm._BatchNorm: ("num_features", 1),
    nn.GroupNorm: ("num_channels", 1),
    nn.Linear: ("out_features", -1),
    nn.LayerNorm: ("normalized_shape", -1),
}
FIRST = ("2d", "ChannelsFirst")
"""Name endings of norms that derive from LayerNorm but have channels in dimension 1."""


class Subject:
    """A model that is edited, and its input.

    Attributes
    ----------
    steady : bool
        Whether a second run has the same result. If not, the model caches something in its first
        run, so each run gets a new model.
    """

    def __init__(self, case, gain):
        self.case, self.gain, self.steady = case, gain, True
        self.given = case.input()
        self.model = case.build(gain)

    def fresh(self):
        """Return the model, ready for a run."""
        if not self.steady:
            self.model = self.case.build(self.gain)
        seed()
        return self.model


def check(case):
    """Edit a layer of a model; never raises."""
    result = Result(case.name, case.kind, case.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            subject, plain = _trusted(case, result)
            _check_edits(subject, _edits(subject, result), plain, result)
        except Exception as error:
            result.error = said(error)
    return result


def _trusted(case, result):
    """Return the model with the first gain that has gradients, and its unedited results."""
    for result.gain in GAINS:
        subject = Subject(case, result.gain)
        model = subject.fresh()
        before = snapshot(model)
        plain = ask(model, subject.given)
        note = Result(case.name, case.kind, case.shape)
        note_changes("", model, before, note)
        if all(each.isfinite().all() for each in plain) and plain[1].any():
            break
    else:
        raise ArithmeticError("no finite logits and gradients")
    result.changing = [each.removeprefix(": ").partition(" is ")[0] for each in note.touched]
    del before
    try:
        subject.steady = equal(ask(subject.fresh(), subject.given), plain)
    except RuntimeError:  # it caches a part of its first graph, which has been freed
        subject.steady = False
    if not subject.steady and not equal(ask(subject.fresh(), subject.given), plain):
        raise ArithmeticError("the model itself gives other results each time")
    return subject, plain


@dataclass
class _Seen:
    """The shapes and tensors that a layer returned, call by call."""

    shapes: set[torch.Size] = field(default_factory=set)
    outputs: list[Tensor] = field(default_factory=list)

    def __call__(self, output):
        self.shapes.add(output.shape)
        self.outputs.append(output)
        return output.clone()  # the model may overwrite the output


def _edits(subject, result):
    """Return all edits of one layer with a gradient, which the model's name selects."""
    model, chance = subject.fresh(), random.Random(subject.case.name)
    seen = {
        name: _Seen() for name, module in model.named_modules() if isinstance(module, (*CHANNELS,))
    }
    with written(model, seen):
        given = subject.given.clone().requires_grad_()
        logits = model(given)
    names = [name for name, each in seen.items() if _usable(model.get_submodule(name), each)]
    tensors = [seen[name].outputs[0] for name in names]
    found = torch.autograd.grad(score(logits), tensors, allow_unused=True)
    # Values below and above 0, so that every edit has an effect.
    reached = [
        name
        for name, gradient in zip(names, found, strict=True)
        if gradient is not None and (gradient < 0).any() and (gradient > 0).any()
    ]
    name = chance.choice(reached)
    output, layer = seen[name].outputs[0].detach(), model.get_submodule(name)
    count, dimension = _channels(layer)
    channels = sorted(chance.sample(range(count), max(1, count // 3)))
    value = torch.randn(output.shape, generator=torch.Generator().manual_seed(6))
    result.layer = f"{name} ({type(layer).__name__})"
    result.layers, result.ran = len(seen), len(reached)
    return [
        Edit("scale", name, dimension, 0.3, channels),
        Edit("replace", name, dimension, value, channels),
        Edit("function", name, dimension, torch.tanh),
        Edit("gradient, scale", name, dimension, 0.3, channels, gradient=True),
        Edit("gradient, function", name, dimension, torch.relu, gradient=True),
    ]


def _usable(layer, seen):
    """Return whether the layer ran and has its channels in the expected dimension."""
    if len(seen.shapes) != 1 or not seen.outputs[0].requires_grad:
        return False
    shape, (count, dimension) = next(iter(seen.shapes)), _channels(layer)
    return len(shape) > 1 and shape[dimension] == count


def _channels(layer):
    attribute, dimension = next(at for kind, at in CHANNELS.items() if isinstance(layer, kind))
    count = getattr(layer, attribute)
    if isinstance(layer, nn.LayerNorm):
        count = count[-1]
        dimension = 1 if type(layer).__name__.endswith(FIRST) else dimension
    return count, dimension


def _check_edits(subject, edits, plain, result):
    """Make all edits on one model, which must not change; an error of hookviz is a fault."""
    before, model = snapshot(subject.fresh()), subject.model
    for edit in edits:
        truth = by_reference(subject.fresh(), subject.given, edit)
        if not all(each.isfinite().all() for each in truth):
            raise ArithmeticError(f"{edit.label}: the edited model computes NaN or Inf")
        if equal(truth, plain):
            raise ArithmeticError(f"{edit.label}: the edit changes nothing")
        result.calls += 1
        model = subject.fresh()
        if not subject.steady:
            before = snapshot(model)
        try:
            found = by_hookviz(model, subject.given, edit)
        except Exception as error:
            result.raised.append(f"{edit.label}: {said(error)[:200]}")
        else:
            if not equal(found, truth):
                result.wrong.append(f"{edit.label}: {_differing(found, truth)}")
        if not subject.steady:
            note_changes(edit.label, model, before, result)
    if subject.steady:
        note_changes("an edit", model, before, result)


def equal(found, truth):
    """Return whether all tensors are bitwise equal."""
    return len(found) == len(truth) and all(map(torch.equal, found, truth))


def _differing(found, truth):
    pairs = enumerate(zip(found, truth, strict=True))
    wrong = [place for place, pair in pairs if not torch.equal(*pair)]
    return f"{len(wrong)} of {len(truth)} tensors, the first is {wrong[0]}"
