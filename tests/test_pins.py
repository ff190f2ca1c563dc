"""Pins: kept by Python and the browser alike, exported as a table, and in a page."""

from __future__ import annotations

import csv
import json

import pytest

import hookviz
from hookviz.draw.document import json_text
from hookviz.results import Pin, Pins
from hookviz.widgets.canvas import Canvas

LAYER = "layer3.1.conv2"


@pytest.fixture
def explorer():
    made = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6], layer=LAYER, channel=17)
    yield made
    made.close()


def test_a_pin_is_what_is_shown(explorer):
    assert repr(explorer.pins) == "no pins" and not explorer.pins
    explorer.pin()
    explorer.place = (10.5 / 14, 3.5 / 14)
    explorer.pin("=cmd, 'quoted' \"twice\"")
    first, second = explorer.pins
    assert first == Pin(LAYER, 17, target="moon")
    assert second.position == (10, 3) and second.place == explorer.place
    records = explorer.pins.records()
    assert json.loads(json.dumps(records, allow_nan=False)) == records
    assert all(len(line) <= 80 for line in repr(explorer.pins).splitlines())
    assert "&quot;twice&quot;" in explorer.pins._repr_html_()
    explorer.pins = explorer.pins[1:]
    assert explorer.pins == Pins([second])


def test_a_table_of_pins(explorer, tmp_path):
    explorer.place = (10.5 / 14, 3.5 / 14)
    explorer.pin('a "tip", b')
    explorer.pins.to_csv(tmp_path / "pins.csv")
    (row,) = csv.DictReader((tmp_path / "pins.csv").read_text().splitlines())
    assert (row["layer"], row["channel"], row["note"]) == (LAYER, "17", 'a "tip", b')
    assert (float(row["down"]), float(row["right"])) == explorer.place


def test_the_browser_and_python_have_the_same_pins(explorer):
    explorer.pin("from Python")
    (said,) = explorer._canvas.pins
    assert said["position"] is None and said["note"] == "from Python"
    # As the browser sets them.
    other = said | {"layer": "stem.0", "place": [0.5, 0.25], "position": [28, 14], "note": ""}
    explorer._canvas.set_state({"pins": [said, other]})
    assert [each.layer for each in explorer.pins] == [LAYER, "stem.0"]
    assert explorer.pins[1].position == (28, 14)
    explorer.image = hookviz.demo_images()[2]
    assert len(explorer.pins) == 2


def test_a_page_has_the_pins_of_its_layers(explorer):
    explorer.pin("<b>kept</b>")
    explorer.pins = (*explorer.pins, Pin("stem.0", 3))
    page = explorer.to_html(layers="layer3.*", max_bytes=3e6)
    assert json_text({"pins": explorer.pins[:1].records()})[1:-1] in page
    assert json_text(explorer.pins.records()[1]) not in page


def test_code_is_of_what_the_browser_shows(explorer):
    answers = []
    canvas = explorer._canvas
    assert isinstance(canvas, Canvas)
    canvas.send = lambda content, buffers=None: answers.append(content)
    settings = canvas.settings | {"layer": "layer2.0.conv1", "channel": 4}
    canvas._handle_custom_msg({"ask": "code", "key": "1", "settings": settings}, [])
    assert explorer.layer == "layer2.0.conv1"
    assert answers[-1]["code"] == explorer.code() and "layer2.0.conv1" in answers[-1]["code"]
