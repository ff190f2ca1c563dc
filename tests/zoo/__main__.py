"""Check every model of the zoo, a process each, and write RESULTS.md; exit with 1 if one is wrong.

Results are stored in test-output/zoo, a file per model; a second run repeats only missing or wrong
ones.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest has it

from zoo.check import check
from zoo.models import all_cases
from zoo.report import ZOO
from zoo.runner import Runner

if __name__ == "__main__":
    runner = Runner(Path("test-output/zoo"), check)
    page = Path(__file__).with_name("RESULTS.md")
    sys.exit(runner.main(__doc__, all_cases(), page, ZOO))
