"""Check that all files speak of the version of a tag: ``python tests/release.py v0.1.0``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def faults(tag, root=ROOT):
    """What must be written before this tag can be released; nothing where all is there."""

    def lines(name):
        return (root / name).read_text(encoding="utf-8").splitlines()

    version = tag.removeprefix("v")
    newest = next(line for line in lines("CHANGELOG.md") if line.startswith("## "))
    dated = re.fullmatch(rf"## {re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)", newest)
    wanted = [
        ("CHANGELOG.md", newest if dated else f"## {version} (YYYY-MM-DD)"),
        ("hookviz/__init__.py", f'__version__ = "{version}"'),
        ("CITATION.cff", f"version: {version}"),
        ("CITATION.cff", f"date-released: {dated[1] if dated else 'YYYY-MM-DD'}"),
    ]
    return [f"{name} lacks '{line}'." for name, line in wanted if line not in lines(name)]


if __name__ == "__main__":
    if found := faults(sys.argv[1]):
        sys.exit("\n".join([f"{sys.argv[1]} cannot be released.", *found]))
