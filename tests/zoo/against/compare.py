"""Compare two measurements of one model, subject by subject."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

KNOWN = Path(__file__).with_name("known.toml")

EXACT = {"maps", "gradients"}
"""Subjects that are compared to the bit where the model itself is deterministic."""

TOLERANCE = 1e-5
"""Largest difference of other numbers, as a fraction of the largest value: sums in float32 may be
taken in another order."""


@dataclass(frozen=True)
class Difference:
    """A difference from 0.3; `reason` says why if it is intended."""

    model: str
    subject: str
    key: str
    what: str
    reason: str = ""

    def __str__(self):
        return f"{self.subject:<10} {self.key}: {self.what}"


@dataclass(frozen=True)
class Known:
    """An intended difference; its patterns are those of `fnmatch`."""

    reason: str
    subject: str
    model: str = "*"
    key: str = "*"
    what: str = "*"

    def covers(self, difference):
        """Return whether all patterns match."""
        names = ("subject", "model", "key", "what")
        return all(fnmatchcase(getattr(difference, n), getattr(self, n)) for n in names)


def known():
    """Read the list of intended differences."""
    return [Known(**entry) for entry in tomllib.loads(KNOWN.read_text()).get("difference", [])]


def differences(model, before, now, intended):
    """Yield the differences of one model, with the reason of those that are intended."""
    for subject in sorted(before.keys() | now.keys()):
        old, new = before.get(subject, {}), now.get(subject, {})
        for key in dict.fromkeys([*old, *new]):
            for what in _differs(subject, old.get(key), new.get(key)):
                found = Difference(model, subject, key, what)
                reason = next((each.reason for each in intended if each.covers(found)), "")
                yield Difference(model, subject, key, what, reason)


def _differs(subject, old, new):
    if old is None or new is None:
        yield "is new" if old is None else "is missing"
    elif isinstance(old, dict) and isinstance(new, dict):
        yield from _numbers_differ(subject, old, new)
    elif isinstance(old, dict) or isinstance(new, dict):
        yield f"was {_short(old)}, is {_short(new)}"
    else:
        yield from (f"without {item}" for item in old if item not in new)
        yield from (f"with {item}" for item in new if item not in old)


def _short(entry):
    return "numbers" if isinstance(entry, dict) else ", ".join(entry)


def _numbers_differ(subject, old, new):
    if old["type"] != new["type"]:
        yield f"was {old['type']}, is {new['type']}"
        return
    if old["digest"] == new["digest"]:
        return
    a, b = old["values"], new["values"]
    finite = a.isfinite() & b.isfinite()
    if not (same := (a == b) | (a.isnan() & b.isnan()) | finite).all():
        yield f"{(~same).sum()} of {len(a)} values are finite on one side only"
        return
    largest = a[finite].abs().max() if finite.any() else a.new_zeros(())
    distance = (a - b)[finite].abs().max() if finite.any() else largest
    share = float(distance / largest) if largest else float(distance)
    deterministic = "not deterministic" not in (old["digest"], new["digest"])
    if share > TOLERANCE or (subject in EXACT and deterministic):
        yield f"differs by {share:.1e} of the largest value"
