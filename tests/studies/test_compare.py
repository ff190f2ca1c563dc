"""Comparing two models: the numbers equal those of torch, and the first difference is found."""

import copy
import math
from functools import partial

import pytest
import torch
from architectures import model_of
from torch import nn
from torch.nn import functional as F
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.results import Comparison
from hookviz.studies.compare.compare import OrderedCapture
from hookviz.studies.compare.difference import LayerDifference, TensorDifference, difference


@pytest.fixture
def model():
    return hookviz.demo_model()


@pytest.fixture
def picture():
    return hookviz.demo_images()[0]


@pytest.fixture
def small(model, picture):
    """Return the model input at half its height and width."""
    return hookviz.attribution.prepare_input(picture, model).args[0][..., ::2, ::2]


def reference_numbers(a, b):
    """Compute the numbers from all values at once."""
    a, b = a.double().flatten(), b.double().flatten()
    return {
        "largest": (a - b).abs().max(),
        "mean": (a - b).abs().mean(),
        "relative": (a - b).norm() / a.norm(),
        "decibel": 20 * torch.log10(a.norm() / (a - b).norm()),
        "cosine": F.cosine_similarity(a, b, 0),
        "fraction": (a != b).double().mean(),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_differences_equal_those_computed_from_all_values(dtype):
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(3, 1500, 401, generator=generator)  # more values than are compared in one chunk
    b = (a + 0.01 * torch.randn(a.shape, generator=generator) * (a > 0)).to(dtype)
    found = difference(a, b)
    for name, value in reference_numbers(a, b).items():
        assert getattr(found, name) == pytest.approx(float(value), rel=1e-9), name


def test_differences_of_nonfinite_zero_and_complex_values():
    a, b = torch.tensor([1.0, math.nan, math.inf, 2.0]), torch.tensor([1.0, math.nan, 3.0, 2.0])
    found = difference(a, b)
    assert (found.nonfinite_mismatch, found.fraction, found.relative) == (1, 0.25, 0.0)
    assert found.distance == -found.decibel == math.inf and difference(a, a).equal
    zeros = torch.zeros(3)
    assert [difference(zeros, each).relative for each in (zeros + 1, zeros)] == [math.inf, 0]
    assert difference(zeros[:0], zeros[:0]).equal
    assert difference(torch.ones(2), torch.ones(2, 1)).distance == math.inf
    assert difference(torch.tensor([1 + 1j]), torch.tensor([1 + 2j])).largest == 1


def test_rows_equal_the_differences_of_two_captures(model, picture):
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.layer2[0].conv1.weight.mul_(1.01)
    found = hookviz.compare(model, other, picture, layers="*.conv?", target=3)
    caches = []
    for each in (model, other):
        x = hookviz.attribution.prepare_input(picture, model).args[0].requires_grad_()
        with hookviz.capture(each.eval(), "*.conv?") as cache:
            each(x)[0, 3].backward()
        caches.append(cache)
        each.zero_grad()
    assert [row.layer for row in found] == list(caches[0])
    for row in found:
        one, two = (cache[row.layer] for cache in caches)
        for known, a, b in (
            (row.output, one.activation, two.activation),
            (row.gradient, one.gradient, two.gradient),
        ):
            assert known.largest == pytest.approx(float((a - b).abs().max()), rel=1e-4)
            assert known.fraction == float((a != b).double().mean())
    assert found.first().layer == "layer2.0.conv1"


def aliased(m, x):
    """A layer that returns a view of its whole input, which is used beside it."""
    x = m.conv(x)
    return 2 * m.alias(x) + 3 * x


def test_a_view_of_a_stored_tensor_has_its_own_gradient():
    model = model_of(aliased, conv=nn.Conv2d(1, 1, 1), alias=model_of(lambda m, x: x[:]))
    with OrderedCapture(model, ["conv", "alias"]) as cache:
        model(torch.rand(1, 1, 2, 2)).sum().backward()
    assert [cache[name].gradient.unique().item() for name in ("conv", "alias")] == [5, 2]


def inference_teacher(m, x):
    """A frozen layer that runs in inference mode, in which nothing counts what is overwritten."""
    with torch.inference_mode():
        features = F.relu_(m.teacher(x))
    return m.student(features.clone()).mean((2, 3))


def test_models_with_a_part_in_inference_mode_are_compared():
    torch.manual_seed(0)
    model = model_of(inference_teacher, teacher=nn.Conv2d(1, 2, 3), student=nn.Conv2d(2, 2, 3))
    other = copy.deepcopy(model)
    assert hookviz.compare(model, copy.deepcopy(model), torch.rand(1, 1, 8, 8)).first() is None
    other.student.bias.data += 0.5
    first = hookviz.compare(model, other, torch.rand(1, 1, 8, 8)).first()
    assert first is not None and first.layer == "student"


@pytest.mark.parametrize(
    "change",
    [
        copy.deepcopy,
        nn.DataParallel,
        partial(torch.compile, backend="eager"),
        lambda model: copy.deepcopy(model).half(),
        lambda model: copy.deepcopy(model).bfloat16(),
        lambda model: copy.deepcopy(model).double(),
        lambda model: copy.deepcopy(model).to(memory_format=torch.channels_last),
        pytest.param(torch.compile, marks=pytest.mark.heavy),  # compiling takes a second
    ],
    ids=[
        "copy",
        "DataParallel",
        "traced",
        "half",
        "bfloat16",
        "double",
        "channels last",
        "compiled",
    ],
)
def test_equivalent_models_have_no_first_difference(model, small, change):
    found = hookviz.compare(model, change(model), small)
    assert found.first() is None
    assert found.first(gradient=True) is None
    assert len(found) > 40
    assert not found.unmatched


def test_both_models_are_unchanged_even_after_an_error(model, picture):
    other = copy.deepcopy(model).train()
    other.layer3[0].bn1.eps = 0.1
    before = snapshot(model), snapshot(other)
    found = hookviz.compare(model, other, picture)
    assert found.first().layer == "layer3.0.bn1"
    assert_untouched(model, before[0])
    assert_untouched(other, before[1])
    assert other.training

    def fails(module, args):
        raise RuntimeError("no")

    handle = other.layer2.register_forward_pre_hook(fails)
    before = snapshot(model), snapshot(other)
    with pytest.raises(RuntimeError, match="layer2"):
        hookviz.compare(model, other, picture)
    assert_untouched(model, before[0])
    assert_untouched(other, before[1])
    handle.remove()


def test_a_layer_differs_if_it_exceeds_its_tolerance_or_the_argument(model, small):
    other = copy.deepcopy(model)
    other.layer2[0].conv1.weight.data.mul_(1.01)
    rows = {row.layer: row for row in hookviz.compare(model, other, small)}
    before, changed = rows["layer1.1.conv2"], rows["layer2.0.conv1"]
    assert before.output.equal and not before.differs()
    assert 0 < changed.tolerance < changed.output.distance == pytest.approx(0.01, rel=0.01)
    assert changed.differs(0.009) and not changed.differs(0.011)
    assert not changed.inputs_differ and rows["layer3.1.conv2"].inputs_differ


def test_a_difference_in_gradients_only_is_found(model, picture):
    """Only the backward differs, so that no activation does."""

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return 2 * gradient

    other = copy.deepcopy(model)
    other.layer3[1].relu.register_forward_hook(lambda m, args, output: Doubled.apply(output))
    found = hookviz.compare(model, other, picture)
    assert found.first() is None
    assert found.first(gradient=True).layer.startswith("layer3.1")
    assert "gradient" in found.verdict
    for rows in found.row_groups():  # a row of the table folds only what is equal
        assert len(rows) == 1 or all(row.gradient is None or row.gradient.equal for row in rows)


@pytest.mark.parametrize(("apart", "first"), [(9e-3, None), (11e-3, "conv")])
def test_a_relu_next_to_zero_explains_gradients_as_far_apart_as_the_root(apart, first):
    output, gradient = (TensorDifference(relative=each) for each in (1e-4, apart))
    row = LayerDifference("conv", "conv", 0, "Conv2d", (1, 2, 3, 3), output, None, gradient)
    found = Comparison(("A", "B"), [row], [], (None, None), [], lambda layers, found: None)
    found = found.first(gradient=True)
    assert (found and found.layer) == first


def test_layers_with_other_names_are_paired():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3))
    one, act, two = copy.deepcopy(model)  # the same network under other names
    port = model_of(lambda m, x: m.two(m.act(m.one(x))), one=one, act=act, two=two)
    with torch.no_grad():
        port.two.bias += 1
    found = hookviz.compare(model, port, torch.randn(1, 3, 8, 8))
    assert [(row.layer, row.layer_b) for row in found] == [
        ("0", "one"),
        ("1", "act"),
        ("2", "two"),
        ("", ""),
    ]
    assert found.first().layer == "2"
    assert "2 → two" in repr(found)
    crossed = hookviz.compare(model, port, torch.randn(1, 3, 8, 8), pairs={"0": "two"})
    assert crossed[0].output.why.startswith("shapes differ: 1×4×6×6 and 1×5×4×4")
    with pytest.raises(ValueError, match="'nine', but no such layer of model b ran"):
        hookviz.compare(model, port, torch.randn(1, 3, 8, 8), pairs={"0": "nine"})


@pytest.mark.parametrize("pairs", [[("0", "0")], "0", {"0": None}, {"0": nn.ReLU()}])
def test_pairs_that_are_not_names_are_refused(pairs):
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    with pytest.raises(TypeError, match="pairs=.* is not a dict of names: give {'layer of a'"):
        hookviz.compare(model, model, torch.rand(1, 3, 8, 8), pairs=pairs)


def test_layers_of_one_shape_are_paired_by_their_class():
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Tanh())
    parts = {"conv": model[0], "tanh": model[2]}
    found = hookviz.compare(
        model, Renamed(parts, nn.Sequential(*parts.values())), torch.rand(1, 1, 3, 3)
    )
    assert {row.layer: row.layer_b for row in found} == {"0": "conv", "2": "tanh", "": ""}
    assert found.unmatched == [("a", "1", "b has no such layer")]


def folded(model):
    fused = copy.deepcopy(model).eval()
    return torch.ao.quantization.fuse_modules(fused, [["0", "1", "2"]])


def without_norm(model):
    conv = nn.utils.fusion.fuse_conv_bn_eval(model[0].eval(), model[1].eval())
    fused = nn.Sequential(conv, model[2], model[3])
    return Renamed({"0": conv, "2": model[2], "3": model[3]}, fused)


class Renamed(nn.Module):
    def __init__(self, parts, run):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.__dict__["run"] = run

    def forward(self, x):
        return self.run(x)


@pytest.mark.parametrize("fold", [folded, without_norm])
def test_a_folded_batchnorm_is_not_a_difference(fold):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 3))
    model[1].running_var.mul_(3)
    found = hookviz.compare(model.eval(), fold(model), torch.randn(1, 3, 8, 8))
    assert found.first() is None
    assert ("a", "0", "b has folded it with 1") in found.unmatched
    assert all(
        row.inputs.distance < 1e-5 for row in found
    )  # folded layers are compared from the input of the first one
    broken = fold(model)
    with torch.no_grad():
        next(broken.parameters())[0] *= 1.1
    assert hookviz.compare(model, broken, torch.randn(1, 3, 8, 8)).first().type in (
        "BatchNorm2d",
        "ReLU",
    )
    assert "b has folded it" in found.verdict


def conv_norm_head(width, names):
    """Return a network of a convolution, a BatchNorm and a linear layer with these names."""
    conv, norm, head = nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.Linear(width, 3)
    parts = dict(zip(names, (conv, norm, head), strict=True))
    run = nn.Sequential(conv, norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
    return Renamed(parts, run).eval()


@pytest.mark.parametrize(
    ("names", "width", "pairs"),
    [("kmg", 6, {"c": "k"}), ("kmg", 8, {"c": "k"}), ("cmg", 6, None), ("cmg", 8, None)],
)
def test_a_norm_beside_an_unfolded_one_takes_no_partner(names, width, pairs):
    model, other = conv_norm_head(8, "cnf"), conv_norm_head(width, names)
    found = hookviz.compare(model, other, torch.rand(2, 3, 9, 9), pairs=pairs)
    assert found.first().layer == "c" and found.first().layer_b == names[0]
    assert "folded" not in found.verdict


@pytest.mark.parametrize("second", [nn.Identity(), nn.ReLU()])
def test_given_pairs_stay_where_b_has_folded_a_norm(second):
    conv = nn.Conv2d(3, 4, 3)
    model = nn.Sequential(conv, nn.BatchNorm2d(4)).eval()
    model[1].running_var.mul_(3)
    folded = nn.utils.fusion.fuse_conv_bn_eval(conv.eval(), model[1])
    other = nn.Sequential(folded, second).eval()
    found = hookviz.compare(model, other, torch.randn(1, 3, 8, 8), pairs={"0": "0"})
    assert found.first().layer == "0" == found.first().layer_b


def test_quantization_is_not_a_difference_but_a_broken_layer_is(model, picture):
    """Rounding is within the tolerance, but a broken layer exceeds it."""
    torch.backends.quantized.engine = torch.backends.quantized.supported_engines[-1]
    quantized = torch.ao.quantization.quantize_dynamic(copy.deepcopy(model), {nn.Linear})
    found = hookviz.compare(model, quantized, picture)
    assert found.first() is None
    quantized.layer1[0].bn2.bias.data += 3
    assert hookviz.compare(model, quantized, picture).first().layer == "layer1.0.bn2"


def test_predictions_of_nan_are_changed_ones(model):
    ill = copy.deepcopy(model)
    ill.layer1[0].conv1.weight.data[0] = math.nan
    found = hookviz.compare(model, ill, torch.rand(3, 3, 64, 64))
    assert found.changed == [0, 1, 2] and "3 of 3 predictions changed" in found.verdict
    assert "in layer1.0.conv1 (NaN or Inf in one alone)" in found.verdict
    assert "not finite in one, relative difference of the others 0;" in repr(found.first())
    assert not hookviz.compare(ill, ill, torch.rand(3, 3, 64, 64)).changed


def test_changed_predictions_and_the_worst_input_are_reported(model):
    prepared = [hookviz.attribution.prepare_input(p, model) for p in hookviz.demo_images()[:4]]
    pictures, other = torch.cat([each.args[0] for each in prepared]), copy.deepcopy(model)
    logits = model(pictures).detach()
    top, second = logits[2].topk(2).indices.tolist()
    # The second class of sample 2 becomes its first, also for samples with a smaller margin.
    head = [m for m in other.modules() if isinstance(m, nn.Linear)][-1]
    head.bias.data[second] += 1.01 * (logits[2, top] - logits[2, second])
    after = other(pictures).detach()
    changed = (logits.argmax(1) != after.argmax(1)).nonzero().flatten().tolist()
    apart = (logits - after).norm(dim=1) / logits.norm(dim=1)
    worst = max(changed, key=apart.tolist().__getitem__)
    found = hookviz.compare(model, other, pictures)
    assert found.changed == changed and 2 in changed and found.worst_sample == worst
    assert f"{len(changed)} of 4 predictions changed (input" in found.verdict
    assert f"predictions for the worst, input {worst}: " in found.verdict
    best = int(logits[worst].argmax())
    wanted = [float(each.softmax(1)[worst, best]) for each in (logits, after)]
    assert found.predictions[0][1:] == pytest.approx(wanted)
    record = found.records()[0]
    assert (record["changed_answers"], record["worst_sample"]) == (len(changed), worst)
    assert found[-1].gradient.equal  # both models' are of a's top class
    assert found.verdict in found._repr_html_()
    swapped = hookviz.compare(model, model, pictures[:1], inputs_b=pictures[3:])
    assert swapped[0].inputs_differ and swapped.predictions[0][1] != swapped.predictions[0][2]


def test_inputs_that_differ_are_no_rounding(model, small):
    same = hookviz.compare(model, model, small, inputs_b=small + 5)
    assert same.first() is None
    assert "differ already (relative difference" in same.verdict
    assert "rounding explains" not in same.verdict


def test_a_model_that_is_not_a_classifier_has_a_worst_input():
    a, x = nn.Conv2d(1, 2, 3), torch.randn(3, 1, 6, 6)
    x[1] *= 1e-3  # so small that a changed bias dominates its output
    b = copy.deepcopy(a)
    b.bias.data += 1
    found = hookviz.compare(a, b, x)
    assert found.worst_sample == 1 and found.changed == [] and not found.predictions
    assert "furthest apart for input 1" in found.verdict
    assert found.records()[0]["changed_answers"] is None
    same = hookviz.compare(a, copy.deepcopy(a), x)
    assert same.worst_sample is None and "furthest" not in same.verdict


def test_a_new_head_differs_alone_and_each_model_has_its_own_top_class():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 9)
    )
    other, x = copy.deepcopy(model), torch.rand(1, 3, 3, 3)
    other[3] = nn.Linear(4, 2)
    found = hookviz.compare(model, other, x)
    assert found.first().layer == "3" and "shapes differ: 1×9 and 1×2" in found.verdict
    # The gradient at the one position.
    one, two = (net[3].weight[net(x)[0].argmax()].detach() for net in (model, other))
    assert found[0].gradient.largest == pytest.approx(float((one - two).abs().max()))
    assert found.show().frame.target == f"output {int(other(x).argmax())}"


def test_a_layer_that_runs_more_often_in_one_model_is_unmatched():
    conv = nn.Conv2d(1, 1, 3, padding=1)
    model = model_of(lambda m, x: m.conv(m.conv(m.conv(x))), conv=conv)
    other = model_of(lambda m, x: m.conv(m.conv(x)), conv=conv)
    found = hookviz.compare(model, other, torch.randn(1, 1, 5, 5), pairs={"conv": "conv"})
    assert [(row.layer, row.call) for row in found][:2] == [("conv", 0), ("conv", 1)]
    assert ("a", "conv", "it ran 3 times, in b 2") in found.unmatched
    assert found.first().layer == ""


def test_verdict_table_figure_and_records_of_a_comparison(model, picture):
    other = copy.deepcopy(model)
    other.class_names = ["<b>"] * 10
    other.layer3[0].bn1.eps = 0.1
    found = hookviz.compare(model, other, picture)
    assert "arises in layer3.0.bn1" in found.verdict
    assert " ".join(repr(found).split()).startswith(found.verdict)
    rows = found.table()
    assert rows[1][0] == "first: layer3.0.bn1" and rows[1][1:] == found.first().cells()[1:]
    assert rows[0][0] == f"{[row.layer for row in found].index('layer3.0.bn1')} equal"
    assert sum("layer3.0.bn1" in name for name, *_ in rows) == 1
    assert found._repr_html_().count("<tr>") == len(rows) + len(found) + 2
    assert "…" not in repr(found)  # the line has room for all names
    assert repr(found.first()).startswith("layer3.0.bn1 (BatchNorm2d, 1×96×14×14): relative diff")
    assert repr(found.first()).endswith("; inputs equal")
    figure = found.figure()
    assert "layer3.0.bn1" in figure.axes[0].get_title()
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert sum(p for _, p, _ in found.predictions) <= 1 + 1e-6


@pytest.mark.parametrize("layer", ["layer2.0.conv1", "layer3.0.bn1"])
def test_show_opens_where_the_difference_arises(model, picture, layer):
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.get_submodule(layer).weight.mul_(1.1)
    found = hookviz.compare(model, other, picture)
    assert found.first().layer == layer
    both = found.show()
    try:
        assert both.layer == layer
    finally:
        both.close()


def test_errors_name_the_model_that_raised(model, picture):
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module"):
        hookviz.compare(model, "model", picture)
    with pytest.raises((ValueError, RuntimeError)) as caught:
        hookviz.compare(model, nn.Sequential(nn.Conv2d(1, 1, 1)), picture)
    assert "It was model b" in caught.value.__notes__[0]


# Linear CKA


def features(model, names, batches):
    """Return the outputs of layers over a data set, batch by batch."""
    found = []
    for x in batches:
        with torch.no_grad(), hookviz.capture(model.eval(), names) as cache:
            model(x)
        found.append([cache[name].activation.double().flatten(1) for name in cache])
    return found


def reference(a, b):
    """Compute CKA by the estimator of Nguyen et al. from two layers' features."""

    def hsic(x, y):
        n = len(x)
        k, l = x @ x.T, y @ y.T  # noqa: E741
        k.fill_diagonal_(0), l.fill_diagonal_(0)
        one = torch.ones(n, dtype=torch.float64)
        first = torch.trace(k @ l)
        second = (one @ k @ one) * (one @ l @ one) / ((n - 1) * (n - 2))
        return (first + second - 2 / (n - 2) * (one @ k @ l @ one)) / (n * (n - 3))

    sums = [sum(hsic(*pair) for pair in pairs) for pairs in (zip(a, b), zip(a, a), zip(b, b))]  # noqa: B905
    return sums[0] / (sums[1] * sums[2]).sqrt()


def test_similarity_equals_a_direct_implementation_of_cka(model):
    torch.manual_seed(0)
    other = copy.deepcopy(model)
    for parameter in other.parameters():
        parameter.data += 0.02 * torch.randn_like(parameter)
    batches = [torch.randn(n, 3, 64, 64) for n in (8, 4, 7)]
    before = snapshot(model), snapshot(other)
    found = hookviz.similarity(model, other, [(x, None) for x in batches], "layer?.0.conv1")
    assert_untouched(model, before[0])
    assert_untouched(other, before[1])
    kept = [features(each, found.layers, batches) for each in (model, other)]
    for i, _ in enumerate(found.layers):
        for j, _ in enumerate(found.layers_b):
            sides = [[batch[at] for batch in side] for side, at in zip(kept, (i, j), strict=True)]
            assert float(found.matrix[i, j]) == pytest.approx(float(reference(*sides)), abs=1e-6)
    assert found.samples == 19
    assert len(found.records()) == found.matrix.numel()
    assert set(found.best()) == set(found.layers)
    assert found.figure()._repr_png_().startswith(b"\x89PNG")


def test_similarity_reports_what_it_leaves_out():
    still = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Conv2d(2, 2, 3))
    still[0].weight.data.zero_()
    with (
        pytest.warns(RuntimeWarning, match="1 batch was of fewer than 4 samples"),
        pytest.warns(RuntimeWarning, match="never varied"),
    ):
        found = hookviz.similarity(still, still, [torch.randn(n, 3, 9, 9) for n in (5, 3)])
    assert found.samples == 5
    assert "never varied" in repr(found) and "never varied" in found._repr_html_()
    conv = nn.Conv2d(1, 1, 1)
    for model, samples, message in (
        (conv, 3, "No batch has 4 samples"),
        (nn.Sequential(conv, conv), 4, "ran 2 times for a batch"),
    ):
        with pytest.raises(ValueError, match=message):
            hookviz.similarity(model, model, [torch.randn(samples, 1, 3, 3)])


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        (
            list(torch.randn(8, 3, 9, 9)),
            ValueError,
            r"returns 2 rows for a batch of 3: .* such as \[x\]",
        ),
        ([[]], ValueError, "an empty batch"),
        ([], ValueError, "inputs= holds no batch: give a loader or a list"),
        (iter([]), ValueError, "no batch: .* a new generator, since one can be used only once"),
        (torch.rand(0, 3, 9, 9), ValueError, "No batch has 4 samples, which the unbiased"),
        (5, TypeError, "of type int has no batches"),
    ],
)
def test_similarity_refuses_what_are_no_batches(inputs, error, message):
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Conv2d(2, 2, 3))
    with pytest.raises(error, match=message):
        hookviz.similarity(model, model, inputs)


def test_similarity_takes_a_lone_dict_as_one_batch():
    class Named(nn.Conv2d):
        def forward(self, x):
            return super().forward(x)

    model, batch = Named(3, 2, 3), torch.randn(5, 3, 9, 9)
    found = hookviz.similarity(model, model, {"x": batch})
    assert found.samples == 5
    assert torch.equal(found.matrix, hookviz.similarity(model, model, batch).matrix)


def test_similarity_of_frames_takes_each_as_a_sample():
    class Video(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 3)

        def forward(self, x):  # (N, T, C, H, W)
            return self.conv(x.flatten(0, 1)).unflatten(0, x.shape[:2]).mean((1, 3, 4))

    model = Video()
    found = hookviz.similarity(model, model, torch.randn(2, 3, 3, 5, 5))  # a single batch
    assert found.samples == 6 and found.matrix.item() == pytest.approx(1)
