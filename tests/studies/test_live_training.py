"""The page and the live view of a training contain the recorded steps."""

import base64

import numpy as np
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from seen import blocks, registered
from torch import nn

import hookviz
from hookviz.studies.watch import strips
from hookviz.studies.watch.strips import ORDER, bytes_of

STILL = b"the picture that is of no interest here" * 100


def watched_training(steps=6, every=2, probe=None, live=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = hookviz.watch(model, every=every, probe=probe)
    shown = watch.show() if live else None
    for _ in range(steps):
        with watch:
            loss = model(torch.randn(2, 1, 6, 6)).square().mean()
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
    return watch, shown


@pytest.fixture
def without_canvas(monkeypatch):
    monkeypatch.setenv("HOOKVIZ_CANVAS", "off")


def sent(step, name):
    """Return an array of a step as the browser gets it."""
    return step.dead().astype(np.float32) if name == "dead" else step.arrays[name].ravel()


def test_a_page_contains_all_recorded_steps():
    watch, _ = watched_training(probe=torch.zeros(1, 1, 6, 6))
    page = watch.to_html()
    found = blocks(page)
    assert list(found) == ["facts", "steps"]
    facts, steps = found.values()
    assert facts["steps"] == watch.steps == [at for at, _ in steps] == [0, 2, 4]
    assert facts["layouts"][0]["rows"] == ["0", "1", "2", "3"]
    for (_, text), step in zip(steps, watch.history().steps, strict=True):
        content, at = base64.b64decode(text), 0
        for name in ORDER:
            kept = sent(step, name)
            assert at % kept.itemsize == 0  # the offset of a JavaScript typed array must be aligned
            found = np.frombuffer(content, kept.dtype, len(kept), at)
            assert np.array_equal(found, kept, equal_nan=kept.dtype.kind == "f"), name
            at += kept.nbytes
        assert at == len(content) == len(bytes_of(step))


@pytest.mark.heavy
def test_a_page_leaves_steps_out_to_stay_within_max_bytes(tmp_path, monkeypatch):
    watch, _ = watched_training(60, 1)
    monkeypatch.setattr(strips, "small_png", lambda figure: STILL)
    whole = watch.to_html()
    half = watch.to_html(max_bytes=0.7 * len(whole))
    assert len(half) <= 0.7 * len(whole)
    assert "30 of 60 recorded steps are in this page" in half
    assert watch.to_html(tmp_path / "watch.html") is None
    assert (tmp_path / "watch.html").read_text() == whole
    with pytest.raises(ValueError, match="is too little: a page of two steps takes"):
        watch.to_html(max_bytes=1000)
    with pytest.raises(ValueError, match="No step of train has been recorded"):
        watched_training(0)[0].to_html()


def test_a_live_view_without_a_canvas_shows_the_page(without_canvas):
    before = registered()
    watch, shown = watched_training(live=True)
    shown.push(now=True)
    (frame,) = shown.children
    assert "3 recorded (every 2)" in frame.value and "<iframe" in frame.value
    assert watch.title.split(";")[0] in shown._repr_mimebundle_()[0]["text/plain"]
    shown.close()
    assert registered() == before


def test_an_error_of_the_live_view_does_not_stop_the_training(without_canvas, monkeypatch):
    last = property(lambda self: 1 / 0 if self._training.steps else -1)
    monkeypatch.setattr(hookviz.widgets.LiveTraining, "_last", last)
    monkeypatch.setattr("hookviz.widgets.live_training.PAUSE", 0.0)
    watch, shown = watched_training(every=1, live=True)
    assert watch.steps == list(range(6))
    assert "left out: show() (ZeroDivisionError" in watch.title
    shown.close()


def test_a_live_view_closes_when_python_ends(without_canvas, monkeypatch):
    """Then nothing can be imported, and ``get_ipython`` imports."""

    def get_ipython():
        raise ImportError("sys.meta_path is None, Python is likely shutting down")

    _, shown = watched_training(live=True)
    monkeypatch.setattr("hookviz.widgets.live_training.get_ipython", get_ipython)
    shown.close()
    assert shown.closed


def test_the_canvas_gets_new_steps_only(monkeypatch):
    from hookviz.widgets.live_training import StepsCanvas

    sent = []
    monkeypatch.setattr(
        StepsCanvas, "send", lambda self, content, buffers=None: sent.append(content["steps"])
    )
    watch, _ = watched_training()
    canvas = StepsCanvas(watch)
    canvas.push()
    canvas.push()
    assert sent[0] == [0, 2, 4]
    assert set(sent[1]) <= {2, 4}  # steps may be sent again when their update becomes known
    canvas.close()


def test_the_last_step_is_shown_at_the_end_of_the_cell(without_canvas, monkeypatch):
    shell = InteractiveShell()
    monkeypatch.setattr(strips, "small_png", lambda figure: STILL)
    monkeypatch.setattr("hookviz.widgets.live_training.get_ipython", lambda: shell)
    monkeypatch.setattr("hookviz.widgets.live_training.PAUSE", 1e9)  # no update during the cell
    before = len(shell.events.callbacks["post_run_cell"])
    _, shown = watched_training(live=True)
    (frame,) = shown.children
    assert frame.value == "Nothing has been recorded yet."
    shell.run_cell("1")
    assert "3 recorded (every 2)" in frame.value
    shown.close()
    assert len(shell.events.callbacks["post_run_cell"]) == before
