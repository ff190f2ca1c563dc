"""Switching channels off until the prediction changes, compared with plain PyTorch."""

from functools import partial

import pytest
import torch
from browsing import Browser
from torch import nn
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.attribution import prepare_input
from hookviz.attribution.flip import Flip
from hookviz.hooking.edit import LayerEdit
from hookviz.run.session import Session
from hookviz.view.maps import run_session

LAYER = "layer3.1.conv2"


def probabilities_without(model, x, channels, more=()):
    """Return the probabilities with these channels switched off by a plain hook."""

    def off(module, args, output):
        output = output.clone()
        output[:, channels] = 0
        return output

    handles = [model.get_submodule(LAYER).register_forward_hook(off)]
    handles += [model.get_submodule(name).register_forward_hook(hook) for name, hook in more]
    with torch.no_grad():
        shares = model(x)[0].softmax(0)
    for each in handles:
        each.remove()
    return shares


@pytest.fixture(scope="module")
def model():
    return hookviz.demo_model()


@pytest.fixture
def explorer(model):
    return hookviz.explore(model, hookviz.demo_images()[6], layer=LAYER, channel=32)


def test_the_curve_and_the_channels_are_confirmed_by_plain_pytorch(model, explorer):
    before = snapshot(model)
    (x,) = explorer.inputs.args
    explorer.order = "score drop"
    order = [int(each) for each in explorer.frame.channels]
    flip = explorer.flip()
    answer = int(model(x).argmax())
    assert flip.answer == answer
    for off, share in enumerate(flip.curve):
        shares = probabilities_without(model, x, order[:off])
        assert share == pytest.approx(float(shares[answer]), abs=1e-5)
        assert (int(shares.argmax()) != answer) == (off == len(flip.curve) - 1)
    assert int(probabilities_without(model, x, flip.channels).argmax()) == flip.flipped != answer
    assert set(flip.channels) <= set(order[: len(flip.curve) - 1])
    for each in flip.channels:  # none of them can be left out
        assert (
            int(probabilities_without(model, x, [c for c in flip.channels if c != each]).argmax())
            == answer
        )
    assert explorer.frame.predictions[0].number == flip.flipped
    (off,) = explorer.edits
    assert (off.layer, off.change, off.channels) == (LAYER, 0, flip.channels)
    first, second, *_ = flip.channels
    assert str(off) == f"{LAYER}, channels {first}, {second}, … {len(flip.channels)} in all: off"
    explorer.undo()
    assert explorer.edits == () and explorer.frame.predictions[0].number == answer
    assert_untouched(model, before)


@pytest.mark.heavy
def test_existing_edits_stay_active(model, explorer):
    (x,) = explorer.inputs.args
    explorer.edit("stem.0", 0.5)
    explorer.order = "max"
    order = explorer.frame.channels.tolist()
    flip = explorer.flip()
    more = [("stem.0", lambda module, args, output: output * 0.5)]
    for off in (0, len(flip.curve) - 1):
        shares = probabilities_without(model, x, order[:off], more=more)
        assert flip.curve[off] == pytest.approx(float(shares[flip.answer]), abs=1e-5)
    assert len(explorer.edits) == 2


def test_a_prediction_that_never_changes_is_reported():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    with torch.no_grad():
        net[3].bias.copy_(torch.tensor([100.0, 0, 0]))
    session = Session(net, prepare_input(torch.rand(1, 1, 8, 8), net))
    flip = Flip(session, lambda channels: LayerEdit("0", 0, channels), range(4))
    shares = []
    while not shares or shares[-1] < 1:
        shares.append(flip.work(seconds=0))
    assert len(shares) == 4 and shares == sorted(shares)
    assert (flip.answer, flip.flipped, flip.channels) == (0, None, [])
    assert "class 0 with 4 channels off" in repr(flip)


@pytest.mark.parametrize("heads", [True, False])
def test_curves_are_exact_with_an_edited_input_and_with_heads_off(heads):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 4, 16, batch_first=True)
    net = nn.Sequential(nn.Linear(8, 8), layer, nn.Flatten(), nn.Linear(24, 3)).eval()
    session = Session(net, prepare_input(torch.rand(1, 3, 8), net))
    if heads:
        off = partial(run_session(session, None).cache["1.self_attn.heads"].edit, 0)
    else:
        session = session.edited([LayerEdit("input", 0.5)])
        off = partial(LayerEdit, "1.linear1", 0)
    flip = Flip(session, off, range(4))
    flip.work()
    for count, share in enumerate(flip.curve):
        edited = session.edited([*session.edits, *([off([*range(count)])] if count else [])])
        logits = run_session(edited, None).logits
        assert share == pytest.approx(float(logits.softmax(1)[0, flip.answer]), abs=1e-6)
    assert len(set(flip.curve)) > 2


def test_a_model_with_one_output_is_refused():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1))
    session = Session(net, prepare_input(torch.rand(1, 1, 8, 8), net))
    with pytest.raises(ValueError, match="has one output"):
        Flip(session, lambda channels: LayerEdit("0", 0, channels), range(4))


def test_channels_by_number_go_off_by_their_contribution(model, explorer):
    call = explorer.cache[LAYER].last
    contributions = (call.activation * call.gradient)[0].sum((1, 2))
    first = contributions.argsort(descending=True).tolist()
    browser = Browser(hookviz.explore(model, hookviz.demo_images()[6], layer=LAYER, face="canvas"))
    answer = {"share": 0.0}
    while answer["share"] < 1:
        answer, _ = browser.ask("flip", layer=LAYER, call=0, sample=0, depth=0, channels=[])
    flip = explorer.flip()
    assert answer["channels"] == flip.channels and answer["curve"] == flip.curve
    assert set(flip.channels) <= set(first[: len(flip.curve) - 1])
