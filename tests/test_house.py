"""The rules of the house, read off the code: which wing imports which, how large a file is."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import hookviz

PACKAGE = Path(hookviz.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
# From the top of the house down: each wing may import those after it.
WINGS = ["browsers", "widgets", "export", "view", "diagnosis", "training", "comparison"]
WINGS += ["dataset", "fields", "analysis", "attribution", "render", "run", "hooking"]
FOREIGN = {  # package -> the lowest wing that may know it
    "anywidget": "widgets",
    "ipywidgets": "widgets",
    "traitlets": "widgets",
    "matplotlib": "render",
    "PIL": "run",
    "torchvision": "run",
}
# `progress.py` shows a bar, where there is a notebook.
EDGES = {
    ("run/progress.py", "IPython"),
    ("models.py", "torchvision"),
    ("__main__.py", "torchvision"),
}


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of a file's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imports(path: Path) -> set[str]:
    """What a file imports, in full: ``hookviz.run.session``, ``torch.nn``."""
    where = ["hookviz", *path.relative_to(PACKAGE).with_suffix("").parts]
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = where[: -node.level] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


def wing_of(name: str) -> str | None:
    """The wing of ``hookviz.run.session.Session``; None for what is in no wing."""
    parts = name.split(".")
    return parts[1] if parts[0] == "hookviz" and len(parts) > 1 and parts[1] in WINGS else None


def said(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", FILES, ids=said)
def test_arrows_run_downward(path):
    own = path.relative_to(PACKAGE).parts[0]
    if own not in WINGS:
        return
    for name in imports(path):
        other = wing_of(name)
        assert other is None or WINGS.index(other) >= WINGS.index(own), f"{own} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=said)
def test_packages_are_known_at_their_own_edge(path):
    own = path.relative_to(PACKAGE).parts[0]
    floor = WINGS.index(own) if own in WINGS else 0
    for name in imports(path):
        package = name.partition(".")[0]
        if package in FOREIGN and (said(path), package) not in EDGES:
            assert floor <= WINGS.index(FOREIGN[package]), f"{said(path)} imports {package}"


def test_hooking_knows_only_torch():
    known = {"torch", "__future__", "hookviz", *sys.stdlib_module_names}
    for path in (PACKAGE / "hooking").glob("*.py"):
        assert {name.partition(".")[0] for name in imports(path)} <= known, said(path)


def test_one_owner_of_hooks():
    for path in FILES:
        for node in nodes(path):
            name = node.attr if isinstance(node, ast.Attribute) else ""
            if said(path) != "hooking/handles.py":
                # The printed lesson of guided backpropagation sets a tensor hook of its own.
                allowed = {"register_hook"} if said(path) == "attribution/guided.py" else set()
                sets = name.startswith("register_") and name.endswith("hook")
                assert not sets or name in allowed, f"{said(path)} calls {name}"


def test_no_module_at_the_top_bears_a_public_name():
    top = {path.stem for path in PACKAGE.iterdir()}
    assert not top & set(hookviz.__all__)


def test_files_classes_and_wings_are_small():
    for path in FILES:
        assert len(path.read_text().splitlines()) <= 400, f"{said(path)} is too long"
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                lines = node.end_lineno - node.lineno + 1
                assert lines <= 200, f"{node.name} in {said(path)} has {lines} lines"
    for wing in WINGS:
        files = [path for path in (PACKAGE / wing).glob("*.py") if path.name != "__init__.py"]
        assert len(files) <= 12, wing


@pytest.mark.parametrize("wing", WINGS)
def test_each_wing_says_what_it_is(wing):
    words = ast.get_docstring(ast.parse((PACKAGE / wing / "__init__.py").read_text()))
    assert "Begin with" in words
    for named in [word.strip("`.,") for word in words.split() if word.strip("`.,").endswith(".py")]:
        assert (PACKAGE / wing / named).is_file(), named


LIGHT = """
import sys, torch, hookviz

def there():
    heavy = ("anywidget", "ipywidgets", "IPython", "matplotlib", "torchvision", "PIL")
    return [name for name in heavy if name in sys.modules]

hookviz.capture
print(there())
hookviz.diagnose(torch.nn.Conv2d(1, 1, 3), torch.ones(1, 1, 4, 4))
print([name for name in there() if name in ("torchvision", "matplotlib", "ipywidgets")])
print(all(callable(getattr(hookviz, name)) for name in ("capture", "trace", "heatmap", "explore")))
"""


def test_what_does_not_show_is_light():
    """Capture alone knows torch alone, and a tensor needs no torchvision."""
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True)
    assert done.stdout.split("\n")[:3] == ["[]", "[]", "True"], done.stderr
