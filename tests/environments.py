"""The version sets that tests run with, and which of them is installed here."""

from __future__ import annotations

import re
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = {
    name: ROOT / "tests" / f"constraints{name and '-'}{name}.txt"
    for name in ("", "colab", "oldest")
}


def normal(name: str) -> str:
    """A package's name, however it is written."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> dict[str, str]:
    """Package -> version, without what is added to it for a kind of machine, as in 2.11.0+cpu."""
    return {normal(d.metadata["Name"]): d.version.partition("+")[0] for d in distributions()}


def pinned(path: Path) -> dict[str, str]:
    """Package -> version, of a constraints file."""
    lines = [line.partition("#")[0].strip() for line in path.read_text().splitlines()]
    return {normal(name): version for name, version in (x.split("==") for x in lines if x)}


def pins_here() -> Path:
    """The file with this environment's versions: the one that names its torch."""
    torch = installed()["torch"]
    for path in PINS.values():
        if pinned(path)["torch"] == torch:
            return path
    raise LookupError(f"No tests/constraints*.txt pins torch {torch}, which is installed.")
