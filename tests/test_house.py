"""The structure of the package: which room imports which, and which libraries it may import."""

import ast
import re
import subprocess
import sys
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

FOREIGN = {  # package -> the lowest room that may import it
    "anywidget": "widgets",
    "ipywidgets": "widgets",
    "traitlets": "widgets",
    "matplotlib": "draw",
    "PIL": "run",
    "torchvision": "run",
}
# `progress.py` shows a progress bar in notebooks.
EXCEPTIONS = {
    ("run/progress.py", "IPython"),
    ("models.py", "torchvision"),
    ("__main__.py", "torchvision"),
}


def path_in_package(path):
    return path.relative_to(PACKAGE).as_posix()


def test_every_package_is_a_room():
    assert sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()) == (
        sorted(ROOMS)
    )


def test_rooms_import_only_lower_rooms():
    for path in FILES:
        own = room_of(name_of(path))
        for name in imports(path) if own else ():
            other = room_of(name)
            assert other is None or ROOMS.index(other) >= ROOMS.index(own), f"{own} imports {name}"


def test_imports_through_the_top_level_and_within_functions_are_found():
    """This makes sure that the test above misses neither."""
    code = ast.parse("def show():\n    from ... import explore\n")
    (node,) = [each for each in ast.walk(code) if isinstance(each, ast.ImportFrom)]
    assert node.level == 3
    assert origin("hookviz", "explore") == "hookviz.widgets.explorer"


def modules_in_cycles(arrows):
    """Return the modules left after repeatedly removing those at the start or end of all chains."""
    left = dict(arrows)
    while True:
        wanted = {to for each in left.values() for to in each}
        kept = {name: to & left.keys() for name, to in left.items() if name in wanted}
        kept = {name: to for name, to in kept.items() if to}
        if kept == left:
            return sorted(left)
        left = kept


def test_no_modules_import_each_other_in_a_cycle():
    arrows = {
        name_of(path): {each for each in imports(path) if each in MODULES and each != name_of(path)}
        for path in FILES
    }
    assert modules_in_cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == ["b", "c"]
    in_rooms = {name: {to for to in each if room_of(to)} for name, each in arrows.items()}
    assert modules_in_cycles({name: to for name, to in in_rooms.items() if room_of(name)}) == []


def test_libraries_are_imported_only_from_their_lowest_room_up():
    for path in FILES:
        own = room_of(name_of(path))
        floor = ROOMS.index(own) if own else 0
        for name in imports(path):
            package = name.partition(".")[0]
            if package in FOREIGN and (path_in_package(path), package) not in EXCEPTIONS:
                assert floor <= ROOMS.index(FOREIGN[package]), (
                    f"{path_in_package(path)} imports {package}"
                )


def test_hooking_imports_only_torch():
    known = {"torch", "__future__", "hookviz", *sys.stdlib_module_names}
    for path in (PACKAGE / "hooking").glob("*.py"):
        assert {name.partition(".")[0] for name in imports(path)} <= known, path_in_package(path)


def test_only_one_file_registers_hooks():
    for path in FILES:
        file = path_in_package(path)
        if file == "hooking/handles.py":
            continue
        # The printed code of guided backpropagation registers a tensor hook itself.
        allowed = {"register_hook"} if file == "attribution/gradients.py" else set()
        for node in ast.walk(tree(path)):
            name = node.attr if isinstance(node, ast.Attribute) else ""
            sets = name.startswith("register_") and name.endswith("hook")
            assert not sets or name in allowed, f"{file} calls {name}"


def test_class_names_are_unique():
    seen = {}
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                assert node.name not in seen, (
                    f"{node.name}: {seen[node.name]}, {path_in_package(path)}"
                )
                seen[node.name] = path_in_package(path)


BEGINNINGS = r"(Whether|What|Of|Which|How|Where|Who|Whose|That)\b"


def test_a_docstring_begins_with_a_verb_or_a_noun():
    """Ruff's D401 skips properties, classes, modules and the strings below constants."""
    for path in FILES:
        for node in ast.walk(tree(path)):
            text = node.value if isinstance(node, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                assert not re.match(BEGINNINGS, text.value), (
                    f"{path_in_package(path)}:{node.lineno}"
                )


# The page of the documentation that explains the structure

INSIDE = (PACKAGE.parent / "docs" / "explanation" / "inside.md").read_text()


def test_the_page_lists_each_room_with_its_sentence():
    rows = re.findall(r"^\| `(\w+)/` \| (.+?) \|$", INSIDE, re.MULTILINE)
    assert rows == [(room, sentence_of(room)) for room in ROOMS]


def test_the_drawing_has_all_rooms_and_imports():
    drawn = ElementTree.fromstring(drawing())
    titles = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}rect"))) == len(ROOMS)
    assert sorted(titles[1:]) == sorted(
        f"{one} imports {other}, {count} times" for (one, other), count in arrows().items()
    )
    assert all(ROOMS.index(one) < ROOMS.index(other) for one, other in arrows())


def listed_calls(heading):
    """Return the calls that the page lists under a heading, as pairs of file and function."""
    section = INSIDE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", section, re.MULTILINE)


def traced_calls(act):
    """Return the functions of hookviz in the order of their first calls."""
    found = {}
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
def test_the_page_lists_calls_in_their_order(heading, act):
    told = listed_calls(heading)
    done = traced_calls(lambda: act(hookviz.demo_model(), hookviz.demo_images()[12]))
    assert [each for each in told if each not in done] == []
    assert sorted(told, key=done.index) == told and len(told) >= 6


def test_files_and_functions_named_by_the_page_exist():
    named = re.findall(r"`([\w/]+\.(?:pyi?|js))`", INSIDE)
    assert [each for each in named if not (PACKAGE / each).is_file()] == []
    for name, file in re.findall(r"`(\w+)` of `([\w/]+\.pyi?)`", INSIDE):
        code = (PACKAGE / file).read_text()
        assert re.search(rf"^(class |def )?{name}\b", code, re.MULTILINE), f"{name} of {file}"


@pytest.mark.parametrize("name", ["attribution", "metrics", "results", "widgets"])
def test_lazily_imported_modules_have_all_their_names(name):
    module = getattr(hookviz, name)
    assert all(hasattr(module, each) for each in module.__all__)


@pytest.mark.parametrize("room", ROOMS)
def test_the_docstring_of_each_room_names_where_to_begin(room):
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


def test_functions_without_pictures_import_no_heavy_libraries():
    """Capturing imports only torch; diagnosis and watching need no pictures and no compiler.

    An explorer of a user's network and a tensor does not need torchvision.
    """
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True)
    assert done.stdout.split("\n")[:4] == ["[]", "[0]", "[]", "[]"], done.stderr
