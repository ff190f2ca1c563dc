"""The clinic notebook: hookviz.diagnose finds every patient's fault, and answers are folded."""

import re
from pathlib import Path

import nbformat
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hookviz

CLINIC = Path(__file__).resolve().parents[2] / "notebooks" / "debug_in_colab.ipynb"
CELLS = nbformat.read(CLINIC, as_version=4).cells
FOUND = {
    "zero weights": "zero weights",
    "dead": "dead",
    "exploding": "exploding",
    "nan": "nan",
    "cut off": "no gradient",
    "softmax twice": "loss",
}


@pytest.fixture(scope="module")
def clinic():
    names = {"torch": torch, "nn": nn, "__name__": "clinic"}
    exec(next(cell.source for cell in CELLS if "def new_patient" in cell.source), names)
    return names


@pytest.fixture(scope="module")
def data():
    demo, pictures = hookviz.demo_model(), hookviz.demo_images()[::3]
    x = torch.cat([hookviz.attribution.prepare_input(each, demo).args[0] for each in pictures])
    return x, torch.tensor([demo.class_names.index(each.info["label"]) for each in pictures])


@pytest.mark.parametrize("fault", FOUND)
def test_diagnose_finds_each_fault(clinic, data, fault):
    x, y = data
    patient, secret = clinic["new_patient"](fault)
    findings = hookviz.diagnose(patient, x, lambda output: F.cross_entropy(output, y))
    assert secret == fault
    assert FOUND[fault] in str(findings[0])


@pytest.mark.parametrize("fault", FOUND)
def test_each_cure_makes_the_patient_healthy(clinic, data, fault):
    x, y = data
    cured, words = clinic["cure"](fault)
    assert hookviz.diagnose(cured, x, lambda output: F.cross_entropy(output, y)).healthy
    assert words


def test_a_patient_without_a_fault_is_healthy(clinic, data):
    x, y = data
    well = hookviz.diagnose(clinic["Patient"](), x, lambda output: F.cross_entropy(output, y))
    assert well.healthy and not len(well)


def test_every_fault_is_drawn_and_guesses_are_judged(clinic):
    assert {clinic["new_patient"]()[1] for _ in range(200)} == set(FOUND) == set(clinic["FAULTS"])
    verdict = clinic["verdict"]
    assert verdict("dead", "dead").startswith("Right: conv2's bias")
    assert verdict("nan", "dead") == "Not 'nan'. Look again: where does it begin?"
    assert verdict("cold", "dead").startswith("'cold' is not on the list: zero weights, ")
    assert verdict(None, "dead").startswith("Guess one of")


def test_the_notebook_states_its_number_of_patients():
    heads = [cell.source for cell in CELLS if re.match(r"## \d", cell.source)]
    heads += re.findall(r"\n(## \d+\. .*)", "\n".join(cell.source for cell in CELLS))
    numbers = sorted({int(re.match(r"## (\d+)", head)[1]) for head in heads})
    assert numbers == list(range(1, 10))
    assert "Eight small models" in CELLS[0].source and "9. A random patient" in CELLS[0].source


def test_each_diagnosis_is_folded_behind_a_guess():
    text = "\n".join(cell.source for cell in CELLS)
    guesses = text.split("### Your guess?")[1:]
    assert len(guesses) == 8
    right = set()
    for guess in guesses:
        options = re.findall(r"<summary>([abc])\) .*?</summary>\s+(Yes|No)", guess)
        assert [letter for letter, _ in options[:3]] == ["a", "b", "c"]
        (letter,) = (letter for letter, kind in options[:3] if kind == "Yes")
        right.add(letter)
    assert right == {"a", "b", "c"}  # the right option is not always the same letter
    folded = [
        out.data["text/html"]
        for cell in CELLS
        for out in cell.get("outputs", ())
        if "<details><summary><b>The " in str(out.get("data", {}).get("text/html", ""))
    ]
    assert len(folded) == 9  # including the cure of the random patient
