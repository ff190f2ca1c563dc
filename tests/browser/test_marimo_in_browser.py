"""The explorer's canvas in a marimo server that the test installs, in both directions."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from front_end import PATIENCE, free_port, wait_for, wait_for_tiles

ROOT = Path(__file__).resolve().parents[2]
MARIMO = "marimo==0.25.2"
LESSON = """
import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo
    import hookviz

    explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[12], channel=3)
    channel, set_channel = mo.state(explorer.channel)
    explorer.observe(lambda change: set_channel(change["new"]), "channel")
    explorer
    return channel, explorer, hookviz, mo


@app.cell
def _(channel, mo):
    mo.md(f"Python has channel {channel()}.")
    return


@app.cell
def _(explorer, mo):
    mo.ui.button(label="choose 5", on_click=lambda _: setattr(explorer, "channel", 5))
    return


@app.cell
def _(hookviz):
    model, pictures = hookviz.demo_model(), hookviz.demo_images()[:4]
    hookviz.survey(model, pictures, "layer3.1.conv2", k=2).show()
    return
"""


@pytest.fixture(scope="module")
def marimo(tmp_path_factory):
    """Return the address of a marimo server in an environment on top of this one."""
    home = tmp_path_factory.mktemp("marimo")
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, home / "venv"], check=True)
    python = home / "venv" / "bin" / "python"
    subprocess.run([*uv, "pip", "install", "-q", "--python", python, MARIMO], check=True)
    (packages,) = (home / "venv" / "lib").glob("python*/site-packages")
    above = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    (packages / "above.pth").write_text("\n".join(above) + "\n")
    (home / "lesson.py").write_text(LESSON)
    port = free_port()
    options = ["--headless", "--no-token", "--host", "127.0.0.1", "--port", str(port)]
    environment = {name: value for name, value in os.environ.items() if name != "HOOKVIZ_CANVAS"}
    with (home / "server.log").open("w") as log:
        server = subprocess.Popen(
            [python, "-m", "marimo", "run", *options, "lesson.py"],
            cwd=home,
            env=environment | {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        address = f"http://127.0.0.1:{port}/"
        try:
            wait_for(lambda: answers(address), "marimo to start")
            yield address
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(PATIENCE)


def answers(address):
    try:
        return bool(urllib.request.urlopen(address, timeout=5).status == 200)
    except OSError:
        return False


@pytest.mark.heavy
def test_canvas_and_python_follow_each_other_in_marimo(marimo, chrome):
    page = chrome.new_page(viewport={"width": 1400, "height": 1000})
    raised: list[str] = []
    page.on("pageerror", lambda error: raised.append(str(error)))
    page.goto(marimo)
    wait_for_tiles(page)
    page.get_by_text("Python has channel 3.").wait_for()
    page.get_by_role("img", name=re.compile(r"^channel 3 of 96")).first.wait_for()
    page.get_by_role("slider", name="channel", exact=True).focus()
    page.keyboard.press("ArrowRight")
    page.get_by_text("Python has channel 4.").wait_for()
    page.get_by_role("button", name="choose 5").click()
    page.get_by_text("Python has channel 5.").wait_for()
    page.get_by_role("img", name=re.compile(r"^channel 5 of 96")).first.wait_for()
    page.frame_locator("iframe").get_by_role("img").first.wait_for()  # the survey, as a page
    assert raised == []
    page.close()
