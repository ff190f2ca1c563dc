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
