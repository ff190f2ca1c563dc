"""What marimo is given, which asks for ``_display_``: it knows anywidgets, no core ipywidgets."""

from __future__ import annotations

import copy

import ipywidgets
import pytest
import torch
from anywidget import AnyWidget

import hookviz
from hookviz.widgets.lifecycle import LiveWidget

MODEL, PICTURE = hookviz.demo_model(), hookviz.demo_images()[6]


def explore():
    return hookviz.explore(MODEL, PICTURE, layers="layer3.*")


def shown(widget: LiveWidget):
    """As marimo asks, by the first of its protocols."""
    return widget._display_()


def test_an_explorer_is_its_canvas_and_both_move(monkeypatch):
    monkeypatch.delenv("HOOKVIZ_CANVAS", raising=False)
    explorer = explore()
    explorer.channel = 3
    canvas = shown(explorer)
    assert isinstance(canvas, AnyWidget)
    canvas.alive = True  # the browser says that it draws, and only now is asked for more
    assert canvas.settings["channel"] == 3
    canvas.settings = canvas.settings | {"layer": "layer3.1.conv2", "channel": 17}
    assert (explorer.layer, explorer.channel) == ("layer3.1.conv2", 17)
    explorer.channel = 5
    assert canvas.settings["channel"] == 5
    assert shown(explorer) is canvas
    explorer.close()
    assert shown(explorer).data == explorer.closed_message


def test_without_a_canvas_an_explorer_is_its_page(monkeypatch):
    monkeypatch.setenv("HOOKVIZ_CANVAS", "off")
    explorer = explore()
    assert explorer.page().data == shown(explorer).data
    explorer.close()


def test_what_has_a_page_is_shown_as_that():
    trace = hookviz.trace(MODEL.stem, torch.rand(1, 3, 8, 8))
    assert "<iframe" in shown(trace.show()).data
    survey = hookviz.survey(MODEL, hookviz.demo_images()[:4], "layer3.1.conv2", k=2)
    browser = survey.show()
    assert "<iframe" in shown(browser).data
    browser.close()
    trace.close()


def test_a_comparison_and_a_part_of_a_trace_are_pages_too():
    both = hookviz.compare(MODEL, copy.deepcopy(MODEL), PICTURE, layers="layer3.1.conv2").show()
    tree = [(name, type(module).__name__) for name, module in MODEL.stem.named_modules()]
    events = list(hookviz.trace(MODEL.stem, torch.rand(1, 3, 8, 8)))
    player = hookviz.widgets.Player(events, tree, "part")
    for widget in (both, player):
        assert "<iframe" in shown(widget).data
        widget.close()


@pytest.mark.skipif(
    ipywidgets.__version__.startswith("7."), reason="marimo knows ipywidgets 8 alone"
)
def test_what_the_front_end_has_cut_off_is_closed():
    first = explore()
    first.comm.close()  # as marimo does, before a cell runs again
    second = explore()
    assert (first.closed, second.closed) == (True, False)
    second.close()
