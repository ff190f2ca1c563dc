"""A JupyterLab of our own, and a notebook open in it in a real browser."""

from __future__ import annotations

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

from playwright.sync_api import Page

TOKEN = "hookviz"
NOISE = ("favicon", "ResizeObserver", "the server responded with a status of 404")


class Lab:
    """A running JupyterLab whose files, settings and history are all in a temporary folder."""

    def __init__(self, home: Path) -> None:
        self.files = home / "files"
        settings = home / "config" / "lab" / "user-settings" / "@jupyterlab"
        for folder in ("notebook-extension", "apputils-extension"):
            (settings / folder).mkdir(parents=True)
        self.files.mkdir()
        # A notebook that draws only the cells in view would hide widgets from the test.
        (settings / "notebook-extension" / "tracker.jupyterlab-settings").write_text(
            json.dumps({"windowingMode": "none"})
        )
        (settings / "apputils-extension" / "notification.jupyterlab-settings").write_text(
            json.dumps({"fetchNews": "false"})
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = (home / "lab.log").open("w")
        variables = {
            "HOME": home,
            "JUPYTER_CONFIG_DIR": home / "config",
            "JUPYTER_DATA_DIR": home / "data",
            "JUPYTER_RUNTIME_DIR": home / "runtime",
            "IPYTHONDIR": home / "ipython",
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        options = {
            "ip": "127.0.0.1",
            "port": self.port,
            "ServerApp.port_retries": 0,
            "IdentityProvider.token": TOKEN,
            "ServerApp.password": "",
            "ServerApp.root_dir": self.files,
            "LabApp.extension_manager": "readonly",
            "LabApp.news_url": "None",
            "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
            + [f"--{name}={value}" for name, value in options.items()],
            env=os.environ | {name: str(value) for name, value in variables.items()},
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        wait_for(lambda: self.get("status") is not None, 60, "JupyterLab to start")

    def get(self, what: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/{what}?token={TOKEN}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)
        except OSError:
            return None

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()


def wait_for(done: Callable[[], Any], seconds: float, what: str) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := done():
            return result
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds} s in vain for {what}")


class Notebook:
    """An open notebook, all its cells run."""

    def __init__(self, lab: Lab, browser: Any, path: Path, seconds: float) -> None:
        self.lab, self.name = lab, path.name
        self.page: Page = browser.new_page(viewport={"width": 1400, "height": 1300})
        self.errors: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        url = f"http://127.0.0.1:{lab.port}/lab/tree/{path.name}?token={TOKEN}&reset"
        self.page.goto(url)
        self._run_all(seconds)

    def _note(self, message: Any) -> None:
        if message.type == "error" and not any(noise in message.text for noise in NOISE):
            self.errors.append(message.text)

    def _kernel_idle(self) -> bool:
        sessions = self.lab.get("sessions") or []
        kernels = [s["kernel"] for s in sessions if s["path"] == self.name]
        return any(k["execution_state"] == "idle" and k["connections"] > 0 for k in kernels)

    def _run_all(self, seconds: float) -> None:
        # The page says "idle" before the kernel is connected, and would lose the command.
        wait_for(self._kernel_idle, 60, "the kernel")
        prompts = self.page.locator(".jp-CodeCell .jp-InputPrompt")
        for _ in range(5):
            self.page.get_by_role("menuitem", name="Run", exact=True).click()
            self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
            try:
                wait_for(lambda: prompts.first.inner_text().strip() != "[ ]:", 5, "the run")
                break
            except AssertionError:
                self.page.keyboard.press("Escape")

        errors = self.page.locator('.jp-RenderedText[data-mime-type*="error"]')

        def done() -> bool:
            texts = prompts.all_inner_texts()
            finished = bool(texts) and all(text.strip("[]: \n").isdigit() for text in texts)
            return finished or errors.count() > 0

        wait_for(done, seconds, "all cells to have run")
        assert not errors.count(), errors.first.inner_text()

    def theme(self, name: str) -> None:
        """Switch to "JupyterLab Light" or "JupyterLab Dark"."""
        menus = self.page.get_by_role("menuitem", name="Settings", exact=True)
        menus.click()
        self.page.locator("li[data-type=submenu]", has_text="Theme").first.hover()
        self.page.locator(".lm-Menu-itemLabel", has_text=name).first.click()
        self.page.wait_for_timeout(600)

    def close(self) -> None:
        self.page.close()
