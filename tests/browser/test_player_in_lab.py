"""The player of a trace in a real JupyterLab, moved by keyboard."""

from __future__ import annotations

import numpy as np
from front_end import wait_for, wait_for_names

import hookviz

CELLS = [
    "import hookviz",
    "hookviz.trace(hookviz.demo_model(), hookviz.demo_images()[6])",
]
PLAYER = ".hookviz-player"


def twin():
    return hookviz.trace(hookviz.demo_model(), hookviz.demo_images()[6])


def source(picture):
    return picture.get_attribute("src")


def lit(widget):
    """The heading, and the chosen line of the tree: arrow, kind, name, type, name's last part."""
    tree = widget.get_by_role("listbox", name="modules")
    line = tree.evaluate("tree => tree.selectedOptions[0].textContent")
    return [*widget.locator(".heading").inner_text().split(), line.split()[0]]


def shown(event):
    """What they should say."""
    arrow = "↑" if event.backward else "↓"
    return [arrow, event.kind, event.name, event.type, event.name.rpartition(".")[2]]


def test_player_steps_by_keyboard(open_notebook, shots):
    notebook, trace = open_notebook(CELLS), twin()
    page = notebook.page
    widget = page.locator(PLAYER).first
    picture = widget.locator("figure .frame img")
    picture.wait_for()
    widget.scroll_into_view_if_needed()
    wait_for_names(widget)
    assert lit(widget) == shown(trace[0])

    slider = widget.get_by_role("slider", name="event", exact=True)
    slider.focus()
    changed = 0
    for place in range(1, 8):
        before = source(picture)
        page.keyboard.press("ArrowRight")
        wait_for(lambda place=place: trace[place].code in widget.inner_text())
        assert lit(widget) == shown(trace[place])
        alt = picture.get_attribute("alt")
        assert f"the {trace[place].kind} hook of {trace[place].name} " in alt
        same = np.array_equal(trace[place].sample, trace[place - 1].sample)
        assert (source(picture) == before) == same
        changed += not same
    assert changed >= 3
    page.keyboard.press("ArrowLeft")
    wait_for(lambda: trace[6].code in widget.inner_text())
    assert lit(widget) == shown(trace[6])

    first = next(e.index for e in trace if e.kind == "full_backward" and e.depth > 2)
    slider.focus()
    page.keyboard.press("Home")
    for _ in range(first):
        page.keyboard.press("ArrowRight")
    wait_for(lambda: trace[first].code in widget.inner_text())
    for theme in notebook.themes:
        notebook.theme(theme)
        widget.scroll_into_view_if_needed()
        page.screenshot(path=shots / f"player-{theme}.png")

    before_x = widget.locator(".readings").bounding_box()["x"]
    slider.focus()
    page.keyboard.press("End")  # one that could not be set
    assert not trace[-1].fired
    wait_for(lambda: trace[-1].code in widget.inner_text())
    assert trace[-1].note in widget.inner_text()
    assert lit(widget) == shown(trace[-1])
    assert not picture.is_visible()
    assert widget.locator(".readings").bounding_box()["x"] == before_x  # the text stays
    page.screenshot(path=shots / "player-note.png")
    assert notebook.errors == []


def test_play_runs_and_stops(open_notebook):
    notebook, trace = open_notebook(CELLS), twin()
    widget = notebook.page.locator(PLAYER).first
    widget.locator("figure .frame img").wait_for()
    wait_for_names(widget)
    slider = widget.get_by_role("slider", name="event", exact=True)

    def at():
        return round(float(slider.get_attribute("aria-valuenow")))

    play = widget.get_by_role("button", name="play or pause", exact=True).first
    play.click()
    wait_for(lambda: at() >= 4)
    play.click()
    wait_for(lambda: lit(widget) == shown(trace[at()]))
    assert at() >= 4
    widget.get_by_role("button", name="stop", exact=True).click()
    wait_for(lambda: lit(widget) == shown(trace[0]))
    names = [b.get_attribute("aria-label") for b in widget.locator(".widget-play button").all()]
    assert None not in names
    assert notebook.errors == []


def test_tree_words_and_timeline(open_notebook, shots):
    notebook, trace = open_notebook(CELLS), twin()
    page = notebook.page
    widget = page.locator(PLAYER).first
    widget.locator("figure .frame img").wait_for()
    wait_for_names(widget)
    module = "layer2.0.conv1"
    assert any(event.layer == module for event in trace)
    tree = widget.get_by_role("listbox", name="modules")
    place = [name for name, _ in trace._tree].index(module)
    tree.select_option(index=place)
    first = next(event for event in trace if event.layer == module)
    wait_for(lambda: lit(widget) == shown(first))
    widget.get_by_role("button", name="first of backward").click()
    back = next(event for event in trace if event.backward)
    wait_for(lambda: lit(widget) == shown(back))
    line, now = widget.locator(".timeline"), widget.locator(".timeline > i")
    box, at = line.bounding_box(), now.bounding_box()
    share = (at["x"] + at["width"] / 2 - box["x"]) / box["width"]
    assert abs(share - (back.index + 0.5) / len(trace)) < 0.01
    typed = widget.get_by_placeholder("find a module")
    typed.fill("layer3 conv2d")
    left = [event for event in trace if "layer3" in event.layer and event.type == "Conv2d"]
    counted = f"{len(left)} of {len(trace)} events"
    wait_for(lambda: counted in widget.inner_text())
    assert tree.locator("option").count() == len({event.layer for event in left})
    for theme in notebook.themes:
        notebook.theme(theme)
        widget.scroll_into_view_if_needed()
        page.screenshot(path=shots / f"player-words-{theme}.png")
    assert widget.evaluate("widget => widget.scrollWidth <= widget.clientWidth")
    assert notebook.errors == []


def test_hostile_names_stay_text(open_notebook):
    notebook = open_notebook(
        [
            "import hookviz, torch\nfrom torch import nn\nevil = '<img src=x onerror=hacked=1>'",
            "model = nn.Sequential(); model.add_module(evil, nn.ReLU())\n"
            "trace = hookviz.trace(model, torch.ones(1, 2)); trace",
            "from IPython.display import HTML; HTML(trace._repr_html_())",
            "trace.show().event = 1; print('at', trace.show().event)",
        ]
    )
    page = notebook.page
    wait_for(lambda: page.locator(PLAYER).first.locator(".heading").count() == 1)
    wait_for(lambda: "<img" in page.locator(PLAYER).first.inner_text())
    assert page.evaluate("window.hacked") is None
    assert page.locator("img[src=x]").count() == 0
