"""The rules of the house, read off the code: which room imports which, and who may know what."""

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
# From the top of the house down: each room may import those after it.
ROOMS = ["widgets", "export", "view", "studies", "attribution", "draw", "run", "hooking"]
FOREIGN = {  # package -> the lowest room that may know it
    "anywidget": "widgets",
    "ipywidgets": "widgets",
    "traitlets": "widgets",
    "matplotlib": "draw",
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
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    """A file as Python imports it: ``hookviz.run.session``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(["hookviz", *(part for part in parts if part != "__init__")])


MODULES = {name_of(path): path for path in FILES}


@cache
def facade() -> dict[str, str]:
    """Each public name and the module that it comes from, also through the package's own name."""
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
    return {
        alias.name: f"hookviz.{node.module}" if node.module else f"hookviz.{alias.name}"
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@cache
def imports(path: Path) -> frozenset[str]:
    """All that a file imports, wherever in it: modules of hookviz, and names of others in full."""
    here = ["hookviz", *path.relative_to(PACKAGE).with_suffix("").parts]
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = here[: -node.level] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            found |= {origin(base, alias.name) for alias in node.names}
    return frozenset(found)


def origin(base: str, name: str) -> str:
    """The module of hookviz that ``from base import name`` leads to; of others, the name."""
    if base == "hookviz":
        return facade().get(name, f"hookviz.{name}")
    if not base.startswith("hookviz."):
        return f"{base}.{name}"
    return f"{base}.{name}" if f"{base}.{name}" in MODULES else base


def room_of(name: str) -> str | None:
    """The room of ``hookviz.run.session``; None for a file that is in no room."""
    parts = name.split(".")
    return parts[1] if parts[0] == "hookviz" and len(parts) > 1 and parts[1] in ROOMS else None


def said(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_every_file_is_in_a_room_or_at_the_top():
    assert sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()) == (
        sorted(ROOMS)
    )


def test_arrows_run_downward():
    for path in FILES:
        own = room_of(name_of(path))
        for name in imports(path) if own else ():
            other = room_of(name)
            assert other is None or ROOMS.index(other) >= ROOMS.index(own), f"{own} imports {name}"


def test_a_room_finds_an_arrow_through_the_facade_and_inside_a_function():
    """The test above would see both."""
    code = ast.parse("def show():\n    from ... import explore\n")
    (node,) = [each for each in ast.walk(code) if isinstance(each, ast.ImportFrom)]
    assert node.level == 3
    assert origin("hookviz", "explore") == "hookviz.widgets.explorer"


def circles(arrows: dict[str, set[str]]) -> list[str]:
    """Take away, again and again, each module that no other imports or that imports no other."""
    left = dict(arrows)
    while True:
        wanted = {to for each in left.values() for to in each}
        kept = {name: to & left.keys() for name, to in left.items() if name in wanted}
        kept = {name: to for name, to in kept.items() if to}
        if kept == left:
            return sorted(left)
        left = kept


def test_no_file_is_in_a_circle():
    arrows = {
        name_of(path): {each for each in imports(path) if each in MODULES and each != name_of(path)}
        for path in FILES
    }
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == ["b", "c"]
    in_rooms = {name: {to for to in each if room_of(to)} for name, each in arrows.items()}
    assert circles({name: to for name, to in in_rooms.items() if room_of(name)}) == []


def test_packages_are_known_at_their_own_edge():
    for path in FILES:
        own = room_of(name_of(path))
        floor = ROOMS.index(own) if own else 0
        for name in imports(path):
            package = name.partition(".")[0]
            if package in FOREIGN and (said(path), package) not in EDGES:
                assert floor <= ROOMS.index(FOREIGN[package]), f"{said(path)} imports {package}"


def test_hooking_knows_only_torch():
    known = {"torch", "__future__", "hookviz", *sys.stdlib_module_names}
    for path in (PACKAGE / "hooking").glob("*.py"):
        assert {name.partition(".")[0] for name in imports(path)} <= known, said(path)


def test_one_owner_of_hooks():
    for path in FILES:
        for node in ast.walk(tree(path)):
            name = node.attr if isinstance(node, ast.Attribute) else ""
            if said(path) != "hooking/handles.py":
                # The printed lesson of guided backpropagation sets a tensor hook of its own.
                allowed = {"register_hook"} if said(path) == "attribution/gradients.py" else set()
                sets = name.startswith("register_") and name.endswith("hook")
                assert not sets or name in allowed, f"{said(path)} calls {name}"


def test_a_class_name_stands_once():
    seen: dict[str, str] = {}
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                assert node.name not in seen, f"{node.name}: {seen[node.name]}, {said(path)}"
                seen[node.name] = said(path)


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_says_what_it_is(room):
    words = ast.get_docstring(tree(PACKAGE / room / "__init__.py"))
    assert "Begin with" in words
    for named in [
        word.strip("`.,;") for word in words.split() if word.strip("`.,;").endswith(".py")
    ]:
        assert (PACKAGE / room / named).is_file(), named


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
