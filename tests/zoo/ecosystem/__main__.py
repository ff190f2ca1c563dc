"""Check models of other libraries and write ECOSYSTEM.md; exit with 1 if one is wrong.

A process for each library and in it one for each model. What was found is kept in
test-output/ecosystem, a file a model: run again, it does only what is missing or was wrong.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from itertools import groupby
from operator import attrgetter
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "YOLO_OFFLINE": "1", "MPLBACKEND": "agg"}
sys.path.insert(0, str(Path(__file__).parents[2]))  # as pytest has it

from zoo.check import Result, check
from zoo.ecosystem.cases import ABSENT, Foreign, all_foreign
from zoo.ecosystem.report import report
from zoo.ecosystem.use import STEPS
from zoo.runner import Runner


class Libraries(Runner):
    """Imports each library once, in a process of its own: they change torch, and each other."""

    def run(self, cases: Iterable[Foreign], jobs: int) -> None:
        """Library by library."""
        for library, its in groupby(cases, attrgetter("library")):
            arguments = library, list(its), jobs
            process = multiprocessing.get_context("fork").Process(
                target=self._run_library, args=arguments
            )
            process.start()
            process.join()

    def _run_library(self, library: str, cases: list[Foreign], jobs: int) -> None:
        try:
            import_module(library)
        except Exception as error:
            why = ABSENT.get(library) or f"{type(error).__name__}: {error}".splitlines()[0]
            absent = f"not there: {why}"
            for case in cases:
                self.keep(Result(case.name, "", case.shape, absent=absent))
            print(f"{library}: {absent}", flush=True)
        else:
            super().run(cases, jobs)


if __name__ == "__main__":
    runner = Libraries(Path("test-output/ecosystem"), partial(check, rivals=(), steps=STEPS))
    page = Path(__file__).parents[1] / "ECOSYSTEM.md"
    sys.exit(runner.main(__doc__, all_foreign(), page, report))
