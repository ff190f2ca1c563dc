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
sys.path[:0] = [str(TESTS), str(TESTS / "browser")]  # as in pytest

from benchmarks import in_browser, passes, showing, strokes, studies  # noqa: E402
from benchmarks.race import Table, one_thread  # noqa: E402

PAGE = TESTS.parent / "docs" / "explanation" / "benchmarks.md"
INTRODUCTION = """# Benchmarks

`make bench` writes this page, and `python -m tests.benchmarks NAME` one section of it. The
contenders of a table took turns in one run. Times are medians: elapsed time in the browser,
processor time otherwise. On a shared machine times drift, so compare the ratios to the
first row."""
BENCHMARKS: dict[str, Callable[[bool], Iterator[Table]]] = {
    "capture": passes.capture,
    "heatmaps": passes.heatmaps,
    "graph": passes.graph,
    "diagnose": studies.diagnose,
    "guard": studies.guard,
    "watch": studies.watch,
    "survey": studies.survey,
    "compare": studies.compare,
    "explorers": showing.explorers,
    "memory": showing.memory,
    "keypress": in_browser.key_press,
    "network": in_browser.network_pages,
    "strokes": strokes.strokes,
}


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="few rounds: does it run at all?")
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"no benchmark {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}")
    print(machine(), flush=True)
    for name in options.names or BENCHMARKS:
        print(f"\n{name}", flush=True)
        tables = []
        with one_thread():
            for table in BENCHMARKS[name](options.quick):
                print(f"\n{table.markdown()}", flush=True)
                tables.append(table)
        if not options.quick:
            write(name, tables)


def write(name, tables):
    """Replace a benchmark's section of the page."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    parts = {part.split("\n", 1)[0]: f"## {part}" for part in text.strip().split("\n## ")[1:]}
    summary, heading = (BENCHMARKS[name].__doc__ or "").strip(), name.capitalize()
    section = [f"## {heading}", summary, f"With {machine()}."]
    parts[heading] = "\n\n".join([*section, *(table.markdown() for table in tables)])
    headings = [name.capitalize() for name in BENCHMARKS]
    measured = [parts[heading].strip() for heading in headings if heading in parts]
    page = "\n\n".join([INTRODUCTION, *measured])
    PAGE.write_text(page + "\n", encoding="utf-8")


def machine():
    """Return the versions and the number of processors."""
    return (
        f"hookviz {hookviz.__version__}, Python {platform.python_version()}, torch "
        f"{torch.__version__}, {os.cpu_count()} processors of which torch uses one thread"
    )


if __name__ == "__main__":
    main()
