"""Plant every fault, have it looked for, look at healthy models, and write FAULTS.md.

A process each. What was found is kept in test-output/faults, a file a fault or model: run again, it
does only what is missing or was wrong. transformers and TorchLens are asked where they are there.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # as pytest has it

from zoo.faults.catalogue import FAULTS
from zoo.faults.check import Diagnosed, check
from zoo.faults.fault import Fault
from zoo.faults.healthy import Healthy, check_healthy, healthy
from zoo.faults.report import report
from zoo.faults.tools import TOOLS
from zoo.runner import Runner


def checked(case: Fault | Healthy) -> Diagnosed:
    """One case of either sort."""
    return check(case) if isinstance(case, Fault) else check_healthy(case)


if __name__ == "__main__":
    for way in TOOLS.values():
        if way.there:
            import_module(way.package)  # once, before the processes fork
    page = Path(__file__).parents[1] / "FAULTS.md"
    runner = Runner(Path("test-output/faults"), checked, Diagnosed)
    sys.exit(runner.main(__doc__, FAULTS | healthy(), page, report))
