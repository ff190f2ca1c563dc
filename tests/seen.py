"""What a user sees of a widget: controls by their labels, texts and pictures by what they say."""

from __future__ import annotations

import itertools
import json
import re
from html import unescape

import ipywidgets as widgets

from hookviz.widgets.lifecycle import living


def parts(widget):
    """The widget and all that is in it, but for what is hidden."""
    if is_shown(widget):
        yield widget
        for child in getattr(widget, "children", ()):
            yield from parts(child)


def is_shown(widget):
    return widget.layout.display != "none"


def labels(widget):
    """Label -> the control or button that has it."""
    found = ((getattr(part, "description", ""), part) for part in parts(widget))
    return {label: part for label, part in found if label}


def registered():
    """Ids of all widgets that are alive."""
    return {each.model_id for each in living()}


def control(widget, label):
    return labels(widget)[label]


def html(widget, text):
    """The one HTML that says this, in its source."""
    (found,) = (p for p in parts(widget) if isinstance(p, widgets.HTML) and text in p.value)
    return found


def says(widget, text):
    """Whether any HTML does."""
    return any(isinstance(part, widgets.HTML) and text in part.value for part in parts(widget))


# Words of the plain face, by what is in their source.
TITLE, HEADING = 'class="title"', 'class="heading"'
NOTE = 'class="readings note"'


def blocks(page):
    """What a page that `to_html` wrote holds as JSON, each by its id."""
    found = re.findall(r'<script type="application/json" id="([\w-]+)">(.*?)</script>', page, re.S)
    assert len(dict(found)) == len(found)
    return {name: json.loads(text) for name, text in found}


def framed(widget):
    """The data of the page that a widget shows in its one frame."""
    (frame,) = widget.children
    (page,) = re.findall(r'srcdoc="([^"]*)"', frame.value)
    return blocks(unescape(page))


def overlapping_texts(figure):
    """Return the pairs of titles and tick labels that overlap."""
    figure.draw_without_rendering()  # lays the figure out
    texts = []
    bars = [bar for axes in figure.axes for bar in axes.child_axes]
    for axes in [*figure.axes, *bars]:
        texts.append(axes.title)
        for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
            low, high = sorted(axis.get_view_interval())
            ticks = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
            texts += [label for place, label in ticks if low <= place <= high]  # others are hidden
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text()]
    pairs = itertools.combinations(boxes, 2)
    return [(a, b) for (a, one), (b, other) in pairs if one.overlaps(other)]
