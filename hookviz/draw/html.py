"""HTML of the plain face: pictures with alt text, tables, notes. All text is escaped here."""

from __future__ import annotations

import base64
from html import escape

from .style import KEYBOARD, STYLE

Box = tuple[float, float, float, float]
"""Left, top, width and height of a part of a picture, as fractions of the whole."""

Readings = list[tuple[str, list[tuple[str, str]]]]
"""Lines of a heading and of pairs of a name and a value."""


def shown_at(size: tuple[int, ...], drawn: tuple[int, ...]) -> str:
    """Return a note for the caption of a picture that was averaged down.

    >>> shown_at((2048, 2048), (512, 512)), shown_at((56, 56), (56, 56))
    ('averaged to 512×512', '')
    """
    return "" if tuple(drawn) == tuple(size) else f"averaged to {'×'.join(map(str, drawn))}"


def data_url(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def table(rows: Readings) -> str:
    """Format readings as a table: a row for each heading, a column for each name.

    Examples
    --------
    >>> table([("a", [("min", "1")])])  # doctest: +ELLIPSIS
    '<div class="hookviz"><table class="numbers"><thead>...<tr><th>a</th><td>1</td></tr>...'
    """
    names = list(dict.fromkeys(name for _, pairs in rows for name, _ in pairs))
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    lines = []
    for heading, pairs in rows:
        values = dict(pairs)
        cells = "".join(f"<td>{escape(values.get(name, ''))}</td>" for name in names)
        lines.append(f"<tr><th>{escape(heading)}</th>{cells}</tr>")
    return (
        f'<div class="hookviz"><table class="numbers"><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def title(name: str, facts: list[str], verdict: tuple[str, str] | None = None) -> str:
    """Return the header with model name and health chip, ``good``, ``odd`` or ``bad``."""
    chip = ""
    if verdict is not None:
        chip = f'<span class="chip {escape(verdict[1])}">{escape(verdict[0])}</span>'
    return (
        f'{STYLE}{KEYBOARD}<div class="hookviz"><div class="title"><b>{escape(name)}</b>'
        f"<span>{' · '.join(map(escape, facts))}</span>{chip}</div></div>"
    )


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


def image(png: bytes, alt: str) -> str:
    """Return a picture, as wide as there is room."""
    return (
        f'<div class="hookviz"><img class="smooth" style="width: auto; max-width: 100%" '
        f'alt="{escape(alt)}" src="{data_url(png)}"></div>'
    )


def note(text: str) -> str:
    if not text:
        return ""
    return f'<div class="hookviz"><div class="readings note">{escape(text)}</div></div>'


def code(source: str) -> str:
    """Return source code, to be read and copied."""
    label = 'tabindex="0" role="region" aria-label="PyTorch code of this view"'
    return f'<div class="hookviz"><pre {label}><code>{escape(source)}</code></pre></div>'
