"""A server of notebooks and a Chromium for the tests here, each started once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import FLAGS, executable
from classic import Classic, ClassicNotebook
from front_end import PATIENCE, WIDGETS, FrontEnd, OpenNotebook, write_notebook
from lab import Lab, Tab
from playwright.sync_api import sync_playwright

import hookviz

ROOT = Path(__file__).resolve().parents[2]

# JupyterLab 4 shows the widgets of ipywidgets 8 alone; those of 7 are for the classic Notebook.
SERVER, PAGE = (Lab, Tab) if WIDGETS > 7 else (Classic, ClassicNotebook)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "browser" in Path(item.fspath).parts:
            item.add_marker("browser")
            item.add_marker(pytest.mark.xdist_group("browser"))  # one server, one Chromium


@pytest.fixture(scope="session")
def shots() -> Path:
    """Where screenshots go, to be looked at."""
    folder = ROOT / "test-output" / f"screenshots-ipywidgets{WIDGETS}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontEnd]:
    server = SERVER(tmp_path_factory.mktemp("lab"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
        # All pages have one context: they find the front end's scripts in its cache.
        context = chromium.new_context()
        context.set_default_timeout(1000 * PATIENCE)
        yield context
        chromium.close()


@pytest.fixture
def chrome(browser: Any) -> Any:
    """The one browser of these tests; a page here has a context of its own."""
    return browser.browser


@pytest.fixture(scope="session")
def explorer_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of an explorer of the demo model, written once; see `explorer`."""
    path = tmp_path_factory.mktemp("page") / "explorer.html"
    made = demo_explorer()
    made.to_html(path, max_bytes=10e6)
    made.close()
    return path


@pytest.fixture
def explorer() -> Iterator[Any]:
    """What `explorer_page` shows at first."""
    made = demo_explorer()
    yield made
    made.close()


def demo_explorer() -> Any:
    return hookviz.explore(
        hookviz.demo_model(), hookviz.demo_images()[6], layer="layer2.0.conv1", channel=4
    )


@pytest.fixture(scope="session")
def trace() -> Any:
    return hookviz.trace(hookviz.demo_model(), hookviz.demo_images()[6])


@pytest.fixture
def shown(chrome: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open a page from the disk; nothing may be asked of a network, nothing go wrong."""
    noted: list[str] = []
    opened: list[Any] = []

    def show(html: str, **options: Any) -> Any:
        path = tmp_path / "view.html"
        path.write_text(html, encoding="utf-8")
        page = chrome.new_page(viewport={"width": 1280, "height": 900}, **options)
        opened.append(page)
        page.context.set_offline(True)
        page.on("console", lambda said: noted.append(said.text))
        page.on("pageerror", lambda error: noted.append(str(error)))
        page.on("request", lambda asked: noted.append(asked.url))
        page.goto(path.as_uri())
        return page

    yield show
    for page in opened:
        page.close()
    # The test itself reads pixels back, which Chromium calls slow.
    fine = ("file:", "data:", "blob:", "Canvas2D: Multiple readback")
    assert [each for each in noted if not each.startswith(fine)] == []


@pytest.fixture
def open_notebook(lab: FrontEnd, browser: Any) -> Iterator[Callable[..., OpenNotebook]]:
    opened: list[OpenNotebook] = []

    def open_it(notebook: Path | list[str]) -> OpenNotebook:
        """Run a notebook, or one of these cells, in a kernel without names, widgets and patches."""
        path = lab.files / f"n{len(list(lab.files.iterdir()))}.ipynb"
        if isinstance(notebook, Path):
            path.write_text(notebook.read_text())
        else:
            write_notebook(path, notebook)
        lab.share_kernel(path)
        opened.append(PAGE(lab, browser, path))
        return opened[-1]

    yield open_it
    for notebook in opened:
        notebook.close()
