"""The page of a trace in a browser, used by keyboard and pointer without a network."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest
from front_end import canvas_pixels, next_frame, wait_for

from hookviz.draw.colours import DIVERGING, dark_palette, palette, to_levels
from hookviz.studies.trace.events import event_picture, numbers


@pytest.fixture(scope="session")
def trace_page(trace):
    return trace.to_html()


@pytest.fixture
def opened(shown, trace_page):
    """Return a function that opens the page of the trace."""

    def open_it(width=1100, theme="light"):
        page = shown(trace_page, color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function("(width) => innerWidth === width", arg=width)
        next_frame(page)
        return page

    return open_it


def place(page):
    return int(page.get_by_role("slider", name="event", exact=True).input_value())


def agrees(page, trace, wanted, colours=palette):
    """Wait until the page shows this event: words, marked module, numbers and pixels."""
    event = trace[wanted]
    assert place(page) == wanted
    assert page.locator(".hv-kind").inner_text() == event.kind
    assert page.locator("h3").inner_text() == event.name
    assert page.get_by_role("region", name="code of this hook").inner_text() == event.code
    (lit,) = page.locator("[aria-current]").all()
    assert lit.get_attribute("aria-label") == f"{event.name} {event.type}"
    assert lit.get_attribute("data-side") == ("backward" if event.backward else "forward")
    told = page.locator(".hv-told").inner_text().split("\n")
    for name, value in numbers(event):
        assert told[told.index(name) + 1] == value
    if (seen := event_picture(event)) is not None:
        picture = page.get_by_role("img", name=seen.alt, exact=True)
        wanted = colours(seen.cmap)[to_levels(seen.values, seen.low, seen.high)]
        assert np.array_equal(canvas_pixels(picture), wanted)


def test_events_are_reached_by_keyboard(opened, trace):
    page = opened()
    agrees(page, trace, 0)
    for wanted in (1, 2, 3):
        page.keyboard.press("ArrowRight")  # works without focus, since the page has only one trace
        agrees(page, trace, wanted)
    page.keyboard.press("ArrowLeft")
    agrees(page, trace, 2)
    page.keyboard.press("End")
    agrees(page, trace, len(trace) - 1)
    assert page.locator(".hv-frame").inner_text() == "it did not fire"
    page.keyboard.press("ArrowRight")
    assert place(page) == len(trace) - 1
    page.keyboard.press("Home")
    agrees(page, trace, 0)
    backward = page.get_by_role("button", name="first of backward")
    backward.focus()
    page.keyboard.press("Enter")
    agrees(page, trace, next(event.index for event in trace if event.backward))


def test_a_click_on_a_module_shows_its_next_event(opened, trace):
    page = opened()
    own = [event.index for event in trace if event.layer == "layer2.0.conv1"]
    row = page.get_by_role("treeitem", name="layer2.0.conv1 Conv2d")
    for wanted in (*own, own[0]):
        row.click()
        agrees(page, trace, wanted)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    after = (event.index for event in trace if event.layer == "layer2.0.bn1")
    agrees(page, trace, next(index for index in after if index > own[0]))


def test_events_are_filtered_by_kind_and_module(opened, trace):
    page = opened()
    count = page.get_by_role("status")
    assert count.inner_text() == f"{len(trace)} events"
    page.get_by_label("kind of hook").select_option("full_backward")
    page.get_by_label("find modules").fill("3.1 conv2d")
    wanted = [
        event.index
        for event in trace
        if event.kind == "full_backward" and "3.1" in event.layer and event.type == "Conv2d"
    ]
    assert len(wanted) == 2
    assert count.inner_text() == f"2 of {len(trace)} events"
    agrees(page, trace, wanted[0])
    page.get_by_role("slider", name="event", exact=True).focus()
    page.keyboard.press("End")
    agrees(page, trace, wanted[1])
    off = page.get_by_role("treeitem", name="stem.0 Conv2d")
    assert off.get_attribute("aria-disabled") == "true"
    page.get_by_label("find modules").fill("no such")
    assert count.inner_text() == f"0 of {len(trace)} events"
    for key in ("ArrowLeft", "Home", "Space"):
        page.get_by_role("slider", name="event", exact=True).press(key)
    assert page.get_by_role("button", name="play").count() == 1  # nothing is played without events
    agrees(page, trace, wanted[1])
    page.get_by_label("find modules").fill("")
    page.get_by_label("kind of hook").select_option("")
    agrees(page, trace, wanted[1])


def test_the_player_plays_to_the_end(shown, trace):
    part = trace[:9]
    page = shown(part.to_html(), apart=True)
    page.clock.install(time=0)  # the test controls the page's clock
    page.clock.pause_at(datetime(2000, 1, 1))
    page.get_by_label("speed").select_option("25")
    page.get_by_role("button", name="play").click()
    assert page.get_by_role("button", name="pause").is_visible()
    page.clock.run_for(3 * 40)
    assert place(page) == 3
    page.clock.run_for(5 * 40)
    assert place(page) == len(part) - 1
    page.get_by_role("button", name="play").click()  # starts again from the beginning
    page.clock.run_for(2 * 40)
    page.get_by_role("button", name="pause").click()
    page.clock.run_for(1000)
    assert place(page) == 2


@pytest.mark.parametrize(("width", "theme"), [(700, "light"), (1100, "dark")])
def test_the_layout_is_the_same_for_all_events(opened, trace, width, theme):
    page = opened(width, theme)
    colours = palette if theme == "light" else dark_or_same
    boxes = set()
    gradient = next(event.index for event in trace if event.kind == "full_backward")
    for wanted in (7, gradient, len(trace) - 1):
        page.keyboard.press("Home")
        page.get_by_role("treeitem", name="(model) DemoNet").hover()
        page.evaluate("document.activeElement.blur()")
        go_to(page, trace, wanted)
        agrees(page, trace, wanted, colours)
        boxes.add(
            str(
                [
                    page.locator(part).bounding_box()
                    for part in (".hv-frame", ".hv-told dd >> nth=6")
                ]
            )
        )
    assert len(boxes) == 1
    whole = "document.documentElement.scrollWidth"
    assert page.evaluate(whole) == width
    page.set_viewport_size({"width": 390, "height": 800})  # a phone
    wait_for(lambda: page.evaluate(whole) == 390, "the page to fit")


def dark_or_same(cmap):
    return dark_palette(cmap) if cmap == DIVERGING else palette(cmap)


def go_to(page, trace, wanted):
    box = page.get_by_role("slider", name="event", exact=True).bounding_box()
    page.mouse.click(box["x"] + (wanted + 0.5) * box["width"] / len(trace), box["y"] + 30)


def test_tab_reaches_all_controls_and_all_have_names(opened):
    page = opened()
    found = []
    for _ in range(9):
        page.keyboard.press("Tab")
        found.append(page.evaluate("(e => e.ariaLabel || e.textContent)(document.activeElement)"))
    assert found[:8] == [
        "play",
        "speed",
        "first of backward",
        "kind of hook",
        "find modules",
        "event",
        "(model) DemoNet",
        "code of this hook",
    ]


def test_the_page_says_which_pictures_are_left_out(shown, trace):
    page = shown(trace.to_html(max_bytes=2e5))
    assert "To fit 200.0 kB" in page.locator("p").inner_text()
    page.get_by_label("kind of hook").select_option("tensor")
    assert page.locator(".hv-frame").inner_text() == "this picture was left out of the page"
