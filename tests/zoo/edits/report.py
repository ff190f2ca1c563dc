"""Write EDITS.md from the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..check import Result
from ..report import cell, table, with_version
from ..rivals import CLOSE, Tally
from .ways import WAYS

LABELS = ("scale", "replace", "function", "gradient, scale", "gradient, function")
PACKAGES = ("torch", "torchvision", "timm", "nnsight", "torchlens")


def report(results: list[Result], cases: int) -> str:
    """Return the page: the claim, the counts, the errors, and a line for each model."""
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
            *_ways(results),
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


def _ways(results: list[Result]) -> Iterator[str]:
    yield "## Others, on the same models and layers"
    yield ""
    yield (
        f"Right / wrong / raised; — where a tool has no such edit. Right is here also what is no "
        f"further from the truth than {CLOSE:g} of a tensor's largest magnitude, but for hookviz."
    )
    yield ""
    yield from table(["", "models", *LABELS], (_counts(way, results) for way in WAYS))
    yield ""
    for label, way in WAYS.items():
        asked = " ".join((way.run.__doc__ or "").split())
        most = f" Given models of up to {way.most / 1e6:g} million parameters." if _few(way) else ""
        yield f"- {label}: {asked}{most}"
    yield ""
    yield "Raised, most often:"
    yield ""
    for (label, message), count in _raised(results).most_common(8):
        yield f"- {label}, {count} times: {cell(message)}"


def _few(way: object) -> bool:
    return getattr(way, "most", 0) < float("inf")


def _counts(way: str, results: list[Result]) -> tuple[object, ...]:
    models = sum(any(each.startswith(f"{way} ·") for each in r.rivals) for r in results)
    return way, models, *(_count(f"{way} · {label}", results) for label in LABELS)


def _count(key: str, results: list[Result]) -> str:
    tallies = [result.rivals[key] for result in results if key in result.rivals]
    outcomes = Counter(map(_outcome, tallies))
    return (
        " / ".join(str(outcomes[each]) for each in ("right", "wrong", "raised")) if tallies else "—"
    )


def _outcome(tally: Tally) -> str:
    if tally.crashed:
        return "raised"
    return "wrong" if tally.wrong else "right"


def _raised(results: list[Result]) -> Counter[tuple[str, str]]:
    return Counter(
        (key.partition(" ·")[0], tally.crashed.partition(" [")[0].partition(" |")[0])
        for result in results
        for key, tally in result.rivals.items()
        if tally.crashed
    )


def _models(results: list[Result]) -> Iterator[str]:
    yield "## Model by model"
    yield ""
    yield (
        "Of each other way, in the order of the table above, an edit a letter: r for right, w for "
        "wrong, — for raised."
    )
    yield ""
    yield from table(
        ["model", "input", "layer, of those that could be", "", "hookviz", "others"],
        map(_line, results),
    )


def _line(result: Result) -> tuple[object, ...]:
    others = (_letters(way, result) for way in list(WAYS)[1:])
    return (
        result.name,
        "×".join(map(str, result.shape)),
        result.layer,
        result.ran,
        cell(result.verdict),
        " ".join(each for each in others if each),
    )


def _letters(way: str, result: Result) -> str:
    found = [result.rivals.get(f"{way} · {label}") for label in LABELS]
    letters = {"right": "r", "wrong": "w", "raised": "—"}
    return "".join(letters[_outcome(each)] for each in found if each)
