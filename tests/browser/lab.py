"""JupyterLab 4 in a real browser."""

from __future__ import annotations

import json
from typing import Any

from front_end import TOKEN, FrontEnd, OpenNotebook


class Lab(FrontEnd):
    """A running JupyterLab."""

    module = "jupyterlab"

    def configure(self) -> None:
        settings = self.home / "config" / "lab" / "user-settings" / "@jupyterlab"
        for folder in ("notebook-extension", "apputils-extension"):
            (settings / folder).mkdir(parents=True)
        # A notebook that draws only the cells in view would hide widgets from the test.
        (settings / "notebook-extension" / "tracker.jupyterlab-settings").write_text(
            json.dumps({"windowingMode": "none"})
        )
        (settings / "apputils-extension" / "notification.jupyterlab-settings").write_text(
            json.dumps({"fetchNews": "false"})
        )

    def options(self) -> dict[str, Any]:
        return {
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

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/lab/tree/{name}?token={TOKEN}&reset"


class Notebook(OpenNotebook):
    """A notebook in JupyterLab."""

    prompts = ".jp-CodeCell .jp-InputPrompt"
    problems = '.jp-RenderedText[data-mime-type*="error"]'
    results = ".jp-OutputArea"
    themes = ("light", "dark")

    def press_run_all(self) -> None:
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()

    def theme(self, name: str) -> None:
        self.page.get_by_role("menuitem", name="Settings", exact=True).click()
        self.page.locator("li[data-type=submenu]", has_text="Theme").first.hover()
        item = self.page.locator(".lm-Menu-itemLabel", has_text=f"JupyterLab {name.title()}")
        item.first.click()
        self.page.wait_for_timeout(600)
