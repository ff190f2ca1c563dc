"""Write EDITS.md from the results."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Result
from ..report import cell, table, with_version

LABELS = ("scale", "replace", "function", "gradient, scale", "gradient, function")
PACKAGES = ("torch", "torchvision", "timm")


def report(results: list[Result], cases: int) -> str:
    """Return the page: the claim, the counts, and a line for each model."""
    return "\n".join(
        [
            "# Edits",
            "",
            "One layer of each of the zoo's classifiers, chosen by the model's name, edited in "
            "five ways. Written by `make edits`; not to be edited.",
            "",
            f"{len(results)} of {cases} models. {', '.join(map(with_version, PACKAGES))}.",
            "",
            *_summary(results),
            "",
            *_models(results),
            "",
        ]
    )


def _summary(results: list[Result]) -> Iterator[str]:
    yield "## hookviz"
    yield ""
    yield from table(
        ["", "of", "count"],
        [
            ("models", "", len(results)),
            ("edits", "", sum(each.calls for each in results)),
            ("models wrong, to the bit", len(results), sum(bool(r.wrong) for r in results)),
            ("models on which an edit raised", len(results), sum(bool(r.raised) for r in results)),
            ("models touched", len(results), sum(bool(each.touched) for each in results)),
            ("models that could not be checked", len(results), sum(bool(r.error) for r in results)),
        ],
    )
    yield ""
    yield (
        "Right: the logits, and a randomly weighted sum's gradients by the input and by every "
        "parameter, equal to the bit those of a model with the edit in its own code: a module in "
        "the layer's place, with no hook and without hookviz (`tests/zoo/edits/written.py`). "
        "Untouched: as in RESULTS.md. The layer is a convolution, a linear layer or a norm. "
        "Scale: a third of its channels times 0.3. Replace: those channels by random "
        "numbers. Function: `torch.tanh` of an output, `torch.relu` of a gradient. "
        "Weights are random, and no edit is without effect."
    )


def _models(results: list[Result]) -> Iterator[str]:
    yield "## Model by model"
    yield ""
    yield from table(
        ["model", "input", "layer, of those that could be", "", "hookviz"],
        map(_line, results),
    )


def _line(result: Result) -> tuple[object, ...]:
    size = "×".join(map(str, result.shape))
    return result.name, size, result.layer, result.ran, cell(result.verdict)
