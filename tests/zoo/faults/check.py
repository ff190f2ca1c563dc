"""Check one fault: whether hookviz names it and leaves the model unchanged."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from untouched import changes, snapshot

import hookviz

from ..check import Result, said

ONCE, AROUND = "hookviz.diagnose(model, x)", "with hookviz.diagnose(model)"


@dataclass
class Answer:
    """The answer to a fault, and whether it has the right layer, operation and line."""

    said: str = ""
    layer: bool = False
    operation: bool = False
    line: bool = False

    @property
    def named(self):
        """Return whether layer and operation are right."""
        return self.layer and self.operation


@dataclass
class Diagnosed(Result):
    """The result for one fault, or for one healthy model."""

    model: str = ""
    words: str = ""
    truth: str = ""
    line: bool = False  # whether a line must be named
    unnamed: str = ""  # why hookviz does not name it, if that is known
    answers: dict[str, Answer] = field(default_factory=dict)
    alarms: list[list[str]] = field(default_factory=list)  # severity, kind, where, message

    def __post_init__(self):
        """Convert values that were read from a file."""
        plain = self.answers.items()
        self.answers = {k: Answer(**v) if isinstance(v, dict) else v for k, v in plain}


def check(fault):
    """Plant a fault and search for it with both forms of hookviz; never raises."""
    truth = fault.truth
    result = Diagnosed(fault.name, fault.kind, fault.shape, calls=1, model=fault.model)
    result.words, result.truth, result.line = fault.words, truth.words, truth.line
    result.unnamed = fault.unnamed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            twin, raised = stepped(fault)
            _plain(fault, twin, raised)
            result.answers[ONCE] = _once(fault, result)
            if fault.numeric or raised:
                result.answers[AROUND] = _around(fault, twin, result)
        except Exception as error:
            result.error = said(error)
    return result


def stepped(fault):
    """Return a model after a plain step, and whether the step raised."""
    model = fault.build()
    try:
        fault.step(model)
    except (RuntimeError, ValueError):
        return model, True
    return model, False


def _plain(fault, twin, raised):
    """Assert that the planted fault has an effect, and that nothing is named without it."""
    gradients = [each.grad for each in twin.parameters() if each.grad is not None]
    if fault.numeric and all(bool(each.isfinite().all()) for each in gradients):
        raise ArithmeticError("planted, but every weight's gradient is finite")
    if fault.truth.kind == "shape" and not raised:
        raise ArithmeticError("planted, but the model runs")
    if not fault.outside and fault.truth.judged(_findings(fault, fault.build(planted=False)))[0]:
        raise ArithmeticError("named, but not planted")


def _findings(fault, model):
    with fault.around():
        return hookviz.diagnose(model, fault.given(), fault.loss)


def _once(fault, result):
    model = fault.build()
    before = snapshot(model)
    findings = _findings(fault, model)
    result.touched += [f"{ONCE}: {each}" for each in changes(model, before)]
    answer, named = judged(fault, findings)
    if not named and not fault.unnamed:
        result.wrong.append(f"{result.truth} is not named; the nearest is {answer.said or 'none'}")
    return answer


def _around(fault, twin, result):
    model = fault.build()
    with suppress(RuntimeError, ValueError), hookviz.diagnose(model) as findings:
        fault.step(model)
    result.touched += [f"{AROUND}: {each}" for each in differing(snapshot(model), snapshot(twin))]
    return judged(fault, findings)[0]


def judged(fault, findings):
    """Return the answer of the findings, and whether kind, call and phase are also right."""
    named, nearest = fault.truth.judged(findings)
    if nearest is None:
        return Answer(), False
    wrong = fault.truth.wrong(nearest)
    place = {"kind", "layer", "call", "phase"} & set(wrong)
    words = f"{nearest.kind}, {nearest.phase}: {nearest.where}"
    return Answer(words, not place, "operation" not in wrong, "line" not in wrong), named


def differing(found, truth):
    """Return the names of state that differs from that after a plain step."""
    names = found.bits.keys() | truth.bits.keys()
    pairs = {name: (found.bits.get(name), truth.bits.get(name)) for name in names}
    wrong = [n for n, (a, b) in pairs.items() if a is None or b is None or not torch.equal(a, b)]
    keys = [n for n in truth.objects if n.startswith("the keys of")]
    return wrong + [name for name in keys if found.objects.get(name) != truth.objects[name]]
