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
from zoo.ecosystem.report import report
from zoo.ecosystem.use import STEPS

if __name__ == "__main__":
    runner = Libraries(Path("test-output/ecosystem"), partial(check, steps=STEPS))
    page = Path(__file__).parents[1] / "ECOSYSTEM.md"
    sys.exit(runner.main(__doc__, all_foreign(), page, report))
