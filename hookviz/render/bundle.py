"""The browser's modules as one script: what a widget and a page can hold."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

STATIC = Path(__file__).resolve().parent.parent / "static"
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w-]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(async )?(function|class|const|let)\b)", re.MULTILINE)


@lru_cache
def script(entry: str) -> str:
    """An entry and all modules that it imports, each after those that it needs.

    A module's names are all its own in one script: no two modules may have the same, which a test
    holds. What the entry exports by ``export default`` stays.

    Parameters
    ----------
    entry : str
        ``"widget"``, ``"page"`` or ``"survey"``.

    Examples
    --------
    >>> "import {" in script("page")
    False
    """
    found: dict[str, str] = {}
    _collect(entry, found)
    return "\n".join(found.values())


def _collect(name: str, found: dict[str, str]) -> None:
    source = (STATIC / f"{name}.js").read_text(encoding="utf-8")
    for other in _IMPORT.findall(source):
        if other not in found:
            _collect(other, found)
    found[name] = _EXPORT.sub("", _IMPORT.sub("", source))


@lru_cache
def style(*names: str) -> str:
    """The style sheet, or those of these names as one."""
    paths = [STATIC / f"{name}.css" for name in names or ("style",)]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)
