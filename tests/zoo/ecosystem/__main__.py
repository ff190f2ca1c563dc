"""Check models of other libraries and write ECOSYSTEM.md; exit with 1 if one is wrong.

Each library has a process, which starts one for each model. Results are stored in
test-output/ecosystem, a file per model; a second run repeats only missing or wrong ones.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "YOLO_OFFLINE": "1", "MPLBACKEND": "agg"}
sys.path.insert(0, str(Path(__file__).parents[2]))  # as pytest has it

from zoo.check import check
from zoo.ecosystem.cases import all_foreign
from zoo.ecosystem.libraries import Libraries
from zoo.ecosystem.use import STEPS
from zoo.report import NAME, Report

CASES = all_foreign()
ECOSYSTEM = Report(
    "The ecosystem",
    "Models of other people's libraries, with random weights and nothing downloaded. Written by "
    "`make ecosystem`.",
    "Exact and untouched: as in [RESULTS.md](RESULTS.md). The first, the middle and the last "
    "convolution are drawn, and their code is run and compared with what the explorer shows.",
    {
        "models that could be imported": lambda result: not result.absent,
        "calls of convolutions": lambda result: result.calls,
        "models wrong": lambda result: bool(result.wrong or result.explored_wrong),
        "models changed": lambda result: bool(result.touched or result.left),
    },
    {
        **NAME,
        "convolutions": lambda result: result.layers,
        "calls": lambda result: result.calls,
        "hookviz": lambda result: result.verdict,
    },
    dict.fromkeys(case.library for case in CASES.values()),
)

if __name__ == "__main__":
    runner = Libraries(Path("test-output/ecosystem"), partial(check, steps=STEPS))
    page = Path(__file__).parents[1] / "ECOSYSTEM.md"
    sys.exit(runner.main(__doc__, CASES, page, ECOSYSTEM))
