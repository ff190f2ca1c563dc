"""The version sets for the tests, and the one installed here."""

from __future__ import annotations

import re
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = {
    name: ROOT / "tests" / f"constraints{name and '-'}{name}.txt"
    for name in ("", "colab", "oldest")
}


def normal(name):
    """Normalize the spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed():
    """Return package -> version, without local version labels such as +cpu in 2.11.0+cpu."""
    return {normal(d.metadata["Name"]): d.version.partition("+")[0] for d in distributions()}


def pinned(path):
    """Return package -> version from a constraints file."""
    lines = [line.partition("#")[0].strip() for line in path.read_text().splitlines()]
    return {normal(name): version for name, version in (x.split("==") for x in lines if x)}


def pins_here():
    """Return the constraints file of this environment: the one that names its torch version."""
    torch = installed()["torch"]
    for path in PINS.values():
        if pinned(path)["torch"] == torch:
            return path
    raise LookupError(f"No tests/constraints*.txt pins torch {torch}, which is installed.")
