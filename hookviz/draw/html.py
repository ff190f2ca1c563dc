"""The widget's HTML: pictures with alt text, tables, notes. All text is escaped here."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from ..hooking.tables import number
from .colours import palette
from .style import KEYBOARD, STYLE, dark_rule

Box = tuple[float, float, float, float]
"""Left, top, width and height of a part of a picture, as shares of the whole."""

Readings = list[tuple[str, list[tuple[str, str]]]]
"""Lines of a heading and of pairs of a name and a value."""


def shown_at(size: tuple[int, ...], drawn: tuple[int, ...]) -> str:
    """For the caption of a picture that was averaged down.

    >>> shown_at((2048, 2048), (512, 512)), shown_at((56, 56), (56, 56))
    ('averaged to 512×512', '')
    """
    return "" if tuple(drawn) == tuple(size) else f"averaged to {'×'.join(map(str, drawn))}"


def picture(
    png: bytes,
    alt: str,
    caption: str,
    *,
    detail: str = "",
    note: str = "",
    below: str = "",
    dark: bytes | None = None,
    smooth: bool = False,
    wide: bool = False,
    box: Box | None = None,
) -> str:
    """A captioned picture, with HTML ``below`` it.

    Parameters
    ----------
    png : bytes
    alt, caption : str
        Plain text.
    detail, note : str
        Plain text: what stands at the other end of the caption, and below the picture.
    below : str
        HTML that follows the picture.
    dark : bytes, optional
        The picture for a dark page, if it is another one.
    smooth : bool
        Interpolate when scaling, as for photographs; maps show their pixels.
    wide : bool
        A signal's: a band, where others have a square.
    box : tuple of float, optional
        Left, top, width and height of a part that is outlined, as shares of the picture.
    """
    whole = ", ".join(filter(None, (caption, detail)))
    images = [_image(png, alt, ["smooth"] * smooth + ["light"] * (dark is not None))]
    images += [_image(dark, alt, ["dark"])] if dark is not None else []
    said = f'<div class="said" title="{escape(note)}">{escape(note)}</div>' if note else ""
    right = f"<span>{escape(detail)}</span>" if detail else ""
    return (
        f'<div class="hookviz"><figure><figcaption title="{escape(whole)}">'
        f"<b>{escape(caption)}</b>{right}</figcaption>"
        f'<div class="frame{" wide" * wide}">{"".join(images)}{_outline(box, png, wide)}</div>'
        f"{below}{said}</figure></div>"
    )


def _outline(box: Box | None, png: bytes, wide: bool) -> str:
    """A part of a picture, where the page draws that: as large as there is room for, or a band."""
    if box is None:
        return ""
    size = [int.from_bytes(png[at : at + 4], "big") for at in (16, 20)]  # as every PNG begins
    fit = "none" if wide else "xMidYMin meet"
    x, y, width, height = (share * size[n % 2] for n, share in enumerate(box))
    return (
        f'<svg class="spot" aria-hidden="true" viewBox="0 0 {size[0]} {size[1]}" '
        f'preserveAspectRatio="{fit}"><rect x="{x:.3f}" y="{y:.3f}" width="{width:.3f}" '
        f'height="{height:.3f}" vector-effect="non-scaling-stroke"/></svg>'
    )


def _image(png: bytes, alt: str, classes: list[str]) -> str:
    css = f' class="{" ".join(classes)}"' if classes else ""
    return f'<img{css} alt="{escape(alt)}" src="{data_url(png)}">'


def data_url(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def scale(png: bytes, low: float, high: float, dark: bytes | None = None) -> str:
    """The colours from low to high, with the numbers below; and zero, where it is in the middle."""
    bars = [_image(png, "", ["light"] * (dark is not None))]
    bars += [_image(dark, "", ["dark"])] if dark is not None else []
    middle = "<span>0</span>" if low == -high else ""
    return (
        f'<div class="scale">{"".join(bars)}<div class="ends"><span>{number(low)}</span>'
        f"{middle}<span>{number(high)}</span></div></div>"
    )


def tiles(
    css: str,
    png: bytes,
    dark: bytes | None,
    boxes: Sequence[Box],
    names: Sequence[str],
    alt: str,
    shares: Sequence[float] = (),
) -> str:
    """Parts of one picture, laid out by the page as it has room, each with its name.

    Parameters
    ----------
    css : str
        The class of this picture alone, for `columns` and `mark`.
    boxes : sequence of tuple
        Left, top, width and height of each part, as shares of the whole.
    shares : sequence of float, optional
        How long a bar at each part is, −1 to 1.
    """
    parts = []
    for place, ((left, top, width, height), name) in enumerate(zip(boxes, names, strict=True)):
        x, y = (100 * a / (1 - b) if b < 1 else 0.0 for a, b in ((left, width), (top, height)))
        parts.append(
            f'<div class="t"><div style="background-position: {x:.4f}% {y:.4f}%"></div>'
            f'<i title="{escape(name)}">{escape(name)}</i>{_bar(shares[place]) if shares else ""}'
            "</div>"
        )
    _, _, width, height = boxes[0]
    style = f".{css} .t > div {{background-size: {100 / width:.4f}% {100 / height:.4f}%; "
    style += f'background-image: url("{data_url(png)}")}}'
    if dark is not None:
        style += dark_rule(f".{css} .t > div", f'background-image: url("{data_url(dark)}")')
    return (
        f'<style>{style}</style><div class="hookviz"><div class="tiles {css}" role="img" '
        f'aria-label="{escape(alt)}">{"".join(parts)}</div></div>'
    )


def _bar(share: float) -> str:
    css = ' class="gain"' if share < 0 else ""
    return f'<u{css} style="width: {100 * abs(share):.1f}%"></u>'


# The mosaic's place for windows at least so high: the panel's side, and how high the mosaic may be.
_HEIGHTS = ((0, 190, 470), (950, 250, 600), (1050, 300, 690), (1150, 340, 770))
_WIDTHS = (0, 400, 540, 590, 640, 700, 760, 850, 950, 1050, 1200, 1400, 1600, 1800, 2000, 2300)


def columns(css: str, count: int, aspect: float) -> str:
    """How many of `tiles` stand in a row, for each width and height: as large as has room.

    No tile is smaller than 32 px, nor larger than a panel.

    Parameters
    ----------
    aspect : float
        A tile's height, as a share of its width.
    """
    rules = [f".{css} .t > div {{aspect-ratio: {1 / aspect:.4f}}}"]
    for tall, side, most in _HEIGHTS:
        last, found = 0, []
        for least, wide in zip(_WIDTHS, (*_WIDTHS[1:], 2600), strict=True):
            room, widest = (_mosaic_width(each, side) for each in (least, wide))
            n = max(1, -int(-widest // 220))
            while n < min(count, room // 36) and -(-count // n) * (widest / n) * aspect > most:
                n += 1
            if n != last:
                rule = (
                    f".hookviz .{css}.tiles {{grid-template-columns: repeat({n}, minmax(0, 1fr))}}"
                )
                found.append(f"@container hookviz (min-width: {least}px) {{{rule}}}")
            last = n
        rules.append(f"@media (min-height: {tall}px) {{{' '.join(found)}}}")
    return f"<style>{' '.join(rules)}</style>"


def _mosaic_width(width: int, side: int) -> float:
    """How wide the mosaic is in an explorer of this width; as `STYLE` has it."""
    if width < 640:
        return width * 2 / 3 if width >= 540 else max(width, 300)
    return width - 2 * min(side, max(180, 0.27 * width)) - 28


def mark(css: str, place: int) -> str:
    """A style that outlines one of the `tiles`."""
    return f"<style>.{css} .t:nth-child({place + 1}) > div {{{_OUTLINE}}}</style>"


_OUTLINE = "outline: 2px solid var(--hv-accent); outline-offset: 1px"


def readings(rows: Readings) -> str:
    """Lines of named numbers: a heading, then name and value in turn."""
    lines = [
        f"<div><b>{escape(heading)}</b> "
        + " · ".join(f"{escape(name)} {escape(value)}".strip() for name, value in pairs)
        + "</div>"
        for heading, pairs in rows
    ]
    return f'<div class="hookviz"><div class="readings">{"".join(lines)}</div></div>'


def table(rows: Readings) -> str:
    """The same as a table: a row for each heading, a column for each name.

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
    """Who is looked at, and what is wrong with it: words, and ``good``, ``odd`` or ``bad``."""
    chip = ""
    if verdict is not None:
        chip = f'<span class="chip {escape(verdict[1])}">{escape(verdict[0])}</span>'
    return (
        f'{STYLE}{KEYBOARD}<div class="hookviz"><div class="title"><b>{escape(name)}</b>'
        f"<span>{' · '.join(map(escape, facts))}</span>{chip}</div></div>"
    )


def heading(name: str, words: str) -> str:
    """The layer's full name, and what it is."""
    return (
        f'<div class="hookviz"><div class="heading"><b>{escape(name)}</b> '
        f"<span>{escape(words)}</span></div></div>"
    )


def ribbon(css: str, groups: Iterable[tuple[str, list[tuple[str, str]]]], alt: str) -> str:
    """Cells in groups.

    Parameters
    ----------
    groups : iterable of (str, list of (str, str))
        A name, and each cell's words and HTML of `cell`.
    """
    groups = list(groups)
    made = []
    for name, cells in groups:
        inner = "".join(cell for _, cell in cells)
        made.append(
            f'<div class="group" style="flex-grow: {len(cells)}"><div class="row">{inner}</div>'
            f'<span title="{escape(name)}">{escape(name)}</span></div>'
        )
    many = " many" if len(groups) > 16 else ""
    return (
        f'<div class="hookviz"><div class="ribbon {css}{many}" role="img" '
        f'aria-label="{escape(alt)}">{"".join(made)}</div></div>'
    )


def cell(place: int, words: str, height: float, colour: str, zeros: float, flag: str) -> str:
    """One layer of the ribbon; ``height`` and ``zeros`` from 0 to 1."""
    empty = f'<u style="width: {100 * zeros:.0f}%"></u>' if zeros >= 0.005 else ""
    return (
        f'<i class="cell n{place} {flag}" title="{escape(words)}" '
        f'style="height: {100 * height:.0f}%; background-color: {colour}">{empty}</i>'
    )


def colour_of(share: float) -> str:
    """The ribbon's colour, 0 to 1, as ``#rrggbb``."""
    level = round(251 * min(max(share, 0.0), 1.0))
    return "#" + "".join(f"{part:02x}" for part in palette("viridis")[level][:3].tolist())


def mark_cell(css: str, place: int) -> str:
    """A style that outlines one of the ribbon's cells."""
    return f"<style>.{css} .n{place} {{{_OUTLINE}}}</style>"


def bars(css: str, shares: Sequence[tuple[float, str, float | None, str]]) -> str:
    """A style that makes buttons bars: how much of each is filled, and the words at its end.

    Then where the bar was, and what has changed: if anything has, all are two lines high.
    """
    rules, changed = [], any(change for *_, change in shares)
    for place, (share, words, before, change) in enumerate(shares):
        said = _css_text(words)
        width = 100 * (share if np.isfinite(share) else 0)
        fill = f"linear-gradient(90deg, var(--hv-bar) {width:.1f}%, transparent {width:.1f}%)"
        if before is not None and np.isfinite(before):
            start, end = f"calc({100 * before:.1f}% - 1px)", f"calc({100 * before:.1f}% + 1px)"
            line = f"transparent {start}, var(--hv-dim) {start} {end}, transparent {end}"
            fill = f"linear-gradient(90deg, {line}), {fill}"
        if changed:
            rules.append(f".{css}-{place} {{height: 42px !important; padding-bottom: 18px}}")
            rules.append(f'.{css}-{place}::before {{content: "{_css_text(change)}"}}')
        room = f"padding-right: {7 * len(words) + 12}px"
        rules.append(f".{css}-{place} {{background-image: {fill} !important; {room} !important}}")
        rules.append(f'.{css}-{place}::after {{content: "{said}"}}')
    return f"<style>{' '.join(rules)}</style>"


def _css_text(words: str) -> str:
    """Words within quotes in a style sheet."""
    return "".join(f"\\{ord(letter):x} " for letter in words)


def legend(what: str, low: float, high: float, png: bytes) -> str:
    """What the ribbon's colours and heights mean."""
    ends = f"<span>{number(low)}</span><span>{number(high)}</span>"
    return (
        f'<div class="hookviz"><div class="legend"><div>{escape(what)}, log</div>'
        f'{_image(png, "", [])}<div class="ends">{ends}</div>'
        "<div>height: size of the maps</div></div></div>"
    )


def plain(text: str, css: str = "", whole: str = "") -> str:
    """A line of text, and what is said of it in full."""
    more = f' title="{escape(whole)}"' if whole else ""
    return f'<div class="hookviz"><div class="plain {css}"{more}>{escape(text)}</div></div>'


def note(text: str) -> str:
    if not text:
        return ""
    return f'<div class="hookviz"><div class="readings note">{escape(text)}</div></div>'


def code(source: str) -> str:
    """A program, to be read and copied."""
    label = 'tabindex="0" role="region" aria-label="PyTorch code of this view"'
    return f'<div class="hookviz"><pre {label}><code>{escape(source)}</code></pre></div>'
