"""Check every model of the zoo, a process each, and write RESULTS.md; exit with 1 if one is wrong.

What was found is kept in test-output/zoo, a file a model: run again, it does only what is missing
or was wrong.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterable
from dataclasses import asdict
from fnmatch import fnmatchcase
from multiprocessing.connection import wait
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest has it

import torch

from zoo.check import Result, check
from zoo.models import Case, all_cases
from zoo.report import report
from zoo.rivals import Tally

KEPT = Path("test-output/zoo")
RESULTS = Path(__file__).with_name("RESULTS.md")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="or pattern, as 'timm/*'; all")
    parser.add_argument("--jobs", type=int, default=1, help="models at the same time")
    parser.add_argument("--fresh", action="store_true", help="forget what was found before")
    options = parser.parse_args()
    cases = all_cases()
    chosen = [
        case
        for name, case in cases.items()
        if any(fnmatchcase(name, f"*{each}") for each in options.names or ["*"])
    ]
    if not chosen:
        parser.error(f"no model is called {' or '.join(options.names)}")
    KEPT.mkdir(parents=True, exist_ok=True)
    missing = [case for case in chosen if options.fresh or not _well(_kept(case))]
    _run(missing, options.jobs)
    results = [result for case in cases.values() if (result := _kept(case))]
    RESULTS.write_text(report(results, len(cases)), encoding="utf-8")
    return int(any(not _well(_kept(case)) for case in chosen))


def _run(cases: Iterable[Case], jobs: int) -> None:
    """A process each: memory is given back, and one that dies does not stop the others."""
    # Forked, so that each need not import everything anew: no backward may run in this process.
    context = multiprocessing.get_context("fork")
    running: dict[int, tuple[Case, multiprocessing.Process]] = {}
    waiting = list(cases)[::-1]
    while waiting or running:
        while waiting and len(running) < jobs:
            case = waiting.pop()
            _file(case).unlink(missing_ok=True)
            process = context.Process(target=_check_one, args=(case,))
            process.start()
            running[process.sentinel] = case, process
        for sentinel in wait(list(running)):
            case, process = running.pop(sentinel)
            process.join()
            result = _kept(case)
            if result is None:
                error = f"the process died with exit code {process.exitcode}"
                result = Result(case.name, case.kind, case.shape, error=error)
                _keep(result)
            left = len(waiting) + len(running)
            said = f"WRONG: {'; '.join(result.faults[:3])}" if result.faults else "exact, untouched"
            print(f"{result.name}: {result.calls} calls, {said} ({left} to go)", flush=True)


def _check_one(case: Case) -> None:
    torch.set_num_threads(1)
    _keep(check(case))


def _file(case: Case | Result) -> Path:
    return KEPT / f"{case.name.replace('/', '-')}.json"


def _keep(result: Result) -> None:
    _file(result).write_text(json.dumps(asdict(result), indent=1), encoding="utf-8")


def _kept(case: Case) -> Result | None:
    if not _file(case).exists():
        return None
    found = json.loads(_file(case).read_text(encoding="utf-8"))
    found["rivals"] = {label: Tally(**tally) for label, tally in found["rivals"].items()}
    return Result(**found)


def _well(result: Result | None) -> bool:
    return result is not None and not result.faults


if __name__ == "__main__":
    sys.exit(main())
