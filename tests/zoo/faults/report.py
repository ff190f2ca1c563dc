"""Write FAULTS.md from the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ..report import cell, table, with_version
from .check import AROUND, ONCE, Answer, Diagnosed
from .healthy import HEALTHY, MODES

PACKAGES = ("torch", "torchvision", "timm")
START, END = "<!-- summary -->", "<!-- end of the summary -->"
"""Between them is what the documentation shows, too."""

BOTH = (ONCE, AROUND)


def report(results, cases):
    """Return the page: the claim, the counts, each fault, and the false alarms."""
    every = [each for each in results if isinstance(each, Diagnosed)]
    faults = [each for each in every if each.kind != HEALTHY]
    calm = [each for each in every if each.kind == HEALTHY]
    return "\n".join(
        [
            "# Faults",
            "",
            "Faults planted in models of torchvision and timm, and what `hookviz.diagnose` says of "
            "them and of healthy models. Other tools on the same faults, measured once: "
            "[OTHERS.md](OTHERS.md). Written by `make faults`; not to be edited.",
            "",
            f"{len(every)} of {cases} cases. {', '.join(map(with_version, PACKAGES))}.",
            "",
            START,
            "",
            *_summary(faults),
            "",
            *_groups(faults),
            "",
            *_unnamed(faults),
            "",
            END,
            "",
            *_each(faults),
            *_alarms(calm),
            "",
        ]
    )


def _summary(faults):
    yield f"## {len(faults)} planted faults"
    yield ""
    marks: list[Callable[[Answer], bool]] = [
        lambda answer: answer.named,
        lambda answer: answer.layer,
        lambda answer: answer.operation,
    ]
    rows: list[tuple[object, ...]] = []
    for label in BOTH:
        asked = [fault for fault in faults if label in fault.answers]
        counts = [sum(mark(f.answers[label]) for f in asked) for mark in marks]
        lines = [f for f in asked if f.line]
        line = f"{sum(f.answers[label].line for f in lines)} of {len(lines)}"
        rows.append((label, len(asked), *counts, line))
    yield from table(["", "asked", "named", "layer", "operation", "line"], rows)
    yield ""
    yield (
        f"Models touched: {sum(bool(f.touched) for f in faults)}. "
        f"Faults that could not be checked: {sum(bool(f.error) for f in faults)}."
    )
    yield ""
    yield (
        "Each fault is planted by a small function beside which the truth is written "
        "(`tests/zoo/faults`): what kind it is, in which layer, in which of its calls, forward or "
        "backward, and by which operation, if it is the fault of one. First a plain step shows "
        "that the fault has an effect, and hookviz must not name it in the model without it. "
        "Named: kind, layer, operation, call and phase are right, in an error or a warning; of NaN "
        "and Inf only the first finding counts. Line: the finding shows the planted line, where "
        "there is one. Untouched: `diagnose(model, x)` leaves the model unchanged, see RESULTS.md; "
        "a step in the block leaves weights, gradients, buffers, random numbers and hooks as a "
        "plain step does, to the bit. The block is tested on NaN, Inf and errors, for which it "
        "stands guard."
    )


def _unnamed(faults):
    yield "What `diagnose(model, x)` does not name:"
    yield ""
    for fault in faults:
        if fault.unnamed or fault.wrong:
            why = fault.unnamed or "; ".join(fault.wrong)
            yield f"- {fault.model.partition('/')[2]}, {cell(fault.words)}: {cell(why)}"


def _groups(faults):
    yield "Named, by sort of fault:"
    yield ""
    groups = dict.fromkeys(fault.kind for fault in faults)
    rows: list[tuple[object, ...]] = []
    for group in groups:
        own = [fault for fault in faults if fault.kind == group]
        rows.append((group, len(own), *(_named(label, own) for label in BOTH)))
    yield from table(["", "faults", *BOTH], rows)


def _named(label, faults):
    answers = [fault.answers[label] for fault in faults if label in fault.answers]
    return f"{sum(each.named for each in answers)} of {len(answers)}" if answers else "—"


def _each(faults):
    yield "## Fault by fault"
    yield ""
    yield (
        "✓ named; l, o: the layer or the operation alone is right; ✗ neither; — not tested. A "
        "wrong answer stands beside the mark."
    )
    yield ""
    header = ["model", "planted", "truth", *BOTH]
    yield from table(header, (_line(fault) for fault in faults))
    yield ""


def _line(fault):
    name = fault.model.partition("/")[2]
    given = (_said(fault.answers.get(label)) for label in BOTH)
    words = fault.error or f"{fault.kind}: {fault.words}"
    return name, words, fault.truth, *given


def _said(answer):
    if answer is None:
        return "—"
    if answer.named:
        return "✓"
    right = "l" * answer.layer + "o" * answer.operation * bool(answer.said)
    return f"{right or '✗'} {answer.said}".strip()


def _alarms(calm):
    yield f"## False alarms: {len({each.model for each in calm})} healthy models"
    yield ""
    yield (
        "The zoo's models as their libraries initialise them, in training and in eval mode, given "
        "two pictures of random numbers, and boxes where a detector needs them. A finding that is "
        "more than a note is counted. Two are left, and both are true for pictures that small: a "
        "side branch of torchvision's inception_v3 needs larger ones, and in timm's the last "
        "BatchNorm layers see two values of a channel, so that gradients explode; with eight "
        "pictures, or larger ones, they do not."
    )
    yield ""
    rows: list[tuple[object, ...]] = []
    for mode in MODES.values():
        own = [each for each in calm if each.name.endswith(mode)]
        rows.append((f"in {mode}: models", len(own), ""))
        rows.append(("without one", sum(not e.alarms and not e.error for e in own), ""))
        rows.append(("touched", sum(bool(each.touched) for each in own), ""))
        rows.append(("not checked", sum(bool(each.error) for each in own), ""))
        kinds = Counter((alarm[0], alarm[1]) for each in own for alarm in each.alarms)
        models = Counter(pair for e in own for pair in {(a[0], a[1]) for a in e.alarms})
        for pair, count in sorted(kinds.items()):
            rows.append((f"{pair[0]}: {pair[1]}", models[pair], count))
    yield from table(["", "models", "findings"], rows)
    yield ""
    yield "Every one of them:"
    yield ""
    lines = [(e.name, *alarm) for e in calm for alarm in e.alarms]
    yield from table(["model", "severity", "kind", "where", "message"], lines)
    errors = [each for each in calm if each.error]
    for each in errors:
        yield f"- {each.name} could not be checked: {cell(each.error)}"
