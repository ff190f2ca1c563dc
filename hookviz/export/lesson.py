"""Guided pages: questions about a view, checked in the page; and the table of handed-in answers."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..files import without_half_characters
from ..hooking.arguments import check_finite, check_number
from ..hooking.select import close_names
from ..tables import Tabular, cut, for_terminal, html_table, paragraph, plain, text_table
from ..view.checks import check
from ..view.maps import for_layer
from ..view.payload import settings_payload, written_target
from ..view.predictions import target_name_of
from ..view.settings import POSITION, WRITTEN
from ..view.view import View
from ..view.written import at_written

FIXED = "call", "sample", "depth", "shown_after", "shown_run"
"""Settings of which a page has the numbers for one value only."""

OFF, PREDICTION = "off", "prediction"
"""Answers on a page that runs its network: the switched-off channel, and the top class."""


@dataclass(frozen=True)
class Step:
    """One question of a guided page.

    Parameters
    ----------
    question : str
        One or two sentences; with ``answer=None`` it may be a text to read.
    state : mapping, optional
        The view at which the question begins: settings of the explorer, such as
        ``{"layer": "layer3.0.conv1", "channel": 0}``, or all that `Explorer.settings` returned.
        Other settings are those of the question before; for the first one, those of the page.
    answer : optional
        A mapping of settings that the view must have, such as ``{"channel": 17}`` or
        ``{"position": (5, 8)}``, where a list of values accepts any of them. On a page with
        ``network=True`` also ``{"off": ("layer3.1.conv2", 17)}``, the only channel that is switched
        off, and ``{"prediction": "moon"}``, the top class by its name or number. Or a number, right
        within ``tolerance``. Or a text or list of texts, one of which is expected; case and spaces
        are ignored. None accepts any text, which is not marked.
    hint : str
        Shown after a wrong answer.
    explanation : str
        Shown after the right answer; of an open question, after any.
    tolerance : float, optional
        Accepted error of a number, as a fraction of the answer; absolute if the answer is 0. By
        default a whole number must be exact, and any other is right within 1 %.
    choices : sequence of str
        The texts to choose from, instead of a text field.

    Raises
    ------
    ValueError
        An empty question, an unknown setting, an answer that is not among the choices, or a
        tolerance that is not a number from 0 up.
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
    explanation: str = ""
    tolerance: float | None = None
    choices: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.question, str) or not self.question.strip():
            raise ValueError(f"question={self.question!r} has no text: write a question.")
        wanted = self.answer if self.kind == "view" else {}
        known = {"state": WRITTEN, "answer": (*WRITTEN, OFF, PREDICTION)}
        for argument, settings in (("state", self.state or {}), ("answer", wanted)):
            for name in settings:
                if name not in known[argument]:
                    raise ValueError(
                        f"{name!r} is not a setting of the explorer: give one of "
                        f"{', '.join(known[argument])}."
                    )
        if "target" in wanted:
            raise ValueError("The target is not an answer: a page has the gradient of one only.")
        predicted = self.accepted()[PREDICTION] if PREDICTION in wanted else []
        if {*map(type, predicted)} not in ({int}, {str}, set()):
            raise ValueError(
                f"answer={self.answer!r} cannot be compared: give each prediction by the class's "
                "number, or each by its name."
            )
        if self.kind == "number" and not math.isfinite(self.answer):
            raise ValueError(f"answer={self.answer} cannot be written: give a finite number.")
        if self.tolerance is not None:
            check_finite("tolerance", self.tolerance)
            check_number("tolerance", self.tolerance)
        texts = self.accepted() if self.kind == "text" else []
        if self.choices and self.kind != "open" and not {*texts} & {*self.choices}:
            raise ValueError(
                f"answer={self.answer!r} is not one of choices={list(self.choices)!r}."
            )

    @property
    def kind(self) -> str:
        """The kind of answer: ``"view"``, ``"number"``, ``"text"``, or ``"open"`` if not marked."""
        answer = self.answer
        if answer is None:
            return "open"
        if isinstance(answer, Mapping):
            return "view"
        if isinstance(answer, (int, float)) and not isinstance(answer, bool):
            return "number"
        texts = answer if isinstance(answer, (list, tuple, set)) else [answer]
        if texts and all(isinstance(text, str) for text in texts):
            return "text"
        raise TypeError(
            f"answer={answer!r} cannot be checked: give a dict of settings, a number, a text, a "
            "list of texts, or None."
        )

    @property
    def margin(self) -> float:
        """The accepted error of a number, as a fraction."""
        if self.tolerance is not None:
            return float(self.tolerance)
        return 0.0 if isinstance(self.answer, int) else 0.01

    def right(self, given: Any) -> bool | None:
        """Return whether an answer is right; None if it is not marked.

        Parameters
        ----------
        given : str, float or mapping
            The student's text, or the settings of the view.
        """
        if self.kind == "open":
            return None
        accepted = self.accepted()
        if self.kind == "view":
            return isinstance(given, Mapping) and all(
                plain(given.get(name)) in values for name, values in accepted.items()
            )
        if self.kind == "text":
            return _folded(given) in {_folded(text) for text in accepted}
        try:
            number = float(str(given).strip().replace(",", ".").replace("−", "-"))
        except ValueError:
            return False
        return abs(number - self.answer) <= self.margin * (abs(self.answer) or 1)

    def accepted(self) -> Any:
        """Return the right answers as JSON: texts, or a list of values for each setting."""
        if self.kind == "text":
            return [self.answer] if isinstance(self.answer, str) else [*self.answer]
        if self.kind != "view":
            return plain(self.answer)
        found = {}
        for name, value in self.answer.items():
            several = isinstance(value, (list, tuple))
            if several and name in (POSITION, OFF):  # one value is a pair itself
                several = all(isinstance(item, (list, tuple)) for item in value)
            found[name] = plain([*value] if several else [value])
        return found


def _folded(text: Any) -> str:
    return " ".join(str(text).split()).casefold()


def lesson_payload(
    steps: Sequence[Step], view: View, facts: Mapping[str, Any], title: str
) -> dict[str, Any]:
    """Return the steps of a page as JSON, each with all settings with which it begins.

    ``facts`` are the page's.

    Raises
    ------
    TypeError
        Something that is not a `Step`.
    ValueError
        A state or an answer that the page cannot show; the message has the step's number.
    """
    payload = []
    for number, step in enumerate(_checked(steps), 1):
        try:
            view = _shown(view, step.state or {}, facts)
            if step.kind == "view":
                _check_answer(view, step, facts)
        except ValueError as error:
            raise ValueError(f"Step {number}: {error}") from error
        payload.append(
            {
                "question": step.question,
                "state": settings_payload(view),
                "kind": step.kind,
                "answer": step.accepted(),
                "hint": step.hint,
                "explanation": step.explanation,
                "tolerance": step.margin,
                "choices": list(step.choices),
            }
        )
    code = hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()[:12]
    return {"title": title, "id": code, "steps": payload}


def _checked(steps: Iterable[Step]) -> list[Step]:
    """Return steps as a list; raise ``TypeError`` for anything else."""
    if isinstance(steps, Step):
        raise TypeError("steps= is a single Step: give a list, such as [step].")
    if not isinstance(steps, Iterable):
        raise TypeError(f"steps={steps!r} is not a list of hookviz.classroom.Step.")
    steps = list(steps)
    for index, step in enumerate(steps):
        if not isinstance(step, Step):
            raise TypeError(f"steps[{index}]={step!r} is not a hookviz.classroom.Step.")
    return steps


def _shown(view: View, settings: Mapping[str, Any], facts: Mapping[str, Any]) -> View:
    """Return the view of a page at some settings; a ValueError names one that it does not have."""
    names = [layer["name"] for layer in facts["layers"]]
    layer = settings.get("layer", view.settings.layer)
    if layer not in names:
        raise ValueError(f"layer {layer!r} is not in the page, which has {', '.join(names[:3])}, …")
    page = for_layer(view, layer=layer)
    found = at_written(page, settings)
    if "target" in settings:
        target = check("target", settings["target"], view)
        if written_target(view.with_settings(target=target)) != written_target(view):
            raise ValueError(
                f"target={settings['target']!r} is not the page's, which has the gradient of "
                f"{target_name_of(view)} only: set explorer.target before to_html, or leave it out."
            )
    for name in {*settings} & {*FIXED, *facts["choices"]}:
        value = getattr(found.settings, name)
        offered = [getattr(page.settings, name)]
        offered += [] if name in FIXED else facts["choices"][name]
        if value not in offered:
            near = close_names(str(value), map(str, offered))
            raise ValueError(f"{name}={value!r} is not in the page; {near}.")
    return found


def _check_answer(view: View, step: Step, facts: Mapping[str, Any]) -> None:
    """Raise a ValueError for an answer that the page cannot show, such as channel 96 of 96."""
    for name, values in step.accepted().items():
        if name in (OFF, PREDICTION) and "net" not in facts:
            raise ValueError(
                f"a page without its network has no answer {name!r}: write it with network=True."
            )
        for value in values:
            if name == PREDICTION:
                _check_class(value, facts["classes"])
            elif name == OFF:
                layer, channel = value
                _shown(view, {"layer": layer, "channel": channel}, facts)
            else:
                _shown(view, {name: value}, facts)


def _check_class(value: int | str, facts: Mapping[str, Any]) -> None:
    """Raise a ValueError for a class that the network does not have."""
    count, names, word = facts["count"], facts["names"], facts["word"]
    if not count:
        raise ValueError(
            "the network gives no classes: ask for something else than its prediction."
        )
    if isinstance(value, int):
        if not 0 <= value < count:
            raise ValueError(f"prediction={value} is not one of the numbers 0 to {count - 1}.")
        return
    shown = [*names, *(f"{word} {number}" for number in range(len(names), count))]
    if value not in shown:
        raise ValueError(f"no {word} is called {value!r}; {close_names(value, shown)}.")


# Handed-in answers

MARKS = {True: "✓", False: "✗", None: "–"}
"""Marks of right, wrong and open answers; without an answer the cell is empty."""


@dataclass(frozen=True)
class Answer:
    """A student's answer to one question.

    Attributes
    ----------
    question : str
    given : object
        The text, or the settings of the view; None if there is no answer.
    right : bool or None
        None for an open question, and without an answer.
    tries : int
        How often it was checked.
    """

    question: str
    given: Any
    right: bool | None
    tries: int

    @property
    def mark(self) -> str:
        """✓, ✗, – for an open question, and empty without an answer."""
        return MARKS[self.right] if self.given is not None else ""

    @property
    def words(self) -> str:
        """The mark with a wrong answer, or the text of an open one."""
        if self.given is None or self.right:
            return self.mark
        given = self.given
        if isinstance(given, Mapping):
            given = ", ".join(f"{name} {value}" for name, value in given.items())
        return str(given) if self.right is None else f"{self.mark} {given}"


@dataclass(frozen=True)
class Sheet:
    """The answers of one student.

    Attributes
    ----------
    name : str
        The student's name, or else the name of the file.
    file : str
    answers : tuple of Answer
    title : str
        The page's.
    saved : str
        The time, in ISO format.
    """

    name: str
    file: str
    answers: tuple[Answer, ...]
    title: str
    saved: str

    @property
    def questions(self) -> list[str]:
        """All questions, in their order."""
        return [answer.question for answer in self.answers]

    @property
    def points(self) -> int:
        """The number of right answers."""
        return sum(answer.right is True for answer in self.answers)


class Grades(Tabular, Sequence[Sheet]):
    """A row for each student, a column for each question; `hookviz.grade` returns it.

    Attributes
    ----------
    title : str
        The page's.
    left_out : dict of str to str
        The files that were not used, each with the reason.
    """

    def __init__(
        self,
        title: str,
        sheets: Sequence[Sheet],
        left_out: Mapping[str, str],
        steps: Sequence[Step] | None = None,
    ) -> None:
        self.title, self._sheets, self.left_out = title, tuple(sheets), dict(left_out)
        self._steps = steps

    def __getitem__(self, index: Any) -> Any:
        return self._sheets[index]

    def __len__(self) -> int:
        return len(self._sheets)

    @property
    def questions(self) -> list[str]:
        """All questions, in their order."""
        return self[0].questions

    @property
    def verdict(self) -> str:
        """The numbers of students and of files left out, and the question with most errors."""
        words = f"{len(self)} student{'s' * (len(self) > 1)}"
        columns = [*zip(*(sheet.answers for sheet in self), strict=True)]
        missing = [
            0 if self._is_open(number) else sum(answer.right is not True for answer in answers)
            for number, answers in enumerate(columns)
        ]
        if most := max(missing):
            hardest = missing.index(most)
            is_answered = any(answer.given is not None for answer in columns[hardest])
            what = "a right answer" if is_answered else "an answer"
            words += f"; question {hardest + 1}: {most} of {len(self)} without {what}"
        elif any(sheet.points for sheet in self):
            words += ", all right"
        count = len(self.left_out)
        return words + f"; {count} file{'s' * (count > 1)} left out" * bool(count)

    def _is_open(self, number: int) -> bool:
        """Return whether a question has no mark; without the steps, answers of it have to show."""
        if self._steps is not None:
            return self._steps[number].kind == "open"
        given = [sheet.answers[number] for sheet in self]
        given = [answer for answer in given if answer.given is not None]
        return bool(given) and all(answer.right is None for answer in given)

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each answer of each student, for pandas or JSON."""
        return [
            {"name": sheet.name, "file": sheet.file, "number": number, **vars(answer)}
            for sheet in self
            for number, answer in enumerate(sheet.answers, 1)
        ]

    def _table(self, cell: str) -> list[list[str]]:
        return [
            [
                sheet.name,
                *(getattr(answer, cell) for answer in sheet.answers),
                str(sheet.points),
                str(sum(answer.tries for answer in sheet.answers)),
            ]
            for sheet in self
        ]

    def _notes(self) -> list[str]:
        return [f"left out: {file} ({reason})" for file, reason in self.left_out.items()]

    def _heading(self) -> str:
        return f"{self.title}: {self.verdict}"

    @for_terminal
    def __repr__(self) -> str:
        numbers = [*map(str, range(1, len(self.questions) + 1))]
        lines = [
            text_table(self._heading(), ["name", *numbers, "points", "tries"], self._table("mark"))
        ]
        for number, question in enumerate(self.questions, 1):
            lines.append(f"{number}: {cut(question, 70)}")
            lines += [
                paragraph(f"{sheet.name}: {answer.given}", "   ")
                for sheet in self
                if (answer := sheet.answers[number - 1]).mark == MARKS[None]
            ]
        return "\n".join([*lines, *map(paragraph, self._notes())])

    def _repr_html_(self) -> str:
        questions = [f"{number}. {text}" for number, text in enumerate(self.questions, 1)]
        header = ["name", *questions, "points", "tries"]
        heading = "; ".join([self._heading(), *self._notes()])
        return html_table(heading, header, self._table("words"))


def grade(
    files: str | os.PathLike | Iterable[str | os.PathLike], steps: Sequence[Step] | None = None
) -> Grades:
    """Read the answers that students saved with a guided page.

    Files that hold no answers, or those of another page, are left out and listed, and so are the
    older ones of several files with the same name in them.

    Parameters
    ----------
    files : path, pattern, or iterable of paths
        A file, a folder (its ``*.json`` files), a pattern such as ``"answers/*.json"``, or several.
    steps : sequence of Step, optional
        Those of the page: then the answers are marked again. Otherwise the marks in the files
        count, which a student could change, and the page is the one of most files.

    Returns
    -------
    Grades
        Sorted by name.

    Raises
    ------
    FileNotFoundError
        There is no such file or folder.
    TypeError
        ``files`` is not a path, or one of ``steps`` is not a `Step`.
    ValueError
        No file holds answers of the page, or ``files`` or ``steps`` is empty.

    Examples
    --------
    >>> import json, tempfile, hookviz
    >>> answers = {"question": "2 + 2?", "given": "4", "right": True, "tries": 1}
    >>> sheet = {"kind": "hookviz answers", "title": "Sums", "name": "Ada", "answers": [answers]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(folder + "/ada.json", "w") as file:
    ...         json.dump(sheet, file)
    ...     table = hookviz.grade(folder)
    >>> table
    Sums: 1 student, all right
    name  1  points  tries
    Ada   ✓  1       1
    1: 2 + 2?
    """
    if steps is not None and not (steps := _checked(steps)):
        raise ValueError("steps= is empty: give those of the page, or leave steps= out.")
    sheets: list[Sheet] = []
    left_out: dict[str, str] = {}
    if not (paths := _paths(files)):
        raise ValueError(f"files={files!r} names no file: {_PATHS}.")
    for path in paths:
        try:
            sheets.append(_read(path))
        except ValueError as error:
            left_out[str(path)] = str(error)
    if steps is not None:
        page = [step.question for step in steps]
    else:
        counts = Counter(tuple(sheet.questions) for sheet in sheets)
        page = [*max(counts, key=counts.__getitem__)] if counts else []
    newest: dict[str, Sheet] = {}
    for sheet in sorted(sheets, key=lambda sheet: sheet.saved):
        if sheet.questions != page:
            left_out[sheet.file] = "the questions are those of another page"
            continue
        if (older := newest.get(_folded(sheet.name))) is not None:
            left_out[older.file] = f"an older file of {sheet.name}"
        newest[_folded(sheet.name)] = sheet
    if not newest:
        file, reason = next(iter(left_out.items()))
        raise ValueError(f"No file holds answers of the page; {file}: {reason}.")
    marked = [
        replace(sheet, answers=_marked(sheet.answers, steps)) for _, sheet in sorted(newest.items())
    ]
    return Grades(marked[0].title, marked, left_out, steps)


_PATHS = "give a file, a folder or a pattern"


def _paths(files: str | os.PathLike | Iterable[str | os.PathLike]) -> list[Path]:
    if not isinstance(files, (str, os.PathLike)):
        if not isinstance(files, Iterable):
            raise TypeError(f"files={files!r} is not a path: {_PATHS}.")
        return [path for item in files for path in _paths(item)]
    path = Path(files).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        return sorted(path.glob("*.json")) or [path]
    if not (found := sorted(path.parent.glob(path.name))):
        raise FileNotFoundError(f"No answers at {files}: {_PATHS}.")
    return found


def _read(path: Path) -> Sheet:
    if path.is_dir():
        raise ValueError("a folder without *.json files")
    if not path.is_file():  # opening a named pipe would wait for its writer
        raise ValueError("not a regular file")
    try:
        # Some editors begin a file with a byte-order mark.
        text = path.read_text(encoding="utf-8-sig")
        content = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        answers = tuple(
            Answer(
                str(item["question"]),
                item["given"],
                item["right"] if isinstance(item["right"], bool) else None,
                int(item["tries"]),
            )
            for item in content["answers"]
        )
        if content["kind"] != "hookviz answers" or not answers:
            raise ValueError
        name = without_half_characters(str(content["name"])).strip() or path.stem
        title, saved = str(content["title"]), str(content.get("saved", ""))
        return Sheet(name, str(path), answers, title, saved)
    except (KeyError, TypeError, ValueError, RecursionError, OSError) as error:
        raise ValueError("not a file that a page's “save answers” wrote") from error


def _finite(text: str) -> float:
    """Read a number of JSON; 1e999 would become infinite."""
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _marked(answers: tuple[Answer, ...], steps: Sequence[Step] | None) -> tuple[Answer, ...]:
    """Return the answers, marked again if the steps are known."""
    if steps is None:
        return answers
    return tuple(
        Answer(a.question, a.given, None if a.given is None else step.right(a.given), a.tries)
        for a, step in zip(answers, steps, strict=True)
    )
