"""A name that could be read as markup, a formula or a terminal command, and results that use it."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import torch
from torch import nn

import hookviz
from hookviz.classroom import Step

CLEARS = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e"
MARKUP = "<img src=x onerror=hacked=1>\"'&amp;</style></script><script>hacked=2</script> $x_1$ {0}"
NAME = MARKUP + CLEARS
CLASS = f"{NAME}\ud83d"  # includes half a surrogate pair, which a type's name may not contain
CLASSES = [CLASS] * 3
LAYER = f"conv{CLASS}"
X = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def hostile_model():
    """Build a network with hostile names of its class, layers and a hook."""
    torch.manual_seed(0)
    model = type(f"Net{NAME}", (nn.Sequential,), {})()
    model.add_module(LAYER, nn.Conv2d(3, 4, 3))
    model.add_module(f"new\nline{NAME}", type(NAME, (nn.ReLU,), {})())
    model.add_module("pool", nn.AdaptiveAvgPool2d(1))
    model.add_module("flat", nn.Flatten())
    model.add_module(f"head{NAME}", nn.Linear(4, 3))

    def look(module, args, output):
        """Do nothing."""

    look.__name__ = look.__qualname__ = f"look{NAME}"
    model[0].register_forward_hook(look)
    model[0].register_forward_hook(look)
    return model


def captured():
    model = hostile_model()
    with hookviz.capture(model) as cache:
        model(X)
    return cache


def watched():
    model = hostile_model()
    with hookviz.watch(model, every=1) as training:
        model(X).sum().backward()
    return training


def surveyed():
    pictures = [(x, n % 3) for n, x in enumerate(X)]
    return hookviz.survey(hostile_model(), pictures, class_names=[CLASS, "b", "c"])


def hostile_steps(prediction):
    """Return steps with hostile texts, and one about the top class if its name is passed."""
    choices = [f"a{NAME}", f"b{NAME}"]
    words = {"hint": f"hint{NAME}", "explanation": f"explained{NAME}"}
    steps = [Step(f"Which one?{NAME}", {"layer": LAYER}, choices[0], choices=choices, **words)]
    steps += [Step(f"?{NAME}", {"channel": 1}, {"channel": 1}, **words), Step(f"Why?{NAME}")]
    if prediction is not None:
        steps += [Step(f"Class?{NAME}", answer={"prediction": prediction}, **words)]
        steps += [Step(f"Off?{NAME}", answer={"off": (LAYER, 2)}, **words)]
    return steps


PLACE = {"channel": 0, "position": (1, 1)}
RESULTS: dict[str, Callable[[], Any]] = {
    "capture": captured,
    "record": lambda: captured()[LAYER],
    "diagnose": lambda: hookviz.diagnose(hostile_model(), X),
    "diagnose NaN": lambda: hookviz.diagnose(hostile_model(), X * torch.nan),
    "trace": lambda: hookviz.trace(hostile_model(), X),
    "graph": lambda: hookviz.graph(hostile_model(), X),
    "hooks": lambda: hookviz.hooks(hostile_model()),
    "watch": watched,
    "survey": surveyed,
    "survey of a layer": lambda: surveyed()[LAYER],
    "compare": lambda: hookviz.compare(hostile_model(), hostile_model(), X, class_names=CLASSES),
    "similarity": lambda: hookviz.similarity(hostile_model(), hostile_model(), [X]),
    "contributions": lambda: hookviz.contributions(hostile_model(), X, LAYER, **PLACE),
    "receptive field": lambda: hookviz.receptive_field(hostile_model(), X, LAYER)[LAYER],
    "sanity check": lambda: hookviz.metrics.sanity_check(hostile_model(), X, layer=LAYER, steps=2),
    "explorer": lambda: hookviz.explore(hostile_model(), X, class_names=CLASSES),
}
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")


class Harmless(HTMLParser):
    """Parser that fails if a name has become a tag, an event handler or a script."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.text, self._code = "", False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        self._code = tag == "style" or (tag == "script" and known.get("type") is None)
        assert known.get("src") != "x"
        for name, value in attributes:
            assert not (name.startswith("on") and "hacked" in (value or "")), attributes
        self.text += " ".join(str(known[name]) for name in ("alt", "title") if name in known)

    def handle_endtag(self, tag):
        self._code = False

    def handle_data(self, data):
        assert not (self._code and "hacked" in data)
        self.text += data
