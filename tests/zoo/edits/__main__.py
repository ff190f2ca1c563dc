"""Edit a layer of every classifier of the zoo and write EDITS.md; exit with 1 if one is wrong.

Each model has its own process. Results are stored in test-output/edits, a file per model; a second
run repeats only missing or wrong ones.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # as pytest has it

from zoo.edits.check import check
from zoo.edits.report import report
from zoo.models import classifiers
from zoo.runner import Runner

if __name__ == "__main__":
    page = Path(__file__).parents[1] / "EDITS.md"
    runner = Runner(Path("test-output/edits"), check)
    sys.exit(runner.main(__doc__, classifiers(), page, report))
