"""Reach the controls of the explorer's canvas in its drawers, menus and search field."""

from __future__ import annotations

import re

from front_end import next_frame, wait_for
from playwright.sync_api import expect

ARRIVED = "button => !button.closest('.hookviz-app').classList.contains('hv-waiting')"


def open_drawer(app, name):
    """Open the drawer below a tab, if it is closed, and return it."""
    tab = app.locator(".hv-tab", has_text=re.compile(rf"^{re.escape(name)}( \(\d+\))?$"))
    if tab.get_attribute("aria-expanded") == "false":
        tab.click()
    expect(tab).to_have_attribute("aria-expanded", "true")  # with the next frame
    return app.locator(".hv-drawer:visible")


def find_layer(app, words):
    """Go to the first layer that the search field finds for these words, and return the field."""
    button = app.get_by_role("button", name="search", exact=True)
    button.click()
    field = app.get_by_role("combobox", name="find a layer")
    field.fill(words)
    field.press("Enter")
    next_frame(field.page)  # which draws the next layer's name, its maps once they are here
    wait_for(lambda: button.evaluate(ARRIVED), "the layer's maps")
    return field


def choose(app, opener, label, value):
    """Choose a value in a menu that a button opens, and close the menu."""
    button = app.locator(f".hv-opener[title^='{opener}']")
    button.click()
    app.get_by_label(label, exact=True).select_option(value)
    button.click()


def save_menu(app, act):
    """Click an entry of the Save menu."""
    app.get_by_role("button", name="Save ▾").click()
    app.get_by_role("button", name=act, exact=True).click()


def close_drawer(app):
    """Close the open drawer."""
    expanded = app.locator(".hv-tab[aria-expanded=true]")
    expanded.click()
    expanded.wait_for(state="detached")  # with the next frame; until then it seems to be open
