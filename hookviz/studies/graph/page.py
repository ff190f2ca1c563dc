"""The graph as one page: a drawing, folded at the modules, and a table of all nodes."""

from __future__ import annotations

from html import escape
from typing import Protocol

from ...draw.document import plain_document
from .listener import Node


class Drawn(Protocol):
    """The drawing of a `Graph`."""

    nodes: list[Node]
    edges: list[tuple[int, int]]
    error: str

    @property
    def verdict(self) -> str: ...
    def _repr_html_(self) -> str: ...


_MOST = 48  # boxes that are legible on a page
_WIDE, _HIGH, _GAP, _STEP = 150, 26, 18, 56

_SHEET = """
body {margin: 1rem; font: 14px/1.4 system-ui, sans-serif; color-scheme: light dark}
svg {max-width: 100%; height: auto; display: block; margin: 1rem auto}
rect {fill: #fff; stroke: #56708f} text {font: 11px system-ui, sans-serif; fill: #1b2733}
path {fill: none; stroke: #8796a6; stroke-width: 1.2} .failed rect {fill: #ffd9d6; stroke: #c00}
table {border-collapse: collapse} caption {text-align: left; font-weight: 600; margin: 1rem 0 .3rem}
th, td {text-align: left; padding: .1rem .8rem .1rem 0; border-bottom: 1px solid #8884}
.error {color: #c00; font-weight: 600}
@media (prefers-color-scheme: dark) {rect {fill: #1d2630} text {fill: #dde6ee}
 .failed rect {fill: #5a1a17}}
"""


def write_page(graph: Drawn, title: str) -> str:
    """Write the page of `Graph.to_html`."""
    error = f'<p class="error">The forward failed: {escape(graph.error)}</p>' * bool(graph.error)
    body = f"<h1>{escape(title)}</h1>{error}{drawing(graph)}{graph._repr_html_()}"
    return plain_document(title, _SHEET, body)


def drawing(graph: Drawn) -> str:
    """Draw the graph as SVG, folded so far that its boxes are legible."""
    box_of, names = folded(graph)
    edges = {(box_of[start], box_of[end]) for start, end in graph.edges}
    edges = {(start, end) for start, end in edges if start != end}
    failed = {box_of[n] for n, node in enumerate(graph.nodes) if node.failed}
    ranks = _ranks(len(names), edges)
    rows: dict[int, list[int]] = {}
    for box, rank in enumerate(ranks):
        rows.setdefault(rank, []).append(box)
    centre = _centres(rows, edges)
    widest = max((len(row) for row in rows.values()), default=1)
    # Edges that pass rows run beside the boxes, each in a lane of its own.
    lanes = {edge: n for n, edge in enumerate(sorted(e for e in edges if _passes(e, ranks)))}
    room = widest * (_WIDE + _GAP) / 2
    width, height = 2 * room + 2 * (_GAP + 7 * len(lanes)), (max(ranks, default=0) + 1) * _STEP
    parts = [
        _line(start, end, centre, ranks, room, lanes.get((start, end))) for start, end in edges
    ]
    for box, name in enumerate(names):
        x, y = centre[box] - _WIDE / 2, ranks[box] * _STEP
        css, title, label, fill, line = "", name, _cut(name), "#fff", "#56708f"
        if box in failed:
            css, fill, line = ' class="failed"', "#ffd9d6", "#c00"
            title, label = f"{name}: the forward failed here", f"✗ {_cut(name, 22)}"
        parts.append(
            f'<g{css}><title>{escape(title)}</title><rect x="{x:.0f}" y="{y}" width="{_WIDE}" '
            f'height="{_HIGH}" rx="5" fill="{fill}" stroke="{line}"/>'
            f'<text x="{centre[box]:.0f}" y="{y + 17}" fill="#1b2733" text-anchor="middle">'
            f"{escape(label)}</text></g>"
        )
    # Attributes, which a page's style sheet may override: a notebook's output has no sheet.
    return (
        f'<svg role="img" aria-label="{escape(graph.verdict)}" width="{width:.0f}" '
        f'viewBox="{-width / 2:.0f} -4 {width:.0f} {height}" font-family="system-ui, sans-serif" '
        f'font-size="11" fill="none" stroke-width="1.2">{"".join(parts)}</svg>'
    )


def folded(graph: Drawn) -> tuple[list[int], list[str]]:
    """Return each node's box, and the boxes' names: modules at one depth, as deep as is legible."""
    paths = [tuple((node.layer or node.module or node.name).split(".")) for node in graph.nodes]
    deepest = max(map(len, paths), default=1)
    labels: list[str] = []
    names: list[str] = []
    for depth in range(deepest, -1, -1):
        labels = []
        for node, path in zip(graph.nodes, paths, strict=True):
            single = depth >= deepest or len(path) <= depth
            # Calls of one layer stand apart; of a folded module they are one box.
            labels.append(node.name if single else ".".join(path[:depth]) or "…")
        names = list(dict.fromkeys(labels))
        if len(names) <= _MOST or depth <= 1:
            break
    number = {name: n for n, name in enumerate(names)}
    return [number[label] for label in labels], names


def _ranks(count: int, edges: set[tuple[int, int]]) -> list[int]:
    """Rows, by the longest way; boxes are numbered as they first ran, edges back do not count."""
    ranks = [0] * count
    for start, end in sorted(edges, key=lambda edge: edge[1]):
        if start < end:
            ranks[end] = max(ranks[end], ranks[start] + 1)
    return ranks


def _centres(rows: dict[int, list[int]], edges: set[tuple[int, int]]) -> dict[int, float]:
    """Place boxes in their rows: each as near to those before it as there is room."""
    centre: dict[int, float] = {}
    for _, row in sorted(rows.items()):
        wanted = {}
        for box in row:
            before = [centre[start] for start, end in edges if end == box and start in centre]
            wanted[box] = sum(before) / len(before) if before else 0.0
        order = sorted(row, key=lambda box: (wanted[box], box))
        left = -(len(order) - 1) / 2 * (_WIDE + _GAP)
        centre |= {box: left + index * (_WIDE + _GAP) for index, box in enumerate(order)}
    return centre


def _passes(edge: tuple[int, int], ranks: list[int]) -> bool:
    return ranks[edge[1]] - ranks[edge[0]] != 1


def _line(
    start: int,
    end: int,
    centre: dict[int, float],
    ranks: list[int],
    room: float,
    lane: int | None,
) -> str:
    x, y = centre[start], ranks[start] * _STEP + _HIGH
    to_x, to_y = centre[end], ranks[end] * _STEP
    half = (_STEP - _HIGH) / 2
    if lane is None:
        bend = f"C{x:.0f} {y + half} {to_x:.0f} {to_y - half} {to_x:.0f} {to_y}"
        return f'<path stroke="#8796a6" d="M{x:.0f} {y}{bend}"/>'
    aside = room + _GAP / 2 + 7 * lane
    return (
        f'<path stroke="#8796a6" d="M{x:.0f} {y}'
        f"C{x:.0f} {y + half} {aside:.0f} {y} {aside:.0f} {y + half}"
        f"V{to_y - half}C{aside:.0f} {to_y} {to_x:.0f} {to_y - half} {to_x:.0f} {to_y}"
        '"/>'
    )


def _cut(name: str, most: int = 24) -> str:
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[:half]}…{name[-half:]}"
