"""Widgets and results printed in a terminal are a short text."""

import pytest
import torch

import hookviz

MODEL, PICTURES = hookviz.demo_model(), hookviz.demo_images()
LAYER = "layer3.1.conv2"


def explorer():
    return hookviz.explore(MODEL, PICTURES[6], layer=LAYER, channel=17)


def watched():
    watch = hookviz.watch(MODEL, every=1)
    with watch:
        MODEL(torch.rand(2, 3, 32, 32)).sum().backward()
    MODEL.zero_grad()
    return watch


WIDGETS = {
    "explorer": (explorer, "channel 17 of 96"),
    "side by side": (
        lambda: hookviz.compare(MODEL, MODEL, PICTURES[0], inputs_b=PICTURES[1]).show(),
        "b less a",
    ),
    "browser": (lambda: hookviz.survey(MODEL, PICTURES[:3]).show(LAYER), LAYER),
    "player": (lambda: hookviz.trace(MODEL, PICTURES[0]).show(), "hooks fired"),
    "training": (lambda: watched().show(), "Watch of DemoNet"),
}


@pytest.mark.parametrize("name", WIDGETS)
def test_a_widget_is_printed_as_one_line(name):
    make, words = WIDGETS[name]
    widget = make()
    text = repr(widget)
    assert text.startswith(f"{type(widget).__name__}: ") and words in text
    assert len(text) < 300 and "\n" not in text and "<" not in text
    widget.close()
    assert "closed" in repr(widget) and len(repr(widget)) < 200
