"""The page of a trace: its contents, and the pictures it leaves out to fit a budget."""

import base64
import re

import numpy as np
import pytest
import torch
from seen import blocks
from torch import nn

import hookviz
from hookviz.draw.colours import DIVERGING, to_levels
from hookviz.studies.trace.events import event_picture
from hookviz.tables import number


class Broken(nn.ReLU):
    """A layer that returns NaN and Inf."""

    def forward(self, x):
        x = super().forward(x)
        return x + torch.where(x > 0.5, torch.nan, torch.inf)[:, :, :1]


NUMBERS = ("min", "max", "mean", "norm", "zeros", "NaN", "Inf")


@pytest.fixture(scope="module")
def trace():
    torch.manual_seed(0)
    block = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(inplace=True), Broken())
    model = nn.Sequential(block, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 70))
    return hookviz.trace(model, torch.rand(1, 2, 80, 80))


@pytest.fixture(scope="module")
def page(trace):
    return trace.to_html()


def test_the_page_contains_all_facts_of_every_event(page, trace):
    found = blocks(page)
    tree = found["facts"]["tree"]
    assert tree[:3] == [["", "Sequential"], ["0", "Sequential"], ["0.0", "Conv2d"]]
    assert len(found["events"]) == len(trace)
    for event, said in zip(trace, found["events"], strict=True):
        assert [event.layer, event.type] == tree[said["module"]]
        for name in ("index", "kind", "call", "depth", "fired", "code", "note"):
            assert said.get(name, "") == getattr(event, name)
        assert (said["when"] == "not fired") == (event.time is None)
        shapes = [f"{'×'.join(map(str, shape))} float32" for shape in event.shapes]
        assert said.get("shapes", []) == shapes
        numbers = dict(said.get("numbers", []))
        assert tuple(numbers) == (NUMBERS if event.statistics else ())
        if event.statistics:
            assert numbers["NaN"] == str(event.statistics.nans)
            assert numbers["max"] == number(event.statistics.max)
    assert {event.fired for event in trace} == {True, False}


def test_the_page_contains_every_picture_exactly_and_only_once(page, trace):
    found = blocks(page)
    levels = [
        np.frombuffer(base64.b64decode(text), np.uint8).reshape(height, width)
        for height, width, text in found["pictures"]
    ]
    assert len({each.tobytes() for each in levels}) == len(levels) < len(trace) / 2
    odd = 0
    for event, said in zip(trace, found["events"], strict=True):
        seen = event_picture(event)
        assert ("picture" in said) == (seen is not None)
        if seen is not None:
            wanted = to_levels(seen.values, seen.low, seen.high)
            assert np.array_equal(levels[said["picture"]["at"]], wanted)
            assert said["picture"]["diverging"] == (seen.cmap == DIVERGING)
            assert said["picture"]["caption"] in said["picture"]["alt"]
            odd += bool((wanted >= 252).any())
    assert odd
    assert found["facts"]["note"] == ""


def test_pictures_that_do_not_fit_the_budget_are_left_out(page, trace):
    less = trace.to_html(max_bytes=len(page.encode()) - 1)
    found = blocks(less)
    assert len(less) < len(page) and found["pictures"] == []
    assert found["facts"]["note"].endswith("kB, the pictures are left out.")
    drawn = [event_picture(event) is not None for event in trace]
    assert ["picture" in said for said in found["events"]] == drawn
    assert {said["picture"] for said in found["events"] if "picture" in said} == {None}


def test_a_budget_too_small_for_the_texts_is_refused(trace):
    with pytest.raises(
        ValueError, match=r"max_bytes=1000 is too little: this trace of \d+"
    ) as found:
        trace.to_html(max_bytes=1000)
    assert "trace[:100]" in str(found.value)
    takes = float(re.search(r"takes ([\d.]+) kB", str(found.value))[1])
    assert blocks(trace.to_html(max_bytes=1000 * takes + 100))["pictures"] == []
    with pytest.raises(ValueError, match="is empty"):
        trace[:0].to_html()


def test_a_part_of_a_trace_is_written_to_a_path_with_a_title(trace, tmp_path):
    path = tmp_path / "trace.html"
    assert trace[4:7].to_html(path, title="three of them") is None
    page = path.read_text(encoding="utf-8")
    assert "<title>three of them</title>" in page
    assert [each["index"] for each in blocks(page)["events"]] == [4, 5, 6]
    assert "<title>Hooks of Sequential</title>" in trace.to_html()
