"""The time of making explorers and their pages, and the peak memory of each task."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from limits.peak import measure

import hookviz
from benchmarks.passes import network
from benchmarks.race import Table, raced

MB = 1_000_000


def photograph():
    return hookviz.models.photographs()["chelsea"]


def explorers(quick):
    """Make an explorer, show it, and write it as a page."""
    rounds, warmups = (1, 0) if quick else (4, 1)
    lite, weights = hookviz.pretrained("efficientnet_lite0")
    cases: dict[str, tuple[Any, ...]] = {
        "demo": (hookviz.demo_model(), hookviz.demo_images()[6], None),
        "EfficientNet-Lite0": (lite, photograph(), weights),
        "resnet50": (network("resnet50"), photograph(), None),
    }
    for name, (model, picture, given) in [*cases.items()][: 1 if quick else None]:
        with ExitStack() as stack:
            # In a kernel, too, the explorer draws its still picture when it is made.
            stack.enter_context(patch("hookviz.widgets.plain.in_front_end", lambda widget: True))

            def make(stack=stack, model=model, picture=picture, given=given):
                explorer = hookviz.explore(model, picture, weights=given)
                stack.callback(explorer.close)
                return explorer

            # Showing or writing an explorer again costs less, so each round uses a new explorer.
            shown, written = (iter([make() for _ in range(rounds + warmups)]) for _ in range(2))
            page = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "page.html"
            contenders = {
                "making an explorer": make,
                "showing it": lambda shown=shown: next(shown)._repr_mimebundle_(),
                "to_html": lambda written=written, page=page: next(written).to_html(page),
            }
            yield raced(f"{name}: an explorer and its page", contenders, rounds, warmups)


def memory(quick):
    """Measure each task's peak memory, above that of model and input."""
    case, budget = (("narrow", 1, 1024), 20) if quick else (("resnet50", 1, 1024), 250)
    bounded = f", max_bytes={budget} MB"
    rows, plain = [], 0
    for kind in ("plain", "capture", "explore", "guard", "diagnose", "capture all", "compare"):
        limits = {"": None, bounded: budget * MB} if kind in ("capture", "explore") else {"": None}
        for words, limit in limits.items():
            found = measure(kind, *case, limit)
            plain = plain or found["peak"]
            numbers = [f"{found[each] / MB:.0f}" for each in ("peak", "nbytes")]
            rows.append([kind + words, numbers[0], f"{found['peak'] / plain:.2f}", numbers[1]])
    name, batch, side = case
    title = f"{name}, {batch} × {side}×{side}: peak memory"
    yield Table(title, ["", "peak MB", "ratio", "kept MB"], rows)
