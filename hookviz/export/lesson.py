"""A guided page: questions that are answered by moving the view, and checked in the page."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..hooking.tables import plain
from ..view.payload import settings_payload
from ..view.settings import SETTINGS
from ..view.view import View, for_layer

_OWN = "layer", "channel"


@dataclass(frozen=True)
class Step:
    """One question of a guided page.

    Parameters
    ----------
    question : str
        One or two sentences; with ``answer=None`` it may be a text to read.
    state : mapping, optional
        Where the view begins: settings of the explorer, such as
        ``{"layer": "layer3.0.conv1", "channel": 0}``; the others stay as they are. None leaves the
        view where the student is.
    answer : optional
        A mapping of settings that the view must have, such as ``{"channel": 17}``, where a list
        of values means any of them; a number, right within ``tolerance``; a text or a list of
        texts, of which one is given, capitals and spaces apart. None: whatever the student writes
        is kept and not judged.
    hint : str
        Shown after the first wrong answer.
    tolerance : float
        How far a number may be off, as a share of the answer; of an answer of 0, absolutely.
    choices : sequence of str
        The texts to choose from, instead of a field to write in.

    Raises
    ------
    ValueError
        An empty question, an unknown setting, or an answer that is not among the choices.
    TypeError
        An answer of another type.

    Examples
    --------
    >>> from hookviz.classroom import Step
    >>> step = Step(
    ...     "Which channel answers to the eye?", {"layer": "layer3.0.conv1"}, {"channel": 17}
    ... )
    >>> step.right({"channel": 17}), step.right({"channel": 3})
    (True, False)
    >>> Step("How many channels?", answer=96).right("96 ")
    True
    """

    question: str
    state: Mapping[str, Any] | None = None
    answer: Any = None
    hint: str = ""
    tolerance: float = 0.01
    choices: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.question, str) or not self.question.strip():
            raise ValueError(f"question={self.question!r} has no text: write what is asked.")
        for settings in (self.state or {}, self.answer if self.kind == "view" else {}):
            unknown = [name for name in settings if name not in SETTINGS]
            if unknown:
                raise ValueError(
                    f"{unknown[0]!r} is not a setting of the explorer: give one of "
                    f"{', '.join(name for name in SETTINGS if name != 'target')}."
                )
            if "target" in settings:
                raise ValueError(
                    "A step cannot set the target, whose gradient the page has only once: "
                    "set it before to_html, by explorer.target."
                )
        if self.choices and not set(self._texts()) & set(self.choices):
            raise ValueError(
                f"answer={self.answer!r} is not one of choices={list(self.choices)!r}."
            )

    @property
    def kind(self) -> str:
        """The kind of answer: ``"view"``, ``"number"``, ``"text"``, or ``"open"`` if not graded."""
        answer = self.answer
        if answer is None:
            return "open"
        if isinstance(answer, Mapping):
            return "view"
        if isinstance(answer, (int, float)) and not isinstance(answer, bool):
            return "number"
        texts = [answer] if isinstance(answer, str) else answer
        if (
            isinstance(texts, (list, tuple, set))
            and texts
            and all(isinstance(t, str) for t in texts)
        ):
            return "text"
        raise TypeError(
            f"answer={answer!r} cannot be checked: give a dict of settings, a number, a text, a "
            "list of texts, or None."
        )

    def right(self, given: Any) -> bool | None:
        """Return whether an answer is right; None where it is not judged.

        Parameters
        ----------
        given : str, float or mapping
            What the student wrote, or the settings of the view.
        """
        if self.kind == "open":
            return None
        if self.kind == "view":
            return isinstance(given, Mapping) and all(
                given.get(name) in (value if isinstance(value, (list, tuple)) else [value])
                for name, value in self.answer.items()
            )
        if self.kind == "text":
            return _folded(given) in {_folded(each) for each in self._texts()}
        try:
            number = float(str(given).strip().replace(",", ".").replace("−", "-"))
        except ValueError:
            return False
        return abs(number - self.answer) <= self.tolerance * (abs(self.answer) or 1)

    def _texts(self) -> list[str]:
        return [self.answer] if isinstance(self.answer, str) else [*(self.answer or ())]


def _folded(text: Any) -> str:
    return " ".join(str(text).split()).casefold()


def lesson_payload(
    steps: Sequence[Step], view: View, names: Sequence[str], title: str
) -> dict[str, Any]:
    """Return the steps as the page has them, each with all settings that it begins with.

    Raises
    ------
    TypeError
        Something that is not a `Step`.
    ValueError
        A state that this page cannot show; the message has the step's number.
    """
    told = []
    for number, step in enumerate(steps, 1):
        if not isinstance(step, Step):
            raise TypeError(f"steps[{number - 1}]={step!r} is not a hookviz.classroom.Step.")
        told.append(
            {
                "question": step.question,
                "state": None if step.state is None else _settings(step, number, view, names),
                "kind": step.kind,
                "answer": plain(step._texts() if step.kind == "text" else step.answer),
                "hint": step.hint,
                "tolerance": step.tolerance,
                "choices": list(step.choices),
            }
        )
    code = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]
    return {"title": title, "id": code, "steps": told}


def _settings(step: Step, number: int, view: View, names: Sequence[str]) -> dict[str, Any]:
    """Return the settings that a step sets, checked against its layer."""
    state = dict(step.state or {})
    layer = state.get("layer", view.settings.layer)
    if layer not in names:
        raise ValueError(
            f"Step {number}: layer {layer!r} is not in the page, which has "
            f"{', '.join(names[:3])}, …"
        )
    try:
        there = view if layer == view.settings.layer else for_layer(view, layer=layer)
        for name, value in state.items():
            declared = type(there.settings).__dataclass_fields__[name].metadata["declaration"]
            if declared.check is not None:
                declared.check(name, value, there)
        moved = settings_payload(there.with_settings(**state))
    except ValueError as error:
        raise ValueError(f"Step {number}: {error}") from error
    return {name: moved[name] for name in {*state, *_OWN}}
