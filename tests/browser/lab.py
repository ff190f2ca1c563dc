"""JupyterLab 4 in a real browser."""

from __future__ import annotations

import json
from typing import Any

from front_end import PATIENCE, TOKEN, FrontEnd, OpenNotebook, next_frame
from playwright.sync_api import Page


class Lab(FrontEnd):
    """A running JupyterLab."""

    module = "jupyterlab"

    def configure(self) -> None:
        settings = self.home / "config" / "lab" / "user-settings" / "@jupyterlab"
        for folder in ("notebook-extension", "apputils-extension"):
            (settings / folder).mkdir(parents=True)
        # Draw all cells, not only those in view: otherwise tests would not find some widgets.
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
            "LabApp.expose_app_in_browser": True,
            "LabApp.extension_manager": "readonly",
            "LabApp.news_url": "None",
            "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        }

    def address(self, name: str) -> str:
        """Return the address of a notebook; without a name, that of JupyterLab."""
        path = f"tree/{name}" if name else ""
        return f"http://127.0.0.1:{self.port}/lab/{path}?token={TOKEN}&reset"


# JupyterLab's own commands are faster than menus and page loads. `found` is the notebook of this
# name. A command that takes too long fails, since Playwright would wait forever.
IN_LAB = """([name, seconds]) => {
  const work = async () => {
    const app = globalThis.jupyterapp;
    await app.restored;
    const found = [...app.shell.widgets("main")].find((each) => each.context?.path === name);
    CODE
  };
  const patience = new Promise((_, fail) => {
    setTimeout(() => fail(new Error(`waited ${seconds} s in vain`)), 1000 * seconds);
  });
  return Promise.race([work(), patience]);
}"""
OPEN = """
    const panel = await app.commands.execute("docmanager:open", { path: name });
    await panel.context.ready;
    await panel.sessionContext.ready;
    await panel.sessionContext.session.kernel.info;
"""
READY = """
    await found.context.ready;
    await found.sessionContext.ready;
    await found.sessionContext.session.kernel.info;
"""
RUN = """
    app.shell.activateById(found.id);
    return await app.commands.execute("notebook:run-all-cells");
"""
ANSWER = """
    const { kernel } = found.sessionContext.session;
    await kernel.requestExecute({ code: "", silent: true, store_history: false }).done;
"""
# The kernel handles widgets' messages in another thread, which JupyterLab calls a subshell.
ANSWERS = """
    const { kernel } = found.sessionContext.session;
    const comms = await Promise.all(kernel._comms.values());
    const threads = new Set([null, ...comms.map((comm) => comm.subshellId)]);
    await Promise.all([...threads].map((thread) => {
      kernel.subshellId = thread;
      const request = { code: "", silent: true, store_history: false };
      const { done } = kernel.requestExecute(request);
      kernel.subshellId = null;
      return done;
    }));
"""
CLOSE = """
    found.context.model.dirty = false; // or it would ask whether to save
    found.dispose();
"""
# JupyterLab would store the current theme and apply it again.
THEME = """
    if (document.body.dataset.jpThemeName !== name)
      await app.commands.execute("apputils:change-theme", { theme: name });
"""
# JupyterLab logs an error if the next change comes while its splash screen fades.
THEME_SHOWN = """(name) => {
  const splash = document.getElementById("jupyterlab-splash");
  return document.body.dataset.jpThemeName === name && !splash;
}"""


class Notebook(OpenNotebook):
    """A notebook in JupyterLab, in a separate page."""

    problems = '.jp-RenderedText[data-mime-type*="err"]'  # JupyterLab 4 calls errors "stderr"
    results = ".jp-OutputArea"
    themes = ("light", "dark")

    def open(self, seconds: float = PATIENCE) -> None:
        super().open(seconds)
        self.page.wait_for_function("() => globalThis.jupyterapp")
        self.command(READY, seconds=seconds)

    def run_all(self, seconds: float = PATIENCE) -> None:
        if not self.command(RUN, seconds=seconds):
            raise AssertionError(self.page.locator(self.problems).last.inner_text())

    def press_restart(self) -> None:
        self.page.get_by_role("menuitem", name="Kernel", exact=True).click()
        self.page.get_by_role("menuitem", name="Restart Kernel").first.click()
        self.page.locator(".jp-Dialog button.jp-mod-warn").click()

    def command(self, code: str, name: str = "", seconds: float = PATIENCE) -> Any:
        """Run JavaScript in JupyterLab, by default for this notebook."""
        script = IN_LAB.replace("CODE", code.strip())
        return self.page.evaluate(script, [name or self.name, seconds])

    def round_trip(self) -> None:
        self.command(ANSWER)

    def empty_queues(self) -> None:
        self.command(ANSWERS)

    def theme(self, name: str) -> None:
        called = f"JupyterLab {name.title()}"
        self.command(THEME, called)
        self.page.wait_for_function(THEME_SHOWN, arg=called)
        next_frame(self.page)


class Tab(Notebook):
    """A notebook in the JupyterLab page that all tests share."""

    def page_of(self, browser: Any) -> Page:
        if self.server.page is None:
            self.server.page = browser.new_page()
            self.server.page.goto(self.server.address(""))
            # The launcher is drawn last, and would take the focus from a notebook opened before.
            self.server.page.locator(".jp-Launcher").wait_for()
        self.server.page.mouse.move(0, 0)  # the pointer could hover over the new notebook
        return self.server.page

    def open(self, seconds: float = PATIENCE) -> None:
        self.page.wait_for_function("() => globalThis.jupyterapp")
        self.command(OPEN, seconds=seconds)

    def close(self) -> None:
        self.page.remove_listener("console", self._note_console)
        self.page.remove_listener("pageerror", self._note)
        self.theme(self.themes[0])
        self.command(CLOSE)
