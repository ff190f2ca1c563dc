"""Plant every fault, diagnose it, diagnose healthy models, and write FAULTS.md.

Each case has its own process. Results are stored in test-output/faults, a file per fault or model;
a second run repeats only missing or wrong ones.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # as pytest has it

from zoo.faults.catalogue import FAULTS
from zoo.faults.check import Diagnosed, check
from zoo.faults.fault import Fault
from zoo.faults.healthy import check_healthy, healthy
from zoo.faults.report import report
from zoo.runner import Runner


def checked(case):
    """Check one case of either kind."""
    return check(case) if isinstance(case, Fault) else check_healthy(case)


if __name__ == "__main__":
    page = Path(__file__).parents[1] / "FAULTS.md"
    runner = Runner(Path("test-output/faults"), checked, Diagnosed)
    sys.exit(runner.main(__doc__, FAULTS | healthy(), page, report))
