"""Mark the heavy cases of a test, which only `make test-all` runs."""

from __future__ import annotations

import pytest


def heavy_but(quick, cases, name=str):
    """Return named cases for ``pytest.mark.parametrize``; all but the quick ones are marked heavy.

    Examples
    --------
    >>> [(case.id, len(case.marks)) for case in heavy_but({"a"}, ["a", "b"])]
    [('a', 0), ('b', 1)]
    """
    named = {name(case): case for case in cases}
    assert set(quick) <= set(named), "no such cases"
    marks = {each: [] if each in quick else [pytest.mark.heavy] for each in named}
    return [pytest.param(case, id=each, marks=marks[each]) for each, case in named.items()]
