"""Write RESULTS.md from the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

from .check import Result

PACKAGES = ("torch", "torchvision", "timm", "ipywidgets")


def report(results: list[Result], cases: int) -> str:
    """Return the page: the claim, the summary, and a line for each model."""
    return "\n".join(
        [
            "# The zoo",
            "",
            "Every torchvision model for classification, segmentation, detection and video, and a "
            "model of nearly every timm family, with random weights. "
            "Written by `python -m tests.zoo`; not to be edited.",
            "",
            "Edits by `hookviz.edit`, on the classifiers: [EDITS.md](EDITS.md). Other tools on the "
            "same models, measured once: [OTHERS.md](OTHERS.md).",
            "",
            f"{len(results)} of {cases} models, {_families(results)} timm families. "
            f"{', '.join(map(with_version, PACKAGES))}.",
            "",
            *_summary(results),
            "",
            *_models(results),
            "",
        ]
    )


def with_version(package: str, distribution: str = "") -> str:
    """Return a package and its version; its distribution may have a different name."""
    try:
        return f"{package} {version(distribution or package)}"
    except PackageNotFoundError:
        return f"{package} (not there)"


def _families(results: list[Result]) -> int:
    return len({result.kind for result in results if result.name.startswith("timm/")})


def _summary(results: list[Result]) -> Iterator[str]:
    calls = sum(result.calls for result in results)
    wrong = sum(len(result.wrong) + len(result.explored_wrong) for result in results)
    yield "## hookviz"
    yield ""
    yield from table(
        ["", "of", "count"],
        [
            ("models", "", len(results)),
            ("convolutions", "", sum(result.layers for result in results)),
            ("those that ran", "", _ran(results)),
            ("their calls", "", calls),
            ("calls that no gradient reaches (None)", calls, sum(r.not_graded for r in results)),
            ("calls whose gradient is all zero", calls, sum(r.zero for r in results)),
            ("layers wrong, by `capture` or by `explore`, to the bit", calls, wrong),
            ("models wrong", len(results), sum(bool(r.wrong or r.explored_wrong) for r in results)),
            ("models touched", len(results), sum(bool(result.touched) for result in results)),
            ("models explored layer by layer", len(results), sum(map(_explored, results))),
            ("layers shown in the explorer", _ran(results), sum(r.explored for r in results)),
            ("widgets or figures left", len(results), sum(bool(r.left) for r in results)),
            ("models that could not be checked", len(results), sum(bool(r.error) for r in results)),
        ],
    )
    yield ""
    yield (
        "Exact: activation and gradient of every call equal to the bit those of a reference that "
        "uses no hook (`tests/reference.py`), through `capture` and through `explore`. Untouched: "
        "no hook, attribute, flag, `.grad`, parameter, buffer or random state is another than "
        "before (`tests/untouched.py`); some parameters are frozen, some have a `.grad`, and "
        "training flags are mixed. The score is a randomly weighted sum of all floating-point "
        "numbers that the model returns in eval mode."
    )


def _ran(results: list[Result]) -> int:
    return sum(result.ran for result in results)


def _explored(result: Result) -> bool:
    return result.explored == result.ran > 0 and not result.error


def _models(results: list[Result]) -> Iterator[str]:
    yield "## Model by model"
    yield ""
    header = [
        "model",
        "kind or family",
        "input",
        "convolutions",
        "calls",
        "no gradient",
        "zero",
        "hookviz",
    ]
    yield from table(header, map(_line, results))


def _line(result: Result) -> tuple[object, ...]:
    return (
        result.name,
        result.kind,
        "×".join(map(str, result.shape)),
        result.layers,
        result.calls,
        result.not_graded,
        result.zero,
        cell(result.verdict),
    )


def cell(text: str) -> str:
    """Escape a text for a table cell."""
    return text.replace("|", "/").replace("\n", " ")[:300]


def table(header: list[str], rows: Iterable[tuple[object, ...]]) -> Iterator[str]:
    """Yield the Markdown lines of a table."""
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(map(str, row)) + " |"
