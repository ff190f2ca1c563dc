"""Why the prediction is what it is, for a page without a kernel: answers, step by step.

A page holds the panel's answers along one path, with every digit: from the prediction, or the
chosen position, always on at the largest term, back to the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..hooking.select import is_convolution
from ..view.payload import target_number
from ..view.reason import reason_payload, weights_payload
from ..view.view import View
from .packing import Packed, raw

LONGEST = 400
"""The most steps of a path."""


def page_reasons(view: View, names: Sequence[str]) -> tuple[dict[str, Any], list[Packed]]:
    """Return the answers of the panels *why?* and *weights* that a page holds.

    Returns
    -------
    dict, list
        ``answers``, those of `reason_payload`; that about the prediction also has ``output``, the
        number of its class. ``weights``, those of `weights_payload` for each channel of a layer
        whose kernels are pictures. ``none``, why there are no answers, as a sentence. And the
        arrays, whose names begin with the number of their answer.
    """
    if view.difference:
        return {"answers": [], "weights": [], "none": "this page shows a difference of two."}, []
    at, number = view.settings, target_number(view)
    answers: list[dict[str, Any]] = []
    arrays: list[Packed] = []
    beginnings: list[dict[str, Any]] = []
    if number is not None:
        beginnings.append({"output": number, "sample": at.sample})
    if at.place is not None:
        shown = {"layer": at.layer, "call": at.call, "channel": at.channel, "sample": at.sample}
        beginnings.append({**shown, "place": at.place})
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
    view: View, question: dict[str, Any] | None, answers: list[dict[str, Any]], arrays: list[Packed]
) -> None:
    """Add the answers along one path."""
    while question is not None and len(answers) < LONGEST:
        answer, found = reason_payload(view, question, traced=1)
        found.pop("maps", None)  # as large as the layers' maps
        arrays += [raw(f"{len(answers)} {name}", each) for name, each in found.items()]
        answers.append(answer | ({"output": question["output"]} if "output" in question else {}))
        origins = (term["origins"][0] for term in answer["terms"] if term["origins"])
        question = next(origins, None)
        if question is not None and question["layer"] == "input":
            question = None


def page_kernels(view: View, names: Sequence[str]) -> tuple[list[dict[str, Any]], list[Packed]]:
    """Return the answers about each channel of the first layer whose kernels are pictures."""
    for name in names:
        module: Any = view.cache[name].module
        if is_convolution(module) and module.in_channels == 3 and len(module.kernel_size) == 2:
            at = {"layer": name, "call": 0, "sample": 0, "place": None}
            channels = range(module.out_channels)
            found = [weights_payload(view, at | {"channel": channel}) for channel in channels]
            return [answer for answer, _ in found], [raw("tiles", found[0][1]["tiles"])]
    return [], []
