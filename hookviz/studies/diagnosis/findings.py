"""The result of a diagnosis: findings, worst first, as text, as HTML and for pandas."""

from __future__ import annotations

import json
import linecache
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, overload

from ...hooking.arguments import is_index
from ...hooking.select import close_names
from ...run.errors import line_of
from ...tables import WIDTH, Tabular, counted, cut, escape, for_terminal, paragraph, plain

SEVERITIES = ("error", "warning", "note")
"""Worst first: the model is useless, it will suffer, the user should know."""

KINDS = (
    *("nan", "inf", "half precision", "shape", "error", "empty"),
    *("exploding", "vanishing", "dead", "silent", "constant", "saturated"),
    *("loss", "input scale", "zero weights", "same channels", "not registered", "one module"),
    *("no gradient", "unused", "batchnorm", "dropout", "training mode", "in place"),
    *("not examined", "hooks left behind", "optimizer", "learning rate"),
    *("does not move", "adds up", "merged steps"),
)
"""The kinds of findings."""

LINES = 25
"""The number of lines of a diagnosis in a terminal; `Diagnosis.text` has all."""
ROWS = 5
"""The number of findings that a notebook shows at once; a click shows the others."""

_CHIPS = {
    "error": "background: #b3261e; color: #fff",
    "warning": "background: #f2b84b; color: #000",
    "note": "background: #5b6b7d; color: #fff",
    "healthy": "background: #1f7a3d; color: #fff",
}
"""Colours that are legible on white and on dark pages."""

_RECORDED = (
    *("kind", "severity", "layer", "call", "phase", "operation", "file", "line", "message"),
    *("advice", "evidence", "layers"),
)


@dataclass(frozen=True)
class Finding:
    """One fault, or a fact that the user should know."""

    kind: str  #: one of those that `hookviz.diagnose` lists
    severity: str  #: ``"error"``, ``"warning"`` or ``"note"``
    message: str  #: what is wrong, with which values
    advice: str  #: what to do, in one sentence
    layer: str = ""  #: the module's name, ``""`` for the model itself
    call: int = 0  #: which run of the module, from 0
    phase: str = "forward"  #: ``"forward"`` or ``"backward"``
    operation: str = ""  #: torch's name of what ran, such as ``"log"``; empty if none is to blame
    file: str = ""  #: where the user's code calls it; empty if it is not known
    line: int = 0  #: in that file, from 1
    outside: bool = field(default=False, repr=False)  #: True if the operation is not the model's
    #: The numbers behind it, by name.
    evidence: Mapping[str, Any] = field(default_factory=dict, repr=False)
    layers: list[str] = field(default_factory=list)  #: every layer that shows it, `layer` first
    #: Findings of one kind with the same cause are reported as one; empty if it stands for itself.
    cause: str = field(default="", repr=False)
    #: The symptoms that follow from it, which are not reported beside it.
    explains: frozenset[str] = field(default=frozenset(), repr=False)
    #: The name by which another finding explains it; empty for its kind.
    symptom: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Fill ``layers`` of a finding of one layer."""
        if not self.layers:
            self.layers.append(self.layer)

    @property
    def _is_outside(self) -> bool:
        return self.outside and not self.layer

    @property
    def where(self) -> str:
        """Layer, call, operation and line, in words."""
        layer = f"layer {self.layer!r}" if self.layer else "the model itself"
        layer = "outside the model" if self._is_outside else layer
        call = f" (call {self.call})" if self.call else ""
        return ", ".join(filter(None, (layer + call, self.operation, self.at)))

    @property
    def at(self) -> str:
        """The line of the user's code: ``"net.py:12"``, ``"In[3], line 5"``; empty if not known."""
        return line_of(self.file, self.line)

    @property
    def code(self) -> str:
        """The line of the user's code; empty if it is not known."""
        return linecache.getline(self.file, self.line).strip() if self.file else ""

    @property
    def title(self) -> str:
        """The fault and its place, in words."""
        phase = "" if self.phase == "forward" else f" ({self.phase})"
        return f"{self.kind}{phase} {'' if self._is_outside else 'in '}{self.where}"

    @for_terminal
    def __str__(self) -> str:
        return self.text()

    def text(self, number: str = "") -> str:
        """Return it in lines that fit a terminal, the first one after a number."""
        code = ["    " + cut(self.code, WIDTH - 4)] if self.code else []
        lines = [paragraph(each, "    ") for each in (self.message, "→ " + self.advice)]
        return "\n".join(
            [paragraph(f"{number}{self.severity}: {self.title}", "    ", ""), *code, *lines]
        )

    def record(self) -> dict[str, Any]:
        """Return it as a dict of strict JSON, see `Diagnosis.records`."""
        return plain({name: getattr(self, name) for name in _RECORDED})


Ignored = Sequence[str | tuple[str, str]]
"""Kinds of findings, or a kind and a pattern of layers' names."""


class Diagnosis(Tabular, Sequence[Finding]):
    """The findings of one examination, worst first; empty where nothing was found.

    Made by `hookviz.diagnose`.

    Attributes
    ----------
    looked_at : list of str
        What was looked at, in words.
    """

    def __init__(self, name: str, ignore: Ignored = ()) -> None:
        self._name, self._ignored = name, _checked(ignore)
        self._findings: list[Finding] = []
        self._explore: Callable[[Finding], Any] | None = None
        self.looked_at: list[str] = []

    def set_findings(
        self,
        findings: Sequence[Finding],
        looked_at: Sequence[str],
        explore: Callable[[Finding], Any] | None = None,
    ) -> None:
        """Set the findings of an examination; ``explore`` opens the explorer at one."""
        found = _without(findings, self._ignored)
        self._findings = sorted(found, key=lambda each: SEVERITIES.index(each.severity))
        self.looked_at, self._explore = list(looked_at), explore

    def __enter__(self) -> Any:
        """Raise ``TypeError``: only a diagnosis without inputs guards a block."""
        raise TypeError(
            "A diagnosis of inputs is complete and guards no step: leave the inputs out, as in "
            "`with hookviz.diagnose(model) as findings:`."
        )

    def __exit__(self, *error: Any) -> None:
        """Do nothing; `with` needs it before it calls ``__enter__``."""

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
        """True if the model was examined and all findings are notes."""
        return bool(self.looked_at) and all(each.severity == "note" for each in self)

    @property
    def verdict(self) -> str:
        """One line: the number of findings, and the worst."""
        worst = f"; worst: {self[0].title}" if self and not self.healthy else ""
        return f"{self._name}: {self._counts}{worst}"

    @property
    def _counts(self) -> str:
        if not self and not self.looked_at:
            return "not looked at: the model was not called in a finished `with` block"
        counts = Counter(each.severity for each in self)
        said = [counted(counts[each], each) for each in SEVERITIES if counts[each]]
        return ", ".join(["healthy"] * self.healthy + said)

    def records(self) -> list[dict[str, Any]]:
        """One dict for each finding, as ``pandas.DataFrame`` takes them.

        Returns
        -------
        list of dict
            With the keys kind, severity, layer, call, phase, operation, file, line, message, advice
            and evidence, a dict. Strict JSON: NaN is None, an infinity is ``"inf"`` or ``"-inf"``.
        """
        return [each.record() for each in self]

    def raise_if(self, severity: str = "warning") -> None:
        """Raise ``RuntimeError`` with all findings as text if one is as bad as this, or worse.

        Also if nothing was looked at. For tests: ``hookviz.diagnose(model, x).raise_if("error")``.

        Parameters
        ----------
        severity : {"error", "warning", "note"}
        """
        if severity not in SEVERITIES:
            raise ValueError(f"severity={severity!r} is none of {', '.join(SEVERITIES)}.")
        if not self.looked_at or self.worst(severity):
            raise RuntimeError(self.text())

    def worst(self, severity: str) -> list[Finding]:
        """Return the findings that are as bad as this, or worse."""
        bad = SEVERITIES[: SEVERITIES.index(severity) + 1]
        return [each for each in self if each.severity in bad]

    def to_json(self) -> str:
        """Return everything as strict JSON: NaN is null, an infinity ``"inf"`` or ``"-inf"``."""
        whole = {
            "model": self._name,
            "healthy": self.healthy,
            "verdict": self.verdict,
            "looked_at": self.looked_at,
            "findings": self.records(),
        }
        return json.dumps(plain(whole), allow_nan=False, ensure_ascii=False, indent=2)

    def show(self, finding: int = 0) -> Any:
        """Open the explorer at the layer of a finding, the first one by default.

        If its output is not maps, at the last layer before it that returned some.

        Raises
        ------
        ValueError
            There is no such finding, or no maps to show, since the model does not run.
        """
        if not is_index(finding, len(self)):
            raise ValueError(f"Unknown finding {finding!r}: there are {len(self)} of them.")
        if self._explore is None or self[finding].kind in ("shape", "error"):
            raise ValueError(
                "No maps can be shown: the model did not run to its end, or only its outputs and "
                "gradients were looked at."
            )
        return self._explore(self[finding])

    @for_terminal
    def text(self) -> str:
        """Return all findings as text, and what was looked at."""
        blocks = [each.text(f"[{number}] ") for number, each in enumerate(self)]
        examined = f"Looked at: {'; '.join(self.looked_at) or 'nothing'}."
        return "\n\n".join([paragraph(self.verdict), *blocks, paragraph(examined)])

    @for_terminal
    def __repr__(self) -> str:
        """Show the worst findings, in at most `LINES` lines."""
        parts, left = [paragraph(self.verdict)], LINES - 4
        for number, finding in enumerate(self):
            block = finding.text(f"[{number}] ")
            left -= len(block.splitlines()) + 1
            if left < 0 and number:
                more = ", ".join(dict.fromkeys(each.kind for each in self[number:]))
                shown = f"{len(self) - number} more ({more}): print(findings.text()) shows all."
                return "\n\n".join([*parts, paragraph(shown)])
            parts.append(block)
        examined = paragraph(f"Looked at: {'; '.join(self.looked_at)}.")
        if self.healthy and len(examined.splitlines()) < left:
            parts.append(examined)
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        worst = "healthy" if self.healthy else self[0].severity if self else "note"
        rows = [_row(number, each) for number, each in enumerate(self)]
        first, more = "".join(rows[:ROWS]), "".join(rows[ROWS:])
        looked_at = escape("; ".join(self.looked_at) or "nothing")
        return (
            f"<p><b>{escape(self._name)}</b> {_chip(self._counts, worst)}</p>"
            + (f"<table>{first}</table>" if first else "")
            + (_DETAILS.format(f"{len(rows) - ROWS} more", f"<table>{more}</table>") * bool(more))
            + _DETAILS.format("What was looked at", f"{looked_at}.")
        )


_DETAILS = "<details><summary>{}</summary>{}</details>"


def _row(place: int, each: Finding) -> str:
    """Return number and kind, and beside them the layer, the fault and the cure."""
    cell = '<td style="text-align: left; vertical-align: top">'
    code = f"<br><code>{escape(each.code)}</code>" if each.code else ""
    phase = "" if each.phase == "forward" else f"<br>{each.phase}"
    return (
        f"<tr>{cell}[{place}]</td>{cell}{_chip(each.kind, each.severity)}{phase}</td>"
        f"{cell}<b>{escape(each.where)}</b>{code}<br>{escape(each.message)}"
        f"<br>→ {escape(each.advice)}</td></tr>"
    )


def _chip(text: str, severity: str) -> str:
    shape = "display: inline-block; border-radius: 4px; padding: 0 8px; white-space: nowrap"
    style = f"{_CHIPS[severity]}; {shape}"
    return f'<span style="{style}">{escape(text)}</span>'


def _checked(ignore: Ignored) -> list[tuple[str, str]]:
    """Return them as pairs of a kind and a pattern; raise ValueError for anything else.

    >>> _checked(["batchnorm", ("saturated", "head.*")])
    [('batchnorm', '*'), ('saturated', 'head.*')]
    """
    if isinstance(ignore, str):
        raise ValueError(f"ignore={ignore!r} is not a list: give ignore=[{ignore!r}].")
    pairs = []
    for each in ignore:
        kind, pattern = (each, "*") if isinstance(each, str) else each
        if kind not in KINDS:
            raise ValueError(f"ignore= has no kind {kind!r}; {close_names(kind, KINDS)}.")
        pairs.append((kind, pattern))
    return pairs


def _without(findings: Sequence[Finding], pairs: Sequence[tuple[str, str]]) -> list[Finding]:
    """Return the findings without the ignored ones; some layers of a finding may remain."""
    kept = []
    for each in findings:
        patterns = [pattern for kind, pattern in pairs if kind == each.kind]
        layers = [n for n in each.layers if not any(fnmatchcase(n, p) for p in patterns)]
        if len(layers) == len(each.layers):
            kept.append(each)
        elif layers:
            kept.append(replace(each, layers=layers, layer=layers[0]))
    return kept


NAMED = 4
"""The number of other layers that are named in the text; `Finding.layers` has all."""


def also(names: list[str]) -> str:
    """Name other layers that show the same, in a sentence; empty if there are none."""
    if not names:
        return ""
    more = len(names) - NAMED
    said = ", ".join(repr(each) if each else "the model itself" for each in names[:NAMED])
    layers = "layer" if more == 1 else "layers"
    return f" The same holds for {said}" + (f" and {more} more {layers}." if more > 0 else ".")
