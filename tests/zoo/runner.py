"""Check models in a process each, store the results, and write the page about them."""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from multiprocessing.connection import wait
from pathlib import Path

import torch

from .check import Case, Result


@dataclass(frozen=True)
class Runner:
    """Checks models and stores the results in a file per model.

    Attributes
    ----------
    folder : Path
        The folder of the files.
    check : callable
        Case -> Result; never raises.
    result : type
        The type that `check` returns.
    """

    folder: Path
    check: Callable[[Case], Result]
    result: type[Result] = Result

    def main(self, description, cases, page, report):
        """Run the command line; return exit code 1 if a model has a fault."""
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("names", nargs="*", metavar="NAME", help="or pattern, as 'timm/*'; all")
        parser.add_argument("--jobs", type=int, default=1, help="models at the same time")
        parser.add_argument("--fresh", action="store_true", help="forget what was found before")
        parser.add_argument("--page", type=Path, default=page, help="to be written: %(default)s")
        options = parser.parse_args()
        chosen = [
            case
            for name, case in cases.items()
            if any(fnmatchcase(name, f"*{each}") for each in options.names or ["*"])
        ]
        if not chosen:
            parser.error(f"no model is called {' or '.join(options.names)}")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run([c for c in chosen if options.fresh or not self._done(c)], options.jobs)
        results = [result for case in cases.values() if (result := self.kept(case))]
        options.page.write_text(report(results, len(cases)), encoding="utf-8")
        return int(any(not _well(self.kept(case)) for case in chosen))

    def _done(self, case):
        kept = self.kept(case)
        return _well(kept) and not kept.absent

    def run(self, cases, jobs):
        """Check each case in a process, which frees its memory and may die alone."""
        # Forked, to avoid new imports; therefore no backward may run in this process.
        context = multiprocessing.get_context("fork")
        running: dict[int, tuple[Case, multiprocessing.Process]] = {}
        waiting = list(cases)[::-1]
        while waiting or running:
            while waiting and len(running) < jobs:
                case = waiting.pop()
                self._file(case).unlink(missing_ok=True)
                process = context.Process(target=self._check_one, args=(case,))
                process.start()
                running[process.sentinel] = case, process
            for sentinel in wait(list(running)):
                case, process = running.pop(sentinel)
                process.join()
                result = self.kept(case)
                if result is None:
                    error = f"the process died with exit code {process.exitcode}"
                    result = self.result(case.name, case.kind, case.shape, error=error)
                    self.keep(result)
                _print(result, len(waiting) + len(running))

    def _check_one(self, case):
        torch.set_num_threads(1)
        self.keep(self.check(case))

    def keep(self, result):
        """Store a result."""
        self._file(result).write_text(json.dumps(asdict(result), indent=1), encoding="utf-8")

    def kept(self, case):
        """Return the stored result, of this or an earlier run."""
        if not self._file(case).exists():
            return None
        return self.result(**json.loads(self._file(case).read_text(encoding="utf-8")))

    def _file(self, case):
        return self.folder / f"{case.name.replace('/', '-').replace(' ', '-')}.json"


def _well(result):
    return result is not None and not result.faults


def _print(result, left):
    wrong = "WRONG: " if result.faults else ""
    print(
        f"{result.name}: {result.calls} calls, {wrong}{result.verdict} ({left} to go)", flush=True
    )
