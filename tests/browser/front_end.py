"""What all front ends have in common: a server of our own, a page, and a notebook run in it."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ipywidgets
import nbformat
import numpy as np
from jupyter_client import BlockingKernelClient
from playwright.sync_api import Locator, Page

TOKEN = "hookviz"
WIDGETS = int(ipywidgets.__version__.partition(".")[0])  # 7 or 8


class FrontEnd:
    """A running server whose files, settings and history are all in a temporary folder.

    A subclass says how it is started.
    """

    module: str  # python -m ...
    shared: str | None = None  # the kernel that most notebooks have in turn

    def __init__(self, home: Path) -> None:
        self.home, self.files = home, home / "files"
        self.files.mkdir()
        self.configure()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = (home / "server.log").open("w")
        variables = {
            "HOME": home,
            "JUPYTER_CONFIG_DIR": home / "config",
            "JUPYTER_DATA_DIR": home / "data",
            "JUPYTER_RUNTIME_DIR": home / "runtime",
            "IPYTHONDIR": home / "ipython",
            "OMP_WAIT_POLICY": "PASSIVE",
            # Core widgets are tried by themselves; a test of the canvas turns it on.
            "HOOKVIZ_CANVAS": "off",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", self.module, "--no-browser", *self.flags()]
            + [f"--{name}={value}" for name, value in self.options().items()],
            env=os.environ | {name: str(value) for name, value in variables.items()},
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_for(self.started, 180, f"{self.module} to start")
        except AssertionError:
            self.close()
            raise

    def configure(self) -> None:
        """Write settings, before the start."""

    def flags(self) -> list[str]:
        return ["--allow-root"]

    def options(self) -> dict[str, Any]:
        raise NotImplementedError

    def started(self) -> bool:
        return self.get("status") is not None

    def address(self, name: str) -> str:
        """Where a notebook is opened."""
        raise NotImplementedError

    def get(self, what: str) -> Any:
        try:
            return self.ask(what)
        except OSError:
            return None

    def ask(self, what: str, seconds: float = 5, **body: Any) -> Any:
        """Of the server's own interface; what has a body is posted."""
        url = f"http://127.0.0.1:{self.port}/api/{what}?token={TOKEN}"
        data = json.dumps(body).encode() if body else None
        with urllib.request.urlopen(url, data, timeout=seconds) as answer:
            return json.load(answer)

    def share_kernel(self, path: Path) -> None:
        """Give a notebook the kernel that others had: swept, and with all imports behind it."""
        kernel = {"id": self.shared} if self.shared else {"name": "python3"}
        known = {"path": path.name, "name": path.name, "type": "notebook", "kernel": kernel}
        new = self.shared is None
        self.shared = self.ask("sessions", 180, **known)["kernel"]["id"]
        if not new:
            sweep(self.home / "runtime" / f"kernel-{self.shared}.json")

    def end_kernel(self, path: Path) -> None:
        """End the kernel that a notebook has of its own: an idle one still holds its memory."""
        for session in self.ask("sessions"):
            if session["path"] == path.name and session["kernel"]["id"] != self.shared:
                url = f"http://127.0.0.1:{self.port}/api/sessions/{session['id']}?token={TOKEN}"
                urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=60)

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()


def write_notebook(path: Path, cells: list[str]) -> Path:
    """A notebook of these code cells."""
    code = [nbformat.v4.new_code_cell(cell) for cell in cells]
    # Without a kernel's name JupyterLab would ask for one.
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=code, metadata={"kernelspec": kernel}), path)
    return path


def sweep(connection: Path) -> None:
    """Leave neither names nor widgets in a kernel."""
    client = BlockingKernelClient(connection_file=str(connection))
    client.load_connection_file()
    client.start_channels()
    try:
        client.wait_for_ready(60)
        code = "import ipywidgets; ipywidgets.Widget.close_all()\nget_ipython().reset()"
        reply = client.execute(code, reply=True, store_history=False, timeout=60)
        assert reply["content"]["status"] == "ok", reply
    finally:
        client.stop_channels()


PIXELS = """(canvas) => {
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const text = Array.from(data, (byte) => String.fromCharCode(byte)).join('');
  return [canvas.height, canvas.width, btoa(text)];
}"""


def canvas_pixels(canvas: Locator) -> np.ndarray:
    """What is drawn on a canvas, uint8 ``(H, W, 4)``."""
    height, width, data = canvas.evaluate(PIXELS)
    return np.frombuffer(base64.b64decode(data), np.uint8).reshape(height, width, 4)


def wait_for(done: Callable[[], Any], seconds: float, what: str) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := done():
            return result
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds} s in vain for {what}")


class OpenNotebook:
    """An open notebook, all its cells run.

    A subclass says what the front end's parts are called and where its menus are.
    """

    prompts: str  # CSS selectors
    problems: str
    results: str
    themes: tuple[str, ...] = ("light",)
    tells_cells = True  # the kernel is told which cell runs
    noise: tuple[str, ...] = ("favicon", "ResizeObserver", "responded with a status of 404")

    def __init__(self, server: FrontEnd, browser: Any, path: Path, seconds: float) -> None:
        self.server, self.name = server, path.name
        self.page: Page = browser.new_page()
        self.page.set_viewport_size({"width": 1400, "height": 1300})
        self.errors: list[str] = []
        self.page.on("console", lambda said: said.type == "error" and self._note(said.text))
        self.page.on("pageerror", lambda error: self._note(str(error)))
        self.page.goto(server.address(path.name), timeout=1000 * seconds)
        self.run_all(seconds)

    def press_run_all(self) -> None:
        """Use the menu."""
        raise NotImplementedError

    def theme(self, name: str) -> None:
        """Switch to one of `themes`."""
        raise NotImplementedError

    def outputs(self) -> Locator:
        """What the cells gave, in order."""
        return self.page.locator(self.results)

    def run_all(self, seconds: float) -> None:
        # The page says "idle" before the kernel is connected, and would lose the command.
        wait_for(self._kernel_idle, 180, "the kernel")
        prompts, problems = self.page.locator(self.prompts), self.page.locator(self.problems)
        for _ in range(5):
            self.press_run_all()
            try:
                wait_for(lambda: number(prompts.first.inner_text()), 5, "the run")
                break
            except AssertionError:
                self.page.keyboard.press("Escape")

        def done() -> bool:
            texts = prompts.all_inner_texts()
            finished = bool(texts) and all(number(text).isdigit() for text in texts)
            return finished or problems.count() > 0

        wait_for(done, seconds, "all cells to have run")
        assert not problems.count(), problems.first.inner_text()

    def close(self) -> None:
        self.page.close()

    def _note(self, error: str) -> None:
        if not any(noise in error for noise in self.noise):
            self.errors.append(error)

    def _kernel_idle(self) -> bool:
        sessions = self.server.get("sessions") or []
        kernels = [s["kernel"] for s in sessions if s["path"] == self.name]
        return any(k["execution_state"] == "idle" and k["connections"] > 0 for k in kernels)


def number(prompt: str) -> str:
    """What is within a prompt's brackets: nothing, a star, or the number of the run."""
    return prompt.partition("[")[2].partition("]")[0].strip()
