"""Run the benchmarks, all or some, and print their tables."""

from __future__ import annotations

import argparse
import os
import platform

import matplotlib
import torch

from . import (
    architecture,
    attention,
    brush,
    capture,
    costs,
    diagnose,
    drawing,
    edits,
    graph,
    guard,
    heatmaps,
    keypress,
    memory,
    network,
    pages,
    showing,
    survey,
    watch,
)

BENCHMARKS = {
    "attention": attention.run,
    "architecture": architecture.run,
    "brush": brush.run,
    "capture": capture.run,
    "costs": costs.run,
    "diagnose": diagnose.run,
    "drawing": drawing.run,
    "edits": edits.run,
    "graph": graph.run,
    "guard": guard.run,
    "heatmaps": heatmaps.run,
    "keypress": keypress.run,
    "memory": memory.run,
    "network": network.run,
    "pages": pages.run,
    "showing": showing.run,
    "survey": survey.run,
    "watch": watch.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="few rounds: does it run at all?")
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"no benchmark {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}")
    print(
        f"Python {platform.python_version()}, torch {torch.__version__}, matplotlib "
        f"{matplotlib.__version__}, {os.cpu_count()} CPUs of which one thread is used",
        flush=True,
    )
    for name in options.names or BENCHMARKS:
        BENCHMARKS[name](quick=options.quick)


if __name__ == "__main__":
    main()
