"""Rows of text as a table: for a terminal, and for a notebook's page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

Row = Sequence[str]


def number(value: float) -> str:
    """Three significant digits, with a real minus sign.

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


def megabytes(count: int) -> str:
    """Bytes for people.

    Examples
    --------
    >>> megabytes(1_500), megabytes(44_040_192)
    ('1.5 kB', '44.0 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def plain(value: Any) -> Any:
    """Return a value as strict JSON has it: ``json.dumps(plain(value), allow_nan=False)`` works.

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
    if hasattr(value, "tolist"):  # a tensor's, an array's, a numpy number's
        return plain(value.tolist())
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


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


LAYER_HEADER = (
    *("layer", "type", "calls", "shape", "dtype", "min", "max", "mean", "zeros", "NaN, Inf"),
    *("gradient norm", "memory"),
)


def layer_row(row: Mapping[str, Any], tensors: Sequence[Any]) -> tuple[str, ...]:
    """A row of ``FeatureCache.records()`` as text; shapes and dtypes are of all tensors."""
    said = [row[name] for name in ("min", "max", "mean", "gradient_norm")]
    *values, slope = ("–" if value is None else number(value) for value in said)
    wrong = [
        f"{row[name]} {word}" for name, word in (("nans", "NaN"), ("infs", "Inf")) if row[name]
    ]
    return (
        row["layer"] or "(model)",
        row["type"],
        str(row["calls"]),
        " ".join("×".join(map(str, each.shape)) for each in tensors),
        " ".join(dict.fromkeys(str(each.dtype).removeprefix("torch.") for each in tensors)),
        *values,
        "–" if row["zeros"] is None else f"{100 * row['zeros']:.3g} %",
        ", ".join(wrong) or "0",
        slope,
        megabytes(row["nbytes"]) if row["kept"] else "statistics only",
    )
