"""Heatmaps find the objects of the demo pictures, as the committed table states."""

import re

import pytest
from evaluate_heatmaps import OUT, evaluate, table

import hookviz

pytestmark = pytest.mark.heavy
COUNT = 100


@pytest.fixture(scope="module")
def results():
    return evaluate(COUNT)


def test_gradcam_beats_the_baselines_at_the_last_layers(results):
    points, energy = results["gradcam", "layer3.1.conv2"]
    for other in (("activation", "layer3.1.conv2"), ("centre point", "")):
        assert points > results[other][0] + 0.1
        assert energy > results[other][1] + 0.05
    assert results["gradcam", "layer3"][1] > results["activation", "layer3"][1] + 0.1
    assert results["gradcam", "layer3"][0] > results["centre point", ""][0] + 0.3


def test_the_committed_table_agrees_with_the_evaluation(results):
    written = OUT.read_text()
    rows = dict(re.findall(r"^\| `(.+?)` \| (.+) \|$", written, re.M))
    assert list(rows) == list(hookviz.attribution.HEATMAPS)
    ours = dict(re.findall(r"^\| `(.+?)` \| (.+) \|$", table(results, COUNT), re.M))
    for method, row in rows.items():
        for cell, other in zip(row.split(" | "), ours[method].split(" | "), strict=True):
            for number, near in zip(cell.split(" / "), other.split(" / "), strict=True):
                assert (
                    abs(int(number) - int(near)) <= 15
                )  # the table is of 300 pictures, this evaluation of 100
