"""A brush on the input: what the model gets below it, and that it can be taken back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

import hookviz
from hookviz.view.strokes import STROKES, with_stroke

MODEL, PICTURES = hookviz.demo_model(), hookviz.demo_images()
MASK = np.zeros((112, 112), bool)
MASK[20:60, 30:80] = True


@pytest.fixture
def explorer():
    made = hookviz.explore(MODEL, PICTURES[6], layer="layer3.1.conv2", channel=17, face="canvas")
    yield made
    made.close()


def paint(explorer, kind, mask=MASK, colour=(255, 0, 0)):
    """As the browser says it."""
    said = {"set": "stroke", "kind": kind, "shape": list(mask.shape), "colour": list(colour)}
    explorer._canvas._handle_custom_msg(said, [memoryview(mask.astype(np.uint8).tobytes())])


def as_values(shown):
    """A colour from 0 to 1 as the demo's transform has it: (x - 0.5) / 0.25."""
    return ((torch.as_tensor(shown, dtype=torch.float64) - 0.5) / 0.25).float().view(-1, 1, 1)


def by_hand(x, kind):
    if kind == "mean":
        return x.mean((2, 3), keepdim=True).expand_as(x)
    if kind == "blur":
        smooth = gaussian_filter(x.double().numpy(), (0, 0, 4.48, 4.48), mode="nearest", radius=13)
        return torch.from_numpy(smooth).float()
    shown = {"grey": [128 / 255] * 3, "draw": [1.0, 0.0, 0.0]}[kind]
    return as_values(shown).expand_as(x)


@pytest.mark.parametrize("kind", ["grey", "mean", "blur", "draw"])
def test_below_the_brush_the_model_gets_another_input(explorer, kind):
    (x,) = explorer.inputs.args
    before, kept = x.clone(), MODEL(x).detach()
    paint(explorer, kind)
    assert torch.equal(explorer.inputs.args[0], before)  # the picture itself stays
    mask = torch.from_numpy(MASK)
    wanted = torch.where(mask, by_hand(x, kind), x)
    edited = explorer._now.shown_inputs.args[0]
    assert torch.allclose(edited, wanted, atol=2e-6)
    assert torch.equal(edited[..., ~mask], x[..., ~mask])
    with hookviz.capture(MODEL, "layer3.1.conv2") as cache, torch.no_grad():
        logits = MODEL(edited)
    assert torch.equal(
        explorer.cache["layer3.1.conv2"].activation, cache["layer3.1.conv2"].activation
    )
    shares = logits.softmax(1)[0]
    for each in explorer.frame.predictions:
        assert each.value == pytest.approx(float(shares[each.number]), abs=1e-6)
        assert each.before == pytest.approx(float(kept.softmax(1)[0, each.number]), abs=1e-6)
    assert [str(each) for each in explorer.edits] == [f"input, 2,000 pixels: {kind}"]
    explorer.shown_run = "original"
    assert torch.equal(explorer._now.original.run.logits, kept)
    explorer.undo()
    assert torch.equal(explorer._now.run.logits, kept)


def test_noise_is_the_same_in_every_run_and_within_the_colours(explorer):
    paint(explorer, "noise")
    first = explorer._now.shown_inputs.args[0]
    logits = explorer._now.run.logits
    explorer.refresh()
    assert torch.equal(explorer._now.run.logits, logits)
    shown = first[0][:, torch.from_numpy(MASK)] * 0.25 + 0.5
    assert shown.min() >= -1e-6 and shown.max() <= 1 + 1e-6 and shown.std() > 0.2
    other = MASK[::-1].copy()
    paint(explorer, "noise", other)
    assert len(explorer.edits) == 2


def test_what_is_restored_is_the_input_again(explorer):
    (x,) = explorer.inputs.args
    paint(explorer, "grey")
    explorer.edit("input", 0, where=(slice(100, 112), slice(None)))
    half = MASK.copy()
    half[:, 50:] = False
    half[105:] = True
    paint(explorer, "restore", half)
    edited = explorer._now.shown_inputs.args[0]
    there = torch.from_numpy(half)
    assert torch.equal(edited[..., there], x[..., there])
    words = [str(each) for each in explorer.edits]
    assert words == ["input, 1,200 pixels: grey", "input, all channels, some positions: off"]
    assert (edited[..., 100:105, :] == 0).all()
    paint(explorer, "restore", np.ones_like(MASK))
    assert explorer.edits == () and torch.equal(explorer._now.run.logits, MODEL(x))


def test_a_stroke_is_of_the_shown_sample():
    made = hookviz.explore(MODEL, [PICTURES[6], PICTURES[2]], sample=1, face="canvas")
    (x,) = made.inputs.args
    paint(made, "mean")
    edited = made._now.shown_inputs.args[0]
    assert torch.equal(edited[0], x[0])
    wanted = torch.where(torch.from_numpy(MASK), by_hand(x, "mean"), x)[1]
    assert torch.allclose(edited[1], wanted, atol=1e-6)
    assert torch.equal(made.inputs.args[0], x)
    made.close()


def test_what_cannot_be_painted_is_said(explorer):
    paint(explorer, "grey", np.ones((3, 4), bool))
    assert "of its own size" in explorer._canvas.note and explorer.edits == ()
    with pytest.raises(ValueError, match="Unknown stroke 'burn': give one of grey, mean"):
        with_stroke((), explorer.inputs, "burn", torch.from_numpy(MASK))
    nothing = torch.zeros(112, 112, dtype=torch.bool)
    assert all(with_stroke((), explorer.inputs, kind, nothing) == () for kind in STROKES)
