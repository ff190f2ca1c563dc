"""Write a page about the results of one check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Any


@dataclass(frozen=True)
class Report:
    """A page: a heading, what was checked, counts, and a line for each model.

    Attributes
    ----------
    title, introduction, explanation : str
        The explanation stands below the counts.
    counts : mapping
        What is counted -> a number of each result; the page has their sum.
    columns : mapping
        Heading -> the cell of a result.
    packages : iterable of str
        Those whose versions the page names.
    """

    title: str
    introduction: str
    explanation: str
    counts: Mapping[str, Callable[[Any], float]]
    columns: Mapping[str, Callable[[Any], object]]
    packages: Iterable[str] = ("torch", "torchvision", "timm")

    def __call__(self, results, cases):
        """Return the page, in Markdown."""
        sums = [(what, sum(map(count, results))) for what, count in self.counts.items()]
        rows = [tuple(column(each) for column in self.columns.values()) for each in results]
        versions = ", ".join(map(with_version, self.packages))
        lines = [f"# {self.title}", "", f"{self.introduction} Not to be edited.", ""]
        lines += [f"{len(results)} of {cases} models. {versions}.", "", *table(["", "count"], sums)]
        lines += ["", self.explanation, "", "## Model by model", ""]
        return "\n".join([*lines, *table([*self.columns], rows), ""])


NAME: dict[str, Callable[[Any], object]] = {
    "model": lambda result: result.name,
    "input": lambda result: "×".join(map(str, result.shape)),
}
"""The first columns of every page."""

ZOO = Report(
    "The zoo",
    "Every torchvision model for classification, segmentation, detection and video, and a model of "
    "nearly every timm family, with random weights. Written by `make zoo`. Edits by "
    "`hookviz.edit`, on the classifiers: [EDITS.md](EDITS.md). Other tools on the same models, "
    "measured once: [OTHERS.md](OTHERS.md).",
    "Exact: activation and gradient of every call equal to the bit those of a reference that uses "
    "no hook (`tests/reference.py`), through `capture` and through `explore`. Untouched: no hook, "
    "attribute, flag, `.grad`, parameter, buffer or random state differs from before "
    "(`tests/untouched.py`); some parameters are frozen, some have a `.grad`, and training flags "
    "are mixed. The score is a randomly weighted sum of all floating-point numbers that the model "
    "returns in eval mode.",
    {
        "convolutions": lambda result: result.layers,
        "those that ran": lambda result: result.ran,
        "their calls": lambda result: result.calls,
        "calls that no gradient reaches (None)": lambda result: result.not_graded,
        "calls whose gradient is all zero": lambda result: result.zero,
        "layers wrong, by `capture` or by `explore`, to the bit": lambda result: len(
            result.wrong + result.explored_wrong
        ),
        "models wrong": lambda result: bool(result.wrong or result.explored_wrong),
        "models changed": lambda result: bool(result.touched),
        "layers shown in the explorer": lambda result: result.explored,
        "widgets or figures left": lambda result: bool(result.left),
        "models that could not be checked": lambda result: bool(result.error),
    },
    {
        **NAME,
        "kind or family": lambda result: result.kind,
        "convolutions": lambda result: result.layers,
        "calls": lambda result: result.calls,
        "no gradient": lambda result: result.not_graded,
        "zero": lambda result: result.zero,
        "hookviz": lambda result: result.verdict,
    },
    ("torch", "torchvision", "timm", "ipywidgets"),
)


def with_version(package):
    """Return a package and its version; its distribution may have a different name."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        names = packages_distributions().get(package)
        return f"{package} {version(names[0])}" if names else f"{package} (not there)"


def cell(content):
    """Return the text of a table's cell."""
    return str(content).replace("|", "/").replace("\n", " ")[:300]


def table(header, rows):
    """Yield the Markdown lines of a table."""
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(map(cell, row)) + " |"
