"""Run the benchmarks, all or some, print their tables, and write all of them as a page."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

import hookviz

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "browser")]  # as pytest has it

from benchmarks import in_browser, passes, showing, studies  # noqa: E402
from benchmarks.race import Table, one_thread  # noqa: E402

PAGE = TESTS.parent / "docs" / "explanation" / "benchmarks.md"
BENCHMARKS: dict[str, Callable[[bool], Iterator[Table]]] = {
    "capture": passes.capture,
    "heatmaps": passes.heatmaps,
    "edits": passes.edits,
    "attention": passes.attention,
    "graph": passes.graph,
    "diagnose": studies.diagnose,
    "guard": studies.guard,
    "watch": studies.watch,
    "survey": studies.survey,
    "compare": studies.compare,
    "drawing": showing.drawing,
    "explorers": showing.explorers,
    "map": showing.map_layout,
    "memory": showing.memory,
    "keypress": in_browser.key_press,
    "brush": in_browser.brush,
    "pages": in_browser.pages,
    "network": in_browser.network_pages,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="few rounds: does it run at all?")
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"no benchmark {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}")
    print(machine(), flush=True)
    sections = []
    for name in options.names or BENCHMARKS:
        print(f"\n{name}", flush=True)
        tables = []
        with one_thread():
            for table in BENCHMARKS[name](options.quick):
                print(table.text(), flush=True)
                tables.append(table)
        sections.append(section(name, tables))
    if not options.names and not options.quick:
        PAGE.write_text("\n\n".join([introduction(), *sections]) + "\n", encoding="utf-8")
        print(f"\nwritten to {PAGE}")


def machine() -> str:
    """Return what a reader has to know of the machine."""
    return (
        f"hookviz {hookviz.__version__}, Python {platform.python_version()}, torch "
        f"{torch.__version__}, {os.cpu_count()} processors of which torch uses one thread"
    )


def introduction() -> str:
    return (
        "# Benchmarks\n\n"
        f"`make bench` wrote this page: {machine()}.\n\n"
        "The contenders of a table took turns in one run. Where a table has ratios, its times are "
        "medians of the processor's time. On a shared machine times drift: compare the ratios, of "
        "which the first row is 1."
    )


def section(name: str, tables: list[Table]) -> str:
    """Return a benchmark's part of the page, which begins with what it measures."""
    said = (BENCHMARKS[name].__doc__ or "").strip()
    return "\n\n".join([f"## {name.title()}", said, *(table.markdown() for table in tables)])


if __name__ == "__main__":
    main()
