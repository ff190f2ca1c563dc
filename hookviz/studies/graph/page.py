"""The drawing of a graph, folded at the modules, as SVG."""

from __future__ import annotations

from ...tables import escape
from .listener import Node

_MOST = 48  # boxes that are legible on a page
_WIDE, _HIGH, _GAP, _STEP = 150, 26, 18, 56


def drawing(nodes: list[Node], connections: list[tuple[int, int]], label: str) -> str:
    """Draw nodes and the connections between them, folded so far that the boxes are legible."""
    box_of, names = folded(nodes)
    edges = {(box_of[start], box_of[end]) for start, end in connections}
    edges = {(start, end) for start, end in edges if start != end}
    failed = {box_of[n] for n, node in enumerate(nodes) if node.failed}
    ranks = _ranks(len(names), edges)
    centre = _centres(ranks, edges)
    # Edges that pass rows run beside the boxes, each in a lane of its own.
    lanes = {edge: n for n, edge in enumerate(sorted(e for e in edges if _passes(e, ranks)))}
    room = max(centre, default=0) + (_WIDE + _GAP) / 2
    width, height = 2 * room + 2 * (_GAP + 7 * len(lanes)), (max(ranks, default=0) + 1) * _STEP
    half, parts = (_STEP - _HIGH) / 2, []
    for start, end in edges:
        x, y = centre[start], ranks[start] * _STEP + _HIGH
        to_x, to_y = centre[end], ranks[end] * _STEP
        way = f"C{x:.0f} {y + half}"
        if (start, end) in lanes:
            aside = room + _GAP / 2 + 7 * lanes[start, end]
            way += f" {aside:.0f} {y} {aside:.0f} {y + half}V{to_y - half}C{aside:.0f} {to_y}"
        way += f" {to_x:.0f} {to_y - half} {to_x:.0f} {to_y}"
        parts.append(f'<path stroke="#8796a6" d="M{x:.0f} {y}{way}"/>')
    for box, name in enumerate(names):
        x, y = centre[box] - _WIDE / 2, ranks[box] * _STEP
        title, words, colours = name, shortened(name), 'fill="#8796a6" stroke="#7088a3"'
        if box in failed:
            title, words = f"{name}: the forward failed here", f"✗ {shortened(name, 22)}"
            colours = 'class="failed" fill="#e00" stroke="#e00"'
        parts.append(
            f'<g><title>{escape(title)}</title><rect x="{x:.0f}" y="{y}" width="{_WIDE}" '
            f'height="{_HIGH}" rx="5" fill-opacity="0.12" {colours}/>'
            f'<text x="{centre[box]:.0f}" y="{y + 17}" '
            f'fill="currentColor" text-anchor="middle">{escape(words)}</text></g>'
        )
    return (
        f'<svg role="img" aria-label="{escape(label)}" width="{width:.0f}" '
        f'viewBox="{-width / 2:.0f} -4 {width:.0f} {height}" font-family="system-ui, sans-serif" '
        f'font-size="11" fill="none" stroke-width="1.2">{"".join(parts)}</svg>'
    )


def folded(nodes: list[Node]) -> tuple[list[int], list[str]]:
    """Return each node's box, and the boxes' names: modules at one depth, as deep as is legible."""
    paths = [(node.layer or node.module or node.name).split(".") for node in nodes]
    deepest = max(map(len, paths), default=1)
    labels, names = list[str](), list[str]()
    for depth in range(deepest, -1, -1):
        # Calls of one layer stand apart; of a folded module they are one box.
        labels = [
            node.name if depth == deepest or len(path) <= depth else ".".join(path[:depth]) or "…"
            for node, path in zip(nodes, paths, strict=True)
        ]
        names = list(dict.fromkeys(labels))
        if len(names) <= _MOST or depth <= 1:
            break
    return [names.index(label) for label in labels], names


def _ranks(count: int, edges: set[tuple[int, int]]) -> list[int]:
    """Rows, by the longest way; boxes are numbered as they first ran, edges back do not count."""
    ranks = [0] * count
    for start, end in sorted(edges, key=lambda edge: edge[1]):
        if start < end:
            ranks[end] = max(ranks[end], ranks[start] + 1)
    return ranks


def _centres(ranks: list[int], edges: set[tuple[int, int]]) -> list[float]:
    """Place boxes in their rows: each as near to those before it as there is room."""
    centre = [0.0] * len(ranks)
    for rank in range(max(ranks, default=0) + 1):
        wanted = {}
        for box in (box for box, its in enumerate(ranks) if its == rank):
            before = [centre[start] for start, end in edges if end == box and ranks[start] < rank]
            wanted[box] = sum(before) / len(before) if before else 0.0
        for place, box in enumerate(sorted(wanted, key=lambda box: (wanted[box], box))):
            centre[box] = (place - (len(wanted) - 1) / 2) * (_WIDE + _GAP)
    return centre


def _passes(edge: tuple[int, int], ranks: list[int]) -> bool:
    return ranks[edge[1]] - ranks[edge[0]] != 1


def shortened(text: str, most: int = 24) -> str:
    """Cut a long text in the middle."""
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[: most - 1 - half]}…{text[-half:]}"
