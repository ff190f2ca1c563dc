"""Display in marimo, which calls ``_display_`` and supports anywidgets but no other ipywidgets."""

import ipywidgets
import pytest
import torch
from anywidget import AnyWidget

import hookviz

MODEL, PICTURE = hookviz.demo_model(), hookviz.demo_images()[6]


def explore():
    return hookviz.explore(MODEL, PICTURE, layers="layer3.*")


def shown(widget):
    """Return what marimo shows, by the first of its display protocols."""
    return widget._display_()


def test_marimo_shows_the_canvas_and_settings_go_both_ways(monkeypatch):
    monkeypatch.delenv("HOOKVIZ_CANVAS", raising=False)
    explorer = explore()
    explorer.channel = 3
    canvas = shown(explorer)
    assert isinstance(canvas, AnyWidget)
    canvas.alive = True  # the browser has reported that it draws the canvas
    assert canvas.settings["channel"] == 3
    canvas.settings = canvas.settings | {"layer": "layer3.1.conv2", "channel": 17}
    assert (explorer.layer, explorer.channel) == ("layer3.1.conv2", 17)
    explorer.channel = 5
    assert canvas.settings["channel"] == 5
    assert shown(explorer) is canvas
    explorer.close()
    assert shown(explorer).data == explorer.closed_message


def test_marimo_shows_the_page_without_a_canvas(monkeypatch):
    monkeypatch.setenv("HOOKVIZ_CANVAS", "off")
    explorer = explore()
    assert explorer.page().data == shown(explorer).data


def test_marimo_shows_traces_and_surveys_as_pages():
    trace = hookviz.trace(MODEL.stem, torch.rand(1, 3, 8, 8))
    assert "<iframe" in shown(trace.show()).data
    survey = hookviz.survey(MODEL, hookviz.demo_images()[:4], "layer3.1.conv2", k=2)
    browser = survey.show()
    assert "<iframe" in shown(browser).data
    browser.close()
    trace.close()


@pytest.mark.skipif(
    ipywidgets.__version__.startswith("7."), reason="marimo knows ipywidgets 8 alone"
)
def test_a_widget_whose_connection_was_closed_is_closed():
    first = explore()
    first.comm.close()  # marimo does this before it runs a cell again
    second = explore()
    assert (first.closed, second.closed) == (True, False)
    second.close()
