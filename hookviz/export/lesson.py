"""A guided page: questions that are answered by moving the view, and checked in the page.

The answers that students hand in become a table.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from ..draw.document import TablePage
from ..hooking.select import close_names
from ..tables import cut, html_table, plain, text_table
from ..view.payload import settings_payload, written_target
from ..view.settings import POSITION, WRITTEN, check
from ..view.view import View, for_layer
from ..view.written import at_written

_OWN = "layer", "channel"

_FIXED = "call", "sample", "depth", "shown_after", "shown_run"
"""Settings of which a page has the numbers for one value only."""


@dataclass(frozen=True)
class Step:
    """One question of a guided page.

    Parameters
    ----------
    question : str
        One or two sentences; with ``answer=None`` it may be a text to read.
    state : mapping, optional
        Where the view begins: settings of the explorer, such as
        ``{"layer": "layer3.0.conv1", "channel": 0}``, or all that `Explorer.settings` returned;
        the others stay as they are. None leaves the view where the student is.
    answer : optional
        A mapping of settings that the view must have, such as ``{"channel": 17}`` or
        ``{"position": (5, 8)}``, where a list of values means any of them; a number, right within
        ``tolerance``; a text or a list of texts, of which one is given, capitals and spaces apart.
        None: any text, which is kept without a mark.
    hint : str
        Shown after the first wrong answer.
    tolerance : float, optional
        How far a number may be off, as a share of the answer; of an answer of 0, absolutely. By
        default a whole number must be exact, and any other is right within 1 %.
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
    ...     "Which channel responds to the eye?", {"layer": "layer3.0.conv1"}, {"channel": 17}
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
    tolerance: float | None = None
    choices: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.question, str) or not self.question.strip():
            raise ValueError(f"question={self.question!r} has no text: write what is asked.")
        for settings in (self.state or {}, self.answer if self.kind == "view" else {}):
            unknown = [name for name in settings if name not in WRITTEN]
            if unknown:
                raise ValueError(
                    f"{unknown[0]!r} is not a setting of the explorer: give one of "
                    f"{', '.join(WRITTEN)}."
                )
        if self.kind == "view" and "target" in self.answer:
            raise ValueError("The target is no answer: a page has the gradient of one only.")
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

    @property
    def margin(self) -> float:
        """The share by which a number may be off."""
        if self.tolerance is not None:
            return self.tolerance
        return 0.0 if isinstance(self.answer, int) else 0.01

    def right(self, given: Any) -> bool | None:
        """Return whether an answer is right; None where it is not judged.

        Parameters
        ----------
        given : str, float or mapping
            What the student wrote, or the settings of the view.
        """
        if self.kind == "open":
            return None
        accepted = self._accepted()
        if self.kind == "view":
            return isinstance(given, Mapping) and all(
                plain(given.get(name)) in values for name, values in accepted.items()
            )
        if self.kind == "text":
            return _folded(given) in {_folded(each) for each in accepted}
        try:
            number = float(str(given).strip().replace(",", ".").replace("−", "-"))
        except ValueError:
            return False
        return abs(number - self.answer) <= self.margin * (abs(self.answer) or 1)

    def _accepted(self) -> Any:
        """Return the right answers as JSON: texts, or a list of values for each setting."""
        if self.kind == "text":
            return self._texts()
        if self.kind != "view":
            return plain(self.answer)
        found = {}
        for name, value in self.answer.items():
            several = isinstance(value, (list, tuple))
            if several and name == POSITION:  # one position is a pair of numbers itself
                several = not all(isinstance(each, int) for each in value)
            found[name] = plain([*value] if several else [value])
        return found

    def _texts(self) -> list[str]:
        return [self.answer] if isinstance(self.answer, str) else [*(self.answer or ())]


def _folded(text: Any) -> str:
    return " ".join(str(text).split()).casefold()


def lesson_payload(
    steps: Sequence[Step],
    view: View,
    names: Sequence[str],
    title: str,
    choices: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Return the steps as the page has them, each with all settings that it begins with.

    ``choices`` are the page's, of its menus.

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
                "state": _settings(step, number, view, names, choices),
                "kind": step.kind,
                "answer": step._accepted(),
                "hint": step.hint,
                "tolerance": step.margin,
                "choices": list(step.choices),
            }
        )
    code = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]
    return {"title": title, "id": code, "steps": told}


def _settings(
    step: Step,
    number: int,
    view: View,
    names: Sequence[str],
    choices: Mapping[str, Sequence[str]],
) -> dict[str, Any] | None:
    """Return the settings of the page that a step sets; None if it sets none."""
    if (state := step.state) is None:
        return None
    layer = state.get("layer", view.settings.layer)
    if layer not in names:
        raise ValueError(
            f"Step {number}: layer {layer!r} is not in the page, which has "
            f"{', '.join(names[:3])}, …"
        )
    page = for_layer(view, layer=layer)
    try:
        there = at_written(page, state)
        moved = settings_payload(there)
        if "target" in state:
            target = check("target", state["target"], view)
            if written_target(view.with_settings(target=target)) != written_target(view):
                raise ValueError(
                    f"target={state['target']!r} is not the page's, which has the gradient of "
                    f"{view.target_name} only: set explorer.target before to_html, or leave it out."
                )
            moved["targetClass"] = None  # no class that the student has chosen since
        for name in {*state} & {*_FIXED, *choices}:
            own, value = getattr(page.settings, name), moved[name]
            offered = [own, *(() if name in _FIXED else choices[name])]
            if value not in offered:
                near = close_names(str(value), map(str, offered))
                raise ValueError(f"{name}={value!r} is not in the page; {near}.")
    except ValueError as error:
        raise ValueError(f"Step {number}: {error}") from error
    named = {"target": "targetClass", POSITION: "place"}
    return {name: moved[name] for name in {*(named.get(each, each) for each in state), *_OWN}}


MARKS = {True: "✓", False: "✗", None: "–"}
"""Marks of right, wrong and not judged; an empty cell is not answered."""


@dataclass(frozen=True)
class Answer:
    """A student's answer to one question.

    Attributes
    ----------
    question : str
    given : object
        As it was handed in; None: not answered.
    right : bool or None
        None where it is not judged, or not answered.
    tries : int
        How often it was checked.
    """

    question: str
    given: Any
    right: bool | None
    tries: int

    @property
    def mark(self) -> str:
        """✓, ✗, – where it is not judged, empty where it is not answered."""
        return MARKS[self.right] if self.given is not None else ""


@dataclass(frozen=True)
class Sheet:
    """The answers that one student handed in.

    Attributes
    ----------
    name : str
        As the student wrote it; else the file's.
    file : str
    answers : tuple of Answer
    """

    name: str
    file: str
    answers: tuple[Answer, ...]

    @property
    def points(self) -> int:
        """The number of right answers."""
        return sum(answer.right is True for answer in self.answers)


class Grades(TablePage, Sequence[Sheet]):
    """A row for each student, a column for each question."""

    def __init__(self, title: str, sheets: Sequence[Sheet]) -> None:
        self.title, self._sheets = title, tuple(sheets)

    @overload
    def __getitem__(self, index: int) -> Sheet: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Sheet, ...]: ...

    def __getitem__(self, index: int | slice) -> Sheet | tuple[Sheet, ...]:
        return self._sheets[index]

    def __len__(self) -> int:
        return len(self._sheets)

    def __iter__(self) -> Iterator[Sheet]:
        return iter(self._sheets)

    @property
    def questions(self) -> list[str]:
        """All questions, in their order."""
        return [answer.question for answer in self._sheets[0].answers]

    @property
    def verdict(self) -> str:
        """The number of hand-ins, and the question with most wrong answers."""
        said = f"{len(self)} handed in" if len(self) > 1 else "1 handed in"
        shares = [
            sum(sheet.answers[n].right is False or sheet.answers[n].given is None for sheet in self)
            for n in range(len(self.questions))
        ]
        judged = [
            n for n in range(len(shares)) if any(s.answers[n].right is not None for s in self)
        ]
        if not judged or not shares[hardest := max(judged, key=shares.__getitem__)]:
            return f"{said}, all right"
        return (
            f"{said}; question {hardest + 1} is without a right answer in {shares[hardest]} of them"
        )

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each answer of each student, for pandas or JSON."""
        return [
            {
                "name": sheet.name,
                "file": sheet.file,
                "number": number,
                "question": answer.question,
                "given": answer.given,
                "right": answer.right,
                "tries": answer.tries,
            }
            for sheet in self
            for number, answer in enumerate(sheet.answers, 1)
        ]

    def _rows(self) -> list[list[str]]:
        return [
            [
                sheet.name,
                *(answer.mark for answer in sheet.answers),
                str(sheet.points),
                str(sum(answer.tries for answer in sheet.answers)),
            ]
            for sheet in self
        ]

    def _header(self) -> list[str]:
        return ["name", *map(str, range(1, len(self.questions) + 1)), "points", "tries"]

    def _heading(self) -> str:
        return f"{self.title}: {self.verdict}"

    def __repr__(self) -> str:
        legend = [f"{n}: {cut(text, 70)}" for n, text in enumerate(self.questions, 1)]
        return "\n".join([text_table(self._heading(), self._header(), self._rows()), *legend])

    def _repr_html_(self) -> str:
        return html_table(self._heading(), self._header(), self._rows())


def grade(
    files: str | os.PathLike | Iterable[str | os.PathLike], steps: Sequence[Step] | None = None
) -> Grades:
    """Read the answers that students handed in from a guided page.

    Parameters
    ----------
    files : path, pattern, or iterable of paths
        A file, a folder (its ``*.json`` files), a pattern such as ``"answers/*.json"``, or several.
    steps : sequence of Step, optional
        Those of the page: then the answers are judged anew. Else the files' own marks are taken,
        which the student's browser wrote and a student could change.

    Returns
    -------
    Grades
        In the order of the names.

    Raises
    ------
    FileNotFoundError
        No file there.
    ValueError
        A file that does not hold answers, or files of two different pages, or other steps.

    Examples
    --------
    >>> import json, tempfile, hookviz
    >>> answers = {"question": "2 + 2?", "given": "4", "right": True, "tries": 1}
    >>> sheet = {"kind": "hookviz answers", "lesson": "a1", "title": "Sums", "name": "Ada"}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(folder + "/ada.json", "w") as file:
    ...         json.dump({**sheet, "answers": [answers]}, file)
    ...     table = hookviz.grade(folder)
    >>> table
    Sums: 1 handed in, all right
    name  1  points  tries
    Ada   ✓  1       1
    1: 2 + 2?
    """
    read = [(path, _read(path)) for path in _paths(files)]
    lessons = {told["lesson"]: path for path, told in read}
    if len(lessons) > 1:
        one, other = list(lessons.values())[:2]
        raise ValueError(f"{one} and {other} are of two different pages: grade one page at a time.")
    sheets = [_sheet(path, told, steps) for path, told in read]
    return Grades(read[0][1]["title"], sorted(sheets, key=lambda sheet: sheet.name.casefold()))


def _paths(files: str | os.PathLike | Iterable[str | os.PathLike]) -> list[Path]:
    if not isinstance(files, (str, os.PathLike)):
        return [path for each in files for path in _paths(each)]
    path = Path(files).expanduser()
    found = sorted(path.glob("*.json")) if path.is_dir() else [path] if path.is_file() else []
    found = found or sorted(path.parent.glob(path.name))
    if not found:
        raise FileNotFoundError(f"No answers at {files}: give a file, a folder or a pattern.")
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():  # opening a named pipe would wait for its writer
            raise ValueError("not a regular file")
        told = json.loads(path.read_text(encoding="utf-8"))
        answers = [
            (each["question"], each["given"], each["right"], each["tries"])
            for each in told["answers"]
        ]
        told["lesson"], told["title"], told["name"] = map(
            str, (told["lesson"], told["title"], told["name"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} does not hold the answers of a page: give files that its button saved."
        ) from error
    if told.get("kind") != "hookviz answers" or not answers:
        raise ValueError(
            f"{path} does not hold the answers of a page: give files that its button saved."
        )
    return told


def _sheet(path: Path, told: dict[str, Any], steps: Sequence[Step] | None) -> Sheet:
    answers = told["answers"]
    if steps is not None:
        if [each["question"] for each in answers] != [step.question for step in steps]:
            raise ValueError(f"{path} has other questions than steps=: give the page's own steps.")
        answers = [
            {**each, "right": None if each["given"] is None else step.right(each["given"])}
            for each, step in zip(answers, steps, strict=True)
        ]
    return Sheet(
        told["name"].strip() or path.stem,
        str(path),
        tuple(Answer(a["question"], a["given"], a["right"], int(a["tries"])) for a in answers),
    )
