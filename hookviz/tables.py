"""Tables of text for a terminal, and as HTML for a notebook; numbers in words; strict JSON.

Most of the code decides what to leave out and where to cut, so that a table fits 80 columns. The
tabulate package would only lay out the result, in as many lines.
"""

from __future__ import annotations

import base64
import html
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from textwrap import fill, wrap
from typing import Any, TypeVar

from .files import page_to, without_half_characters

T = TypeVar("T")

Row = Sequence[str]


def number(value: float) -> str:
    """Format with three significant digits and a real minus sign.

    Examples
    --------
    >>> number(-0.00012345), number(3.0), number(1234.5), number(float("nan"))
    ('−0.000123', '3', '1230', 'NaN')
    """
    if math.isnan(value):
        return "NaN"
    rounded = float(f"{value:.3g}")
    plain = 1 <= abs(rounded) < 1e5
    return (f"{rounded:.10g}" if plain else f"{value:.3g}").replace("-", "−").replace("inf", "Inf")


def counted(count: int, noun: str) -> str:
    """Return a number and its noun, in the plural unless it is 1.

    >>> counted(1, "step"), counted(1200, "step")
    ('1 step', '1,200 steps')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def megabytes(count: int) -> str:
    """Format a number of bytes with a unit.

    Examples
    --------
    >>> megabytes(1_500), megabytes(44_040_192)
    ('1.5 kB', '44.0 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def some(items: Iterable[object], most: int = 3) -> str:
    """List different items; of many, the first ones and their number.

    >>> some(range(9)), some(["conv", "conv", "relu"])
    ('0, 1, 2, … 9 in all', 'conv, relu')
    """
    known = list(dict.fromkeys(map(str, items)))
    return ", ".join(known[:most]) + (f", … {len(known)} in all" if len(known) > most else "")


def plain(value: Any) -> Any:
    """Convert a value to strict JSON: ``json.dumps(plain(value), allow_nan=False)`` works.

    NaN becomes None, an infinity the text ``"inf"`` or ``"-inf"``, which ``float`` reads; tuples,
    shapes, tensors and arrays become lists, their numbers Python's; other objects their text.

    >>> plain({"mean": float("nan"), "max": float("inf"), "shape": (1, 8), 3: None})
    {'mean': None, 'max': 'inf', 'shape': [1, 8], '3': None}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    tolist = getattr(value, "tolist", None)  # a tensor's, an array's, a numpy number's
    if tolist is not None:
        return plain(tolist())
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def visible(text: str) -> str:
    r"""Write control characters as escapes: a terminal would obey them.

    These are all but the end of a line, and the marks that reverse the direction of writing.

    >>> visible("cat\x1b[2J")
    'cat\\x1b[2J'
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escape(text: str) -> str:
    r"""Escape a text for HTML, and replace lone surrogates, which no kernel can send, by U+FFFD.

    >>> escape("<b>\ud83d") == "&lt;b&gt;\ufffd"
    True
    """
    return html.escape(without_half_characters(text))


_CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def for_terminal(method: Callable[[T], str]) -> Callable[[T], str]:
    """Decorate a ``__repr__`` or ``__str__``: names in its text cannot control the terminal."""

    @wraps(method)
    def shown(self: T) -> str:
        return visible(method(self))

    return shown


WIDTH = 80
"""Columns of a terminal."""

_MIN_WIDTHS = {"layer": 24, "hook": 20}  # cells under these headings are not cut further
_MIN_WIDTH = 12  # of all other columns


def cut(text: str, width: int) -> str:
    """Leave out the middle of a longer text: a name's beginning and its end tell it apart.

    >>> cut("layer1.0.residual.conv1", 15)
    'layer1.…l.conv1'
    """
    if len(text) <= width:
        return text
    half = width // 2
    return f"{text[:half]}…{text[half + 1 - width :]}" if width > 2 else text[:width]


def cut_list(text: str, width: int) -> str:
    """Name as many of several layers as there is room for, and the number of the others.

    >>> cut_list("layer1.1.conv2, layer1.0.add, stem.0", 24)
    'layer1.1.conv2 + 2 more'
    """
    names = text.split(", ")
    for count in range(len(names) - 1, 0, -1):
        shown = f"{', '.join(names[:count])} + {len(names) - count} more"
        if len(shown) <= width < len(text):
            return shown
    return cut(text, width)


def cut_parts(text: str, width: int) -> str:
    """Cut the longest of a name's parts: more of them are told apart, fewer read well.

    >>> cut_parts("layer1.0.residual_branch.conv1", 20)
    'la…r1.0.res…ch.conv1'
    """
    parts = text.split(".")
    lengths = [len(part) for part in parts]
    while sum(lengths) + len(parts) - 1 > width and max(lengths) > 3:
        lengths[lengths.index(max(lengths))] -= 1
    return cut(".".join(cut(part, n) for part, n in zip(parts, lengths, strict=True)), width)


def paragraph(text: str, indent: str = "", first: str | None = None) -> str:
    """Wrap a text into lines that fit a terminal; a word that is too long is cut."""
    words = " ".join(cut(word, WIDTH - len(indent)) for word in text.split())
    begin = indent if first is None else first
    return fill(words, WIDTH, initial_indent=begin, subsequent_indent=indent)


def text_table(title: str, header: Row, rows: Sequence[Row], spare: Sequence[str] = ()) -> str:
    """Format title, header and rows in columns that fit a terminal.

    Where they do not fit as they are, a single row has a line for each cell. With several rows a
    column that says the same in all of them becomes a line below the table; then columns of
    ``spare`` are left out, in this order, and names are cut.

    >>> print(text_table("Two layers", ("layer", "shape"), [("stem", "1×8"), ("head", "1×10")]))
    Two layers
    layer  shape
    stem   1×8
    head   1×10
    """
    rows = [[visible(cell).replace("\n", r"\n") for cell in row] for row in rows]
    if not rows:
        return paragraph(title)
    columns: dict[str, Sequence[str]] = dict(zip(header, zip(*rows, strict=True), strict=True))
    notes: list[str] = []
    if _width(columns) > WIDTH:
        if len(rows) == 1:
            return "\n".join([paragraph(title), *_row_by_row(header, rows[0])])
        columns, notes = _narrowed(columns, spare)
    heading, lines = aligned(columns)
    return "\n".join([paragraph(title), *heading, *lines, *map(paragraph, notes)])


def aligned(columns: Columns) -> tuple[list[str], list[str]]:
    """Return the lines of the heading, and a line for each row, padded to equal columns."""
    widths = _widths(columns)
    heading, rows = (
        ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in part]
        for part in (_header(columns, widths), zip(*columns.values(), strict=True))
    )
    return heading, rows


def _narrowed(columns: Columns, spare: Sequence[str]) -> tuple[dict[str, Sequence[str]], list[str]]:
    """Return the columns that fit a terminal, and notes on the others."""
    first, *others = columns
    constant = {name: columns[name][0] for name in others if len({*columns[name]}) == 1}
    values = "; ".join(f"{name}: {cell}" for name, cell in constant.items() if cell)
    notes = [f"in all rows, {values}"] if values else []
    shown = {name: columns[name] for name in (first, *others) if name not in constant}
    hidden: list[str] = []
    for name in spare:
        if name in shown and _width(shown, cut_down=True) > WIDTH:
            hidden.append(name)
            del shown[name]
    if hidden:
        notes.append(f"not shown: {', '.join(hidden)}; records() has all")
    return _cut_down(shown), notes


def _row_by_row(header: Row, row: Row) -> list[str]:
    width = max(map(len, header))
    cells = zip(header, row, strict=True)
    return [f"{name.ljust(width)}  {cut(cell, WIDTH - width - 2)}".rstrip() for name, cell in cells]


Columns = Mapping[str, Sequence[str]]


def _widths(columns: Columns) -> list[int]:
    """Return the width of each column; if they do not fit, headings are broken at spaces."""
    widths = [max(map(len, [name, *cells])) for name, cells in columns.items()]
    if sum(widths) + 2 * (len(widths) - 1) <= WIDTH:
        return widths
    return [max(map(len, [*name.split(), "", *cells])) for name, cells in columns.items()]


def _width(columns: Columns, cut_down: bool = False) -> int:
    widths = _widths(columns)
    if cut_down:
        widths = [min(width, least) for width, least in zip(widths, _least(columns), strict=True)]
    return sum(widths) + 2 * (len(widths) - 1)


def _least(columns: Columns) -> list[int]:
    """Return the width that each column can be cut down to, in characters."""
    return [_MIN_WIDTHS.get(name, _MIN_WIDTH) for name in columns]


def _cut_down(columns: Columns) -> dict[str, Sequence[str]]:
    """Narrow the widest columns, as far as they can be, until all fit."""
    widths, least = _widths(columns), _least(columns)
    while sum(widths) + 2 * (len(widths) - 1) > WIDTH:
        over = [width - few for width, few in zip(widths, least, strict=True)]
        if max(over) <= 0:
            break
        widths[over.index(max(over))] -= 1
    narrowed: dict[str, Sequence[str]] = {}
    for (name, cells), width in zip(columns.items(), widths, strict=True):
        narrowed[name] = [_cut_cell(cell, width) for cell in cells]
        if len({*narrowed[name]}) < len({*cells}):  # two names became the same
            narrowed[name] = [_cut_cell(cell, width, cut_parts) for cell in cells]
    return narrowed


def _cut_cell(cell: str, width: int, cut_name: Callable[[str, int], str] = cut) -> str:
    is_list = ", " in cell and " " not in cell.replace(", ", "").replace(" (call", "")
    return cut_list(cell, width) if is_list else cut_name(cell, width)


def _header(columns: Columns, widths: Sequence[int]) -> list[list[str]]:
    """Return the headings in as many lines as they need."""
    cells = [wrap(name, width) for name, width in zip(columns, widths, strict=True)]
    high = max(map(len, cells))
    cells = [[""] * (high - len(each)) + each for each in cells]
    return [list(line) for line in zip(*cells, strict=True)]


def html_table(title: str, header: Row, rows: Sequence[Row]) -> str:
    """Format the same as HTML, a title alone if there are no rows; all text is escaped.

    >>> html_table("t", ("a",), [("<b>9 %",)])  # doctest: +ELLIPSIS
    '<div><p>t</p><div style="overflow-x: auto"><table>...<td>&lt;b&gt;9&nbsp;%</td>...</div></div>'
    """

    def row(cells: Row, tag: str) -> str:
        # A narrow column must not break a percentage before its sign.
        inner = (escape(cell).replace(" %", "&nbsp;%") for cell in cells)
        return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in inner) + "</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    heading = f"<p>{escape(title)}</p>" if title else ""
    if not rows:
        return heading
    # A table that is wider than the window scrolls alone, so that the title can be read.
    return (
        f'<div>{heading}<div style="overflow-x: auto"><table>'
        f"<thead>{row(header, 'th')}</thead><tbody>{body}</tbody></table></div></div>"
    )


def html_page(title: str, policy: str, sheet: str, body: str) -> str:
    """Return a page with a content policy and a style sheet."""
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{sheet}</style>
</head>
{body}
</html>
"""
    return without_half_characters(page)


_PLAIN = (
    "body { font: 13px system-ui, sans-serif; margin: 2em; } "
    "table { border-collapse: collapse; } th, td { padding: 2px 8px; text-align: left; "
    "vertical-align: top; border-bottom: 1px solid #8884; } img { max-width: 100%; }"
)


def plain_page(title: str, body: str, png: bytes | None = None) -> str:
    """Return a page of tables and one picture, without scripts or requests.

    >>> "<script" in plain_page("Two layers", "<table></table>")
    False
    """
    picture = ""
    if png is not None:
        source = base64.b64encode(png).decode()
        picture = f'<p><img alt="{escape(title)}" src="data:image/png;base64,{source}"></p>'
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return html_page(title, policy, _PLAIN, f"<body>{picture}{body}</body>")


class Tabular:
    """A mixin for results that are displayed as a table, whose page has a figure if there is one.

    A subclass defines either ``verdict``, ``_header`` and `_cells`, or `_title` and `_as_table`, or
    its own ``__repr__`` and `_repr_html_`. For a figure it overrides `_png`.
    """

    _header: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        raise AttributeError("This result has no verdict.")

    def _cells(self) -> Sequence[Row]:
        return []

    def _as_table(self) -> tuple[Row, Sequence[Row], Sequence[str]]:
        """Return header, rows, and the columns that a narrow terminal can do without."""
        return self._header, self._cells(), ()

    @for_terminal
    def __repr__(self) -> str:
        return text_table(self._title(), *self._as_table())

    def _repr_html_(self) -> str:
        header, rows, _ = self._as_table()
        return html_table(self._title(), header, rows)

    def _title(self) -> str:
        """Return the title of the table."""
        return self.verdict

    def _heading(self) -> str:
        """Return the title of the page."""
        return self._title()

    def _png(self) -> bytes | None:
        return None

    def to_html(
        self, path: str | os.PathLike | None = None, *, title: str | None = None
    ) -> str | None:
        """Write the table, and the figure, as one file that needs no kernel and no network.

        Parameters
        ----------
        path : str or path-like, optional
            The file to write; if left out, the page is returned.
        title : str, optional
            Of the page.
        """
        page = plain_page(title or self._heading(), self._repr_html_(), self._png())
        return page_to(path, page)


def call_name(layer: str, call: int = 0, path: str = "") -> str:
    """Return a readable name of a layer's call, or of one of the tensors that it returned.

    >>> call_name("lstm", 1, "[0]"), call_name("")
    ('lstm[0] (call 1)', '(model)')
    """
    return f"{layer or '(model)'}{path}" + (f" (call {call})" if call else "")
