"""Attention in the studies: what diagnose, compare and survey say of heads."""

import math
from pathlib import Path
from runpy import run_path

import pytest
import torch
import torchvision
from test_attention import picture, scattered
from torch import nn

import hookviz


@pytest.fixture(scope="module")
def helper():
    """The small transformer of the documentation, and its digits."""
    return run_path(str(Path(__file__).parents[1] / "assets" / "train_digit_transformer.py"))


def digits(helper, count):
    pictures, labels = helper["digits"](train=False)
    x, corners = helper["scattered"](pictures, torch.Generator().manual_seed(1))
    return x[:count], labels[:count], corners[:count]


def told(findings):
    return [each for each in findings if each.kind == "attention"]


class Masked(nn.Module):
    """Two blocks of attention; an added mask says where the first one's heads look."""

    def __init__(self, mask):
        super().__init__()
        self.one = nn.MultiheadAttention(8, 2, batch_first=True)
        self.two = nn.MultiheadAttention(8, 2, batch_first=True)
        self.mask = mask
        scattered(self)

    def forward(self, x):
        x = x + self.one(x, x, x, attn_mask=self.mask, need_weights=False)[0]
        return x + self.two(3 * x, 3 * x, x, need_weights=False)[0]


def test_diagnose_notes_heads_that_have_collapsed():
    x = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
    mask = torch.zeros(6, 6)
    mask[:, 3] = 50.0
    findings = hookviz.diagnose(Masked(mask), x)
    (note,) = told(findings)
    assert (note.severity, note.layers, note.evidence["keys"]) == ("note", ["one"], [3])
    assert "one token whatever the query: 100 % of the weight or more goes to token 3" in (
        note.message
    )
    assert findings.healthy
    assert not told(hookviz.diagnose(Masked(None), x))
    assert not told(hookviz.diagnose(Masked(mask), x, ignore=["attention"]))


def test_diagnose_notes_uniform_attention():
    x = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
    model = Masked(None)
    nn.init.zeros_(model.one.in_proj_weight[:8].detach())  # the queries
    (note,) = told(hookviz.diagnose(model, x))
    assert note.severity == "note" and note.layers == ["one"]
    assert "everywhere alike" in note.message and "before training" not in note.message
    model.train()
    assert [each.layers for each in told(hookviz.diagnose(model, x))] == [["one"]]


def test_diagnose_is_silent_on_a_trained_transformer(helper):
    x, labels, _ = digits(helper, 32)
    loss = lambda output: nn.functional.cross_entropy(output, labels)  # noqa: E731
    for model in (hookviz.models.demo_transformer(), hookviz.models.demo_transformer().train()):
        findings = hookviz.diagnose(model, x, loss)
        assert not told(findings) and findings.healthy
        assert any("12 heads" in each for each in findings.looked_at)


def test_diagnose_says_that_an_untrained_one_is_as_before_training():
    """At step 0 small weights spread attention evenly: one note for all, and no warning."""
    torch.manual_seed(0)
    model = torchvision.models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=4).eval()
    with torch.no_grad():
        for name, each in model.named_parameters():
            if "in_proj_weight" in name:
                each.mul_(0.02)
    findings = hookviz.diagnose(model, picture(2))
    (note,) = told(findings)
    assert len(note.layers) == 2 and "as before training" in note.message
    assert note.severity == "note" and findings.healthy


# compare


def small(seed=0):
    """A vision transformer with three blocks of four heads."""
    model = torchvision.models.VisionTransformer(16, 4, 3, 4, 16, 32, num_classes=5)
    return scattered(model)


ATTENDS = "encoder.layers.encoder_layer_{}.self_attention"


def test_compare_names_the_first_head_that_differs():
    model, other = small(), small()
    x = picture(2, 16)
    attends = ATTENDS.format(1)
    with torch.no_grad():  # the queries of head 2, and the values of another module's heads
        other.get_submodule(attends).in_proj_weight[8:12] *= 1.01
    found = hookviz.compare(model, other, x)
    assert len(found.heads) == 12
    one, two = (hookviz.attention(each, x) for each in (model, other))
    for each in found.heads:
        a, b = (maps[each.layer][:, each.head].double() for maps in (one, two))
        assert each.output.relative == pytest.approx(float((a - b).norm() / a.norm()), abs=1e-12)
        assert each.output.largest == pytest.approx(float((a - b).abs().max()), abs=1e-12)
    head = found.first_head()
    assert (head.layer, head.layer_b, head.call, head.head) == (attends, attends, 0, 2)
    assert f"the first head that differs is head 2 of {attends}" in found.verdict
    before = [each for each in found.heads if each.layer == ATTENDS.format(0)]
    assert len(before) == 4 and all(each.output.equal for each in before)
    assert head.record()["head"] == 2 and found.first_head(1.0) is None


def test_compare_names_no_head_of_equal_models():
    model, x = small(), picture(1, 16)
    for other in (small(), small().double(), small().bfloat16()):
        found = hookviz.compare(model, other, x)
        assert len(found.heads) == 12 and found.first_head() is None
        assert "head" not in found.verdict


def test_compare_only_of_these_layers_and_within_the_budget():
    model, x = small(), picture(1, 16)
    found = hookviz.compare(model, small(), x, layers="*encoder_layer_1*")
    assert {each.layer for each in found.heads} == {ATTENDS.format(1)}
    assert not hookviz.compare(model, small(), x, layers="conv_proj").heads
    needs = 4 * 17 * 17 * 4  # of one module: there is room for two
    found = hookviz.compare(model, small(), x, layers="*self_attention", max_bytes=2 * needs)
    assert len(found.heads) == 8
    name = ATTENDS.format(2) + ".heads"
    assert ("a", name, "went over max_bytes") in found.unmatched


def test_compare_pairs_modules_of_other_names():
    x = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
    found = hookviz.compare(nn.Sequential(Masked(None)), Masked(None), x)
    assert [(each.layer, each.layer_b) for each in found.heads[::2]] == [
        ("0.one", "one"),
        ("0.two", "two"),
    ]


# survey


def test_survey_ranks_the_pictures_of_a_head(tmp_path):
    """By the weights that `hookviz.attention` finds, however the set is cut into batches."""
    model = small()
    inputs = list(torch.rand(11, 3, 16, 16, generator=torch.Generator().manual_seed(3)))
    name = ATTENDS.format(1)
    weights = hookviz.attention(model, torch.stack(inputs))[name].double()
    peak = weights.amax(-2)[..., 1:]
    entropy = torch.special.entr(weights).sum(-1)[..., 1:] / math.log(17)
    whole = hookviz.survey(model, inputs, heads=True, k=4, batch_size=4)
    assert next(iter(whole)) == "conv_proj" and len(whole) == 1 + 2 * 3
    for what, expected in (("peak", peak), ("entropy", entropy)):
        layer = whole[f"{name}.heads.{what}"]
        assert len(layer) == 4 and layer.shape == (4, 4)
        for head in range(4):
            best = expected[:, head].amax(-1).sort(descending=True, stable=True)
            tops = layer.top(head)
            assert [each[0] for each in tops] == best.indices[:4].tolist()
            for index, value, (row, column), box in tops:
                assert value == pytest.approx(float(expected[index, head].max()), rel=1e-5)
                assert row * 4 + column == int(expected[index, head].argmax())
                assert box == (4 * row, 4 * column, 4 * row + 4, 4 * column + 4)
        assert layer.mean.tolist() == pytest.approx(expected.mean((0, 2)).tolist(), rel=1e-5)
    parts = [
        hookviz.survey(model, inputs, heads=True, k=4, batch_size=4, shard=(part, 2))
        for part in range(2)
    ]
    both = parts[0] + parts[1]
    for key in whole:
        for head in range(len(whole[key])):
            assert [t[0] for t in both[key].top(head)] == [t[0] for t in whole[key].top(head)]
    whole.save(tmp_path / "survey.npz")
    loaded = hookviz.load(tmp_path / "survey.npz", inputs, model=model)
    assert loaded[f"{name}.heads.peak"].top(2) == whole[f"{name}.heads.peak"].top(2)
    with pytest.raises(ValueError, match="the layers differ"):
        whole + hookviz.survey(model, inputs, k=4, batch_size=4)


def test_survey_finds_the_digit_that_heads_of_a_trained_transformer_look_at(helper):
    """The patch that a head of the last layer looks at hardest lies on the digit."""
    model, (x, _, corners) = hookviz.models.demo_transformer(), digits(helper, 60)
    survey = hookviz.survey(model, list(x), "*encoder_layer_2*", heads=True, k=5)
    layer, hits = survey["encoder.layers.encoder_layer_2.self_attention.heads.peak"], []
    for head in range(4):
        for index, _, _, (top, left, bottom, right) in layer.top(head):
            row, column = corners[index].tolist()
            hits.append(row < bottom and top < row + 8 and column < right and left < column + 8)
    assert sum(hits) / len(hits) > 0.8  # by chance it would be a fifth


def test_survey_of_windows_is_left_out_with_a_word():
    model = torchvision.models.swin_transformer.SwinTransformer(
        [4, 4], 8, [2], [2], [4, 4], num_classes=3
    ).eval()
    inputs = list(torch.rand(2, 3, 32, 32))
    with pytest.warns(RuntimeWarning, match="as windows do"):
        survey = hookviz.survey(model, inputs, heads=True)
    assert [*survey] == ["features.0.0"] and "attends 8 times in 2 inputs" in str(survey.left_out)


def test_the_explorer_shows_what_a_head_looks_at_most():
    model = small()
    inputs = list(torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(3)))
    survey = hookviz.survey(model, inputs, heads=True, k=2)
    explorer = hookviz.explore(model, inputs[0][None], face="plain")
    explorer.layer, explorer.channel = f"{ATTENDS.format(0)}.heads", 1
    explorer.survey = survey
    assert "head 1 looks most at" in explorer._tops._facts.value
    assert "img" in explorer._tops._row.value
    explorer.close()


# an exported page


def test_a_page_holds_the_matrices_as_far_as_they_fit():
    model, digit = hookviz.models.demo_transformer(), hookviz.models.demo_digits()[7]
    explorer = hookviz.explore(model, digit, face="plain")
    layers = "*encoder_layer_*"
    whole = explorer.to_html(layers=layers)
    assert whole.count('"queries":{"grid":[6,6],"before":1,"first":1,"query":0') == 3
    said = "Other queries need the notebook."
    words = whole.count(said)  # of the program's other languages
    room = len(whole.encode())
    while (small := explorer.to_html(max_bytes=room)).count(said) == words:
        room -= 40_000  # the program's own size is not this test's
    assert len(small.encode()) <= room and "they need the notebook" in small
    explorer.close()
