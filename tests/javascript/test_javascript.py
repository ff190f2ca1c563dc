"""The browser's code, run by deno without a browser, compared with values from Python."""

import base64
import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlencode

import bundles
import numpy as np
import pytest
import torch
from demo import explore_demo
from deno import find_deno_bin
from PIL import Image

import hookviz
from hookviz.attribution.cam import HEATMAPS
from hookviz.draw.colours import colour_ranges, palette, to_levels
from hookviz.draw.overlay import blend, heat_colours
from hookviz.export.network.page import CAMS
from hookviz.export.packing import half, quantize, raw
from hookviz.view.messages import as_json
from hookviz.view.payload import settings_payload
from hookviz.view.settings import choices

LAST = "layer3.1.conv2"
HERE = Path(__file__).parent


def written(array):
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.name, "base64": data}


def odd_maps():
    maps = np.random.default_rng(0).normal(0, 3, (4, 9, 7)).astype(np.float32)
    maps[1, 0, :3] = np.nan, np.inf, -np.inf
    maps[2] = 0
    maps[3] *= 1e-20
    return maps


def levels():
    maps = odd_maps()
    single, double = (np.float32(-2.3), np.float32(4.1)), (-2.3, 4.1)
    asked = [
        ("single ends", maps, *single, "single"),
        ("double ends of doubles", maps.astype(np.float64), *double, "double"),
        ("a heatmap's", maps, *double, "mixed"),
        ("next to nothing", maps[3], np.float32(-1e-35), np.float32(1e-35), "single"),
    ]
    return [
        {
            "name": name,
            "values": written(values),
            "low": float(low),
            "high": float(high),
            "precision": precision,
            "levels": written(to_levels(values, low, high)),
        }
        for name, values, low, high, precision in asked
    ]


def ranges():
    made = []
    for dtype, precision in ((np.float32, "single"), (np.float64, "double")):
        maps = odd_maps().astype(dtype)
        finite = np.where(np.isfinite(maps), maps, np.nan)
        ends = np.nanmin(finite, (1, 2)), np.nanmax(finite, (1, 2))
        for normalize in ("channel", "layer", "symmetric"):
            for diverging in (False, True):
                low, high = colour_ranges(maps, *ends, normalize, diverging=diverging)
                made.append(
                    {
                        "normalize": normalize,
                        "diverging": diverging,
                        "precision": precision,
                        "least": written(ends[0]),
                        "most": written(ends[1]),
                        "low": written(low.astype(np.float64)),
                        "high": written(high.astype(np.float64)),
                    }
                )
    return made


def heats():
    random = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    named = {"signed": random, "positive": abs(random), "zero": random * 0}
    named["with NaN"] = np.where(random > 1, np.nan, random).astype(np.float32)
    made = []
    for name, heat in named.items():
        found = heat_colours(heat)
        span = found and [float(found[1]), float(found[2]), bool(found[1] < 0)]
        made.append({"name": name, "heat": written(heat), "range": span})
    return made


def packed():
    maps = odd_maps()
    made = []
    for name, (coding, data), values in [
        ("float32", raw("x", maps), maps),
        ("float32 in planes", raw("x", maps, planes=True), maps),
        ("float64 in planes", raw("x", maps.astype(np.float64), planes=True), maps),
        ("half in planes", half("x", maps, planes=True), None),
    ]:
        if values is None:
            with np.errstate(over="ignore"):
                values = (maps / coding.scale).astype(np.float16).astype(np.float64)
            values = (values * coding.scale).astype(np.float32)
        made.append({"name": name, "coding": coding, "data": data, "values": values})
    finite = np.nan_to_num(maps, nan=0, posinf=0, neginf=0)
    low, high = finite.min((1, 2)), finite.max((1, 2))
    high = np.where(high > low, high, low + 1).astype(np.float32)
    _, (coding, data) = quantize("x", maps, low, high)
    at = to_levels(maps, low[:, None, None], high[:, None, None]).astype(np.int64)
    first, last = (each.astype(np.float64)[:, None, None] for each in (low, high))
    middle = first + (at + 0.5) * (last - first) / 252
    values = np.where(np.isfinite(maps), middle, maps)
    values[maps == 0] = 0
    made.append(
        {
            "name": "252 steps",
            "coding": coding,
            "data": data,
            "ends": written(np.concatenate([low, high])),
            "values": values.astype(np.float32),
        }
    )
    for each in made:
        each["bytes"] = written(np.frombuffer(each.pop("data"), np.uint8))
        each["values"] = written(each["values"])
        each["coding"] = as_json(each["coding"])
    return made


def overlays():
    random = np.random.default_rng(2)
    picture = random.integers(0, 256, (12, 16, 3), dtype=np.uint8)
    whole = np.concatenate([picture, np.full((12, 16, 1), 255, np.uint8)], 2)
    signed = random.normal(size=(3, 4)).astype(np.float32)
    made = []
    for name, heat, alpha in (
        ("signed", signed, 0.6),
        ("positive", abs(signed), 1.0),
        ("without zeros", 1 + abs(signed), 0.8),
        ("constant", np.ones((3, 4), np.float32), 0.8),
    ):
        found = heat_colours(heat)
        assert found is not None
        mixed = np.concatenate([blend(picture, heat, alpha), whole[..., 3:]], 2)
        made.append(
            {
                "name": name,
                "heat": written(heat),
                "shape": heat.shape,
                "picture": written(whole),
                "size": picture.shape[:2],
                "palette": written(palette(found[0]).astype(np.uint8)),
                "alpha": alpha,
                "mixed": written(mixed),
            }
        )
    return made


def transforms():
    """Return pictures of odd sizes, the steps of a transform, and torchvision's results."""
    from torchvision.transforms import v2

    from hookviz.export.network.transform import steps_of

    random = np.random.default_rng(3)
    kinds = v2.InterpolationMode
    asked = [
        ("smaller, and the middle", (61, 47), [v2.Resize([24]), v2.CenterCrop([20, 22])]),
        ("wide, bicubic", (31, 90), [v2.Resize([28], kinds.BICUBIC), v2.CenterCrop(25)]),
        ("larger", (9, 13), [v2.Resize([20, 17], kinds.BICUBIC)]),
        ("a crop beyond the edges", (9, 14), [v2.CenterCrop([13, 11])]),
        ("grey", (40, 33), [v2.Grayscale(), v2.Resize([15])]),
    ]
    found = []
    for name, size, steps in asked:
        picture = random.integers(0, 256, (*size, 3), dtype=np.uint8)
        made = v2.Compose(steps)(Image.fromarray(picture)).convert("RGB")
        found.append(
            {
                "name": name,
                "picture": written(picture),
                "size": size,
                "steps": {"steps": steps_of(v2.Compose(steps))},
                "pixels": written(np.array(made)),
                "made": [made.height, made.width],
            }
        )
    return found


def normalized():
    pixels = np.random.default_rng(4).integers(0, 256, (2, 3, 3), dtype=np.uint8)
    mean, std = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]
    values = ((pixels / 255 - mean) / std).transpose(2, 0, 1).astype(np.float32)
    said = {"channels": 3, "mean": mean, "std": std}
    return said | {"picture": written(pixels), "values": written(values)}


def cams():
    torch.manual_seed(0)
    maps, gradients = torch.randn(1, 5, 4, 3), torch.randn(1, 5, 4, 3)
    gradients[0, 2] = 0
    maps[0, 1] = 0
    found = []
    for name in CAMS:
        heat = HEATMAPS[name](maps, *([] if name == "activation" else [gradients]))
        said = {"name": name, "count": 5, "size": 12, "heat": written(heat[0].numpy())}
        said |= {"maps": written(maps.numpy()), "gradients": written(gradients.numpy())}
        found.append(said)
    return found


def orders_at_a_position():
    """Return orders of channels at a position, of maps with NaN and constants."""
    from hookviz.view.layer import HERE, LayerView, channel_order, scores_at, similarities

    maps = odd_maps()
    maps = np.concatenate([maps, maps + 2, maps[:1]])
    gradients = np.random.default_rng(5).normal(size=maps.shape).astype(np.float32)
    layer = LayerView(maps, gradients, None, 1, 1)
    row, column, like = 0, 2, 8
    scores = {order: scores_at(layer, order, row, column) for order in HERE}
    scores["similarity"] = similarities(maps, like)
    both = {"maps": written(maps), "gradients": written(gradients), "shape": maps.shape}
    return [
        both
        | {"order": order, "row": row, "column": column, "like": like, "scores": written(each)}
        | {"sorted": written(channel_order(layer, order, each).astype(np.uint32))}
        for order, each in scores.items()
        if each is not None
    ]


def answers():
    """Return questions in the page's format, answers and marks."""
    from test_classroom import GIVEN

    return [
        {
            "step": {
                "kind": step.kind,
                "answer": step.accepted(),
                "tolerance": step.margin,
            },
            "given": given,
            "right": right,
        }
        for step, given, right in GIVEN
    ]


def address_case():
    """Return a page's facts and first settings, and the settings of another view."""
    explorer = explore_demo(layer="stem.0")
    maps = {"stem.0": [56, 56], LAST: [14, 14]}
    layers = [{"name": name, "map": size} for name, size in maps.items()]
    facts = {"layers": layers, "choices": choices(explorer.displayed())}
    first = settings_payload(explorer.displayed())
    explorer.layer, explorer.channel, explorer.target = LAST, 17, "output[0, 3]"
    explorer.position, explorer.heatmap, explorer.alpha = (5, 8), "layercam", 0.25
    explorer.over_input, explorer.all_layers, explorer.order = False, True, "gradcam weight"
    written, moved = explorer.settings(), settings_payload(explorer.displayed())
    explorer.close()
    query = urlencode(written)
    return {"facts": facts, "first": first, "written": written, "moved": moved, "query": query}


def graphs():
    """Return graphs in the format of the browser."""
    import torchvision

    from hookviz.studies.graph.graph import graph_payload

    torch.manual_seed(0)
    models = {
        "demo": hookviz.demo_model(),
        "googlenet": torchvision.models.googlenet(init_weights=False, aux_logits=False),
        "shufflenet": torchvision.models.shufflenet_v2_x0_5(),
    }
    x = torch.rand(1, 3, 64, 64)
    return {name: graph_payload(hookviz.graph(net, x), net) for name, net in models.items()}


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    from hookviz.view.settings import Settings

    numbers = [np.float32(each) for each in (0.1, 1 / 3, -2.5, 1234.5678)]
    made = {
        "levels": levels(),
        "ranges": ranges(),
        "heats": heats(),
        "packed": packed(),
        "overlays": overlays(),
        "answers": answers(),
        "address": address_case(),
        "here": orders_at_a_position(),
        "transforms": transforms(),
        "normalized": normalized(),
        "cams": cams(),
        "graphs": graphs(),
        "settings": {k: v for k, v in asdict(Settings(layer="a")).items() if k != "target"},
        "numbers": [{"value": float(n), "text": str(n).replace("-", "−")} for n in numbers],
    }
    path = tmp_path_factory.mktemp("javascript") / "cases.json"
    path.write_text(json.dumps(made), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", sorted(path.name for path in HERE.glob("*_test.js")))
def test_javascript_tests_pass_in_deno(name, cases):
    done = subprocess.run(
        [find_deno_bin(), "test", "--no-check", "--allow-read", "--allow-env", HERE / name],
        env=os.environ | {"HOOKVIZ_CASES": str(cases)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_committed_bundles_are_up_to_date(tmp_path):
    """Run ``make face`` if this fails."""
    bundles.build(tmp_path)
    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name, bundle in built.items():
        assert (bundles.STATIC / name).read_bytes() == bundle, name
    assert {path.name for path in bundles.STATIC.iterdir()} - built.keys() == {
        "preact.LICENSE.txt",
    }
