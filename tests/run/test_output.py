"""Expressions of a model's output as targets: recording, printing, parsing, evaluating."""

from __future__ import annotations

import copy
import pickle
from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import hookviz
from hookviz import output
from hookviz.run.output import Output, read_output
from hookviz.run.target import read_target

WRITTEN = {
    "output[1][0, 1, 48, 26]": output[1][0, 1, 48, 26],
    'output["out"][0, 15].mean()': output["out"][0, 15].mean(),
    'output[0]["scores"][2]': output[0]["scores"][2],
    "output.logits[0, -1].sum()": output.logits[0, -1].sum(),
    "output[0, 1:5:2, ..., None, :].max()": output[0, 1:5:2, ..., None, :].max(),
    "output[0, 3] - (output[0, 1] - output[0, [1, 2]].mean())": output[0, 3]
    - (output[0, 1] - output[0, [1, 2]].mean()),
    "(output[0, 3] - output[0, 1]).sum() + output[0].max()": (output[0, 3] - output[0, 1]).sum()
    + output[0].max(),
    'output["a \\"quoted\\" \'key\'\\n"]': output["a \"quoted\" 'key'\n"],
}


@pytest.mark.parametrize("text", WRITTEN)
def test_expressions_print_as_written_and_parse_again(text):
    expression = WRITTEN[text]
    assert repr(expression) == str(expression) == text
    assert read_output(text) == expression and hash(read_output(text)) == hash(expression)
    assert pickle.loads(pickle.dumps(expression)) == expression == copy.deepcopy(expression)
    assert expression != output


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "output[print()]",
        "output.__class__",
        "output.sum",
        "output.mean(0)",
        "output[0] * 2",
        "output[0",
        "model[0]",
        "output[{}]",
        "output" + "[0]" * 5000,
    ],
)
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match="is not an expression of the output"):
        read_output(text)


@dataclass(slots=True)
class Answer:
    logits: Tensor
    boxes: list[dict[str, Tensor]]


Pair = namedtuple("Pair", ["first", "second"])


class Many(nn.Module):
    """Return the same numbers in the structure passed to it."""

    def __init__(self, structure):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.structure = structure

    def forward(self, x):
        return self.structure(self.conv(x).tanh())


STRUCTURES = {
    "tensor": (lambda y: y, output[0, 2, 1, 3], lambda y: y[0, 2, 1, 3]),
    "dict": (lambda y: {"out": y}, output["out"][0, 2].mean(), lambda y: y[0, 2].mean()),
    "list": (lambda y: [y, {"s": y[0]}], output[1]["s"][2].max(), lambda y: y[0, 2].max()),
    "named tuple": (lambda y: Pair(y, y[0]), output.second[1].sum(), lambda y: y[0, 1].sum()),
    "dataclass": (
        lambda y: Answer(y, [{"score": y[0, :, 1, 1]}]),
        output.boxes[0]["score"][2] - output.logits[0, 1, 0, 0],
        lambda y: y[0, 2, 1, 1] - y[0, 1, 0, 0],
    ),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_the_gradient_is_that_of_the_selected_number(name):
    structure, target, by_hand = STRUCTURES[name]
    model, x = Many(structure).double().eval(), torch.rand(1, 1, 7, 7, dtype=torch.float64)
    explorer = hookviz.explore(model, x, target)
    y = model.conv(x)
    (wanted,) = torch.autograd.grad(by_hand(y.tanh()), y)
    assert torch.equal(explorer.cache["conv"].gradient, wanted)
    assert explorer.frame.target == str(target)
    assert f"gradient of {target}" in explorer.frame.panels[1].caption
    source = explorer.code()
    assert f"score = {target}" in source


def test_every_function_takes_an_expression_as_target():
    structure, target, _ = STRUCTURES["dict"]
    model, x = Many(structure).eval(), torch.rand(1, 1, 7, 7)
    assert hookviz.attribute(model, x, target).shape == x.shape
    assert hookviz.diagnose(model, x, target).healthy is not None
    assert hookviz.trace(model, x, target).records()
    assert hookviz.compare(model, copy.deepcopy(model), x, target).records()
    whole = hookviz.attribution.ablationcam(model, x, "conv", target)
    function = hookviz.attribution.ablationcam(model, x, "conv", lambda y: y["out"][0, 2].mean())
    assert torch.equal(whole, function)
    both = hookviz.attribution.ablationcam(model, torch.cat([x, -x]), "conv", target)
    assert torch.equal(both[:1], whole) and not torch.equal(both[1:], whole)


@pytest.mark.parametrize(
    ("name", "target", "words"),
    [
        ("dict", output["aut"][0], r"\[\"aut\"\]: output is a dict with \['out'\] \(1, 4, 5, 5\)"),
        ("dict", output["out"][0, 9], r"no output\[\"out\"\]\[0, 9\]: .* of shape \(1, 4, 5, 5\)"),
        ("list", output[2], r"output is a list with \[0\] \(1, 4, 5, 5\), \[1\] dict with 's'"),
        ("dataclass", output.scores, r"an? Answer with .logits \(1, 4, 5, 5\), .boxes list of 1"),
        ("named tuple", output.third, r"a Pair with .first \(1, 4, 5, 5\), .second \(4, 5, 5\)"),
        ("dict", output["out"], r"output\[\"out\"\] is a tensor of shape .*, not one number"),
        ("dict", output, "output is a dict .*, not one number"),
        ("dict", output["out"][0, 1] - output["out"][0, :, 0].sum().x, "has no output"),
        ("tensor", output[0, 1] - output[0, :3, :2], "cannot be computed"),
    ],
)  # fmt: skip
def test_errors_list_the_outputs_parts(name, target, words):
    model, x = Many(STRUCTURES[name][0]).eval(), torch.rand(1, 1, 7, 7)
    with pytest.raises(ValueError, match=words):
        hookviz.explore(model, x, target)


def test_numbers_without_a_gradient_are_refused():
    model = Many(lambda y: {"labels": y.argmax(1)})
    with pytest.raises(ValueError, match=r"output\[.labels.\]\[0, 0, 0\] has no gradient: it is"):
        hookviz.explore(model, torch.rand(1, 1, 7, 7), output["labels"][0, 0, 0])


def test_other_index_types_are_refused():
    with pytest.raises(TypeError, match="takes numbers, slices and keys, not Tensor"):
        output[torch.ones(2)]
    with pytest.raises(TypeError, match="no length before the model has run"):
        list(output)
    with pytest.raises(TypeError):
        output[0] - 1


@pytest.mark.parametrize(
    "act",
    [
        lambda: output.square().mean(),
        lambda: output.softmax(1),
        lambda: output[0].sum(0),
        lambda: output[0].mean(dim=1),
        lambda: -output[0, 1],
        lambda: output[0] ** 2,
    ],
)
def test_what_no_expression_holds_is_refused_with_a_way_out(act):
    with pytest.raises(TypeError, match=r"lambda output: output\.square"):
        act()


def test_an_integer_tensor_gives_an_index():
    assert isinstance(output[torch.tensor(2).item()], Output)


def test_typed_targets_are_parsed():
    names = ["tiger cat", "Egyptian cat", "cat - dog"]
    assert read_target(" 7 ") == 7
    assert read_target("TIGER cat", names) == "TIGER cat"
    assert read_target("tiger cat - Egyptian cat", names) == ("tiger cat", "Egyptian cat")
    assert read_target("cat - dog", names) == "cat - dog"
    assert read_target("tiger cat - 0", names) == ("tiger cat", 0)
    assert read_target("hookviz.output[0, 1]", names) == output[0, 1]
    with pytest.raises(ValueError, match="No class is called 'tigre cat'"):
        read_target("tigre cat - Egyptian cat", names)
    with pytest.raises(ValueError, match="no class names are known"):
        read_target("tiger cat")
