"""The accelerator script runs on the CPU, and reports results that differ."""

import accelerator
import pytest
import torch

SUBJECTS = ["exactness", "graph", "watch"]


@pytest.fixture(autouse=True)
def few_subjects(monkeypatch):
    subjects = {name: accelerator.SUBJECTS[name] for name in SUBJECTS}
    monkeypatch.setattr(accelerator, "SUBJECTS", subjects)


@pytest.mark.heavy
def test_the_script_passes_on_the_cpu(capsys):
    assert accelerator.main(["--device", "cpu", "--rounds", "1"]) == 0
    printed = capsys.readouterr().out
    header, *rows = [line.split() for line in printed.splitlines()[1 : len(SUBJECTS) + 2]]
    assert header == ["float32", "channels_last", "autocast"]
    assert [row[0] for row in rows] == SUBJECTS
    assert all(float(number) < 0.2 for _, *numbers in rows for number in numbers)
    assert "agrees with the CPU in 9 of 9 comparisons" in printed
    for step in ("plain", "capture", "guard", "watch, every step"):
        assert f"\n| {step} | " in printed


def _slightly_wrong(setting):
    results = {"logits": torch.ones(3), "layers": ["conv"]}
    if setting.name == "channels_last":
        results["logits"] = torch.tensor([1.0, 1.0, 1.1])
    return results


def _other_fact(setting):
    return {"layers": [setting.name]}


def _raises(setting):
    raise ValueError("no kernel for this device")


@pytest.mark.parametrize(
    ("subject", "count", "message"),
    [
        (_slightly_wrong, 2, "channels_last: logits differs by 0.058 of its norm"),
        (_other_fact, 1, "autocast: layers is ['autocast'], on the CPU ['float32']"),
        (_raises, 0, "float32: ValueError: no kernel for this device"),
    ],
)
def test_the_script_reports_results_that_differ(monkeypatch, capsys, subject, count, message):
    monkeypatch.setattr(accelerator, "SUBJECTS", {"planted": subject})
    assert accelerator.main(["--device", "cpu", "--rounds", "0"]) == 1
    printed = capsys.readouterr().out
    assert f"WRONG: planted, {message}" in printed
    assert f"in {count} of 3 comparisons" in printed
