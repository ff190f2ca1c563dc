"""The rules of the house, read off the code: which room imports which, and who may know what."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from house import (
    FILES,
    MODULES,
    PACKAGE,
    ROOMS,
    arrows,
    drawing,
    imports,
    name_of,
    origin,
    room_of,
    sentence_of,
    tree,
)

import hookviz

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
        file = said(path)
        if file == "hooking/handles.py":
            continue
        # The printed lesson of guided backpropagation sets a tensor hook of its own.
        allowed = {"register_hook"} if file == "attribution/gradients.py" else set()
        for node in ast.walk(tree(path)):
            name = node.attr if isinstance(node, ast.Attribute) else ""
            sets = name.startswith("register_") and name.endswith("hook")
            assert not sets or name in allowed, f"{file} calls {name}"


def test_a_class_name_stands_once():
    seen: dict[str, str] = {}
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                assert node.name not in seen, f"{node.name}: {seen[node.name]}, {said(path)}"
                seen[node.name] = said(path)


BEGINNINGS = r"(Whether|What|Of|Which|How|Where|Who|Whose|That)\b"


def test_a_docstring_begins_with_a_verb_or_a_noun():
    """Ruff's D401 skips properties, classes, modules and the strings below constants."""
    for path in FILES:
        for node in ast.walk(tree(path)):
            text = node.value if isinstance(node, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                assert not re.match(BEGINNINGS, text.value), f"{said(path)}:{node.lineno}"


# The page of the documentation that explains the house

INSIDE = (PACKAGE.parent / "docs" / "explanation" / "inside.md").read_text()


def test_the_page_has_each_room_with_its_own_sentence():
    rows = re.findall(r"^\| `(\w+)/` \| (.+?) \|$", INSIDE, re.MULTILINE)
    assert rows == [(room, sentence_of(room)) for room in ROOMS]


def test_the_drawing_has_eight_rooms_and_all_arrows_run_downward():
    drawn = ElementTree.fromstring(drawing())
    titles = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}rect"))) == len(ROOMS)
    assert sorted(titles[1:]) == sorted(
        f"{one} imports {other}, {count} times" for (one, other), count in arrows().items()
    )
    assert all(ROOMS.index(one) < ROOMS.index(other) for one, other in arrows())


def way(heading: str) -> list[tuple[str, str]]:
    """The calls that the page lists under a heading: a file and a function each."""
    section = INSIDE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", section, re.MULTILINE)


def called(act: Callable[[], object]) -> list[tuple[str, str]]:
    """The functions of hookviz in the order in which each is first called."""
    found: dict[tuple[str, str], None] = {}
    root = f"{Path(hookviz.__file__).parent}/"

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root):
            found.setdefault((code.co_filename.removeprefix(root), code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return list(found)


@pytest.mark.parametrize(
    ("heading", "act"),
    [
        ("From a picture to maps and gradients", hookviz.explore),
        ("The calls of a diagnosis", hookviz.diagnose),
    ],
)
def test_the_page_tells_the_calls_in_their_order(heading, act):
    told = way(heading)
    done = called(lambda: act(hookviz.demo_model(), hookviz.demo_images()[12]))
    assert [each for each in told if each not in done] == []
    assert sorted(told, key=done.index) == told and len(told) >= 6


def test_what_the_page_names_is_there():
    named = re.findall(r"`([\w/]+\.(?:pyi?|js))`", INSIDE)
    assert [each for each in named if not (PACKAGE / each).is_file()] == []
    for name, file in re.findall(r"`(\w+)` of `([\w/]+\.pyi?)`", INSIDE):
        code = (PACKAGE / file).read_text()
        assert re.search(rf"^(class |def )?{name}\b", code, re.MULTILINE), f"{name} of {file}"


@pytest.mark.parametrize("name", ["attribution", "metrics", "results", "widgets"])
def test_what_is_imported_late_is_there(name):
    module = getattr(hookviz, name)
    assert all(hasattr(module, each) for each in module.__all__)


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_says_what_it_is(room):
    words = ast.get_docstring(tree(PACKAGE / room / "__init__.py"))
    assert "Begin with" in words
    for named in [
        word.strip("`.,;") for word in words.split() if word.strip("`.,;").endswith(".py")
    ]:
        assert (PACKAGE / room / named).is_file(), named


LIGHT = """
import sys, torch
early = "torch._dynamo" in sys.modules
import hookviz

def there():
    heavy = ("anywidget", "ipywidgets", "IPython", "matplotlib", "torchvision", "PIL")
    compiler = ["torch._dynamo"] * ("torch._dynamo" in sys.modules and not early)
    return [name for name in heavy if name in sys.modules] + compiler

hookviz.capture
print(there())
model, x = torch.nn.Conv2d(1, 1, 3), torch.ones(1, 1, 4, 4)
hookviz.diagnose(model, x)
watch = hookviz.watch(model)
with watch:
    model(x).sum().backward()
print(watch.steps)
light = ("torchvision", "matplotlib", "ipywidgets", "torch._dynamo")
print([name for name in there() if name in light])
explorer = hookviz.explore(model, x)
explorer.code()
explorer.to_html()
print([name for name in there() if name in ("torchvision", "torch._dynamo")])
"""


def test_what_does_not_show_is_light():
    """Capture alone knows torch alone; diagnosis and training need no pictures, and no compiler.

    An explorer of a user's own network and a tensor has no use for torchvision.
    """
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True)
    assert done.stdout.split("\n")[:4] == ["[]", "[0]", "[]", "[]"], done.stderr
