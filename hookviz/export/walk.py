"""Why the prediction is what it is, for a page without a kernel: answers, step by step.

A page holds the panel's answers along one path, with every digit: from the prediction, or the
chosen position, always on at the largest term, back to the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..hooking.select import is_convolution
from ..view.messages import WeightsQuestion, WhyQuestion, as_json
from ..view.payload import target_number
from ..view.reason import weights_answer, why_answer
from ..view.view import View
from .packing import Packed, raw

LONGEST = 400
"""The most steps of a path."""


def page_reasons(view: View, names: Sequence[str]) -> tuple[dict[str, Any], list[Packed]]:
    """Return the answers of the panels *why?* and *weights* that a page holds.

    Returns
    -------
    dict, list
        ``answers``, those of `why_answer`; that about the prediction also has ``output``, the
        number of its class. ``weights``, those of `weights_answer` for each channel of a layer
        whose kernels are pictures. ``none``, why there are no answers, as a sentence. And the
        arrays, whose names begin with the number of their answer.
    """
    if view.difference:
        return {"answers": [], "weights": [], "none": "this page shows a difference of two."}, []
    at, number = view.settings, target_number(view)
    answers: list[dict[str, Any]] = []
    arrays: list[Packed] = []
    beginnings: list[WhyQuestion] = []
    if number is not None:
        beginnings.append(WhyQuestion(key="", output=number, sample=at.sample))
    if at.place is not None:
        shown: dict[str, Any] = {"layer": at.layer, "call": at.call, "channel": at.channel}
        beginnings.append(WhyQuestion(key="", sample=at.sample, place=at.place, **shown))
    reason = ""
    for question in beginnings:
        try:
            _walk(view, question, answers, arrays)
        except Exception as error:  # the page is worth having without
            reason = reason or str(error)
    weights, tiles = page_kernels(view, names)
    none = "" if answers else reason
    return {"answers": answers, "weights": weights, "none": none}, arrays + tiles


def _walk(
    view: View, question: WhyQuestion, answers: list[dict[str, Any]], arrays: list[Packed]
) -> None:
    """Add the answers along one path."""
    while len(answers) < LONGEST:
        answer, found = why_answer(view, question, traced=1)
        found.pop("maps", None)  # as large as the layers' maps
        arrays += [raw(f"{len(answers)} {name}", each) for name, each in found.items()]
        answers.append(as_json(answer))
        if question.output is not None:
            answers[-1]["output"] = question.output
        at = next((term.origins[0] for term in answer.terms if term.origins), None)
        if at is None or at.layer == "input":
            return
        place: dict[str, Any] = {"layer": at.layer, "call": at.call, "position": at.position}
        question = WhyQuestion(key="", channel=at.channel, sample=at.sample, **place)


def page_kernels(view: View, names: Sequence[str]) -> tuple[list[dict[str, Any]], list[Packed]]:
    """Return the answers about each channel of the first layer whose kernels are pictures."""
    for name in names:
        module: Any = view.cache[name].module
        if is_convolution(module) and module.in_channels == 3 and len(module.kernel_size) == 2:
            at: dict[str, Any] = {"key": "", "layer": name, "call": 0, "sample": 0}
            questions = [WeightsQuestion(channel=n, **at) for n in range(module.out_channels)]
            with suppress(ValueError):  # such as kernels that another network makes
                found = [weights_answer(view, each) for each in questions]
                tiles = [raw("tiles", found[0][1]["tiles"])]
                return [as_json(answer) for answer, _ in found], tiles
            break
    return [], []
