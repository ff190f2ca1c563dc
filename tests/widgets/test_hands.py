"""Edits in an explorer: everything that it shows is of the edited network."""

import copy
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from browsing import Browser
from seen import control
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.view.heatmaps import heatmap_of
from hookviz.view.maps import layer_of
from hookviz.view.orders import score_drops
from hookviz.view.payload import overview_payload
from hookviz.view.source import shown_picture

LAYER = "layer3.1.conv2"
PICTURE = 6  # the demo picture of a moon


@pytest.fixture(scope="module")
def model():
    return hookviz.demo_model()


@pytest.fixture
def explorer(request, model):
    face = "canvas" if "canvas" in request.node.name or "browser" in request.node.name else None
    picture = hookviz.demo_images()[PICTURE]
    return hookviz.explore(model, picture, layer=LAYER, channel=32, face=face)


def edited_run(model, x, *edits, target=None):
    """Return the logits and a capture of an edited run without an explorer."""
    with torch.enable_grad(), hookviz.capture(model) as cache, ExitStack() as stack:
        for name, change, channels in edits:
            stack.enter_context(hookviz.edit(model, name, change, channels=channels))
        logits = model(x)
        score = logits[0].max() if target is None else logits[0, target]
        torch.autograd.grad(score, next(iter(model.parameters())))
    return logits.detach(), cache


def test_the_explorer_shows_the_edited_run(model, explorer):
    before = snapshot(model)
    plain = explorer.cache[LAYER].activation
    explorer.edit()
    assert_untouched(model, before)
    (x,) = explorer.inputs.args
    logits, cache = edited_run(model, x, (LAYER, 0, 32))
    assert torch.equal(explorer.cache[LAYER].activation, cache[LAYER].activation)
    assert torch.equal(explorer.cache[LAYER].gradient, cache[LAYER].gradient)
    assert (explorer.frame.panels[0].values == 0).all()
    assert not torch.equal(plain, explorer.cache[LAYER].activation)
    shown = explorer.frame.predictions[0]
    assert shown.number == logits.argmax() and shown.value == float(logits.softmax(1).max())
    assert torch.equal(explorer.heatmaps()[LAYER], hookviz.heatmap(cache[LAYER]))


def test_predictions_show_their_change_by_the_edit(model, explorer):
    (x,) = explorer.inputs.args
    logits = model(x).detach()
    first = logits.softmax(1)[0]
    explorer.edit(channels=slice(None))
    after = edited_run(model, x, (LAYER, 0, slice(None)))[0]
    for each in explorer.frame.predictions:
        assert each.before == pytest.approx(float(first[each.number]), abs=1e-6)
        assert each.value == pytest.approx(float(after.softmax(1)[0, each.number]), abs=1e-6)
        assert each.change.startswith("+" if each.value >= each.before else "−")
        moved = float(after[0, each.number] - logits[0, each.number])
        assert each.change.endswith(f"logit {moved:+.2f}".replace("-", "−"))
    # The former top class is listed even if it is no longer among the top classes.
    assert int(first.argmax()) in [each.number for each in explorer.frame.predictions]
    explorer.reset()
    assert all(each.change == "" for each in explorer.frame.predictions)


def test_the_original_run_and_the_difference_can_be_shown(explorer):
    one = explorer.frame
    explorer.edit(change=0.5)
    two = explorer.frame
    explorer.shown_run = "original"
    assert np.array_equal(explorer.frame.panels[0].values, one.panels[0].values)
    assert np.array_equal(explorer.frame.heatmap, one.heatmap)
    assert explorer.frame.predictions == one.predictions
    assert "original" in explorer.frame.panels[0].caption
    assert explorer.frame.run_names == two.run_names == ("original", "edited", "difference")
    explorer.shown_run = "difference"
    shown = explorer.frame
    for place in (0, 1):
        less = two.panels[place].values - one.panels[place].values
        assert np.array_equal(shown.panels[place].values, less)
    assert np.array_equal(shown.heatmap, two.heatmap - one.heatmap)
    assert (
        "edited − original" in shown.panels[0].caption and "edited − original" in shown.overlay.name
    )
    explorer.undo()
    assert explorer.edits == () and explorer.shown_run == "difference"
    assert explorer.frame.panels[0].caption.count("edited") == 0


def test_the_browser_keeps_the_edits_while_the_original_run_is_shown(explorer):
    browser = Browser(explorer)

    def shown_edits():
        return [(edit["words"], edit["key"]) for edit in browser.canvas.facts["edits"]]

    browser.request("factor", layer=LAYER, channel=32, factor=0)
    edits, names = shown_edits(), browser.canvas.facts["run_names"]
    run = browser.canvas.facts["run"]
    browser.move(shown_run="original")
    assert browser.canvas.facts["run"] > run
    assert (shown_edits(), browser.canvas.facts["run_names"]) == (edits, names)
    browser.request("factor", layer=LAYER, channel=3, factor=0.5)
    assert [key for _, key in shown_edits()] == [edits[0][1], edits[0][1] + 1]
    assert len(explorer.edits) == 2 and explorer.shown_run == "original"
    _, arrays = browser.ask("layer", layer=LAYER, shown_run="edited")
    assert (arrays["maps"][32] == 0).all()
    browser.request("drop", key=edits[0][1])
    assert [words for words, _ in shown_edits()] == [f"{LAYER}, channel 3: × 0.5"]
    browser.request("edits", keys=[])
    assert shown_edits() == [] and explorer.edits == ()
    assert browser.canvas.facts["run_names"] == []


def test_edits_apply_in_order_and_survive_new_targets_and_pictures(model, explorer):
    edits = ((LAYER, lambda y: y + 1, None), (LAYER, 2, 32), ("layer2.0.conv1", "mean", [1, 2]))
    for name, change, channels in edits:
        explorer.edit(name, change, channels=channels)
    assert [str(each) for each in explorer.edits] == [
        f"{LAYER}, all channels: <lambda>",
        f"{LAYER}, channel 32: × 2",
        "layer2.0.conv1, channels 1, 2: its mean",
    ]

    def same(*wanted, **options):
        _, cache = edited_run(model, explorer.inputs.args[0], *wanted, **options)
        assert torch.equal(explorer.cache[LAYER].activation, cache[LAYER].activation)
        assert torch.equal(explorer.cache[LAYER].gradient, cache[LAYER].gradient)

    same(*edits)
    explorer.target = 3
    same(*edits, target=3)
    explorer.image = hookviz.demo_images()[2]
    same(*edits, target=3)
    explorer.edits = explorer.edits[1:]
    same(*edits[1:], target=3)
    explorer.undo()
    same(edits[1], target=3)
    explorer.refresh()
    same(edits[1], target=3)
    explorer.reset()
    same(target=3)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((LAYER, float("inf")), ValueError, "not finite"),
        ((LAYER, lambda x: 1 / 0), RuntimeError, "raised ZeroDivisionError"),
    ],
)
def test_a_failed_edit_changes_nothing(model, explorer, arguments, error, words):
    explorer.edit(change=0.5)
    frame, edits, before = explorer.frame, explorer.edits, snapshot(model)
    with pytest.raises(error, match=words):
        explorer.edit(*arguments)
    assert explorer.edits == edits and explorer.frame is frame
    assert_untouched(model, before)


@pytest.mark.parametrize("edits", [[1], 1, None, LAYER])
def test_edits_of_another_type_are_refused_and_change_nothing(explorer, edits):
    explorer.edit(change=0.5)
    frame, before = explorer.frame, explorer.edits
    with pytest.raises(TypeError, match="edits= holds .*, which is not an edit: give a list of"):
        explorer.edits = edits
    assert explorer.edits == before and explorer.frame is frame


def test_the_canvas_sets_scales_and_drops_edits(explorer):
    """Requests of the browser about the channel that it shows."""
    browser = Browser(explorer)

    def ask(**request):
        browser.request(**request)

    def facts():
        return browser.canvas.facts

    at = {"layer": LAYER, "channel": 32}
    ask(set="factor", factor=0.5, **at)
    assert [str(each) for each in explorer.edits] == [f"{LAYER}, channel 32: × 0.5"]
    ask(set="factor", factor=0, **at)
    assert [str(each) for each in explorer.edits] == [f"{LAYER}, channel 32: off"]
    ask(set="factor", factor=2, layer=LAYER, channel=33)
    assert explorer.channel == 33 and len(explorer.edits) == 2
    first, second = (said["key"] for said in facts()["edits"])
    ask(set="drop", key=first)
    ask(set="drop", key=first)  # a second click on an edit that is already dropped
    assert [str(each) for each in explorer.edits] == [f"{LAYER}, channel 33: × 2"]
    assert [said["key"] for said in facts()["edits"]] == [second]
    ask(set="factor", factor=0.5, **at)
    ask(set="edits", keys=[second])
    assert [str(each) for each in explorer.edits] == [f"{LAYER}, channel 33: × 2"]
    ask(set="edits", keys=[first, second])  # restores the first edit
    assert [str(each) for each in explorer.edits] == [
        f"{LAYER}, channel 32: off",
        f"{LAYER}, channel 33: × 2",
    ]
    ask(set="drop", key=first)
    ask(set="factor", factor=1, layer=LAYER, channel=33)
    assert explorer.edits == ()
    for channel in (1, 2):
        ask(set="factor", factor=0, layer=LAYER, channel=channel)
    ask(set="edits", keys=[])
    assert explorer.edits == ()
    ask(set="off", layer=LAYER, channels=[1, 2, 32])  # the channels that change the prediction
    assert [str(each) for each in explorer.edits] == [f"{LAYER}, channels 1, 2, … 3 in all: off"]
    assert facts()["edits"][0]["channels"] == [1, 2, 32]
    ask(set="factor", factor=1, **at)
    ask(set="factor", factor=0.5, layer=LAYER, channel=1)
    assert [str(each) for each in explorer.edits] == [
        f"{LAYER}, channel 2: off",
        f"{LAYER}, channel 1: × 0.5",
    ]


def has_all_gradients(explorer):
    return all(record.gradient is not None for record in explorer.displayed().cache.values())


def test_the_browser_gets_answers_before_the_facts_of_a_new_run(explorer):
    """The request carries the questions, so that the browser shows both in one frame."""
    browser = Browser(explorer)
    at = {"layer": LAYER, "call": 0, "sample": 0, "depth": 0}
    questions = [
        {"ask": "layer", **at, "shown_after": "output", "key": "the layer"},
        {"ask": "picture", "of": [0, 0, 0], "key": "the input"},
        {"ask": "heatmap", **at, "method": "layercam", "key": "the heatmap"},
    ]
    run = browser.canvas.facts["run"]
    sent, whole = [], []

    def note(change):
        sent.append((change["name"], len(browser.answers)))
        whole.append(has_all_gradients(explorer))

    browser.canvas.observe(note, ["facts", "seen", "overview"])
    covered = np.zeros((112, 112), np.uint8)
    covered[20:60, 20:60] = 1
    browser.request("paint", covered.tobytes(), shape=covered.shape, questions=questions, moved=5)
    assert sent == [("facts", 3), ("seen", 3)]
    assert whole == [False, False]  # they are sent while backward goes on to other layers
    # The overview examines every tensor: it comes with the first answer after all is drawn.
    browser.ask("here")
    assert sent[2:] == [("overview", 4)]
    assert browser.canvas.facts["run"] == run + 1
    assert not {"summary", "classes"} & browser.canvas.facts.keys()  # nor these
    assert browser.canvas.overview == overview_payload(explorer.displayed())
    assert [answer["key"] for answer in browser.answers[:3]] == [
        f"{run + 1} {question['key']}" for question in questions
    ]
    layer, picture, heat, _ = browser.arrays
    view = explorer.displayed()
    assert np.array_equal(layer["maps"], layer_of(view).maps)
    assert np.array_equal(picture["pixels"], shown_picture(view))
    assert np.array_equal(heat["heat"], heatmap_of(view.with_settings(heatmap="layercam")))
    explorer.undo()  # a run that no request of the browser has led to
    assert len(browser.answers) == 4
    assert browser.canvas.overview == overview_payload(explorer.displayed())


LAYER_QUESTION = {"ask": "layer", "layer": LAYER, "call": 0, "sample": 0, "depth": 0, "key": "it"}


def test_the_browser_waits_for_maps_after_the_activation_until_the_run_has_ended(explorer):
    """The model runs once more for them, which it cannot do within its backward."""
    explorer.layer, explorer.shown_after = "layer3.1.conv1", "activation"
    browser, whole = Browser(explorer), []
    browser.canvas.observe(lambda _: whole.append(has_all_gradients(explorer)), "facts")
    at = {"layer": explorer.layer}
    question = LAYER_QUESTION | at | {"shown_after": "activation"}
    browser.request("factor", **at, channel=32, factor=0, moved=5, questions=[question])
    assert whole == [True]
    assert [answer["key"] for answer in browser.answers] == [f"{browser.canvas.facts['run']} it"]
    shown = layer_of(explorer.displayed()).maps
    assert np.array_equal(browser.arrays[0]["maps"], shown) and (shown >= 0).all()


class FailsBackward(torch.autograd.Function):
    fails = False

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if FailsBackward.fails:
            raise RuntimeError("it fails in the backward")
        return gradient


def test_the_browser_goes_back_if_the_rest_of_the_backward_fails(model, monkeypatch):
    body = copy.deepcopy(model)
    body.stem.register_forward_hook(lambda module, args, output: FailsBackward.apply(output))
    explorer = hookviz.explore(body, hookviz.demo_images()[PICTURE], layer=LAYER, face="canvas")
    browser, maps = Browser(explorer), explorer.frame.panels[0].values
    predictions = browser.canvas.facts["predictions"]
    monkeypatch.setattr(FailsBackward, "fails", True)
    at = {"layer": LAYER, "channel": explorer.channel}
    browser.request("factor", **at, factor=0, moved=5, questions=[LAYER_QUESTION])
    (shown,) = browser.arrays
    assert (shown["maps"][explorer.channel] == 0).all()  # true of the edited network
    assert "it fails in the backward" in browser.canvas.note
    assert explorer.edits == () == tuple(browser.canvas.facts["edits"])
    assert browser.canvas.facts["predictions"] == predictions and browser.canvas.seen == 5
    assert browser.canvas.facts["run"] > int(browser.answers[0]["key"].split()[0])
    _, again = browser.ask("layer", layer=LAYER)
    assert np.array_equal(again["maps"][explorer.channel], maps)


def test_the_browser_gets_an_interrupted_overview_with_the_next_answer(explorer, monkeypatch):
    browser = Browser(explorer)
    browser.request("target", number=3, moved=5)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("hookviz.widgets.canvas.overview_payload", interrupted)
        browser.ask("here")
    browser.ask("here")
    assert browser.canvas.overview == overview_payload(explorer.displayed())


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("first", [True, False])
def test_an_interrupt_of_the_answers_does_not_end_the_request_of_the_browser(
    explorer, monkeypatch, first
):
    """Whether the layer is shown first, or after the run."""
    browser = Browser(explorer)
    if not first:
        monkeypatch.setattr(browser.canvas, "show_first", lambda: None)
    monkeypatch.setattr("hookviz.widgets.canvas.reply", interrupted)
    question = {"ask": "picture", "key": "the input"}
    browser.request("target", number=3, moved=5, questions=[question])
    assert browser.canvas.facts["target"]["number"] == explorer.target == 3
    lost = [] if first else [True]
    assert browser.canvas.seen == 5 and [each["lost"] for each in browser.answers] == lost


def test_the_canvas_ablates_in_parts(model, explorer, monkeypatch):
    browser = Browser(explorer)
    monkeypatch.setattr("hookviz.view.replies.PART", 0)
    at = {"layer": LAYER, "call": 0, "sample": 0, "depth": 0}
    while not browser.answers or browser.answers[-1]["share"] < 1:
        browser.ask("ablation", **at)
    shares = [answer["share"] for answer in browser.answers]
    assert len(shares) > 4 and shares == sorted(set(shares))
    assert (explorer.order, explorer.channel) == (
        "index",
        32,
    )  # the browser changes these settings itself
    drops, order = browser.arrays[-1]["drops"], browser.arrays[-1]["order"]
    twin = hookviz.explore(model, hookviz.demo_images()[PICTURE], layer=LAYER)
    twin.order = "score drop"
    assert np.allclose(drops, score_drops(twin.displayed()), atol=1e-5)
    assert np.allclose(drops[order], drops[twin.frame.channels], atol=1e-5)
    monkeypatch.setattr(
        explorer.displayed().session, "active", None
    )  # the model must not run again
    browser.move(order="score drop", channel=32)
    assert (explorer.order, explorer.channel) == ("score drop", 32)


def test_channels_are_ordered_by_score_drop(model, explorer):
    (x,) = explorer.inputs.args
    explorer.order = "score drop"
    order = explorer.frame.channels
    drops = score_drops(explorer.displayed())[order]
    whole = float(model(x)[0].detach().max())
    top = int(model(x).argmax())
    assert (np.diff(drops) <= 0).all()
    for place in (0, 1, len(order) - 1):
        with hookviz.edit(model, LAYER, 0, channels=int(order[place])), torch.no_grad():
            without = float(model(x)[0, top])
        assert drops[place] == pytest.approx(whole - without, abs=1e-4)
    assert explorer.channel == order[0]
    explorer.edit(change=0.5)  # the scores of the edited run are not computed yet
    assert explorer.order == "score drop"
    assert "not computed for this layer" in explorer.frame.tiles.caption
    explorer.order = "index"
    explorer.order = "score drop"
    drops = score_drops(explorer.displayed())
    assert (np.diff(drops[explorer.frame.channels]) <= 0).all()
    explorer.shown_run = "original"
    assert explorer.order == "index"


def test_a_slow_control_reports_its_progress(explorer, monkeypatch):
    monkeypatch.setattr("hookviz.run.progress.PATIENCE", 0)
    monkeypatch.setattr("hookviz.run.progress._PAUSE", 0)
    notes = []
    say = type(explorer).say
    monkeypatch.setattr(
        type(explorer), "say", lambda self, note: notes.append(note) or say(self, note)
    )
    order = control(explorer, "order")
    order.value = "score drop"
    assert explorer.order == "score drop"
    assert sum("% done; interrupt the kernel to stop" in note for note in notes) > 3
    assert notes[-1] == "" and explorer.frame.note == ""


def test_an_interrupted_ablation_keeps_the_order(explorer, monkeypatch):
    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr("hookviz.view.orders.ablation_scores", interrupted)
    with pytest.raises(KeyboardInterrupt):
        explorer.order = "score drop"
    assert explorer.order == "index" and explorer.frame.settings.order == "index"


def test_a_page_shows_the_edited_network(explorer):
    explorer.edit()
    page = explorer.to_html(layers=LAYER, max_bytes=2e6)
    assert f"{LAYER}, channel 32: off" in page
    explorer.shown_run = "difference"
    assert "edited" in explorer.to_html(layers=LAYER, max_bytes=2e6)
