"""Voilà in a real browser, which shows a notebook's outputs without its code."""

from __future__ import annotations

import urllib.request

from front_end import FrontEnd, OpenNotebook


class Voila(FrontEnd):
    """A running Voilà."""

    module = "voila"

    def flags(self):
        return []

    def options(self):
        return {
            "Voila.ip": "127.0.0.1",
            "port": self.port,
            "Voila.root_dir": self.files,
            # Voilà would also load Notebook 7's extension, which does not run in it.
            "VoilaConfiguration.extension_denylist": "@jupyter-notebook/lab-extension",
        }

    def started(self):
        try:
            return urllib.request.urlopen(self.address(""), timeout=5).status == 200
        except OSError:
            return False

    def address(self, name):
        return f"http://127.0.0.1:{self.port}/voila/{f'render/{name}' if name else 'tree'}"


class Dashboard(OpenNotebook):
    """A notebook that Voilà runs by itself."""

    results = ".jp-OutputArea"
    # Voilà's template loads icons and formulas from another host if there is a network.
    noise = (*OpenNotebook.noise, "net::ERR_NAME_NOT_RESOLVED", "net::ERR_INTERNET_DISCONNECTED")

    def open(self, seconds):
        # Voilà has no list of sessions; its page opens when the kernel has started.
        self.page.goto(self.server.address(self.name), timeout=1000 * seconds)

    def run_all(self, seconds):
        self.outputs().first.wait_for(timeout=1000 * seconds)
