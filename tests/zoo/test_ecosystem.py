"""The check of other libraries' models on models changed by torch, and that it can fail."""

from functools import partial

import pytest
from heavy import heavy_but
from torch import nn

import hookviz
from zoo.check import check
from zoo.ecosystem.cases import Foreign, all_foreign
from zoo.ecosystem.libraries import Libraries
from zoo.ecosystem.use import STEPS

CASES = all_foreign()
examine = partial(check, steps=STEPS)


SAMPLE = ["torch/DataParallel", "torch/replaced forward"]


@pytest.mark.parametrize("name", heavy_but((), SAMPLE))
def test_models_changed_by_torch_are_exact_explored_and_traced(name):
    result = examine(CASES[name])
    assert not result.faults
    assert result.explored


def test_a_scripted_model_is_refused_with_a_clear_message():
    result = examine(CASES["torch/jit.script"])
    assert not result.faults
    assert "ScriptModule" in result.refused[0]


@pytest.mark.heavy
def test_the_check_finds_generated_code_with_a_wrong_result(monkeypatch):
    code = hookviz.widgets.Explorer.code
    monkeypatch.setattr(
        hookviz.widgets.Explorer, "code", lambda self: code(self) + "activation = -1.0\n"
    )
    (first, *_) = examine(CASES["torch/deepcopy"]).raised
    assert first == "code of conv1: activation is another"


def test_a_missing_library_is_reported_without_a_fault(tmp_path):
    libraries = Libraries(tmp_path, examine)
    case = Foreign("no_such_library/Model", (1, 3, 8, 8), nn.Identity)
    libraries._run_library("no_such_library", [case], 1)
    found = libraries.kept(case)
    assert not found.faults
    assert "No module named 'no_such_library'" in found.verdict
