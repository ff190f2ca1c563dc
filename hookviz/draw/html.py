"""HTML of the plain face and its style sheet: pictures with alt text, tables, notes.

All text is escaped here.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from ..tables import escape

ROOT_CLASS = "hookviz-explorer"

_DARK = """--hv-dim: #a7b0bd; --hv-line: #3b434f; --hv-bar: #22345c; --hv-accent: #f59a23;
  --hv-good: #8fdca6; --hv-odd: #f0c070; --hv-bad: #ff9aa6; --hv-soft: #1c222b;
  --hv-field: #11151a; --hv-ink: #e8eaed; --hv-label: #20262eCC"""
_ARROW = (
    "url(\"data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 18 18'%3E"
    "%3Cpath fill='none' stroke='COLOUR' stroke-width='1.6' d='M5 7l4 4 4-4'/%3E%3C/svg%3E\")"
)
_PLACES = ('[data-jp-theme-light="false"]', 'html[theme="dark"]', ".vscode-dark")


def dark_rule(selector: str, rule: str) -> str:
    """Return a rule for dark pages only."""
    return f"{', '.join(f'{place} {selector}' for place in _PLACES)} {{{rule}}}\n"


_COLOURS = (
    """.hookviz, .hookviz-explorer {--hv-dim: #5d6673; --hv-line: #d5d9df; --hv-bar: #dbe6fb;
  --hv-accent: #d97706; --hv-good: #1f6b35; --hv-odd: #7a4b00; --hv-bad: #a3122a;
  --hv-soft: #f4f5f7; --hv-field: #fff; --hv-ink: #1c1e21; --hv-label: #ffffffD0}
"""
    + dark_rule(".hookviz", _DARK)
    + dark_rule(".hookviz-explorer", _DARK)
    + """.hookviz img.dark {display: none}
"""
    + dark_rule(".hookviz img.dark", "display: block")
    + dark_rule(".hookviz img.light", "display: none")
)

# What the explorer and the player have in common.
_PARTS = """.hookviz {font-variant-numeric: tabular-nums; line-height: 1.4; font-size: 12px}
.hookviz .plain {color: var(--hv-dim)}
.hookviz img {display: block; width: 100%; max-width: none; margin: 0; image-rendering: pixelated}
.hookviz img.smooth {image-rendering: auto}
.hookviz .readings {line-height: 1.5; overflow-wrap: anywhere}
.hookviz .readings b {font-weight: 600}
.hookviz .title {display: flex; flex-wrap: wrap; gap: 2px 12px; align-items: baseline;
  line-height: 24px; overflow-wrap: anywhere}
.hookviz .title b {font-size: 15px; font-weight: 600}
.hookviz .title span {color: var(--hv-dim)}
.hookviz .title .chip {margin-left: auto; border: 1px solid; border-radius: 12px;
  padding: 0 10px; line-height: 20px; background: var(--hv-soft)}
.hookviz .title .good {color: var(--hv-good)}
.hookviz .title .odd {color: var(--hv-odd)}
.hookviz .title .bad {color: var(--hv-bad); font-weight: 600}
.hookviz .note {color: var(--hv-bad)}
.hookviz pre {margin: 4px 0; padding: 8px 10px; overflow-x: auto; font-size: 12px;
  line-height: 1.45; color: inherit; background: rgba(128, 128, 128, 0.12);
  user-select: text; white-space: pre}
.hookviz pre code {font-family: monospace; color: inherit; background: none}
.hookviz .heading {line-height: 22px; overflow-wrap: anywhere}
.hookviz .heading b {font-size: 16px; font-weight: 600; margin-right: 8px}
.hookviz .heading span {color: var(--hv-dim)}
"""

# The layout of the explorer.
_EXPLORER = """.hookviz-explorer {container: hookviz / inline-size; width: 100%; overflow: visible;
  --side: clamp(180px, min((100vh - 460px) / 2, 27cqi), 340px)}
.hookviz-explorer :is(.widget-box, .jupyter-widgets-box) {overflow: visible}
.hookviz-explorer .widget-html {margin: 0}
.hookviz-explorer .widget-html-content {line-height: 1.4; min-width: 0}
.hookviz-explorer .widget-label {color: var(--hv-dim)}
.hookviz-explorer :is(select, input)CORE {background-color: var(--hv-field) !important;
  color: var(--hv-ink) !important; border: 1px solid var(--hv-line) !important;
  border-radius: 3px; font-size: 12px}
.hookviz-explorer input::placeholder {color: var(--hv-dim); opacity: 1}
.hookviz-explorer .hookviz-rows {flex-direction: column; align-items: stretch; width: 100%;
  height: auto; overflow-x: auto; margin: 0 0 8px}
.hookviz-explorer .hookviz-rows :is(.widget-label, select) {font: 11px/1.5 monospace; flex: none;
  min-width: max-content; max-width: none; height: auto; text-align: left; padding: 0 6px}
.hookviz-explorer .hookviz-rows .widget-label {white-space: pre; overflow: visible}
.hookviz-explorer select:not([size])CORE {background-image: ARROW !important; background-size: 16px;
  background-repeat: no-repeat; background-position: right 2px center; padding-right: 18px}
.hookviz-explorer .noUi-handle:focus-visible {
  outline: 2px solid #2f7de1; outline-offset: 2px}
.hookviz-explorer .hookviz-line {display: flex; flex-flow: row wrap; align-items: center;
  gap: 2px 12px}
.hookviz-explorer .hookviz-grow {flex: 1 1 240px; min-width: 0}
.hookviz-explorer .hookviz-line > * {margin: 0}
.hookviz-explorer .hookviz-line > .widget-slider {flex: 0 0 340px; max-width: 100%}
.hookviz-explorer .hookviz-pictures {display: flex; flex-flow: row wrap; align-items: flex-end}
.hookviz-explorer .hookviz-tiles {position: relative}
.hookviz-explorer .hookviz-tiles > * {width: 100%}
.hookviz-explorer .hookviz-tiles > :last-child {position: absolute; inset: 0}
.hookviz-outline {position: absolute; box-sizing: border-box; border: 2px solid #ff8c00}
@container hookviz (max-width: 780px) {
  .hookviz-line > .hookviz-grow {flex-basis: 150px !important}
}
"""

# The canvas has a style of its own; another explorer on the page may use this one.
_CORE = ":not(:where(.hookviz-app *))"

STYLE = (
    "<style>"
    + _COLOURS
    + _PARTS
    + _EXPLORER.replace("ARROW", _ARROW.replace("COLOUR", "%235d6673")).replace("CORE", _CORE)
    + dark_rule(
        f".hookviz-explorer select:not([size]){_CORE}",
        f"background-image: {_ARROW.replace('COLOUR', '%23c5ccd6')} !important",
    )
    + "</style>"
)

# Fixes for core widgets, run by a tiny picture when the page has loaded it: a slider's handle gets
# the label beside it as its name for screen readers, in ipywidgets 7 also its role and value; layer
# and channel are read out by name; and JupyterLab and Notebook 7 leave keys to the focused control.
# Run again a little later, for controls that are drawn after the picture.
KEYBOARD = f"""<img alt="" style="display: none" onload="
var here = this;
function root() {{ return here.closest('.{ROOT_CLASS}') || document; }}
function tell(handle, readout) {{
  function value() {{
    handle.setAttribute('aria-valuenow', parseFloat(handle.style.left) || 0);
    if (readout) handle.setAttribute('aria-valuetext', readout.textContent);
  }}
  handle.setAttribute('role', 'slider');
  if (readout) new MutationObserver(value).observe(readout, {{childList: true}});
  value();
}}
function words_of(said) {{ return said.title || said.textContent; }}
function read(handle, words) {{
  function value() {{
    var said = root().querySelector(words);
    if (said && handle.getAttribute('aria-valuetext') !== words_of(said))
      handle.setAttribute('aria-valuetext', words_of(said));
  }}
  new MutationObserver(value).observe(handle, {{attributeFilter: ['aria-valuetext']}});
  new MutationObserver(value).observe(root().querySelector(words).closest('.widget-html'),
    {{childList: true, subtree: true, characterData: true}});
  value();
}}
function name() {{
  root().querySelectorAll('.noUi-handle, .ui-slider-handle').forEach(function (handle) {{
    var slider = handle.closest('.widget-inline-hbox, .widget-slider');
    var label = slider && slider.querySelector('.widget-label');
    if (label) handle.setAttribute('aria-label', label.textContent);
    var readout = slider && slider.querySelector('.widget-readout');
    if (!handle.hasAttribute('role')) tell(handle, readout);
    var words = {{'hookviz-by-layer': '.heading b', 'hookviz-by-channel': '.plain.place'}};
    if (slider && !handle.dataset.read) for (var kind in words)
      if (slider.classList.contains(kind) && root().querySelector(words[kind])) {{
        handle.dataset.read = 'yes';
        read(handle, words[kind]);
      }}
    handle.setAttribute('data-lm-suppress-shortcuts', 'true');
  }});
  root().querySelectorAll('select, input, button').forEach(function (control) {{
    control.setAttribute('data-lm-suppress-shortcuts', 'true');
  }});
}}
name(); setTimeout(name, 300); setTimeout(name, 2000);"
src="data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==">"""


Box = tuple[float, float, float, float]
"""Left, top, width and height of a part of a picture, as fractions of the whole."""


def shown_at(size: tuple[int, ...], drawn: tuple[int, ...]) -> str:
    """Return a note for the caption of a picture that was averaged down.

    >>> shown_at((2048, 2048), (512, 512)), shown_at((56, 56), (56, 56))
    ('averaged to 512×512', '')
    """
    return "" if tuple(drawn) == tuple(size) else f"averaged to {'×'.join(map(str, drawn))}"


def data_url(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def title(name: str, facts: list[str], chip: tuple[str, str, str]) -> str:
    """Return the header; the chip has a text, a kind (``good``, ``odd``, ``bad``) and details."""
    text, kind, details = map(escape, chip)
    return (
        f'{STYLE}{KEYBOARD}<div class="hookviz"><div class="title"><b>{escape(name)}</b>'
        f"<span>{' · '.join(map(escape, facts))}</span>"
        f'<span class="chip {kind}" title="{details}">{text}</span></div></div>'
    )


def bars(rows: Sequence[tuple[str, str, float, bool]]) -> str:
    """Return a row of predictions: name, value in words, share of the bar, and if it is the target.

    >>> bars([("moon", "97.8 %", 0.978, True)]).count("97.8 %")
    1
    """
    cells = []
    for name, words, share, chosen in rows:
        ground = f"linear-gradient(to right, var(--hv-bar) {100 * share:.1f}%, transparent 0)"
        weight = "bold" if chosen else "normal"
        cells.append(
            f'<span class="prediction" style="background: {ground}; font-weight: {weight}; '
            "border: 1px solid var(--hv-line); padding: 1px 8px; margin: 0 6px 4px 0; "
            'display: inline-block">'
            f"{escape(name)} {escape(words)}</span>"
        )
    return f'<div class="hookviz"><div class="plain">{"".join(cells)}</div></div>'


def heading(name: str, words: str) -> str:
    """Return the layer's full name and its description."""
    return (
        f'<div class="hookviz"><div class="heading"><b>{escape(name)}</b> '
        f"<span>{escape(words)}</span></div></div>"
    )


def plain(text: str, css: str = "", whole: str = "") -> str:
    """Return a line of text, with the full text on hover."""
    more = f' title="{escape(whole)}"' if whole else ""
    return f'<div class="hookviz"><div class="plain {css}"{more}>{escape(text)}</div></div>'


def image(png: bytes, alt: str, caption: str = "", indent: float = 0) -> str:
    """Return a picture, which is never enlarged, with a caption above it.

    ``indent`` is the caption's distance from the left edge, as a fraction of the picture's width.
    """
    above = f'<div class="plain" style="padding-left: {100 * indent:.1f}%">{escape(caption)}</div>'
    return (
        f'<div class="hookviz">{above if caption else ""}<img class="smooth" '
        f'style="width: auto; max-width: 100%" alt="{escape(alt)}" src="{data_url(png)}"></div>'
    )


def outline(box: Box) -> str:
    """Return an outline of a part of the picture that its parent contains."""
    names = ("left", "top", "width", "height")
    place = "; ".join(f"{name}: {100 * at:.3f}%" for name, at in zip(names, box, strict=True))
    return f'<div class="hookviz-outline" style="{place}"></div>'


def note(text: str) -> str:
    if not text:
        return ""
    return f'<div class="hookviz"><div class="readings note">{escape(text)}</div></div>'
