"""The canvas reports a kernel that has ended, but not one that is busy."""

from __future__ import annotations

import os
import signal

import pytest
from front_end import PATIENCE, WIDGETS
from playwright.sync_api import expect

MAKE = "import hookviz\nhookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])"
PROCESS = "import os, pathlib\npathlib.Path('process').write_text(str(os.getpid()))"
RECONNECT = "await found.sessionContext.session.kernel.reconnect();"

BUSY = """import pathlib, torch, time, hookviz
from hookviz.widgets.canvas import Canvas
assert "1e4" in Canvas._esm  # the ten seconds of web/connection.ts become 0.1
patch.object(Canvas, "_esm", Canvas._esm.replace("1e4", "100")).start()
class Slow(torch.nn.Conv2d):
    def forward(self, x):
        while pathlib.Path("wait").exists():
            time.sleep(0.01)
        return super().forward(x)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1), Slow(3, 9, 3), torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten())
hookviz.explore(net, torch.rand(1, 3, 16, 16), layer="0")"""


def test_a_busy_kernel_is_not_reported_as_ended(open_canvas, lab):
    _, app = open_canvas(BUSY)
    told, bars = app.get_by_role("alert"), app.locator(".hv-prediction")
    wait = lab.files / "wait"
    wait.touch()
    try:
        bars.nth(1).click()  # runs the model
        words = "The kernel is busy" if WIDGETS > 7 else "No answer from the kernel"
        expect(told).to_contain_text(words)
    finally:
        wait.unlink()
    expect(bars.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(told).to_be_hidden()


def by_menu(notebook, lab):
    notebook.press_restart()


def by_request(notebook, lab):
    lab.ask(f"kernels/{lab.shared}/restart", PATIENCE, reason="a test")
    notebook.command(RECONNECT)  # or the server may lose the next message


def by_death(notebook, lab):
    os.kill(int((lab.files / "process").read_text()), signal.SIGKILL)
    told = notebook.page.locator(".jp-Dialog, .modal-dialog")  # the front end's message
    told.get_by_role("button").last.click()
    expect(told).to_be_hidden()


# Each way ends a kernel, so the next test must import torch again.
@pytest.mark.heavy
@pytest.mark.parametrize("end", [by_menu, by_request, by_death])
def test_the_canvas_reports_that_the_kernel_has_ended(open_canvas, lab, end):
    notebook, app = open_canvas(PROCESS, MAKE)
    notebook.settle()
    told = app.get_by_role("alert")
    expect(told).to_be_hidden()
    end(notebook, lab)
    lab.shared = ""  # the next notebook gets another kernel
    if end is not by_request:  # the front end may miss a restart by others until the next question
        expect(told).to_be_visible()
    app.get_by_role("slider", name="layer").focus()
    notebook.page.keyboard.press("Home")  # a layer that has not been loaded
    expect(told).to_contain_text("The kernel was restarted or has ended: run the cell again.")
    app.get_by_text("no kernel: run the cell again").first.wait_for()
    notebook.errors.clear()  # the front end may report the lost connection


@pytest.mark.heavy
def test_a_missing_answer_reveals_that_the_kernel_has_ended(open_canvas, lab):
    """The canvas notices a new kernel even if the front end does not report its state."""
    deaf = """from hookviz.widgets.canvas import Canvas
states = '["restarting","autorestarting","starting","terminating","dead"]'
assert states in Canvas._esm
patch.object(Canvas, "_esm", Canvas._esm.replace(states, "[]")).start();"""
    notebook, app = open_canvas(deaf, MAKE)
    notebook.settle()
    by_request(notebook, lab)
    lab.shared = ""
    notebook.round_trip()  # the new kernel answers
    expect(app.get_by_role("alert")).to_be_hidden()
    app.get_by_role("slider", name="layer").focus()
    notebook.page.keyboard.press("Home")
    expect(app.get_by_role("alert")).to_contain_text("The kernel was restarted or has ended")
    notebook.errors.clear()
