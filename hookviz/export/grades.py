"""The answers that students hand in, as a table."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from ..draw.document import TablePage
from ..hooking.tables import cut, html_table, text_table
from .lesson import Step

MARKS = {True: "✓", False: "✗", None: "–"}
"""Of right, wrong and not judged; an empty cell is not answered."""


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
    def __getitem__(self, place: int) -> Sheet: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Sheet, ...]: ...

    def __getitem__(self, place: int | slice) -> Sheet | tuple[Sheet, ...]:
        return self._sheets[place]

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
