"""Base classes of all front ends: a local server, and a notebook run in a page of it."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ipywidgets
import nbformat
import numpy as np
import pytest
from jupyter_client import BlockingKernelClient
from kernel_files import FOLDER
from playwright.sync_api import ConsoleMessage, Locator, Page, Position, ViewportSize

TOKEN = "hookviz"
PATIENCE = 180.0  # seconds before a wait fails; passing tests wait a fraction of one
VIEW = ViewportSize(width=1280, height=900)
# The map of the plain face, or its still picture of all: their description tells the view.
PLAIN_MAP = 'img.smooth[alt*="channel "]:not([alt^="gradient"]):visible'
# A kernel whose port another process took before it could never gets a page: it starts again on
# other ports, and servers keep listening on the first ones. Sockets of files have no ports.
SOCKETS = {"KernelManager.transport": "ipc"} if FOLDER else {}
WIDGETS = int(ipywidgets.__version__.partition(".")[0])  # 7 or 8
needs_canvas = pytest.mark.skipif(WIDGETS < 8, reason="the classic Notebook 6 has no anywidget")


# Like `python -m`, without the URL grammar that tests/conftest.py leaves out.
START = """import runpy, sys
sys.modules["rfc3987_syntax"] = None
sys.argv.pop(0)
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)"""


def free_port() -> int:
    """Return a port that no server uses, of those that systems do not give away by themselves."""
    while True:
        port = secrets.choice(range(20_000, 32_000))
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class FrontEnd:
    """A running server whose files, settings and history are all in a temporary folder.

    Subclasses define how the server is started.
    """

    module: str  # python -m ...
    shared: str | None = None  # the kernel that all notebooks use in turn
    page: Page | None = None  # the page that all notebooks use in turn, if any

    def __init__(self, home: Path) -> None:
        self.home, self.files = home, home / "files"
        self.files.mkdir()
        self.configure()
        self.port = free_port()
        self.runtime = Path(tempfile.mkdtemp(prefix="hv-", dir=FOLDER))
        self.log = (home / "server.log").open("w")
        variables = {
            "HOME": home,
            "JUPYTER_CONFIG_DIR": home / "config",
            "JUPYTER_DATA_DIR": home / "data",
            "JUPYTER_RUNTIME_DIR": self.runtime,
            "IPYTHONDIR": home / "ipython",
            "OMP_WAIT_POLICY": "PASSIVE",
            # Tests use core widgets unless a cell turns the canvas on.
            "HOOKVIZ_CANVAS": "off",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, self.module, "--no-browser", *self.flags()]
            + [f"--{name}={value}" for name, value in (SOCKETS | self.options()).items()],
            env=os.environ | {name: str(value) for name, value in variables.items()},
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_for(self.started, f"{self.module} to start")
        except AssertionError:
            self.close()
            raise

    def configure(self) -> None:
        """Write settings before the server starts."""

    def flags(self) -> list[str]:
        return ["--allow-root"]

    def options(self) -> dict[str, Any]:
        raise NotImplementedError

    def started(self) -> bool:
        return self.get("status") is not None

    def address(self, name: str) -> str:
        """Return the address of a notebook."""
        raise NotImplementedError

    def get(self, what: str) -> Any:
        try:
            return self.ask(what)
        except OSError:
            return None

    def ask(self, what: str, seconds: float = 5, method: str | None = None, **body: Any) -> Any:
        """Request the server's API; a request with a body is a POST."""
        url = f"http://127.0.0.1:{self.port}/api/{what}?token={TOKEN}"
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(url, data, method=method)
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return json.loads(answer.read() or b"null")

    def share_kernel(self, path: Path) -> None:
        """Give a notebook the shared kernel, cleaned up but with its imports in memory."""
        kernel = {"id": self.shared} if self.shared else {"name": "python3"}
        known = {"path": path.name, "name": path.name, "type": "notebook", "kernel": kernel}
        if self.shared:
            self.sweep()
        self.shared = self.ask("sessions", PATIENCE, **known)["kernel"]["id"]

    def sweep(self) -> None:
        """Remove all names, widgets and patches from the shared kernel."""
        connection = self.runtime / f"kernel-{self.shared}.json"
        client = BlockingKernelClient(connection_file=str(connection))
        client.load_connection_file()
        # The client's `wait_for_ready` would wait a fifth of a second for further messages.
        client.start_channels(iopub=False, stdin=False, hb=False)
        try:
            reply = client.execute(SWEEP, reply=True, store_history=False, timeout=PATIENCE)
            assert reply["content"]["status"] == "ok", reply
        finally:
            client.stop_channels()

    def forget(self) -> None:
        """Close the shared page and kernel; the next notebook gets new ones."""
        page, kernel, self.page, self.shared = self.page, self.shared, None, None
        if page:
            page.close()
        if kernel:
            self.ask(f"kernels/{kernel}", PATIENCE, "DELETE")

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()
        shutil.rmtree(self.runtime)


def write_notebook(path: Path, cells: list[str]) -> Path:
    """Write a notebook with these code cells, and return its path."""
    code = [nbformat.v4.new_code_cell(cell) for cell in cells]
    # Without a kernel name, JupyterLab would ask the user for one.
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=code, metadata={"kernelspec": kernel}), path)
    return path


# Freezing spares the next resets the garbage collection of the libraries' million objects.
SWEEP = """import ipywidgets, unittest.mock
unittest.mock.patch.stopall()
ipywidgets.Widget.close_all()
get_ipython().reset()
__import__("gc").freeze()"""

PIXELS = """(canvas) => {
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const text = Array.from(data, (byte) => String.fromCharCode(byte)).join('');
  return [canvas.height, canvas.width, btoa(text)];
}"""


# Delay everything that passes the page's sockets, keeping its order, also when the delay ends.
DELAY = """(milliseconds) => {
  const { send } = WebSocket.prototype;
  const heard = new Map();
  let [late, passing] = [milliseconds, 0];
  const line = () => {
    let last = null;
    return (pass) => {
      passing += 1;
      const due = new Promise((done) => setTimeout(done, late));
      const passed = () => { passing -= 1; };
      last = Promise.all([due, last]).then(pass).catch(reportError).finally(passed);
    };
  };
  WebSocket.prototype.send = function (data) {
    if (!heard.has(this)) {
      const { onmessage } = this;
      const bring = line();
      heard.set(this, { onmessage, take: line() });
      this.onmessage = (event) => bring(() => onmessage.call(this, event));
    }
    heard.get(this).take(() => send.call(this, data));
  };
  globalThis.endOfDelay = async () => {
    late = 0;
    while (passing) await new Promise((done) => setTimeout(done));
    WebSocket.prototype.send = send;
    for (const [socket, { onmessage }] of heard) socket.onmessage = onmessage;
  };
}"""

# Record all texts of an element, since polling may miss one that is shown for only two seconds.
SAID = """(element) => {
  globalThis.said = [];
  const changes = { childList: true, characterData: true, subtree: true };
  new MutationObserver(() => said.push(element.textContent)).observe(element, changes);
}"""


def canvas_pixels(canvas: Locator) -> np.ndarray:
    """Return the pixels of a canvas, uint8 ``(H, W, 4)``."""
    return as_pixels(canvas.evaluate(PIXELS))


def as_pixels(said: list[Any]) -> np.ndarray:
    """Return the result of `PIXELS` as an array."""
    height, width, data = said
    return np.frombuffer(base64.b64decode(data), np.uint8).reshape(height, width, 4)


def wait_for(done: Callable[[], Any], what: str = "a condition", seconds: float = PATIENCE) -> Any:
    end = time.monotonic() + seconds
    while not (result := done()):
        assert time.monotonic() < end, f"{what} did not happen within {seconds} s"
        time.sleep(0.03)
    return result


def wait_for_tiles(app: Page | Locator) -> None:
    """Wait until an explorer has drawn the channels of its layer."""
    app.locator(".hv-tile").first.wait_for()


def point(frame: Locator, down: float, right: float, click: bool = False, **how: Any) -> None:
    """Move the pointer to, or click at, fractions of a picture's height and width."""
    box = wait_for(frame.bounding_box, "the picture to be seen")
    place = Position(x=right * box["width"], y=down * box["height"])
    (frame.click if click else frame.hover)(position=place, **how)


def numeral(text: str) -> float:
    """Return a number as a page writes it; NaN for other words."""
    try:
        return float(text.replace("−", "-"))
    except ValueError:
        return float("nan")


# With HOOKVIZ_SLOW, hookviz's frames are late; see conftest.py.
FRAMES = """() => new Promise((done) => {
  const frame = globalThis.lateFrame ?? requestAnimationFrame;
  frame(() => frame(done));
})"""


def next_frame(page: Page) -> None:
    """Wait until the page has drawn its pending changes, which it does once per frame."""
    page.evaluate(FRAMES)


@contextmanager
def nothing_wrong(page: Page) -> Iterator[Page]:
    """Assert at the end that the page has logged and raised nothing and sent no request."""
    noted: list[str] = []
    listeners: dict[Any, Callable[[Any], None]] = {
        "console": lambda said: noted.append(said.text),
        "pageerror": lambda error: noted.append(str(error)),
        "request": lambda asked: noted.append(asked.url),
    }
    for event, note in listeners.items():
        page.on(event, note)
    yield page
    for event, note in listeners.items():
        page.remove_listener(event, note)
    # Chromium warns that reading pixels, as the tests do, is slow.
    fine = ("file:", "data:", "blob:", "Canvas2D: Multiple readback")
    assert [each for each in noted if not each.startswith(fine)] == []


# A cell that turns the canvas on until the kernel is cleaned up.
CANVAS_ON = """import os
from unittest.mock import patch
patch.dict(os.environ, HOOKVIZ_CANVAS="on").start();"""

# Whether the controls of core widgets have the labels that `hookviz.draw.html` adds.
NAMED = """(root) => {
  const all = (what) => [...root.querySelectorAll(what)];
  const handles = all(".noUi-handle, .ui-slider-handle");
  return handles.length > 0
    && handles.every((each) => each.ariaLabel && each.role)
    && all("select, input, button").every((each) => each.dataset.lmSuppressShortcuts)
    && all(".hookviz-by-layer, .hookviz-by-channel").every((each) => {
      const handle = each.querySelector(".noUi-handle, .ui-slider-handle");
      return !handle || handle.dataset.read;
    });
}"""


def wait_for_names(widget: Locator) -> None:
    """Wait until the core widgets have their labels and receive key presses."""
    wait_for(lambda: widget.evaluate(NAMED), "the names of all controls")


class OpenNotebook:
    """An open notebook in which all cells have run.

    Subclasses define the front end's selectors and menus.
    """

    problems: str  # CSS selectors
    results: str
    themes: tuple[str, ...] = ("light",)
    tells_cells = True  # the front end sends the kernel the id of the cell
    noise: tuple[str, ...] = ("favicon", "ResizeObserver", "responded with a status of 404")

    def __init__(
        self, server: FrontEnd, browser: Any, path: Path, seconds: float = PATIENCE
    ) -> None:
        self.server, self.name = server, path.name
        self.page: Page = self.page_of(browser)
        self.page.set_viewport_size({"width": 1400, "height": 1300})
        self.errors: list[str] = []
        self.page.on("console", self._note_console)
        self.page.on("pageerror", lambda error: self._note(f"{error}\n{error.stack}"))
        self.open(seconds)
        self.run_all(seconds)

    def page_of(self, browser: Any) -> Page:
        """Return a new page for the notebook."""
        return browser.new_page()

    def open(self, seconds: float = PATIENCE) -> None:
        self.page.goto(self.server.address(self.name), timeout=1000 * seconds)
        # The page says "idle" before the kernel is connected, and a command would be lost. The
        # server's own word for the kernel may stay "starting" if that was idle before it listened.
        wait_for(self._is_connected, "the kernel")

    def press_restart(self) -> None:
        """Restart the kernel from the menu."""
        raise NotImplementedError

    def theme(self, name: str) -> None:
        """Switch to one of `themes`."""
        raise NotImplementedError

    def round_trip(self) -> None:
        """Wait until the kernel has answered a request that does nothing."""
        raise NotImplementedError

    def empty_queues(self) -> None:
        """Wait until the kernel has handled all that the page sent before, in each thread."""
        self.round_trip()

    def outputs(self) -> Locator:
        """Return the outputs of the cells, in order."""
        return self.page.locator(self.results)

    def run_all(self, seconds: float = PATIENCE) -> None:
        """Run all cells, and wait until they have run."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait until the kernel has answered the page, and the page has drawn the answers.

        An answer may cause another message, up to three times for one cell.
        """
        for _ in range(3):
            self.empty_queues()
            next_frame(self.page)

    def tells(self, words: str) -> bool:
        """Return whether an error of the page, noted during Playwright's calls, has these words."""
        next_frame(self.page)
        return any(words in error for error in self.errors)

    def close(self) -> None:
        self.page.close()

    def _note_console(self, said: ConsoleMessage) -> None:
        if said.type == "error":
            self._note(said.text)

    def _note(self, error: Any) -> None:
        if not any(noise in str(error) for noise in self.noise):
            self.errors.append(str(error))

    def _is_connected(self) -> bool:
        sessions = self.server.get("sessions") or []
        return any(s["kernel"]["connections"] > 0 for s in sessions if s["path"] == self.name)


def number(prompt: str) -> str:
    """Return the text in a prompt's brackets: nothing, a star, or the number of the run."""
    return prompt.partition("[")[2].partition("]")[0].strip()
