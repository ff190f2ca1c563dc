"""The map of a network: its graph as JSON, and a picture of each layer."""

import json

import numpy as np
import pytest
import torch
from seen import blocks
from torch import nn

import hookviz
from hookviz.draw.colours import COLOURS
from hookviz.view.map import graph_in, map_payload
from hookviz.view.maps import layers_of


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = self.stem(x)
        return self.head((x + self.body(x)).mean((2, 3)))


@pytest.fixture
def explorer():
    torch.manual_seed(0)
    return hookviz.explore(Branches(), torch.rand(1, 3, 70, 50))


def test_the_map_has_the_nodes_and_edges_of_hookviz_graph(explorer):
    header, _ = map_payload(explorer.displayed())
    net = explorer.displayed().session.model
    graph = hookviz.graph(net, torch.rand(1, 3, 70, 50))
    assert [node["name"] for node in header["nodes"]] == [node.name for node in graph.nodes]
    assert header["edges"] == [list(edge) for edge in graph.edges]
    for node in header["nodes"]:
        if node["layer"] in ("stem", "body.0", "head"):
            names = [header["nodes"][n] for n in node["sources"]]
            named = [(each["layer"], each["call"]) for each in names]
            assert named == graph.sources(node["layer"], node["call"])
    assert header["batch"] == 1
    assert header["modules"] == {"stem": "Conv2d", "body": "Sequential"} | {
        "body.0": "Conv2d",
        "head": "Linear",
    }
    json.dumps(header, allow_nan=False)


def test_the_picture_of_a_layer_is_the_mean_over_channels(explorer):
    header, arrays = map_payload(explorer.displayed())
    assert header["sizes"] == {"stem": [24, 17], "body.0": [24, 17]}
    with torch.no_grad():
        maps = explorer.displayed().session.model.stem(explorer.inputs.args[0])[0].double().mean(0)
    cells = [[c.mean().item() for c in row.split(3, 1)] for row in maps.split(3, 0)]
    values = torch.tensor(cells, dtype=torch.float64)
    span = values.max() - values.min()
    wanted = ((values - values.min()) / span * COLOURS).clamp(0, COLOURS - 1)
    found = arrays["pictures"][: 24 * 17].reshape(24, 17)
    assert np.abs(found - wanted.numpy()).max() <= 1.01  # levels are rounded to whole numbers
    assert {0, COLOURS - 1} <= set(found.ravel().tolist())


def test_captured_layers_of_any_type_are_nodes_of_the_map():
    explorer = hookviz.explore(Branches(), torch.rand(1, 3, 16, 16), layers=["stem", "body.1"])
    header, _ = map_payload(explorer.displayed())
    assert [n["name"] for n in header["nodes"]][1:4] == ["stem", "body.0", "body.1"]


def test_the_map_reuses_the_run_of_contributions(explorer):
    explorer.contributions("body.0", channel=1, position=(2, 3))
    assert graph_in(explorer.displayed()) is explorer.displayed().memo.get("cut", None).graph


def test_a_page_contains_the_map_of_its_layers(explorer):
    page = explorer.to_html(layers="body.0")
    header = blocks(page)["map"]["header"]
    assert header["sizes"] == {"body.0": [24, 17]}
    assert len(header["nodes"]) == 6


def test_attention_modules_are_nodes_with_their_heads():
    explorer = hookviz.explore(hookviz.models.demo_transformer(), hookviz.models.demo_digits()[7])
    header, _ = map_payload(explorer.displayed())
    nodes = header["nodes"]
    found = [node for node in nodes if node["layer"].endswith(".heads")]
    assert len(found) == 3
    for n, node in enumerate(found):
        assert node["layer"] == f"encoder.layers.encoder_layer_{n}.self_attention.heads"
        assert node["layer"] in layers_of(explorer.displayed())
        assert header["sizes"][node["layer"]] == [6, 6]
    before = [nodes[n]["layer"] for n in found[1]["sources"]]
    assert before == ["conv_proj", found[0]["layer"], "encoder.layers.encoder_layer_0.mlp.3"]


def test_the_map_is_complete_although_a_head_is_off():
    picture = hookviz.models.demo_digits()[7]
    name = "encoder.layers.encoder_layer_1.self_attention.heads"
    explorer = hookviz.explore(hookviz.models.demo_transformer(), picture, layer=name, channel=1)
    whole = [node.name for node in graph_in(explorer.displayed()).nodes]
    explorer.edit(change=0)
    graph = graph_in(explorer.displayed())
    assert graph.error == ""
    assert {*whole} <= {node.name for node in graph.nodes}
