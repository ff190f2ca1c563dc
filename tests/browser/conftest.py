"""A JupyterLab and a Chromium for the tests here, each started once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from chromium import FLAGS, executable
from lab import Lab, Notebook
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "browser" in Path(item.fspath).parts:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def shots() -> Path:
    """Where screenshots go, to be looked at."""
    folder = ROOT / "test-output" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    server = Lab(tmp_path_factory.mktemp("lab"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_notebook(lab: Lab, browser: Any) -> Iterator[Callable[..., Notebook]]:
    opened: list[Notebook] = []

    def open_it(notebook: Path | list[str], seconds: float = 120) -> Notebook:
        path = lab.files / f"n{len(list(lab.files.iterdir()))}.ipynb"
        if isinstance(notebook, Path):
            path.write_text(notebook.read_text())
        else:
            cells = [nbformat.v4.new_code_cell(cell) for cell in notebook]
            # Without a kernel's name JupyterLab would ask for one.
            kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
            book = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
            nbformat.write(book, path)
        opened.append(Notebook(lab, browser, path, seconds))
        return opened[-1]

    yield open_it
    for notebook in opened:
        notebook.close()
