"""The hooks tutorial: its numbers are compared with handwritten ones, its checks are given answers.

All code cells run once, in order, in one namespace. The expected values do not come from hookviz.
"""

import ast
import copy
import re
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path

import ipywidgets
import nbformat
import numpy as np
import pytest
import torch
from IPython.core.inputtransformer2 import TransformerManager
from torch import nn

import hookviz

TUTORIAL = Path(__file__).resolve().parents[2] / "notebooks" / "hooks_tutorial.ipynb"
BOOK = nbformat.read(TUTORIAL, as_version=4)
NUMBERS = range(1, 16)


@contextmanager
def cached_forwards(*modules):
    """Cache the output of modules as long as their input is the same tensor."""
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            last = {}

            def forward(x, own=module.forward, last=last):
                if last.get("x") is not x:
                    last.update(x=x, y=own(x))
                return last["y"]

            patch.setattr(module, "forward", forward, raising=False)
        yield


class Lesson(dict):
    """The namespace of the notebook after a run; `shown` has the displayed values of the cells."""

    def __init__(self):
        super().__init__(__name__="lesson")
        self.shown = []
        transform = TransformerManager().transform_cell
        for cell in BOOK.cells:
            if cell.cell_type == "code":
                with self.cached_if_slow(cell.source):
                    self.shown.append(self.run(transform(cell.source)))

    def cached_if_slow(self, source):
        return (
            self.cached_up_to_layer2()
            if source.startswith("truth = torch.tensor(")
            else nullcontext()
        )

    def cached_up_to_layer2(self):
        """Cache the layers up to layer2.1 for many forwards that differ only after it."""
        demo = self["demo"]
        return cached_forwards(demo.stem, demo.layer1, *demo.layer2)

    def run(self, source):
        """Run a cell and return the value of its last line, if that is an expression."""
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<cell>", "exec"), self)
        if last is None:
            return None
        return eval(compile(ast.Expression(last.value), "<cell>", "eval"), self)

    @property
    def live(self):
        return [value for value in self.shown if isinstance(value, self["Live"])]

    def drawn_by(self, name):
        return next(live for live in self.live if live.draw is self[name])


@pytest.fixture(scope="module")
def lesson():
    before = torch.get_rng_state()
    namespace = Lesson()
    yield namespace
    torch.set_rng_state(before)
    ipywidgets.Widget.close_all()


def cells_of(number):
    """Return the cells of one of the fifteen sections."""
    start = next(i for i, c in enumerate(BOOK.cells) if c.source.startswith(f"## {number}. "))
    rest = BOOK.cells[start + 1 :]
    end = next((i for i, cell in enumerate(rest) if cell.source.startswith("## ")), len(rest))
    return BOOK.cells[start : start + 1 + end]


def solution_of(number):
    texts = [cell.source for cell in cells_of(number) if cell.source.startswith("<details>")]
    assert len(texts) == 1
    return re.search(r"```python\n(.*?)```", texts[0], re.DOTALL)[1]


def verdict_of(lesson, capsys, number, answer):
    capsys.readouterr()
    lesson[f"check_{number}"](answer)
    return capsys.readouterr().out


# The structure


@pytest.mark.parametrize("number", NUMBERS)
def test_each_section_has_a_text_code_a_widget_an_exercise_and_a_solution(number):
    cells = cells_of(number)
    assert len(cells[0].source) > 120
    code = [cell for cell in cells if cell.cell_type == "code"]
    views = [
        o for c in code for o in c.outputs if any("widget-view" in k for k in o.get("data", {}))
    ]
    assert views
    exercises = [c.source for c in code if f"answer_{number} = None  # your answer" in c.source]
    assert len(exercises) == 1
    assert exercises[0].endswith(f"check_{number}(answer_{number})")
    assert f"### Exercise {number}" in [line for c in cells for line in c.source.splitlines()]
    assert f"answer_{number}" in solution_of(number)


def test_committed_outputs_are_those_of_a_complete_run(lesson):
    """Times, weights and versions may differ."""
    outputs = [output for cell in BOOK.cells for output in cell.get("outputs", ())]
    printed = "".join(o.get("text") or o.get("data", {}).get("text/plain", "") for o in outputs)
    assert printed.count("Not answered yet. A hint comes") == len(NUMBERS)
    assert printed.count("0 of 15 done") == len(NUMBERS)
    assert "as in the picture: True" in printed
    assert "efficientnet_lite0: 49 outputs" in printed
    assert "15 of 15" in printed
    assert "{'before': 2.0, 'grad_output': 2.0, 'grad_input': 4.0, 'weight.grad': 6.0}" in printed


def test_the_notebook_contains_no_local_paths():
    text = TUTORIAL.read_text()
    assert not re.search(r"/root/|/home/|/tmp/|site-packages", text)


# The widgets


def test_every_live_widget_redraws_when_a_control_moves(lesson):
    assert len(lesson.live) == 15
    for live in lesson.live:
        before = live.view.value
        control = next(iter(live.controls.values()))
        if hasattr(control, "options"):
            control.value = [value for value in control.options if value != control.value][-1]
        else:
            control.value = control.min if control.value != control.min else control.max
        assert live.view.value != before, live.draw
        assert live.view.value in live._repr_mimebundle_()["text/html"]


def readings(live):
    """Return the texts of the table's cells, row by row."""
    rows = re.findall(r"<tr>(.*?)</tr>", live.view.value, re.DOTALL)
    return [re.findall(r">([^<>]*)</t[dh]>", row) for row in rows]


def test_linear_widget_shows_the_same_numbers_by_hand_and_by_hook(lesson):
    live = lesson.drawn_by("draw_5")
    live.controls["w"].value, live.controls["x"].value, live.controls["t"].value = -1, 2, 1
    # ŷ = −2, dL/dŷ = 2 (−2 − 1) = −6, dL/dx = (−1)(−6) = 6, dL/dw = 2 (−6) = −12
    numbers = [row[2:4] for row in readings(live)[1:]]
    assert numbers == [["-6", "-6"], ["6", "6"], ["-12", "-12"]]


# The numbers, each worked out by hand


def test_gradients_of_a_square_and_retain_grad(lesson):
    made = lesson["square"](3.0, 2.0, retain=True)
    # y = 6, L = 36; dL/dy = 2·6, dL/dw = 12·3, dL/dx = 12·2
    assert {name: made[name].grad.item() for name in "ywx"} == {"y": 12, "w": 36, "x": 24}
    with pytest.warns(UserWarning, match="not a leaf"):
        assert lesson["square"](3.0, 2.0, retain=False)["y"].grad is None


def test_tensor_hooks_run_in_order_and_change_gradients(lesson):
    chain, double, clamp = lesson["chain"], lesson["double"], lesson["clamp"]
    # x = (1, −1, 2), y = 3x = (3, −3, 6), dL/dy = 2y = (6, −6, 12), dL/dx = 3 dL/dy
    assert chain() == {"y": [6, -6, 12], "x": [18, -18, 36]}
    assert chain(double) == {"y": [12, -12, 24], "x": [36, -36, 72]}
    assert chain(clamp) == {"y": [6, -6, 10], "x": [18, -18, 30]}
    # doubled (12, −12, 24), then clamped; clamped (6, −6, 10), then doubled
    assert chain(double, clamp) == {"y": [10, -10, 10], "x": [30, -30, 30]}
    assert chain(clamp, double) == {"y": [12, -12, 20], "x": [36, -36, 60]}
    assert lesson["log"][0].tolist() == [6, -6, 12]


def test_all_outputs_of_the_trained_network_are_saved(lesson):
    outputs = lesson["saved"].outputs
    assert len(outputs) == 49
    assert outputs[0].shape == (1, 32, 112, 112)  # 224 / 2
    assert outputs[-1].shape == (1, 1280, 7, 7)
    assert not any(output.requires_grad for output in outputs)
    assert not any(module._forward_hooks for module in lesson["network"].modules())
    assert lesson["best_three"].values.sum() > 0.7  # the three best classes are cats


def test_eye_channels_chosen_on_one_eye_detect_the_other(lesson):
    """Three of the four channels are more than twice as active on the other eye as elsewhere."""
    _, seen_on, *_ = zip(*lesson["eye_channels"][:4], strict=True)
    assert sum(contrast > 2 for contrast in seen_on) >= 3


def test_each_way_to_find_layers_finds_the_stated_number(lesson):
    counts = {name: len(find(lesson["resnet"])) for name, find in lesson["ways"].items()}
    assert list(counts.values()) == [1, 1, 36, 36]
    counts = {name: len(find(lesson["nested"])) for name, find in lesson["ways"].items()}
    assert list(counts.values()) == [1, 3, 3, 3]
    # One module in two positions is found twice, so that each of its two calls is saved twice.
    assert len(lesson["get_all_layers"](lesson["tied"])) == 2
    assert len(lesson["saved_tied"].outputs) == 4


def test_linear_example_has_gradients_worked_out_by_hand(lesson):
    # w = 2, x = 3: ŷ = 6, t = 5: dL/dŷ = 2 (6 − 5) = 2, dL/dx = 2·2, dL/dw = 3·2
    wanted = {"before": 2, "grad_output": 2, "grad_input": 4, "weight.grad": 6}
    assert lesson["linear_example"](w=2, x=3, t=5) == wanted
    assert lesson["shapes"] == {"grad_input": [None], "grad_output": [(4, 2)]}


@pytest.mark.filterwarnings("ignore:Using a non-full backward hook")
def test_the_old_backward_hook_gets_gradients_of_another_operation(lesson):
    shapes, roads = lesson["grad_input_shapes"], lesson["TwoRoads"]
    assert shapes(roads(), "register_full_backward_hook") == [(4, 3)]  # the gradient of the input
    assert (
        shapes(roads(), "register_backward_hook") == [(4, 2)] * 2
    )  # the two operands of the addition
    assert lesson["old_linear"] == [(2,), (4, 3), (3, 2)]


def test_inputs_outputs_and_their_gradients_are_saved(lesson):
    values = lesson["block_values"]
    shapes = [tuple(getattr(values, n).shape) for n in ("input", "output")]
    assert shapes == [(1, 24, 56, 56), (1, 48, 28, 28)]  # stride 2
    assert values.grad_input.shape == values.input.shape
    assert values.grad_output.shape == values.output.shape
    layer = lesson["demo"].layer2[0].conv1
    assert not layer._forward_hooks
    assert not layer._backward_hooks


def test_a_fork_adds_up_the_gradients_of_both_branches(lesson):
    assert lesson["through"].grad_input.item() == 2  # through the layer w = 2
    assert lesson["fork"]["input"].item() == 7  # 2 + 5
    assert len(lesson["gradients_of_6"]) == 15


def test_parameter_hooks_change_only_their_gradients(lesson):
    plain, unbiased, positive = lesson["plain_gradients"], lesson["unbiased"], lesson["positive"]
    assert plain["head.2.bias"].any()
    assert not unbiased["head.2.bias"].any()
    convolutions = [name for name, grad in plain.items() if grad.dim() == 4]
    assert len(convolutions) == 15
    for name in plain:
        if name in convolutions:
            assert torch.equal(positive[name], plain[name].clamp(min=0))
        else:
            assert torch.equal(positive[name], plain[name])
        if name != "head.2.bias":
            assert torch.equal(unbiased[name], plain[name])
    assert not any(p._backward_hooks for p in lesson["demo"].parameters())


def test_clipping_shortens_only_long_gradients(lesson):
    clip = lesson["clip_to"](1.0)
    # (3, 4) has length 5
    assert torch.allclose(clip(torch.tensor([3.0, 4.0])), torch.tensor([0.6, 0.8]))
    assert torch.equal(clip(torch.tensor([0.3, 0.4])), torch.tensor([0.3, 0.4]))


def test_training_in_the_backward_updates_each_parameter(lesson):
    assert lesson["after_each"] == [1, 2]  # 6 clamped to 1, twice
    assert lesson["w"].item() == pytest.approx(1.4)  # 2 − 0.1·6
    assert lesson["w"].grad is None
    assert lesson["bias"].item() == pytest.approx(0.9)  # 1 − 1·0.1·1, although its gradient is 0


def test_an_in_place_relu_overwrites_a_saved_output(lesson):
    wrong, right = lesson["wrong"], lesson["right"]
    assert wrong.min() == 0
    assert right.min() < 0
    assert torch.equal(wrong, right.clamp(min=0))
    assert not lesson["silenced"].any()
    assert lesson["blocks"][1].inplace


def test_rerunning_a_cell_adds_hooks_unless_they_are_removed(lesson):
    assert lesson["rerun"](3, careful=False) == (3, 3)
    assert lesson["rerun"](3, careful=True) == (1, 1)


def test_outputs_with_a_graph_keep_far_more_memory(lesson):
    held, keeps = lesson["megabytes_held"], list(lesson["keeps"].values())
    # The last convolution returns 96 × 14 × 14 values of 4 bytes.
    in_list, in_graph = held(keeps[0], 4)
    assert in_list == pytest.approx(4 * 96 * 14 * 14 * 4 / 1e6)
    assert in_graph > 10 * in_list
    assert held(keeps[0], 8)[1] > 1.8 * in_graph
    assert held(keeps[1], 4) == (pytest.approx(in_list), 0)


def test_hooks_registered_after_compilation_may_not_run(lesson):
    calls = lesson["compiled_calls"]
    later = calls.pop("hook later, then the compiled model")
    assert set(calls.values()) == {2}
    if torch.__version__.startswith(("2.11.", "2.15.")):  # the versions that the text mentions
        assert later == 0


def test_the_explained_lines_are_in_the_source_of_hookviz(lesson):
    import inspect

    source = "".join(inspect.getsource(method) for method in lesson["essential"])
    text = next(c.source for c in cells_of(10) if c.source.startswith("Line by line"))
    lines = re.findall(r"^\| `(.*?)` \|", text, re.MULTILINE)
    assert len(lines) >= 6
    for line in lines:
        assert line in source


def test_as_many_channels_may_be_silenced_as_the_text_states(lesson):
    """Six channels may go, but not seven; in the other order more than half."""
    first, last, _ = lesson["silencing_orders"].values()
    assert is_still_a_fish(lesson, first[:6]) and not is_still_a_fish(lesson, first[:7])
    assert is_still_a_fish(lesson, last[:25])


def is_still_a_fish(lesson, channels):
    demo = lesson["demo"]
    with torch.no_grad():
        block = demo.layer2(demo.layer1(demo.stem(lesson["fish_input"])))
        block[:, channels] = 0
        return demo.head(demo.layer3(block))[0].argmax() == lesson["a_fish"]


def test_terms_of_a_value_are_kernel_times_patch(lesson):
    """The input has the squares of 0 to 24 in rows of five; the kernel is Laplace's."""
    assert lesson["terms"][0].tolist() == [[0, 0, 0], [1, -16, 9], [0, 49, 0]]
    assert lesson["output"][0, 0, 0, 1].item() == 43 + 10


def test_the_notebook_leaves_no_hooks_or_gradients_on_the_model(lesson):
    demo = lesson["demo"]
    for module in demo.modules():
        assert not module._forward_hooks
        assert not module._backward_hooks
    assert all(parameter.grad is None for parameter in demo.parameters())


# The checks


@pytest.mark.parametrize("number", NUMBERS)
def test_solutions_are_accepted(lesson, capsys, number):
    kept = dict(lesson)
    with lesson.cached_up_to_layer2() if number == 11 else nullcontext():
        exec(solution_of(number), lesson)
    answer = lesson[f"answer_{number}"]
    assert verdict_of(lesson, capsys, number, answer).startswith("Right. ")
    lesson.update(kept)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_missing_answer_gets_a_note_on_hints(lesson, capsys, number):
    assert verdict_of(lesson, capsys, number, None).startswith("Not answered yet. A hint comes")


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("answer", [17, "x", lambda: None], ids=["number", "text", "function"])
def test_nonsensical_answers_get_one_sentence(lesson, capsys, number, answer):
    assert verdict_of(lesson, capsys, number, answer).startswith(("Not yet: ", "Error: "))


# Mistakes of people who tried the exercises, with a part of the explanation that each should get.


def answer_for_rows(grad):
    """Answer correctly for gradients with two dimensions only."""
    return torch.tensor(
        [[0.0 if value != value else value for value in row] for row in grad.tolist()]
    )


def detached_channel(module, args, output):
    output = output.detach().clone()
    output[:, 5] = 0
    return output


def by_the_weights(module, args, output):
    with torch.no_grad():
        module.weight[5], module.bias[5] = 0, 0
    return module.forward(*args)


def small_kernels(model):
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1)
    ]


def keeps_positive(store):
    def hook(module, args, output):
        output.register_hook(lambda grad: store.update({module: grad.clamp(min=0)}))

    return hook


def stops_the_gradient(store):
    def hook(module, args, output):
        def keep(grad):
            store[module] = grad.clone()
            return 0 * grad

        output.register_hook(keep)

    return hook


def returns_the_handle(store):
    return lambda module, args, output: output.register_hook(
        lambda grad: store.update({module: grad})
    )


def collected_outputs(net, x, always=True):
    """Return the convolutions' outputs; without ``always``, hooks stay after an error."""
    kept, handles = [], []
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            hook = lambda m, a, output: kept.append(output.detach().clone())  # noqa: E731
            handles.append(module.register_forward_hook(hook))
    try:
        net(x)
    finally:
        if always or not sys.exc_info()[0]:
            [handle.remove() for handle in handles]
    return kept


def global_outputs(net, x):
    """Return outputs by a global hook that stays."""
    kept, register = [], nn.modules.module.register_module_forward_hook

    def keep(module, args, output):
        if isinstance(module, nn.Conv2d):
            kept.append(output.detach().clone())

    register(keep)
    net(x)
    return kept


def on_every_leaf(net, x, hook, keep=False):
    handles = [
        module.register_forward_hook(hook)
        for module in net.modules()
        if not list(module.children())
    ]
    try:
        return net(x)
    finally:
        if not keep:
            [handle.remove() for handle in handles]


def patched_scores(net, name, x, other, channels=(0, 1)):
    """Replace some channels by those of another input."""
    with hookviz.capture(net, name) as cache:
        net(other)
    with hookviz.edit(net, name, cache[name].activation, channels=list(channels)):
        return net(x)


def layer_alone(net, name, x, other):
    """Patch correctly only for the first layer of a network."""
    theirs = net.get_submodule(name)(other)
    with hookviz.edit(net, name, theirs, channels=[0, 1]):
        return net(x)


def clipped(net, x, biases=True, gradient=True, kinds=nn.Conv2d, reduce=torch.sum):
    """Clip gradients of outputs in one backward, and set those of biases to zero."""
    with (
        hookviz.edit(net, kinds, hookviz.edits.clip_norm(1.0), gradient=gradient),
        hookviz.edit(net, "*.bias", 0, gradient=True) if biases else nullcontext(),
    ):
        reduce(net(x)).backward()
    return {name: parameter.grad for name, parameter in net.named_parameters()}


def clips_all_together(net, x):
    net(x).sum().backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    return {
        name: parameter.grad * (not name.endswith("bias"))
        for name, parameter in net.named_parameters()
    }


def freezes_biases(net, x):
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(not name.endswith("bias"))
    return clipped(net, x, biases=False)


def removes_bias_gradients(net, x):
    return {n: None if n.endswith("bias") else grad for n, grad in clipped(net, x).items()}


def names_by_a_global_hook(net, x, keep=False):
    """Return the class names of all modules that ran, by a global hook."""
    ran, register = [], nn.modules.module.register_module_forward_hook
    handle = register(lambda module, *given: ran.append(type(module).__name__))
    try:
        net(x)
    finally:
        if not keep:
            handle.remove()
    return ran


def products(padding=(2, 2, 1, 1), column_stride=1, of_input=False):
    """Return a function for kernel × patch by a hook; other arguments are mistakes."""

    def answer(net, name, x, channel, row, column):
        module, kept = net.get_submodule(name), []
        with module.register_forward_hook(lambda m, args, output: kept.append(args[0][0].clone())):
            net(x)
        padded = nn.functional.pad(kept[0], padding)
        padded = nn.functional.pad(padded, (0, 9, 0, 9))  # so that a wrong patch has the shape
        left = column * column_stride
        patch = padded[:, 2 * row : 2 * row + 3, left : left + 5]
        kernel = module.weight[:, channel] if of_input else module.weight[channel]
        return kernel.detach() * patch

    return answer


WRONG = {
    1: [({"a", "b"}, "b was made by .double()"), (set(), "leaves out one")],
    2: [
        (lambda grad: grad, "NaN is still there"),
        (
            lambda grad: grad.nan_to_num(0.0, float("inf")),
            "−Inf became -3.403e+38, and only NaN should change. torch.nan_to_num replaces",
        ),
        (lambda grad: torch.zeros_like(grad), "−Inf became 0, and only NaN should change."),
        (lambda grad: torch.where(grad == float("nan"), 0.0, grad), "NaN equals nothing"),
        (
            lambda grad: answer_for_rows(grad).double(),
            "is torch.float64, and grad is torch.float32",
        ),
        (answer_for_rows, "for a gradient with two dimensions, but not for one with one"),
        (
            lambda grad: grad * 0 if grad.isnan() else grad,
            "In words: `if` needs one truth value",
        ),
    ],
    3: [
        (lambda module, args, output: None, "nothing changed"),
        (
            lambda module, output: None,
            "is called with 3 arguments (module, args, output), but its definition is (module, ",
        ),
        (detached_channel, "has no graph: with detach(), .data or NumPy nothing before"),
        (by_the_weights, "changed the layer's weights, for good"),
        (lambda module, args, output: output.clone()[10], "In words: the index goes beyond"),
    ],
    4: [
        (
            lambda model: [
                n for n, m in model.named_modules() if getattr(m, "kernel_size", 0) == 1
            ],
            "kernel_size is a pair, (1, 1), which never equals 1",
        ),
        (
            lambda model: [n for n, m in model.named_modules() if m.kernel_size == (1, 1)],
            "In words: only some layers, such as convolutions, have a kernel_size",
        ),
        (lambda model: set(small_kernels(model)), "returned a set, which has no order"),
        (
            lambda model: [f"{name}.weight" for name in small_kernels(model)],
            "returned names of parameters",
        ),
    ],
    5: [
        (lambda module, grad_input, grad_output: (grad_input[0].abs(),), "−4 became 4"),
        (lambda module, grad_input, grad_output: (grad_input[0] * 0,), "all gradients became 0"),
        (
            lambda module, grad_input, grad_output: (*grad_input,) * 2,
            "In words: return one gradient for each",
        ),
    ],
    6: [
        (stops_the_gradient, "also returned something"),
        (keeps_positive, "the gradient has negative values, and yours has none"),
        (returns_the_handle, "In words: the value that a forward hook returns replaces the output"),
    ],
    7: [
        (lambda grad: grad * 0, "row 1 became [0.0, 0.0, 0.0] …, and was [97.0, 98.0, 99.0]"),
    ],
    8: [
        (lambda net, x: collected_outputs(copy.deepcopy(net), x), "a copy of the model ran"),
        (
            lambda net, x: collected_outputs(net, x, always=False),
            "after an error in the model: hooks that stayed behind on the model: 2",
        ),
        (global_outputs, "a global hook stayed behind"),
    ],
    9: [
        (lambda net, x, hook: net(x), "the hook was never called"),
        (
            lambda net, x, hook: on_every_leaf(net, x, hook, keep=True),
            "hooks that stayed behind on the model: 3",
        ),
    ],
    10: [
        ("stem.0", "in stem.0 44.8% are negative, and another layer has 87.0%"),
        ("layer1.1.conv2", "has the largest *number* of negative values"),
    ],
    11: [
        ([43, 48], "no channel 48"),
        ([8, 43, 11, 37, 1, 13], "it is still a fish, with "),
    ],
    12: [
        (lambda net, name, x, other: net(other), "all channels were patched"),
        (
            lambda net, name, x, other: patched_scores(net, name, other, x),
            "x and other have changed places",
        ),
        (
            lambda net, name, x, other: patched_scores(net, name, x, other, channels=[1, 2]),
            "channels 1, 2 were patched, not 0 and 1",
        ),
        (layer_alone, "In words: this layer gets another input than the network"),
        (lambda net, name, x, other: getattr(net, name), "In words: net.get_submodule(name)"),
    ],
    13: [
        (lambda net, x: clipped(net, x, gradient=False), "add gradient=True to clip gradients"),
        (clips_all_together, "this is clip_grad_norm_"),
        (lambda net, x: clipped(net, x, kinds=nn.Module), "every layer's gradient was"),
        (lambda net, x: clipped(net, x, reduce=torch.mean), "gradients of net(x).mean()"),
        (freezes_biases, "a bias was frozen with requires_grad_(False)"),
        (removes_bias_gradients, "the gradient of 0.bias is None, and zeros are asked for"),
    ],
    14: [
        (
            lambda net, x: names_by_a_global_hook(net, x, keep=True),
            "would fire at every module of every model",
        ),
        (
            lambda net, x: names_by_a_global_hook(net, x)[:-1],
            "the model itself, 'Sequential', is missing",
        ),
        (lambda net, x: set(names_by_a_global_hook(net, x)), "returned a set, which has no order"),
        (lambda net, x: net.register_module_forward_hook(print), "In words: the global hooks are"),
    ],
    15: [
        (products(column_stride=2), "the columns have their own stride"),
        (products(padding=(1, 1, 2, 2)), "F.pad takes (left, right, above, below)"),
        (products(padding=(0, 9, 0, 9)), "the input is not padded"),
        (products(of_input=True), "this is the kernel of an input channel"),
    ],
}


@pytest.mark.parametrize(
    ("number", "answer", "fault"),
    [(number, *pair) for number, pairs in WRONG.items() for pair in pairs],
)
def test_wrong_answers_get_their_mistake_explained(lesson, capsys, number, answer, fault):
    text = verdict_of(lesson, capsys, number, answer)
    assert text.startswith("Error: " if "In words: " in fault else "Not yet: ")
    assert fault in text.splitlines()[0]
    assert text.splitlines()[-1].count(" of 15 done") == 1


RIGHT = {
    1: [["a"], {"a": 1}.keys()],
    2: [lambda grad: grad.nan_to_num(0.0, float("inf"), float("-inf"))],
    3: [lambda module, args, output: output * (torch.arange(8) != 5).view(-1, 1, 1)],
    5: [lambda module, grad_input, grad_output: (torch.relu(grad_input[0]),)],
    7: [lambda grad: torch.cat([torch.zeros_like(grad[:1]), grad[1:]])],
    8: [collected_outputs],
    9: [on_every_leaf],
    11: [{8, 37, 46, 24, 42}, list(np.array([8, 37, 46, 24, 42]))],
    12: [patched_scores],
    13: [clipped, lambda net, x: dict(reversed(clipped(net, x).items()))],
    15: [products()],
}


@pytest.mark.parametrize(
    ("number", "answer"), [(number, answer) for number, many in RIGHT.items() for answer in many]
)
def test_other_right_answers_are_accepted(lesson, capsys, number, answer):
    assert verdict_of(lesson, capsys, number, answer).startswith("Right. ")


def test_hints_come_after_wrong_answers_and_get_stronger(lesson, capsys):
    """The first hint comes after the first wrong answer, a stronger one from the second on."""
    lesson["wrong_answers"].clear()
    assert "int: " not in verdict_of(lesson, capsys, 3, None)
    told = [verdict_of(lesson, capsys, 3, lambda module, args, output: None) for _ in range(3)]
    assert "\nHint: output has four dimensions" in told[0]
    assert all("\nStronger hint: clone() output" in text for text in told[1:])


def test_first_hints_do_not_contain_the_solution(lesson):
    """The first hint of each exercise has no line of its solution."""
    for cell in BOOK.cells:
        if "\ndef check_" in cell.source:
            hint = re.search(r'@exercise\(\n    "(.*?)",', cell.source)[1]
            number = int(re.search(r"def check_(\d+)", cell.source)[1])
            lines = [line.strip() for line in solution_of(number).splitlines()]
            assert not any(len(line) > 12 and line in hint for line in lines)
