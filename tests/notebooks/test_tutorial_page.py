"""The hooks tutorial: its verdicts, its progress, its folded cells and its picture of the hooks.

Only the necessary cells are run, each compiled as its own file, as in a notebook.
"""

import ast
import base64
import html
import linecache
import re
import sys
from itertools import count
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest
import torch
from torch import nn

TUTORIAL = Path(__file__).resolve().parents[2] / "notebooks" / "hooks_tutorial.ipynb"
CELLS = nbformat.read(TUTORIAL, as_version=4).cells
CODE = [cell for cell in CELLS if cell.cell_type == "code"]
CHECKS = [cell.source for cell in CODE if "\ndef check_" in cell.source]


def cell_with(text):
    return next(cell.source for cell in CODE if text in cell.source)


class Notebook(dict):
    """The namespace of the cells; `shown` lists what they displayed."""

    number = count()

    def __init__(self):
        super().__init__(__name__="notebook")
        self.shown = []
        self.run(cell_with("class Verdict"))
        self["display"] = lambda shown, **_: self.shown.append(shown)
        self.run("import torch\nfrom torch import nn")

    def run(self, source):
        """Run a cell, and return what it displayed last, if anything."""
        name = f"<cell {next(self.number)}>"
        linecache.cache[name] = len(source), None, source.splitlines(True), name
        exec(compile(ast.parse(source), name, "exec"), self)
        return self.shown[-1] if self.shown else None


@pytest.fixture
def notebook():
    book = Notebook()
    for check in CHECKS[:7]:
        book.run(check)
    return book


# The verdicts

RIGHT_2 = """
answer_2 = lambda grad: torch.where(grad.isnan(), 0.0, grad)
"""
RIGHT_7 = """
def answer_7(grad):
    return torch.cat([torch.zeros(1, 96), grad[1:]])
"""
WRONG_7 = """
answer_7 = lambda grad: grad
"""


def test_verdicts_differ_in_words_sign_colour_and_border(notebook):
    looks = notebook["LOOKS"]
    assert list(looks) == ["right", "not yet", "error", "waiting"]
    for ways in zip(*looks.values(), strict=True):
        assert len(set(ways)) == len(looks)  # words, signs, colours and borders
    for words, sign, colour, edge in looks.values():
        page = notebook["Verdict"](next(k for k in looks if looks[k][1] == sign), "a < b")
        seen = page._repr_html_()
        assert f"border-left:6px {edge} {colour}" in seen
        assert f"background:{colour};color:#fff" in seen
        assert f"{sign}</span> {words.strip('.:')}</b> a &lt; b" in seen
        assert repr(page) == f"{words} a < b\n0 of 15 done"


IN_THE_FUNCTION = """
def answer_2(grad):
    twice = 2 * grad
    twice[9] = 0
    return twice
"""
IN_A_HOOK_WITHIN_BACKWARD = """
def answer_5(module, grad_input, grad_output):
    return (grad_input.clamp(min=0),)
"""
IN_A_HELPER = """
def answer_2(grad):
    return scaled(grad)

def scaled(grad):
    return grad * missing
"""
NO_SET = """
answer_1 = 17
"""
WHAT_IT_RETURNED = """
def answer_3(module, args, output):
    output[:, 5] = 0
    return output
"""
ONE_OF_TWO_WAYS = """
def answer_7(grad):
    if grad[0].any():
        return grad[1:]
    return grad
"""
A_VALUE = """
answer_1 = {"a", "b"}
"""
CHANGED_BY_A_HELPER = """
def answer_2(grad):
    mine(grad)
    return grad.clone()

def mine(grad):
    grad[1] = 0
    return grad
"""
WRONG_ANSWERS = [  # the cell, its verdict, and the reported line
    (IN_THE_FUNCTION, "error", "your code raised IndexError: index 9", "raised in", 4),
    (IN_A_HOOK_WITHIN_BACKWARD, "error", "take the element [0]", "raised in", 3),
    (IN_A_HELPER, "error", "your code raised NameError: name 'missing'", "raised in", 6),
    (NO_SET, "not yet", "17 is not a set of names", "answered in", 2),
    (WHAT_IT_RETURNED, "not yet", "in place", "changed in", 3),
    (CHANGED_BY_A_HELPER, "not yet", "in place", "changed in", 7),
    (ONE_OF_TWO_WAYS, "not yet", "the same shape", "returned by", 4),
    (A_VALUE, "not yet", "b was made by .double()", "answered in", 2),
]


def checked(source):
    """Return the cell with its check below, as in the notebook."""
    number = re.search(r"answer_(\d+)", source)[1]
    return f"{source}\ncheck_{number}(answer_{number})"


@pytest.mark.parametrize(
    ("source", "kind", "fault", "how", "number"),
    WRONG_ANSWERS,
    ids=[fault for _, _, fault, *_ in WRONG_ANSWERS],
)
def test_a_verdict_names_the_line_of_the_mistake(notebook, source, kind, fault, how, number):
    verdict = notebook.run(checked(source))
    line = f"{how} line {number}: {source.splitlines()[number - 1].strip()}"
    assert (verdict.kind, verdict.line) == (kind, line)
    assert fault in verdict.said
    assert f"  {line}\n" in repr(verdict)
    assert f">{html.escape(line)}</code>" in verdict._repr_html_()


def test_a_verdict_names_the_line_in_another_cell(notebook):
    """The answer is in one cell and its check in the next; lines of the lesson are not reported."""
    notebook.run("def helper(grad):\n    raise KeyError('mine')")
    notebook.run("\n\ndef answer_2(grad):\n    return helper(grad)")
    verdict = notebook.run("check_2(answer_2)")
    assert verdict.said == "your code raised KeyError: 'mine'."
    assert verdict.line == "raised in line 4: return helper(grad)"


def test_a_check_restores_the_trace_function(notebook):
    def mine(*_):
        return None

    before = sys.gettrace()
    sys.settrace(mine)
    try:
        for source in (IN_THE_FUNCTION, A_VALUE, RIGHT_2):
            notebook.run(checked(source))
            kept = sys.gettrace()
            assert kept is mine
    finally:
        sys.settrace(before)


def test_the_progress_lists_the_solved_exercises(notebook):
    assert len(CHECKS) == notebook["EXERCISES"] == 15

    def progress():
        verdict = notebook.shown[-1]
        label = re.search(r'role="img" aria-label="([^"]*)"', verdict._repr_html_())[1]
        number = re.search(r"<div>(\d+ of 15 done) ", verdict._repr_html_())[1]
        assert number in repr(verdict)
        return repr(verdict).splitlines()[-1], label.partition("; to do")[0]

    notebook.run("check_2(None)")
    assert progress() == (
        "0 of 15 done",
        "to do: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    )
    notebook.run(checked(RIGHT_7))
    assert notebook.shown[-1].kind == "right"
    notebook.run(checked(RIGHT_7))  # solving it again does not count twice
    assert progress() == ("1 of 15 done: 7", "done: 7")
    notebook.run(checked(RIGHT_2))
    assert progress() == ("2 of 15 done: 2, 7", "done: 2, 7")
    notebook.run(checked(WRONG_7))
    assert notebook.shown[-1].kind == "not yet"
    # A wrong answer after a right one does not count.
    assert progress() == ("2 of 15 done: 2, 7", "done: 2, 7")


# Folded cells


def folded(cell):
    return cell.metadata.get("jupyter", {}).get("source_hidden") is True


def test_only_cells_that_draw_are_folded():
    for cell in CODE:
        draws = re.search(
            r"^def draw_|^Live\(|^show\(|^@exercise|^class Live",
            cell.source,
            re.MULTILINE,
        )
        picture = "\nHOOKS = [" in cell.source
        assert folded(cell) == bool(draws or picture), cell.source[:60]
        if folded(cell):
            assert cell.metadata["cellView"] == "form"  # folds the cell in Colab
            assert cell.metadata["tags"] == ["hide-input"]  # folds the cell in the documentation
            assert cell.source.startswith("# @title ")
            if not cell.source.startswith(
                "# @title The check"
            ):  # a check's hooks are not the lesson
                assert not re.search(r"\.register_|hookviz\.(edit|capture)", cell.source)


# The picture of the hooks


@pytest.fixture
def picture():
    book = Notebook()
    book.run(cell_with("\nHOOKS = ["))
    return book


class Several(nn.Module):
    """Use the weight first, last or between other operations."""

    def __init__(self, place):
        super().__init__()
        self.weight, self.place = nn.Parameter(torch.ones(3, 3)), place

    def forward(self, x):
        steps = [torch.tanh, torch.exp]
        steps.insert(self.place, lambda x: x @ self.weight)
        for step in steps:
            x = step(x)
        return x + 1


LAYERS = {
    "linear": (lambda: nn.Linear(3, 2), (2, 3)),
    "convolution": (lambda: nn.Conv2d(3, 4, 2), (1, 3, 5, 5)),
    "norm": (lambda: nn.BatchNorm2d(3), (2, 3, 5, 5)),
    **{f"weight at {place}": (lambda place=place: Several(place), (2, 3)) for place in range(3)},
}


@pytest.mark.parametrize("kind", LAYERS)
def test_the_picture_shows_the_order_in_which_torch_calls_hooks(picture, kind):
    make, shape = LAYERS[kind]
    drawn = [name for name, *_ in picture["HOOKS"]]
    picture.run("import torch\n" + cell_with("def firing_order"))  # the tutorial's own function
    assert picture["firing_order"](make(), torch.rand(shape, requires_grad=True)) == drawn


def test_the_picture_shows_the_arguments_of_each_hook(picture):
    """Each hook gets as many arguments as the picture lists below its name."""
    called = {name: words for name, words, *_ in picture["HOOKS"]}
    given, layer, x = {}, nn.Linear(3, 2), torch.rand(2, 3, requires_grad=True)

    def note(name):
        return lambda *values: given.update({name: len(values)})

    layer.register_forward_pre_hook(note("forward pre-hook"))
    layer.register_forward_hook(note("forward hook"))
    layer.register_full_backward_pre_hook(note("full backward pre-hook"))
    layer.register_full_backward_hook(note("full backward hook"))
    layer.weight.register_hook(note("tensor hook on the weight"))
    layer.weight.register_post_accumulate_grad_hook(note("post-accumulate-grad hook"))
    x.register_hook(note("tensor hook on x"))
    layer(x).sum().backward()
    assert given == {name: called[name].count(",") + 1 for name in given}
    assert len(given) == 7  # the other two are also tensor hooks


def test_the_picture_lists_all_hooks_in_their_order(picture):
    shown = picture.shown[-1]
    source = re.search(r'src="data:image/svg\+xml;base64,([^"]*)"', shown["text/html"])[1]
    drawing = ElementTree.fromstring(base64.b64decode(source))
    texts = [each.text for each in drawing.iter() if each.tag.endswith("}text")]
    names = [name for name, *_ in picture["HOOKS"]]
    assert [words for words in texts if words in names] == names
    # Time runs downwards in the first column and upwards in the others.
    for column, sign in enumerate((1, -1, -1)):
        rows = [sign * row for *_, where, row in picture["HOOKS"] if where == column]
        assert rows == sorted(rows) and len(rows) == len(set(rows))
    alt = re.search(r'alt="([^"]*)"', shown["text/html"])[1]
    places = [alt.index(f"{number} {name}") for number, name in enumerate(names, 1)]
    assert alt == shown["text/plain"] and places == sorted(places)
