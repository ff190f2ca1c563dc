"""Write ECOSYSTEM.md from the results."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import packages_distributions

from ..check import Result
from ..report import cell, summary, table, with_version

STEPS = ("explore", "figure", "code", "trace")


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
            *summary(there, walked=False),
            "",
            *_models(results),
            "",
        ]
    )


def _versions(results: list[Result]) -> list[str]:
    names = dict.fromkeys(result.name.partition("/")[0] for result in results)
    known = packages_distributions()
    return [with_version(name, known.get(name, [name])[0]) for name in names]


def _models(results: list[Result]) -> Iterator[str]:
    yield "## Model by model"
    yield ""
    yield (
        "Of each model the first, the middle and the last convolution are drawn, and their code is "
        "run and compared with what the explorer holds. Seconds, on one thread: a forward and "
        "backward of the model itself, then what hookviz takes: to explore, for a figure, for the "
        "code that it gives to run, and for a trace."
    )
    yield ""
    header = ["model", "given", "input", "convolutions", "calls", "model s", *STEPS, "hookviz"]
    yield from table(header, map(_line, results))


def _line(result: Result) -> tuple[object, ...]:
    seconds = (result.seconds.get(what) for what in ("model", *STEPS))
    return (
        result.name,
        result.kind,
        "×".join(map(str, result.shape)),
        result.layers,
        result.calls,
        *("" if each is None else f"{each:.2f}" for each in seconds),
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
