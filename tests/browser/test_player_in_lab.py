"""The player of a trace in a real JupyterLab: a page in a frame, controlled by keyboard."""

from __future__ import annotations

from playwright.sync_api import expect

CELLS = [
    "import hookviz\ntrace = hookviz.trace(hookviz.demo_model(), hookviz.demo_images()[6])",
    "trace",
]

TEXT = {"light": "rgb(28, 30, 33)", "dark": "rgb(230, 232, 235)"}


def test_the_player_steps_in_its_frame(open_notebook, trace):
    notebook = open_notebook(CELLS)
    page = notebook.page
    frame = page.frame_locator(".hookviz-explorer iframe").first
    name, code = frame.locator("h3.hv-name"), frame.locator(".hv-code")
    expect(name).to_have_text(trace[0].name)
    frame.locator(".hv-trace").click()
    for index in range(1, 5):
        page.keyboard.press("ArrowRight")
        expect(code).to_have_text(trace[index].code)
        expect(name).to_have_text(trace[index].name)


def test_a_frame_follows_the_notebook_and_not_the_system(open_notebook):
    notebook = open_notebook(CELLS)
    page = notebook.page
    app = page.frame_locator(".hookviz-explorer iframe").first.locator(".hookviz-app")
    try:
        for system in ("dark", "light"):
            page.emulate_media(color_scheme=system)
            for theme in reversed(notebook.themes):
                notebook.theme(theme)
                expect(app).to_have_css("color", TEXT[theme])
                expect(app).to_have_css("color-scheme", theme)
    finally:
        page.emulate_media(color_scheme="null")
