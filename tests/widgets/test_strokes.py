"""Brush, rectangle and eraser change the input, and undo restores it."""

import numpy as np
import pytest
import torch
from browsing import Browser

import hookviz
from hookviz.hooking.edit import merged
from hookviz.view.source import shown_inputs

MODEL, PICTURES = hookviz.demo_model(), hookviz.demo_images()
MASK = np.zeros((112, 112), bool)
MASK[20:60, 30:80] = True


@pytest.fixture
def explorer():
    return hookviz.explore(MODEL, PICTURES[6], layer="layer3.1.conv2", channel=17, face="canvas")


def stroke(explorer, mask=MASK, tool="paint"):
    """Send the browser's message."""
    Browser(explorer).request(tool, mask.astype(np.uint8).tobytes(), shape=list(mask.shape))


def with_mean(x, mask):
    return torch.where(torch.from_numpy(mask), x.mean((2, 3), keepdim=True), x)


def test_painted_pixels_have_the_mean_of_each_channel(explorer):
    (x,) = explorer.inputs.args
    before, kept = x.clone(), MODEL(x).detach()
    stroke(explorer)
    assert torch.equal(explorer.inputs.args[0], before)  # the stored input is unchanged
    edited = shown_inputs(explorer.displayed()).args[0]
    assert torch.allclose(edited, with_mean(x, MASK), atol=1e-6)
    assert torch.equal(edited[..., ~torch.from_numpy(MASK)], x[..., ~torch.from_numpy(MASK)])
    with hookviz.capture(MODEL, "layer3.1.conv2") as cache, torch.no_grad():
        logits = MODEL(edited)
    assert torch.equal(
        explorer.cache["layer3.1.conv2"].activation, cache["layer3.1.conv2"].activation
    )
    shares = logits.softmax(1)[0]
    for prediction in explorer.frame.predictions:
        assert prediction.value == pytest.approx(float(shares[prediction.number]), abs=1e-6)
        before = float(kept.softmax(1)[0, prediction.number])
        assert prediction.before == pytest.approx(before, abs=1e-6)
    assert [str(edit) for edit in explorer.edits] == ["input, 2,000 pixels: mean"]
    explorer.shown_run = "original"
    assert torch.equal(explorer.displayed().run.logits, kept)
    explorer.undo()
    assert torch.equal(explorer.displayed().run.logits, kept)


def test_every_stroke_paints_the_mean_of_the_unedited_picture(explorer):
    """Otherwise a second stroke next to the first would have a different shade."""
    (x,) = explorer.inputs.args
    explorer.edit("input", 0, where=(slice(60, 112), slice(None)))
    stroke(explorer, MASK)
    other = np.roll(MASK, 40, 0)
    stroke(explorer, other)
    edited = shown_inputs(explorer.displayed()).args[0]
    both = torch.from_numpy(MASK | other)
    assert torch.allclose(edited[..., both], with_mean(x, MASK | other)[..., both], atol=1e-6)


@pytest.mark.parametrize(
    "samples, between, count",
    [((1, 1, 1), None, 1), ((1, 0, 0), None, 2), ((0, 0), ("layer3.1.conv2", 0), 3)],
    ids=["one sample", "two samples", "another edit between"],
)
def test_strokes_in_a_row_run_as_one_edit(samples, between, count):
    """They stay several in the list of edits; each alone would take as long as the last one."""
    made = hookviz.explore(MODEL, [PICTURES[6], PICTURES[2]], face="canvas")
    (x,) = made.inputs.args
    expected = x.clone()
    for place, sample in enumerate(samples):
        made.sample = sample
        mask = np.roll(MASK, 15 * place, 0)
        stroke(made, mask)
        expected[sample] = torch.where(
            torch.from_numpy(mask), with_mean(x, mask)[sample], expected[sample]
        )
        if between and not place:
            made.edit(*between, channels=3)
    assert len(made.edits) == len(samples) + bool(between)
    assert len(merged(made.edits)) == count
    assert torch.allclose(shown_inputs(made.displayed()).args[0], expected, atol=1e-6)
    with hookviz.capture(MODEL, "stem.0") as cache, torch.no_grad():
        MODEL(shown_inputs(made.displayed()).args[0])
    assert torch.equal(made.cache["stem.0"].activation, cache["stem.0"].activation)


def test_the_eraser_restores_the_input(explorer):
    (x,) = explorer.inputs.args
    explorer.edit("input", 0, where=(slice(100, 112), slice(None)))
    stroke(explorer)
    half = MASK.copy()
    half[:, 50:] = False
    stroke(explorer, half, "erase")
    edited = shown_inputs(explorer.displayed()).args[0]
    there = torch.from_numpy(half)
    assert torch.equal(edited[..., there], x[..., there])
    words = [str(edit) for edit in explorer.edits]
    assert words == ["input, all channels, some positions: off", "input, 1,200 pixels: mean"]
    assert (edited[..., 100:, :] == 0).all()  # not painted by the brush
    explorer.edits = explorer.edits[1:]
    explorer.edit(channels=3)
    stroke(explorer, np.ones_like(MASK), "erase")
    assert [edit.layer for edit in explorer.edits] == ["layer3.1.conv2"]
    explorer.undo()
    assert torch.equal(explorer.displayed().run.logits, MODEL(x))


def test_only_the_shown_sample_is_painted():
    made = hookviz.explore(MODEL, [PICTURES[6], PICTURES[2]], sample=1, face="canvas")
    (x,) = made.inputs.args
    stroke(made)
    edited = shown_inputs(made.displayed()).args[0]
    assert torch.equal(edited[0], x[0])
    assert torch.allclose(edited[1], with_mean(x, MASK)[1], atol=1e-6)
    assert torch.equal(made.inputs.args[0], x)


@pytest.mark.parametrize("tool", ["paint", "erase"])
def test_a_mask_of_another_size_is_refused_and_an_empty_mask_is_ignored(explorer, tool):
    stroke(explorer, np.ones((3, 4), bool), tool)
    assert Browser(explorer).canvas.note == (
        "Painting 3×4 pixels needs an input tensor of shape (N, C, 3, 4); "
        "this one's is (1, 3, 112, 112)."
    )
    stroke(explorer, np.zeros_like(MASK), tool)
    assert explorer.edits == ()
