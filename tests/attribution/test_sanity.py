"""`sanity_check` tells whether a heatmap depends on the weights; its measures equal scipy's."""

import json

import numpy as np
import pytest
import scipy.stats
import torch
from architectures import model_of
from torch import nn
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.attribution import ATTRIBUTIONS
from hookviz.metrics import sanity_check
from hookviz.results import SanityCheck

MODEL, PICTURES = hookviz.demo_model(), hookviz.demo_images()


def edges(activation):
    """Return a heatmap of the differences between neighbouring pixels."""
    pixels = activation.sum(1)
    return pixels.diff(dim=1)[:, :, 1:].abs() + pixels.diff(dim=2)[:, 1:].abs()


def test_the_verdict_distinguishes_gradcam_from_an_edge_detector(monkeypatch):
    monkeypatch.setitem(hookviz.attribution.HEATMAPS, "edges", edges)
    before = snapshot(MODEL)
    real = sanity_check(MODEL, PICTURES[6], "gradcam", steps=2)
    x = hookviz.attribution.prepare_input(PICTURES[6], MODEL).args[0]
    behind_the_picture = nn.Sequential(nn.Identity(), MODEL)
    fake = sanity_check(behind_the_picture, x, "edges", "0", steps=2)
    assert_untouched(MODEL, before)
    assert real.depends and real.verdict.startswith("Grad-CAM depends on the weights: ")
    assert not fake.depends and "edges does not depend on the weights" in fake.verdict
    assert torch.allclose(fake.correlations, torch.ones(3, 1))
    assert torch.allclose(fake.similarities, torch.ones(3, 1).double())
    assert "rank correlation 1 " in fake.verdict
    # The first map is the unshuffled heatmap of the last convolution with several positions.
    with hookviz.capture(MODEL, "layer3.1.conv2") as cache:
        torch.autograd.grad(MODEL(x.requires_grad_()).max(), x)
    torch.testing.assert_close(real.maps[0], hookviz.heatmap(cache["layer3.1.conv2"]))


def test_correlations_equal_scipys_and_similarities_equal_a_loop():
    maps = torch.rand(3, 2, 9, 12)
    maps[1] = (maps[1] * 4).round()  # ties
    maps[2, 1] = torch.nan
    check = SanityCheck("m", ["last", "first"], maps)
    x, y = (each.double().numpy() for each in (maps[0, 0], maps[1, 0]))
    rank = scipy.stats.spearmanr(x.flatten(), y.flatten()).statistic
    assert float(check.correlations[1, 0]) == pytest.approx(rank, abs=1e-5)
    x, y = ((each - each.min()) / (each.max() - each.min()) for each in (x, y))
    found = []
    for row in range(3):
        for column in range(6):
            a, b = (each[row : row + 7, column : column + 7] for each in (x, y))
            covariance = ((a - a.mean()) * (b - b.mean())).mean()
            light = (2 * a.mean() * b.mean() + 1e-4) / (a.mean() ** 2 + b.mean() ** 2 + 1e-4)
            found.append(light * (2 * covariance + 9e-4) / (a.var() + b.var() + 9e-4))
    assert float(check.similarities[1, 0]) == pytest.approx(np.mean(found))
    # Maps with NaN have similarity 0.
    assert check.correlations[2, 1] == check.similarities[2, 1] == 0
    assert torch.allclose(check.correlations[0], torch.ones(2))
    flat = SanityCheck("m", ["all"], torch.stack([maps[0], torch.ones(2, 9, 12)]))
    assert not flat.correlations[1].any() and not flat.similarities[1].any()


def parts(m, x):
    """Modules that run in a different order than they are defined, one of them only read."""
    tokens = m.first(x).flatten(2).mT
    return m.last(m.attends(tokens, tokens, tokens)[0].mean(1))


@pytest.mark.parametrize("steps", [2, 10])
def test_weights_are_shuffled_from_the_last_layer_to_the_first(steps):
    """A layer's map changes only once that layer is shuffled."""
    model, x = (
        model_of(
            parts,
            last=nn.Linear(4, 2),
            first=nn.Conv2d(1, 4, 3),
            attends=nn.MultiheadAttention(4, 2, batch_first=True),
        ),
        torch.rand(2, 1, 6, 6),
    )
    check = sanity_check(model, x, "activation", "first", steps=steps)
    order = ["last", "attends", "attends.out_proj", "first"]
    assert ", ".join(check.layers).split(", ") == order
    assert len(check.layers) == min(steps, 4)
    assert (check.correlations[:-1] == 1).all() and not (check.correlations[-1] == 1).any()
    again = sanity_check(model, x, "activation", "first", steps=steps)
    assert torch.equal(again.maps, check.maps)
    other = sanity_check(model, x, "activation", "first", steps=steps, seed=1)
    assert not torch.equal(other.maps[-1], check.maps[-1])
    assert torch.equal(other.maps[0], check.maps[0])


EVERY = [*ATTRIBUTIONS, "rollout", "gradient × attention"]


@pytest.mark.parametrize(
    ("method", "columns"), [*((each, False) for each in EVERY), ("saliency", True)]
)
def test_sanity_check_accepts_every_heatmap_method(method, columns):
    if method in hookviz.attribution.ATTENTION_HEATMAPS:
        model, x = hookviz.models.demo_transformer(), hookviz.models.demo_digits()[7]
    elif columns:
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)), torch.rand(2, 8)
    else:
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)
        )
        x = torch.rand(2, 3, 8, 8)
    check = sanity_check(model, x, method, steps=2)
    assert check.maps.shape[0] == len(check.layers) + 1
    assert torch.allclose(check.correlations[0], torch.ones(check.maps.shape[1]))
    assert (check.correlations[-1] < 0.999).all()


def test_the_target_class_is_that_of_the_original_weights():
    """Shuffling the last layer changes the top class, but not the class of the gradient."""
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    x = torch.rand(1, 1, 6, 6)
    top = int(model(x).argmax())
    for seed in range(4):
        by_itself, named = (
            sanity_check(model, x, "gradient", "0", target, steps=1, seed=seed)
            for target in (None, top)
        )
        assert torch.equal(by_itself.maps, named.maps)


def test_a_sanity_check_has_records_a_verdict_a_page_and_a_figure(tmp_path):
    check = sanity_check(MODEL, PICTURES[0], "layercam", "layer2.0.conv1", steps=2)
    rows = check.records()
    json.dumps(rows, allow_nan=False)
    assert [row["step"] for row in rows] == [0, 1, 2] and rows[0]["correlation"] == 1
    assert repr(check).startswith("LayerCAM depends on") and "weights shuffled" in repr(check)
    check.to_html(tmp_path / "check.html")
    assert "<img" in (tmp_path / "check.html").read_text(encoding="utf-8")
    (axes,) = check.figure().axes
    assert np.allclose(axes.lines[0].get_ydata(), check.correlations.mean(1))


def routed(m, x):
    """Run one of two convolutions, by the input's values."""
    route = m.a if m.gate(x.mean((2, 3))).mean(0).argmax() == 0 else m.b
    return m.head(route(x).relu().mean((2, 3)))


def two_heads(m, x):
    maps = m.a(x).relu()
    return {"classes": m.head(maps.mean((2, 3))), "maps": m.b(maps)}


def without_gradient(m, x):
    return m.head(m.a(x).mean((2, 3))).detach()


def nothing(m, x):
    m.a(x)


@pytest.mark.parametrize(
    ("forward", "given", "words"),
    [
        (routed, {}, "Layer 'a' did not run after the weights were shuffled, .*: take one that"),
        (routed, {"layer": "a"}, "'a' did not run after the weights were shuffled"),
        (routed, {"layer": "b"}, "Layer 'b' did not run in eval mode: take one that"),
        (two_heads, {}, "target=None needs class scores .* returned a dict"),
        (
            two_heads,
            {"target": hookviz.output["classes"][0, 1]},
            "The score does not depend on layer 'b': give another one as layer=",
        ),
        (without_gradient, {}, "The score does not depend on the input, .* under torch.no_grad"),
        (without_gradient, {"target": 1}, "The score does not depend on the input"),
        (nothing, {"layer": "a"}, "target=None needs class scores .* returned None"),
    ],
)
def test_a_heatmap_without_a_layer_or_a_score_is_refused_with_the_cure(forward, given, words):
    gate = nn.Linear(3, 2)
    gate.weight.data.zero_()
    gate.bias.data = torch.tensor([1.0, 0.0])  # the first convolution runs; shuffled, the other one
    second = nn.Conv2d(3 if forward is routed else 4, 4, 3)
    model = model_of(forward, a=nn.Conv2d(3, 4, 3), b=second, gate=gate, head=nn.Linear(4, 3))
    with pytest.raises(ValueError, match=words) as error:
        sanity_check(model, torch.rand(1, 3, 8, 8), **given)
    assert "capture" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "gradcan"}, "Unknown heatmap method='gradcan'; close to it: 'gradcam'"),
        ({"steps": 0}, "steps=0 cannot be used"),
        ({"layer": "stem.9"}, "No layer .* is called 'stem.9'"),
        ({"layer": nn.Conv2d(1, 1, 1)}, "not part of this DemoNet"),
        ({"model": nn.Flatten(), "method": "saliency", "target": 1}, "The model has no weights"),
        ({"layer": "head.2", "method": "gradient", "target": torch.sum}, "same everywhere"),
    ],
)
def test_errors_are_one_clear_sentence(given, words):
    with pytest.raises(ValueError, match=words):
        sanity_check(given.pop("model", MODEL), PICTURES[0], **given)
