"""Run the checks library by library."""

from __future__ import annotations

import multiprocessing
from contextlib import suppress
from importlib import import_module
from itertools import groupby
from operator import attrgetter

from ..check import Result
from ..runner import Runner


class Libraries(Runner):
    """Imports each library once in a separate process, since they change torch and each other."""

    def run(self, cases, jobs):
        """Check the cases library by library."""
        for library, its in groupby(cases, attrgetter("library")):
            arguments = library, list(its), jobs
            process = multiprocessing.get_context("fork").Process(
                target=self._run_library, args=arguments
            )
            process.start()
            process.join()

    def _run_library(self, library, cases, jobs):
        try:
            import_module(library)
        except Exception as error:
            absent = f"not there: {type(error).__name__}: {error}".splitlines()[0]
            for case in cases:
                self.keep(Result(case.name, "", case.shape, absent=absent))
            print(f"{library}: {absent}", flush=True)
        else:
            with suppress(Exception):
                cases[0].make()  # some libraries import most modules only now
            super().run(cases, jobs)
