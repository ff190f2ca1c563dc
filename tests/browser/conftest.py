"""A notebook server and a Chromium for the browser tests, each started once."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from chromium import FLAGS, executable
from classic import Classic, ClassicNotebook
from demo import explore_demo
from front_end import (
    CANVAS_ON,
    DELAY,
    PATIENCE,
    VIEW,
    WIDGETS,
    OpenNotebook,
    nothing_wrong,
    wait_for_tiles,
    write_notebook,
)
from lab import Lab, Tab
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    expect,
    sync_playwright,
)

import hookviz

ROOT = Path(__file__).resolve().parents[2]

# JupyterLab 4 shows only widgets of ipywidgets 8; those of 7 need the classic Notebook.
SERVER, PAGE = (Lab, Tab) if WIDGETS > 7 else (Classic, ClassicNotebook)

# HOOKVIZ_SLOW=6 makes the pages' processor six times slower and delays their sockets, hookviz's
# drawing and, outside the front ends, messages to workers by 150 ms. A test that reads too early
# then fails every time instead of once in a thousand runs.
SLOW = float(os.environ.get("HOOKVIZ_SLOW", "1"))
LATE = f"""() => {{
  const late = {25 * SLOW};
  ({DELAY})(late);
  const isFrontEnd = location.protocol.startsWith("http");
  const {{ requestAnimationFrame, cancelAnimationFrame }} = globalThis;
  const first = 1e9; // the numbers of delayed frames
  globalThis.lateFrame = (draw) => first + setTimeout(() => draw(performance.now()), late);
  globalThis.requestAnimationFrame = (draw) => {{
    const isOurs = !isFrontEnd || new Error().stack.includes("blob:"); // as anywidget's scripts
    return isOurs ? lateFrame(draw) : requestAnimationFrame(draw);
  }};
  globalThis.cancelAnimationFrame = (frame) => {{
    frame >= first ? clearTimeout(frame - first) : cancelAnimationFrame(frame);
  }};
  if (isFrontEnd) return;
  const {{ postMessage }} = Worker.prototype;
  Worker.prototype.postMessage = function (message, ...others) {{
    const asked = structuredClone(message);
    setTimeout(() => postMessage.call(this, asked, ...others), late);
  }};
}}"""

# HOOKVIZ_SHOTS=1 takes a screenshot at the end of each test, for people to look at.
SHOTS = bool(os.environ.get("HOOKVIZ_SHOTS"))

FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items):
    # Run last the tests that end the shared kernel, since the next kernel imports torch again.
    items.sort(key=lambda item: "test_kernel_gone.py" in item.nodeid)
    for item in items:
        if "browser" in Path(item.fspath).parts:
            item.add_marker("browser")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    item.stash[FAILED] = report.failed or (report.when != "setup" and item.stash[FAILED])
    return report


@pytest.fixture
def shoot(request):
    """Return a function that takes a screenshot of a page if people asked for it; see `SHOTS`."""

    def taken(page):
        if SHOTS and not page.is_closed():
            name = re.sub(r"\W+", "-", request.node.name)
            page.screenshot(path=ROOT / "test-output" / f"ipywidgets{WIDGETS}" / f"{name}.png")

    return taken


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    server = SERVER(tmp_path_factory.mktemp("lab"))
    yield server
    server.close()


def with_timeout(new_page):
    """Make `new_page` use the timeout of `wait_for`, and slow pages down if requested."""

    def opened(self, **options):
        page = new_page(self, **options)
        page.set_default_timeout(1000 * PATIENCE)
        if SLOW > 1:
            session = page.context.new_cdp_session(page)
            session.send("Emulation.setCPUThrottlingRate", {"rate": SLOW})
            page.add_init_script(f"({LATE})()")
        return page

    return opened


@pytest.fixture(scope="session")
def browser():
    expect.set_options(timeout=1000 * PATIENCE)
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        for kind in (Browser, BrowserContext):
            patch.setattr(kind, "new_page", with_timeout(kind.new_page))
        chromium = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
        # All pages share one context, so that they find the front end's scripts in its cache.
        yield chromium.new_context()
        chromium.close()


@pytest.fixture
def chrome(browser):
    """Return the shared browser; each of its pages has a separate context."""
    return browser.browser


@pytest.fixture(scope="session")
def explorer_page(tmp_path_factory):
    """Return the page of an explorer of the demo model, written once; see `explorer`."""
    path = tmp_path_factory.mktemp("page") / "explorer.html"
    made = demo_explorer()
    made.to_html(path, max_bytes=10e6)
    made.close()
    return path


@pytest.fixture
def explorer():
    """Return an explorer in the state in which `explorer_page` opens."""
    made = demo_explorer()
    yield made
    made.close()


def demo_explorer():
    """Return an explorer of some layers: a page of all is twice as large and opens half as fast."""
    return explore_demo(
        layers="layer[23].*conv?",
        layer="layer2.0.conv1",
        channel=4,
    )


@pytest.fixture(scope="session")
def trace():
    return hookviz.trace(hookviz.demo_model(), hookviz.demo_images()[6])


@pytest.fixture(scope="session")
def spare():
    """Return a list with the page that tests reuse, since opening one is slow in Chromium."""
    return []


@pytest.fixture
def failed(request):
    """Return a function that tells whether the test failed, once it has run."""
    return lambda: request.node.stash.get(FAILED, True)


@pytest.fixture
def blank(chrome, spare, failed, shoot):
    """Open an empty page without a network; with `apart` or options, a page that is not reused."""
    kept: list[Page] = []
    closed: list[Page] = []

    def opened(color_scheme="light", apart=False, **options):
        shared = spare and not apart and not options
        page = spare.pop() if shared else chrome.new_page(viewport=VIEW, **options)
        (closed if apart or options else kept).append(page)
        page.context.set_offline(True)
        page.emulate_media(color_scheme=color_scheme)
        return page

    yield opened
    for page in kept + closed:
        shoot(page)
    for page in kept:
        if spare or page.is_closed() or failed():
            closed.append(page)
            continue
        page.evaluate("() => localStorage.clear()")
        page.goto("about:blank")
        page.set_viewport_size(VIEW)
        page.emulate_media(media="null")
        page.context.clear_permissions()
        page.mouse.move(0, 0)  # the pointer could hover over the next page
        spare.append(page)
    for page in closed:
        page.close()


@pytest.fixture
def shown(blank, tmp_path):
    """Open a page from the disk, and fail at any request to a network or any error."""
    with ExitStack() as opened:

        def show(html, **options):
            path = tmp_path / "view.html"
            path.write_text(html, encoding="utf-8")
            page = opened.enter_context(nothing_wrong(blank(**options)))
            page.goto(path.as_uri())
            return page

        yield show


@pytest.fixture
def open_notebook(lab, browser, failed, shoot):
    opened: list[OpenNotebook] = []

    def open_it(notebook):
        """Run a notebook, or a list of cells, in a kernel without names, widgets and patches.

        At the end, any error that the test has not cleared from `errors` is a failure.
        """
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
        shoot(notebook.page)
    if failed():
        lab.forget()
        return
    for notebook in opened:
        notebook.close()
    assert [error for notebook in opened for error in notebook.errors] == []


@pytest.fixture
def open_canvas(open_notebook):
    """Run cells that end with an explorer; return the notebook and the drawn canvas."""

    def opened(*cells, first=CANVAS_ON):
        notebook = open_notebook([first, *cells])
        app = notebook.page.locator(".hookviz-app")
        wait_for_tiles(app)
        return notebook, app

    return opened
