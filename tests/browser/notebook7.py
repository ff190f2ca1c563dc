"""Notebook 7 in a real browser, which shows one notebook per page with JupyterLab's parts."""

from __future__ import annotations

from front_end import TOKEN
from lab import Lab, Notebook


class Notebook7(Lab):
    """A running Notebook 7."""

    module = "notebook"

    def options(self):
        exposed = super().options().pop("LabApp.expose_app_in_browser")
        return super().options() | {"JupyterNotebookApp.expose_app_in_browser": exposed}

    def address(self, name):
        return f"http://127.0.0.1:{self.port}/notebooks/{name}?token={TOKEN}"


class Notebook7Page(Notebook):
    """A notebook in Notebook 7."""

    # Errors of Notebook 7 itself, while it loads keyboard shortcuts and before a cell has run.
    noise = (*Notebook.noise, "reading 'schema'")
