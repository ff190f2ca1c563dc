"""The house, read off the code: its rooms, the arrows between them, and a drawing of both."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from html import escape
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "hookviz"
FILES = sorted(PACKAGE.rglob("*.py"))
# From the top of the house down: each room may import those after it.
ROOMS = ["widgets", "export", "view", "studies", "attribution", "draw", "run", "hooking"]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    """Return a file's module name: ``hookviz.run.session``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(["hookviz", *(part for part in parts if part != "__init__")])


MODULES = {name_of(path): path for path in FILES}


@cache
def facade() -> dict[str, str]:
    """Each public name and the module that it comes from, also through the package's own name."""
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
    return {
        alias.name: f"hookviz.{node.module}" if node.module else f"hookviz.{alias.name}"
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@cache
def imports(path: Path) -> frozenset[str]:
    """All that a file imports, wherever in it: modules of hookviz, and names of others in full."""
    here = ["hookviz", *path.relative_to(PACKAGE).with_suffix("").parts]
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = here[: -node.level] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            found |= {origin(base, alias.name) for alias in node.names}
    return frozenset(found)


def origin(base: str, name: str) -> str:
    """Return the module of hookviz behind ``from base import name``; else the name."""
    if base == "hookviz":
        return facade().get(name, f"hookviz.{name}")
    if not base.startswith("hookviz."):
        return f"{base}.{name}"
    return f"{base}.{name}" if f"{base}.{name}" in MODULES else base


def room_of(name: str) -> str | None:
    """Return the room of ``hookviz.run.session``; None for a file outside the rooms."""
    parts = name.split(".")
    return parts[1] if parts[0] == "hookviz" and len(parts) > 1 and parts[1] in ROOMS else None


def files_of(room: str) -> list[Path]:
    """Return the files of a room, those of its folders too."""
    return [path for path in FILES if room_of(name_of(path)) == room]


def sentence_of(room: str) -> str:
    """Return the first sentence of a room's ``__init__.py``."""
    words = ast.get_docstring(tree(PACKAGE / room / "__init__.py")) or ""
    return " ".join(words.partition("\n\n")[0].split())


def arrows() -> Counter[tuple[str, str]]:
    """(room, room that it imports) -> in how many pairs of files."""
    found: Counter[tuple[str, str]] = Counter()
    for room in ROOMS:
        for path in files_of(room):
            others = [other for other in map(room_of, imports(path)) if other not in (None, room)]
            found.update((room, str(other)) for other in others)
    return found


ROW, HIGH, WIDE, LEFT = 74, 52, 500, 210


def drawing() -> str:
    """Draw the rooms one above the other, and an arrow from each to each that it imports, as SVG.

    An arrow down is drawn to the left, the wider the more files it stands for. An arrow up would
    be red and to the right.
    """
    counts, middle = arrows(), {room: 30 + ROW * place for place, room in enumerate(ROOMS)}
    lines = [_arrow(middle, *pair, count) for pair, count in sorted(counts.items())]
    boxes = [_box(room, middle[room]) for room in ROOMS]
    words = f"Eight rooms and {len(counts)} arrows between them, all of which run downward"
    width, height = LEFT + WIDE + 120, ROW * len(ROOMS)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'font-family="sans-serif" font-size="13"><title>{words}</title>\n'
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" markerUnits="userSpaceOnUse" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#777"/></marker></defs>\n'
        + "\n".join([*lines, *boxes])
        + "\n</svg>\n"
    )


def _box(room: str, middle: int) -> str:
    files = files_of(room)
    size = sum(len(path.read_text().splitlines()) for path in files)
    said = f"{len(files)} files, {size:,} lines"
    sentence = sentence_of(room)
    cut = sentence.rfind(" ", 0, 72) if len(sentence) > 72 else len(sentence)
    rows = [(f"<b>{room}</b> {said}", -9), (sentence[:cut], 5), (sentence[cut:].strip(), 19)]
    texts = [_text(words, middle + down) for words, down in rows if words]
    return (
        f'<rect x="{LEFT}" y="{middle - HIGH // 2}" width="{WIDE}" height="{HIGH}" rx="5" '
        f'fill="#f4f7fa" stroke="#567"/>{"".join(texts)}'
    )


def _text(words: str, y: int) -> str:
    bold = words.startswith("<b>")
    name, _, rest = words.removeprefix("<b>").partition("</b>")
    start = f'<text x="{LEFT + 12}" y="{y}" fill="#123"'
    if bold:
        return f'{start}><tspan font-weight="bold">{name}/</tspan> <tspan>{rest}</tspan></text>'
    return f'{start} font-size="12">{escape(name)}</text>'


def _arrow(middle: dict[str, int], one: str, other: str, count: int) -> str:
    down = ROOMS.index(other) - ROOMS.index(one)
    start, end = middle[one] + 8, middle[other] - 8
    edge, away = (LEFT, -26 * down) if down > 0 else (LEFT + WIDE, -26 * down)
    path = f"M{edge} {start} C{edge + away} {start} {edge + away} {end} {edge} {end}"
    colour = "#777" if down > 0 else "#d00"
    wide = round(min(0.8 + count / 12, 5), 1)
    title = f"<title>{one} imports {other}, {count} times</title>"
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-opacity="0.7" '
        f'stroke-width="{wide}" marker-end="url(#end)">{title}</path>'
    )
