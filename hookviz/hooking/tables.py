"""Rows of text as a table: for a terminal, and for a notebook's page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Row = Sequence[str]


def text_table(title: str, header: Row, rows: Sequence[Row]) -> str:
    """Title, header and rows, in columns.

    >>> print(text_table("Two layers", ("layer", "shape"), [("stem", "1×8"), ("head", "1×10")]))
    Two layers
    layer  shape
    stem   1×8
    head   1×10
    """
    table = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in table]
    return "\n".join([title, *(line.rstrip() for line in lines)])


def html_table(title: str, header: Row, rows: Sequence[Row]) -> str:
    """The same as HTML; all text is escaped.

    >>> html_table("t", ("a",), [("<b>",)])  # doctest: +ELLIPSIS
    '<table><caption>t</caption>...<td>&lt;b&gt;</td></tr></tbody></table>'
    """

    def row(cells: Row, tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return (
        f"<table><caption>{escape(title)}</caption>"
        f"<thead>{row(header, 'th')}</thead><tbody>{body}</tbody></table>"
    )
