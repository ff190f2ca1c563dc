"""A position chosen in the explorer: its value, its receptive field and its channels."""

import json

import numpy as np
import pytest
import torch
import traitlets
from architectures import model_of
from browsing import Browser
from test_field import (
    Net,
    chain,
    masked,
    siamese,
    through_numpy,
    where_it_is_largest,
)
from torch import nn
from torch.nn import functional as F
from torchvision.models import SwinTransformer

import hookviz
from hookviz.studies.receptive_field.field import outline, payload, place_in, words
from hookviz.view import maps as view_maps

MODEL, PICTURES = hookviz.demo_model(), hookviz.demo_images()


@pytest.fixture
def explorer():
    return hookviz.explore(MODEL, PICTURES[6], layer="layer2.0.conv1", channel=4)


def at(explorer, row, column):
    """Choose a position in the shown map."""
    height, width = explorer.frame.panels[0].values.shape
    explorer.place = (row + 0.5) / height, (column + 0.5) / width


# The field sent to the browser


def boxes_of(said):
    """Return the boxes ``(2 * D, *map)`` that field.js reads from the payload."""
    found = torch.zeros(2 * len(said["input"]), *said["map"])
    for place in torch.ones(said["map"]).nonzero().tolist():
        flat = int(np.ravel_multi_index(place, said["map"]))
        for axis, ends in enumerate(said["ends"]):
            which = flat if ends["along"] is None else place[ends["along"]]
            here = (slice(None), *place)
            found[here][axis], found[here][axis + len(said["input"])] = (
                ends["from"][which],
                ends["to"][which],
            )
    return found


SWIN = SwinTransformer([2, 2], 8, [2], [2], [2, 2], mlp_ratio=2)
CAUSAL = model_of(
    lambda m, x: m.last(masked(m.query(x).mT, -torch.inf).mT),
    query=nn.Conv1d(3, 4, 1),
    last=nn.Conv1d(4, 4, 1),
)
SENT = {
    "a rule": (MODEL, torch.zeros(1, 3, 112, 112), "layer3.0.conv1"),
    "shifted windows": (SWIN, torch.zeros(1, 3, 12, 12), "features.1.1"),
    "triangle": (Net(lambda y: torch.tril(y, 2)), torch.zeros(1, 3, 8, 6), "last"),
    "signal": (CAUSAL, torch.zeros(1, 3, 9), "last"),
    "volume": (chain(3, [(3, 2, 1, 1)]), torch.zeros(1, 2, 10, 8, 6), "0"),
}  # fmt: skip


@pytest.mark.parametrize("name", SENT)
def test_the_field_payload_has_the_box_of_every_position(name):
    field = hookviz.receptive_field(*SENT[name])
    said = json.loads(json.dumps(payload(field), allow_nan=False))
    assert torch.equal(boxes_of(said), field.boxes.float())
    alone = [each["along"] is None for each in said["ends"]]
    assert alone == [name == "triangle"] * len(alone)


def test_outlines_and_words_describe_the_part_of_the_input():
    field = hookviz.receptive_field(chain(2, [(3, 1, 1, 1)]), torch.zeros(1, 2, 12, 8), "0")
    place = place_in(field, 0, 5, 2)
    assert place == (5, 2)
    assert outline(field, place) == (1 / 8, 4 / 12, 3 / 8, 3 / 12)
    assert outline(field, (11, 0)) == (0, 10 / 12, 2 / 8, 2 / 12)
    assert (
        words(field, (11, 0))
        == "2×2 pixels, rows 10–11 and 1 in the padding, columns 0–1 and 1 in the padding"
    )
    signal = hookviz.receptive_field(*SENT["signal"])
    assert outline(signal, place_in(signal, 0, 0, 4)) == (0, 0, 5 / 9, 1)
    volume = hookviz.receptive_field(*SENT["volume"])
    place = place_in(volume, 4, 1, 1)
    assert place == (4, 1, 1) and outline(volume, place) == (1 / 6, 1 / 8, 3 / 6, 3 / 8)
    assert words(volume, place) == "slices 7–9, rows 1–3, columns 1–3"


# In the explorer


def test_a_chosen_position_shows_its_box_and_value(explorer):
    assert explorer.frame.input.box is None and explorer.frame.panels[0].box is None
    for layer, place in (
        ("layer2.0.conv1", (2, 16)),
        ("stem.0", (55, 0)),
        ("layer3.1.conv2", (7, 7)),
    ):
        explorer.layer = layer
        at(explorer, *place)
        field = hookviz.receptive_field(MODEL, PICTURES[6], layer)
        frame = explorer.frame
        assert frame.input.box == outline(field, place) == frame.overlay.box
        assert f"row {place[0]}, column {place[1]} sees {words(field, place)}" in frame.input.note
        height, width = frame.panels[0].values.shape
        assert frame.panels[0].box == (place[1] / width, place[0] / height, 1 / width, 1 / height)
        for panel in frame.panels[:2]:
            value = panel.note.rpartition(": ")[2].replace("−", "-")
            assert np.float32(value) == panel.values[place]
    explorer.place = None
    assert explorer.frame.input.box is None


def test_the_box_of_a_second_branch_lies_in_the_second_picture():
    inputs = torch.zeros(1, 3, 9, 7), torch.ones(1, 3, 12, 10)
    score = hookviz.output[0, 1, 0, 0]
    explorer = hookviz.explore(siamese(), inputs, score, layer="conv", call=1)
    at(explorer, 9, 7)
    assert explorer.frame.input.box == (7 / 10, 9 / 12, 3 / 10, 3 / 12)
    assert "3×3 pixels, rows 9–11, columns 7–9" in explorer.frame.input.note
    explorer.call, explorer.place = 0, None
    at(explorer, 6, 4)
    assert explorer.frame.input.box == (4 / 7, 6 / 9, 3 / 7, 3 / 9)


@pytest.mark.parametrize("place", [(0.5,), (2, 0), (float("nan"), 0)])
def test_invalid_positions_are_refused(explorer, place):
    with pytest.raises(traitlets.TraitError, match="is not a position in a map: give two"):
        explorer.place = place
    assert explorer.place is None


def test_the_receptive_field_is_computed_once_and_only_when_needed(explorer, monkeypatch):
    asked = []

    def counted(*given, **options):
        asked.append(given)
        return hookviz.receptive_field(*given, **options)

    monkeypatch.setattr(view_maps, "receptive_field", counted)
    explorer.channel = 5
    explorer.layer = "layer1.0.conv1"
    assert not asked
    explorer.place = (0.5, 0.5)
    explorer.layer, explorer.channel, explorer.place = "layer3.1.conv2", 9, (0.2, 0.1)
    explorer.target = 3
    explorer.edit(channels=9)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("between", "said"),
    [
        (where_it_is_largest, "data-dependent: "),
        (lambda y: through_numpy(y.detach()), "unknown: numbers leave torch by .numpy()"),
        (lambda y: y - y.mean((2, 3), keepdim=True), "sees the whole input"),
    ],
)
def test_a_note_explains_fields_that_cannot_be_drawn(between, said):
    with torch.no_grad():
        explorer = hookviz.explore(Net(between), torch.rand(1, 3, 8, 6), layer="last")
    explorer.place = (0.5, 0.5)
    frame = explorer.frame
    assert said in frame.input.note
    assert frame.input.box == ((0, 0, 1, 1) if "whole" in said else None)


def test_a_note_reports_an_error_of_the_receptive_field(monkeypatch):
    def broken(*given, **options):
        raise ValueError("no field of such a model.")

    monkeypatch.setattr(view_maps, "receptive_field", broken)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 3))
    explorer = hookviz.explore(model, torch.rand(1, 1, 6, 6))
    explorer.place = (0.1, 0.1)
    assert "unknown: no field of such a model." in explorer.frame.input.note


# The order of the channels at a position


def by_hand(maps, gradients, row, column):
    """Return the score of each order at a position, in plain numpy."""
    maps, gradients = maps.astype(np.float64), gradients.astype(np.float64)
    value = maps[:, row, column]
    deviation = maps.std((1, 2))
    away = np.where(deviation > 0, value - maps.mean((1, 2)), 0)
    return {
        "value": value,
        "contrast": away / np.where(deviation > 0, deviation, 1),
        "contribution": value * gradients[:, row, column],
    }


def tensors(explorer, layer):
    found = explorer.cache[layer]
    return found.activation[0].numpy(), found.gradient[0].numpy()


@pytest.mark.parametrize("order", ["value", "contrast", "contribution"])
def test_channels_are_sorted_by_their_score_at_the_position(explorer, order):
    explorer.order = order
    assert explorer.frame.channels.tolist() == list(range(explorer.frame.counts["channel"]))
    assert "by channel number: no position is chosen" in explorer.frame.tiles.caption
    at(explorer, 20, 7)
    maps, gradients = tensors(explorer, "layer2.0.conv1")
    scores = by_hand(maps, gradients, 20, 7)[order]
    assert np.all(np.diff(scores[explorer.frame.channels]) <= 0)
    assert "row 20, column 7" in explorer.frame.tiles.caption
    explorer.order = "index"
    explorer.order = order  # choosing an order shows its first channel
    assert scores[explorer.channel] == scores.max()
    explorer.layer = "layer3.1.conv2"  # the same fraction of a smaller map
    maps, gradients = tensors(explorer, "layer3.1.conv2")
    scores = by_hand(maps, gradients, 10, 3)[order]
    assert np.all(np.diff(scores[explorer.frame.channels]) <= 0)


def test_the_contribution_order_uses_the_output_in_difference_and_activation_views(explorer):
    explorer.edit(channels=4, change=0.25)
    at(explorer, 20, 7)
    edited = by_hand(*tensors(explorer, "layer2.0.conv1"), 20, 7)
    explorer.shown_run, explorer.order = "difference", "contribution"
    plain = hookviz.explore(MODEL, PICTURES[6], layer="layer2.0.conv1")
    original = by_hand(*tensors(plain, "layer2.0.conv1"), 20, 7)
    moved = edited["contribution"] - original["contribution"]
    assert np.all(np.diff(moved[explorer.frame.channels]) <= 0)
    explorer.shown_run, explorer.shown_after = "edited", "activation"
    assert np.all(np.diff(edited["contribution"][explorer.frame.channels]) <= 0)


def test_channels_are_sorted_by_similarity_to_the_reference_channel(explorer):
    explorer.channel = 9
    explorer.order = "similarity"
    assert explorer.reference_channel == 9 == explorer.channel == explorer.frame.channels[0]
    maps = torch.from_numpy(tensors(explorer, "layer2.0.conv1")[0]).double().flatten(1)
    cosines = F.cosine_similarity(maps, maps[9:10]).numpy()
    assert np.all(np.diff(cosines[explorer.frame.channels]) <= 1e-12)
    explorer.channel = int(explorer.frame.channels[1])
    assert explorer.reference_channel == 9  # it stays while other channels are shown
    with pytest.raises(traitlets.TraitError, match="reference_channel=4000 is not in layer"):
        explorer.reference_channel = 4000
    explorer.layer = "stem.0"
    assert explorer.frame.channels[0] == 9


def test_orders_rank_silent_and_nonfinite_channels():
    from hookviz.view.layer import LayerView, channel_order, scores_at, similarities

    maps = np.random.default_rng(0).normal(size=(6, 3, 3)).astype(np.float32)
    maps[1], maps[2], maps[3, 1, 1], maps[4, 0, 0], maps[5] = 0, 7, np.nan, np.inf, maps[0]
    layer = LayerView(maps, None, None, 1, 1)
    assert scores_at(layer, "contribution", 1, 1) is None
    scores = scores_at(layer, "contrast", 1, 1)
    assert scores[1] == scores[2] == 0 and np.isnan(scores[3]) and np.isfinite(scores[4])
    known = maps[4][np.isfinite(maps[4])].astype(np.float64)
    assert scores[4] == pytest.approx((maps[4, 1, 1] - known.mean()) / known.std())
    assert channel_order(layer, "contrast", scores)[-1] == 3
    cosines = similarities(maps, 5)
    assert np.isnan(cosines[[1, 3, 4]]).all() and cosines[0] == pytest.approx(1)
    assert channel_order(layer, "similarity", cosines)[:2].tolist() == [5, 0]
    huge = np.full((2, 2, 2), 1e30, np.float32) * np.float32(1e8)
    assert similarities(huge, 0)[1] == pytest.approx(1)


def test_the_kernel_sends_exact_scores_for_rounded_maps(explorer):
    canvas = hookviz.explore(
        explorer.displayed().session.given, explorer.image, face="canvas", layer="layer3.1.conv2"
    )
    browser = Browser(canvas)
    question = {"ask": "scores", "layer": "layer3.1.conv2", "call": 0, "sample": 0, "depth": 0}
    question |= {"shown_after": "output", "order": "contribution", "reference_channel": 0}
    question |= {"place": [10.5 / 14, 3.5 / 14]}
    _, arrays = browser.ask(**question)
    wanted = by_hand(*tensors(explorer, "layer3.1.conv2"), 10, 3)["contribution"]
    assert np.array_equal(arrays["scores"], wanted)
    answer, arrays = browser.ask(**question | {"place": None})
    assert answer["none"] == "" and not arrays
