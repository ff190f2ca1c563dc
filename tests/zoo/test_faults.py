"""The check of planted faults on a few of each kind, and that it can fail."""

import pytest
from heavy import heavy_but

import hookviz
from hookviz.studies.diagnosis import diagnose as doctor
from hookviz.studies.diagnosis import guard
from zoo.faults.catalogue import FAULTS
from zoo.faults.check import AROUND, check
from zoo.faults.fault import PLANTED
from zoo.faults.healthy import check_healthy, healthy

SAMPLE = [
    "root of negative",
    "where around a log",
    "activation in two places",
    "forward reentrant",
    "about to overflow",
    "nan in a weight",
    "cat of other sizes",
    "bias far below zero",
    "block left out",
]
QUICK = {"root of negative", "cat of other sizes"}


@pytest.mark.parametrize("name", heavy_but(QUICK, SAMPLE))
def test_planted_faults_are_named_and_models_untouched(name):
    result = check(FAULTS[name])
    assert not result.faults
    assert [answer for answer in result.answers.values() if not answer.named] == []
    assert (AROUND in result.answers) == (FAULTS[name].numeric or name == "cat of other sizes")


def test_the_check_reports_an_unnamed_fault(monkeypatch):
    for module in (doctor, guard):
        monkeypatch.setattr(module, "findings_of", lambda run: [])
    result = check(FAULTS["root of negative"])
    assert "is not named" in result.wrong[0]
    assert not any(answer.named for answer in result.answers.values())


def test_only_a_first_finding_that_is_right_in_all_is_accepted():
    fault = FAULTS["activation in two places"]
    (first, *_) = hookviz.diagnose(fault.build(), fault.given(), fault.loss)
    assert PLANTED in first.code

    def but(**changes):
        return hookviz.results.Finding(**first.record() | changes)

    other = but(layer="features.2")
    assert fault.truth.judged([first, other])[0]
    for findings in (
        *([other], [but(call=0)], [but(operation="log")], [but(kind="nan")], [but(line=1)]),
        *([but(severity="note")], [other, first]),
    ):
        assert not fault.truth.judged(findings)[0]


@pytest.mark.heavy
def test_the_check_finds_a_changed_model(monkeypatch):
    settle = doctor.Diagnosis.set_findings

    def and_touch(self, *given):
        settle(self, *given)
        model.conv1.bias = None
        next(iter(model.parameters())).data.mul_(2)

    fault = FAULTS["nan in a weight"]
    build = type(fault).build
    model = None

    def built(self, planted=True):
        nonlocal model
        model = build(self, planted)
        return model

    monkeypatch.setattr(type(fault), "build", built)
    monkeypatch.setattr(doctor.Diagnosis, "set_findings", and_touch)
    assert any("conv1.weight" in each for each in check(fault).touched)


def test_a_planted_fault_without_effect_is_an_error(monkeypatch):
    fault = FAULTS["nan in a weight"]
    monkeypatch.setitem(fault.__dict__, "plant", lambda model: None)
    assert "every weight's gradient is finite" in check(fault).error


def test_a_healthy_model_gives_no_false_alarm():
    cases = healthy()
    assert len(cases) >= 400
    result = check_healthy(cases["torchvision/squeezenet1_1 in eval"])
    assert not result.alarms
    assert not result.faults
