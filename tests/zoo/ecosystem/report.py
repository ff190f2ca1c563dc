"""Write ECOSYSTEM.md from the results."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import packages_distributions

from ..check import Result
from ..report import cell, table, with_version


def report(results: list[Result], cases: int) -> str:
    """Return the page: the libraries, the summary, the faults, and a line for each model."""
    there = [result for result in results if not result.absent]
    return "\n".join(
        [
            "# The ecosystem",
            "",
            "Models of other people's libraries, with random weights and nothing downloaded. "
            "Written by `make ecosystem`; not to be edited.",
            "",
            f"{len(results)} of {cases} models. {', '.join(_versions(results))}.",
            "",
            *_summary(there),
            "",
            *_models(results),
            "",
        ]
    )


def _summary(results: list[Result]) -> Iterator[str]:
    wrong = sum(bool(r.wrong or r.explored_wrong) for r in results)
    calls = sum(result.calls for result in results)
    touched = sum(bool(result.touched or result.left) for result in results)
    yield (
        f"{len(results)} models could be imported. Activation and gradient of {calls} calls of "
        "convolutions, by `capture` and by `explore`, are compared to the bit with a reference "
        f"without hooks (`tests/reference.py`): {wrong} models are wrong, and {touched} were "
        "changed. The first, the middle and the last convolution are drawn, and their code is run "
        "and compared with what the explorer shows."
    )


def _versions(results: list[Result]) -> list[str]:
    names = dict.fromkeys(result.name.partition("/")[0] for result in results)
    known = packages_distributions()
    return [with_version(name, known.get(name, [name])[0]) for name in names]


def _models(results: list[Result]) -> Iterator[str]:
    yield "## Model by model"
    yield ""
    header = ["model", "given", "input", "convolutions", "calls", "hookviz"]
    yield from table(header, map(_line, results))


def _line(result: Result) -> tuple[object, ...]:
    return (
        result.name,
        result.kind,
        "×".join(map(str, result.shape)),
        result.layers,
        result.calls,
        _verdict(result),
    )


def _verdict(result: Result) -> str:
    if result.absent:
        return cell(result.absent)
    said = f"**{len(result.faults)} faults:** " if result.faults else ""
    said += result.verdict
    if result.refused:
        said += f"; refused: {result.refused[0]}"
    return cell(said)
