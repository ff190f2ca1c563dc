"""What was found: a sequence of findings, worst first, as text, as HTML and for pandas."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from textwrap import fill
from typing import Any, overload

from ..hooking.tables import html_table

SEVERITIES = ("error", "warning", "note")
"""Worst first: what makes the model useless, what will hurt, what one should know."""

PLAIN = ("kind", "severity", "layer", "call", "phase", "operation", "file", "line", "message")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or that one should know."""

    kind: str  #: what it is, in a word or two; see `hookviz.diagnose`
    severity: str  #: ``"error"``, ``"warning"`` or ``"note"``
    message: str  #: what is wrong, with which values
    advice: str  #: what to do, in one sentence
    layer: str = ""  #: the module's name, ``""`` for the model itself
    call: int = 0  #: which run of the module, from 0
    phase: str = "forward"  #: ``"forward"`` or ``"backward"``
    operation: str = ""  #: torch's name of what ran, such as ``"log"``; empty if none is to blame
    file: str = ""  #: where the user's code calls it; empty if it is not known
    line: int = 0  #: in that file, from 1
    #: The numbers behind it, by name.
    evidence: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def where(self) -> str:
        """Layer, call, operation and line, in words."""
        call = f" (call {self.call})" if self.call else ""
        doing = f", {self.operation}" if self.operation else ""
        line = f" at {Path(self.file).name}:{self.line}" if self.file else ""
        return f"{self.layer or 'the model'}{call}{doing}{line}"

    @property
    def code(self) -> str:
        """The line of the user's code; empty if it is not known."""
        return linecache.getline(self.file, self.line).strip() if self.file else ""

    def record(self) -> dict[str, Any]:
        """All of it as one flat dict of plain Python values."""
        plain = {name: getattr(self, name) for name in (*PLAIN, "advice")}
        return plain | {"evidence": dict(self.evidence)}


class Diagnosis(Sequence[Finding]):
    """The findings of one examination, worst first; empty where nothing was found.

    Made by `hookviz.diagnose`.

    Attributes
    ----------
    looked_at : list of str
        What was looked at, in words.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._findings: list[Finding] = []
        self._explore: Callable[[Finding], Any] | None = None
        self.looked_at: list[str] = []

    def settle(
        self,
        findings: Sequence[Finding],
        looked_at: Sequence[str],
        explore: Callable[[Finding], Any] | None = None,
    ) -> None:
        """Fill it, when the model has been examined; ``explore`` opens the explorer at one."""
        self._findings = sorted(findings, key=lambda each: SEVERITIES.index(each.severity))
        self.looked_at, self._explore = list(looked_at), explore

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> list[Finding]: ...
    def __getitem__(self, index: int | slice) -> Finding | list[Finding]:
        return self._findings[index]

    def __len__(self) -> int:
        return len(self._findings)

    @property
    def healthy(self) -> bool:
        """Whether there is nothing but notes."""
        return all(each.severity == "note" for each in self)

    @property
    def verdict(self) -> str:
        """The whole of it in one line."""
        counts = Counter(each.severity for each in self)
        said = ", ".join(f"{counts[s]} {s}{'s' * (counts[s] > 1)}" for s in SEVERITIES if counts[s])
        if self.healthy:
            return f"{self._name}: healthy" + (f", {said}" if said else "")
        return f"{self._name}: {said}; first {self[0].kind} in {self[0].where}"

    def records(self) -> list[dict[str, Any]]:
        """One flat dict for each finding, as ``pandas.DataFrame`` takes them."""
        return [each.record() for each in self]

    def explore(self, finding: int = 0) -> Any:
        """Open the explorer at the layer of a finding, the first one by default.

        Raises
        ------
        ValueError
            There is no such finding, or no maps to show, since the model does not run.
        """
        if not 0 <= finding < len(self):
            raise ValueError(f"There is no finding {finding}: there are {len(self)} of them.")
        if self._explore is None or self[finding].kind in ("shape", "error"):
            raise ValueError(
                "There are no maps to show: the model did not run to its end, or only its sums "
                "were looked at."
            )
        return self._explore(self[finding])

    def __repr__(self) -> str:
        lines = [self.verdict]
        for place, each in enumerate(self):
            lines += ["", f"[{place}] {each.severity}: {each.kind}, {each.phase}, in {each.where}"]
            lines += [f"    {each.code}"] if each.code else []
            lines += [_indented(each.message), _indented("→ " + each.advice)]
        if self.looked_at:
            lines += ["", fill("Looked at: " + "; ".join(self.looked_at) + ".", 100)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        header = ("", "severity", "kind", "phase", "where", "what is wrong", "what to do")
        shown = ("severity", "kind", "phase", "where", "message", "advice")
        rows = [
            (str(place), *(getattr(each, name) for name in shown))
            for place, each in enumerate(self)
        ]
        table = html_table(self.verdict, header, rows) if rows else f"<p>{escape(self.verdict)}</p>"
        return table + f"<p><small>Looked at: {escape('; '.join(self.looked_at))}.</small></p>"


def _indented(text: str) -> str:
    return fill(text, 100, initial_indent="    ", subsequent_indent="    ")
