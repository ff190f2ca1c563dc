"""The data sent to the browser: facts as strict JSON, and the layer's exact numbers."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from browsing import Browser
from demo import explore_demo
from torch import nn

import hookviz
from hookviz.draw.document import STATIC
from hookviz.export.packing import (
    EXACT,
    HALF,
    SMALLEST,
    Level,
    MapsPart,
    best_level,
    size_of,
)
from hookviz.view.layer import FIXED, SCORE_DROP, channel_order
from hookviz.view.maps import layer_of, layers_of
from hookviz.view.messages import as_json
from hookviz.view.payload import NUMBERS, layer_payload, model_payload, settings_payload
from hookviz.view.settings import SETTINGS, Settings
from hookviz.view.view import View


def view_of(model, image, **settings):
    from hookviz.run.inputs import prepare_input
    from hookviz.run.session import Session

    session = Session(model, prepare_input(image, model))
    run = session.run()
    return View(session, run, Settings(layers_of(View(session, run, Settings("")))[0], **settings))


@pytest.fixture(scope="module")
def view():
    return view_of(hookviz.demo_model(), hookviz.demo_images()[6])


def test_facts_are_strict_json_with_nan_in_the_model():
    model = hookviz.demo_model()
    with torch.no_grad():
        model.stem[0].weight[3] = torch.nan
    facts = model_payload(view_of(model, hookviz.demo_images()[6]))
    text = json.dumps(facts, allow_nan=False)
    assert json.loads(text)["layers"][0]["nans"] > 0


def test_facts_describe_the_layers_and_the_target(view):
    facts = model_payload(view)
    assert [each["name"] for each in facts["layers"]] == layers_of(view)
    assert facts["target"] == {"name": "moon", "number": 6, "written": "6", "chosen": False}
    assert facts["classes"]["names"][6] == "moon"
    layer = facts["layers"][5]
    assert (layer["name"], layer["block"], layer["side"]) == ("layer2.0.conv1", "layer2", 28)
    assert layer["text"] == "3×3, stride 2, 24 → 48 channels, 10,368 parameters"


def test_classes_of_one_name_have_their_numbers_in_it():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(16, 3))
    model.class_names = ["crane", "moon", "crane"]
    facts = model_payload(view_of(model, torch.ones(1, 1, 4, 4)))
    assert facts["classes"]["names"] == ["crane (0)", "moon", "crane (2)"]


def test_the_layer_payload_has_the_layers_numbers(view):
    header, arrays = layer_payload(view.with_settings(layer="layer3.0.conv1"))
    record = view.cache["layer3.0.conv1"]
    assert (arrays["maps"] == record.activation[0].numpy()).all()
    assert (arrays["gradients"] == record.gradient[0].numpy()).all()
    rows = dict(zip(NUMBERS, arrays["numbers"], strict=True))
    assert (rows["max"] == record.activation[0].flatten(1).amax(1).numpy()).all()
    assert as_json(header.counts) == {"channel": 96, "call": 1, "sample": 1, "depth": 1}
    layer = layer_of(view.with_settings(layer="layer3.0.conv1"))
    for order, place in zip((*FIXED[1:], SCORE_DROP), arrays["orders"], strict=True):
        assert (place == channel_order(layer, order)).all()


def test_float64_maps_are_sent_as_float64():
    model = nn.Sequential(nn.Conv2d(1, 2, 1)).double()
    view = view_of(model, torch.rand(1, 1, 3, 3, dtype=torch.float64))
    _, arrays = layer_payload(view)
    assert arrays["maps"].dtype == arrays["numbers"].dtype == np.float64


def test_settings_leave_out_the_target(view):
    assert set(settings_payload(view)) == {*SETTINGS} - {"target"}


def random_parts(counts=(4, 16), side=32):
    """Return maps and gradients of layers with these numbers of channels."""
    noise = np.random.default_rng(0).normal(size=(max(counts), side, side)).astype(np.float32)
    ends = noise.min((1, 2)), noise.max((1, 2))
    percentiles = np.array(ends, np.float64)
    return [
        MapsPart(f"layer-{place}", name, noise[:n], *(end[:n] for end in ends), percentiles[:, :n])
        for place, n in enumerate(counts)
        for name in ("maps", "gradients")
    ]


def test_the_most_exact_encoding_that_fits_the_budget_is_chosen():
    exact, half = (sum(p.stream(each).size for p in random_parts()) for each in (EXACT, HALF))
    chosen, kept = [], []
    for room in (exact, exact - 1, half, half - 1, 90_000, 45_000, 30_000):
        level, streams = best_level(random_parts(), room)
        assert size_of(streams) == sum(p.stream(level).size for p in random_parts()) <= room
        chosen.append(level)
        codings = [coding for stream in streams.values() for coding in stream.codings]
        maps = [coding.shape for coding in codings if coding.name in ("maps", "gradients")]
        kept.append(sum(map(math.prod, maps)))
    assert chosen[:3] == [EXACT, HALF, HALF]
    assert {each.kind for each in chosen[3:]} == {"reduced"}
    assert chosen[3].factor((16, 32, 32)) == 1  # rounded, but not averaged
    assert kept == sorted(kept, reverse=True) and kept[-1] < kept[0]
    assert best_level(random_parts(), 3_000) is None


def test_small_layers_leave_their_room_to_large_ones():
    small, _, large, _ = parts = random_parts((1, 64))
    level, _ = best_level(parts, 120_000)
    assert level.factor(small.values.shape) == 1
    assert level.most > 1.3 * 0.75 * 120_000 / len(parts)
    assert level.factor(large.values.shape) == 2


def test_reduced_maps_keep_seven_positions_and_small_maps_are_not_reduced():
    assert SMALLEST.factor((2048, 7, 7)) == 1
    assert SMALLEST.factor((512, 14, 14)) == 2
    assert SMALLEST.factor((64, 112, 112)) == 16
    assert Level("reduced", 8192).factor((64, 112, 112)) == 11
    assert Level("reduced", 8192).factor((8, 32, 32)) == 1
    assert Level("reduced", 8192).factor((100, 1, 300)) == 4
    assert EXACT.factor((64, 112, 112)) == HALF.factor((64, 112, 112)) == 1


WEB = Path(__file__).resolve().parents[2] / "web"


def test_our_scripts_create_no_html_from_text_and_use_no_eval():
    """Preact, which is bundled with them, sets innerHTML only where a component asks for it."""
    sources = list(WEB.glob("*.ts*"))
    assert len(sources) > 40
    for path in sources:
        source = path.read_text(encoding="utf-8")
        for never in ("innerHTML", "InnerHTML", "outerHTML", "insertAdjacentHTML", "eval("):
            assert never not in source, path.name


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.*s")), ids=lambda path: path.name)
def test_the_bundled_scripts_fetch_nothing_and_use_no_eval(path):
    source = path.read_text(encoding="utf-8")
    for never in ("insertAdjacentHTML", "document.write", "eval(", "url("):
        assert never not in source
    # XML namespaces, which are not fetched.
    source = re.sub("http://www.w3.org/(2000/svg|1999/xhtml|1998/Math/MathML)", "", source)
    assert "http" not in source.replace("http-equiv", "")
    # The text must neither close nor open an element of the page that contains it.
    assert not re.search("</(script|style)|<script|<!--", source, re.IGNORECASE)


def test_large_maps_are_sent_in_half_precision(monkeypatch):
    monkeypatch.setattr("hookviz.widgets.canvas.EXACT_BYTES", 10_000)
    made = explore_demo(face="canvas")
    answer, _ = Browser(made).ask("layer", layer="layer2.0.conv1")
    kinds = {coding["name"]: coding["kind"] for coding in answer["arrays"]}
    assert (kinds["maps"], kinds["numbers"], kinds["orders"]) == ("f2", "f4", "u4")
