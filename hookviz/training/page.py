"""A training as one HTML file, which needs no kernel and no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hooking.tables import megabytes
from ..render import html
from ..render.bundle import script, style
from ..render.document import document, json_text
from ..render.shown import small_png
from .payload import facts_of, packed

if TYPE_CHECKING:
    from .training import Training


def write_page(training: Training, phase: str, max_bytes: float) -> str:
    """The page; steps are left out, as evenly as can be, until it fits.

    Raises
    ------
    ValueError
        No step has been recorded, or not even two fit.
    """
    steps = [packed(step) for step in training.recorded(phase)]
    still = html.data_url(small_png(training.figure(phase=phase)))
    facts = facts_of(training, phase)
    words, count = facts["words"], len(steps)
    while True:
        blocks = {"facts": json_text(facts), "steps": json_text(steps)}
        page = document(
            facts["model"],
            script("training"),
            style("style", "steps"),
            blocks,
            f"{facts['model']}: {facts['words']}",
            still,
        )
        if len(page.encode()) <= max_bytes:
            return page
        if len(steps) <= 2:
            raise ValueError(
                f"max_bytes={max_bytes:g} is too small: a page of two steps takes "
                f"{megabytes(len(page))}; watch fewer layers, or none of a probe's."
            )
        steps = steps[::2]
        facts["words"] = f"{words}; {len(steps)} of {count} recorded steps are in this page"
