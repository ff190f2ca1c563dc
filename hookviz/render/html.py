"""The widget's HTML: pictures with alt text, readings, notes. All text is escaped here."""

from __future__ import annotations

import base64
import math
from html import escape

# Colours come from the page, so that it is legible on light and on dark.
STYLE = """<style>
.hookviz figure {margin: 0; line-height: 1.35; font-size: 12px}
.hookviz figcaption {margin-bottom: 3px; min-height: 1.35em; overflow-wrap: anywhere}
.hookviz img {display: block; width: 100%; image-rendering: pixelated}
.hookviz img.smooth {image-rendering: auto}
.hookviz .frame {position: relative}
.hookviz .tile {position: absolute; box-sizing: border-box; outline: 2px solid #ff8c00;
  box-shadow: 0 0 0 3px #000}
.hookviz .scale {display: flex; gap: 6px; align-items: center; margin-top: 3px}
.hookviz .scale img {height: 8px; flex: 1; min-width: 0}
.hookviz .readings {font-size: 12px; line-height: 1.5; overflow-wrap: anywhere}
.hookviz .readings b, .hookviz .title b {font-weight: 600}
.hookviz .title {line-height: 1.5; overflow-wrap: anywhere}
.hookviz .note {opacity: 0.75}
.hookviz pre {margin: 4px 0; padding: 8px 10px; overflow-x: auto; font-size: 12px;
  line-height: 1.45; color: inherit; background: rgba(128, 128, 128, 0.12);
  user-select: text; white-space: pre}
.hookviz pre code {font-family: monospace; color: inherit; background: none}
</style>"""

ROOT_CLASS = "hookviz-explorer"

# What core widgets have no setting for, done by a tiny picture when the page has loaded it: a
# slider's handle gets the label beside it as its name for screen readers, that of ipywidgets 7
# also its role and value, and JupyterLab and Notebook 7 leave the arrow keys to a slider or menu
# that has the focus. It is done again a little later, for controls that the page draws after the
# picture.
_KEYBOARD = f"""<img alt="" style="display: none" onload="
var root = this.closest('.{ROOT_CLASS}') || document;
function tell(handle, readout) {{
  function value() {{
    handle.setAttribute('aria-valuenow', parseFloat(handle.style.left) || 0);
    handle.setAttribute('aria-valuetext', readout.textContent);
  }}
  handle.setAttribute('role', 'slider');
  new MutationObserver(value).observe(readout, {{childList: true}});
  value();
}}
function name() {{
  root.querySelectorAll('.noUi-handle, .ui-slider-handle').forEach(function (handle) {{
    var slider = handle.closest('.widget-inline-hbox, .widget-slider');
    var label = slider && slider.querySelector('.widget-label');
    if (label) handle.setAttribute('aria-label', label.textContent);
    var readout = slider && slider.querySelector('.widget-readout');
    if (readout && !handle.hasAttribute('role')) tell(handle, readout);
    handle.setAttribute('data-lm-suppress-shortcuts', 'true');
  }});
  root.querySelectorAll('select').forEach(function (menu) {{
    menu.setAttribute('data-lm-suppress-shortcuts', 'true');
  }});
}}
name(); setTimeout(name, 300); setTimeout(name, 2000);"
src="data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==">"""


def number(value: float) -> str:
    """Four significant digits, with a real minus sign.

    >>> number(-0.00012345), number(3.0), number(float("nan"))
    ('−0.0001234', '3', 'NaN')
    """
    if math.isnan(value):
        return "NaN"
    return f"{value:.4g}".replace("-", "−")


def shown_at(size: tuple[int, ...], drawn: tuple[int, ...]) -> str:
    """For the caption of a picture that was averaged down.

    >>> shown_at((2048, 2048), (512, 512)), shown_at((56, 56), (56, 56))
    (', averaged to 512×512', '')
    """
    return "" if tuple(drawn) == tuple(size) else f", averaged to {'×'.join(map(str, drawn))}"


def picture(
    png: bytes, alt: str, caption: str, *, below: str = "", css: str = "", smooth: bool = False
) -> str:
    """A captioned picture, with HTML ``below`` it.

    ``css`` is the class of a box laid over it, as the mosaic's outline. ``smooth`` pictures, as
    photographs, are interpolated when scaled; maps show their pixels.
    """
    over = f'<div class="tile {css}"></div>' if css else ""
    return (
        f'<div class="hookviz"><figure><figcaption>{escape(caption)}</figcaption>'
        f'<div class="frame"><img{" class=smooth" * smooth} alt="{escape(alt)}" '
        f'src="{data_url(png)}">{over}</div>{below}</figure></div>'
    )


def data_url(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def scale(png: bytes, low: float, high: float) -> str:
    """The colours from low to high, with both numbers."""
    return (
        f'<div class="scale"><span>{number(low)}</span>'
        f'<img alt="" src="{data_url(png)}"><span>{number(high)}</span></div>'
    )


def outline(css: str, box: tuple[float, float, float, float]) -> str:
    """A style that puts the mosaic's outline around one tile."""
    left, top, width, height = (f"{100 * share:.4f}%" for share in box)
    return f"<style>.{css} {{left: {left}; top: {top}; width: {width}; height: {height}}}</style>"


def readings(rows: list[tuple[str, list[tuple[str, str]]]]) -> str:
    """Lines of named numbers: a heading, then name and value in turn."""
    lines = [
        f"<div><b>{escape(heading)}</b> "
        + " · ".join(f"{escape(name)} {escape(value)}".strip() for name, value in pairs)
        + "</div>"
        for heading, pairs in rows
    ]
    return f'<div class="hookviz"><div class="readings">{"".join(lines)}</div></div>'


def title(name: str, facts: list[str]) -> str:
    return (
        f'{STYLE}{_KEYBOARD}<div class="hookviz"><div class="title"><b>{escape(name)}</b> · '
        + " · ".join(map(escape, facts))
        + "</div></div>"
    )


def note(text: str) -> str:
    if not text:
        return ""
    return f'<div class="hookviz"><div class="readings note">{escape(text)}</div></div>'


def code(source: str) -> str:
    """A program, to be read and copied."""
    label = 'tabindex="0" role="region" aria-label="PyTorch code of this view"'
    return f'<div class="hookviz"><pre {label}><code>{escape(source)}</code></pre></div>'
