"""Write the repository's name wherever it stands: ``python assets/front.py OWNER/NAME``.

It goes into ``[project.urls]`` of pyproject.toml, into CITATION.cff, and into README.md, below its
title: badges, a button that opens each notebook in Colab, and the live pages.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = {
    "explore_resnet": "tour",
    "hooks_tutorial": "hooks tutorial",
    "debug_in_colab": "debug",
}


def badges(repository: str) -> str:
    """Return the README's lines for a repository, such as ``"someone/hookviz"``."""
    owner, _, name = repository.partition("/")
    source, site = f"https://github.com/{repository}", f"https://{owner.lower()}.github.io/{name}"
    colab = f"https://colab.research.google.com/github/{repository}/blob/main/notebooks"
    button = "https://colab.research.google.com/assets/colab-badge.svg"
    lines = [
        f"[![tests]({source}/actions/workflows/tests.yml/badge.svg)]({source}/actions)",
        f"[Documentation]({site}) · [try it without installing]({site}/index.html)",
        *(
            f"[![Open the {words} in Colab]({button})]({colab}/{notebook}.ipynb)"
            for notebook, words in NOTEBOOKS.items()
        ),
    ]
    return "\n".join(lines)


def urls(repository: str) -> str:
    """Return the table ``[project.urls]`` of pyproject.toml."""
    owner, _, name = repository.partition("/")
    source = f"https://github.com/{repository}"
    lines = [
        "[project.urls]",
        f'Source = "{source}"',
        f'Documentation = "https://{owner.lower()}.github.io/{name}"',
        f'Changelog = "{source}/blob/main/CHANGELOG.md"',
        f'Issues = "{source}/issues"',
    ]
    return "\n".join(lines) + "\n"


def _rewrite(path: Path, pattern: str, text: str) -> None:
    old = path.read_text(encoding="utf-8")
    new, count = re.subn(pattern, lambda _: text, old, flags=re.MULTILINE | re.DOTALL)
    if count != 1:
        raise SystemExit(f"{path.name} has {count} places for the repository's name, not one.")
    path.write_text(new, encoding="utf-8")


def write(repository: str, root: Path = ROOT) -> None:
    """Write the repository's name into the three files of a checkout; running it again is harmless.

    Raises
    ------
    SystemExit
        The name is not of the form OWNER/NAME, or a file has no place for it.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise SystemExit(f"{repository!r} is not a repository's name: give OWNER/NAME.")
    title = r"\A# hookviz\n\n(?:\[[^\n]+\n)*\n?"  # with the links of an earlier run
    _rewrite(root / "README.md", title, f"# hookviz\n\n{badges(repository)}\n\n")
    address = f'"git+https://github.com/{repository}.git"'
    _rewrite(root / "README.md", r'"git\+https://[^"\n]+"', address)
    project = root / "pyproject.toml"
    there = "[project.urls]" in project.read_text(encoding="utf-8")
    table, before = r"^\[project\.urls\]\n(?:[^\[\n]+\n)*", r"^(?=\[project\.scripts\])"
    _rewrite(project, table if there else before, urls(repository) + ("" if there else "\n"))
    citation = root / "CITATION.cff"
    line = f"repository-code: https://github.com/{repository}\n"
    there = "repository-code:" in citation.read_text(encoding="utf-8")
    _rewrite(citation, r"^repository-code:.*?\n" if there else r"^(?=license:)", line)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("Give the repository's name: python assets/front.py OWNER/NAME")
    write(sys.argv[1])
