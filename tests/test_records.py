"""All results share one format: strict JSON records with common keys, and narrow tables."""

import json
import math
import re
import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn

import hookviz
from hookviz.tables import text_table

LONG = "a_stage_with_a_long_name_of_its_own"


class Odd(nn.Module):
    """Return NaN in one channel, and Inf in another."""

    def forward(self, x):
        x = x.clone()
        x[:, 0], x[:, 1] = math.nan, math.inf
        return x


class Block(nn.Module):
    """A residual block with long layer names."""

    def __init__(self, channels, odd=False):
        super().__init__()
        self.the_convolution_of_the_residual_branch = nn.Conv2d(channels, channels, 3, padding=1)
        self.the_normalization_behind_the_convolution = nn.BatchNorm2d(channels)
        self.what_makes_numbers_odd = Odd() if odd else nn.Identity()

    def forward(self, x):
        branch = self.the_convolution_of_the_residual_branch(x)
        branch = self.the_normalization_behind_the_convolution(branch)
        return x + self.what_makes_numbers_odd(branch).relu()


def network(odd=False):
    """Return a classifier whose layer names do not fit into a table."""
    torch.manual_seed(0)
    stages = nn.Sequential()
    stages.add_module("stem", nn.Conv2d(3, 8, 7, stride=4))
    for number in range(3):
        stages.add_module(
            f"{LONG}_{number}", nn.Sequential(Block(8), Block(8, odd and number == 2))
        )
    stages.add_module("pool", nn.AdaptiveAvgPool2d(1))
    stages.add_module("flatten", nn.Flatten())
    stages.add_module("classifier", nn.Linear(8, 3))
    return stages.eval()


def cache(model, x):
    with hookviz.capture(model, nn.Module) as captured:
        model(x).sum().backward()
    return captured


def diagnosis(model, x):
    return hookviz.diagnose(model.train(), x)


def comparison(model, x):
    return hookviz.compare(network(), model, x)


def similarity(model, x):
    some = [torch.randn(8, 3, 64, 64) for _ in range(2)]
    return hookviz.similarity(model, model, some, nn.Conv2d)


def survey(model, x):
    return hookviz.survey(model, [(each, n % 2) for n, each in enumerate(x)], nn.Module, k=2)


def layer_survey(model, x):
    return survey(model, x)[f"{LONG}_1"]


def training(model, x):
    watch = hookviz.watch(model.train(), every=1)
    for _ in range(2):
        with watch:
            model(x).sum().backward()
    return watch


def table_of_hooks(model, x):
    for _ in range(2):
        for module in model.modules():
            module.register_forward_hook(lambda module, args, output: None)
    return hookviz.hooks(model)


def removed_hooks(model, x):
    table_of_hooks(model, x)
    nn.utils.parametrizations.weight_norm(model.classifier)
    return hookviz.remove_hooks(model)


def field(model, x):
    fields = hookviz.receptive_field(model, x, nn.Conv2d)
    return next(each for name, each in fields.items() if LONG in name)


CONVOLUTION = f"{LONG}_2.1.the_convolution_of_the_residual_branch"


def contributions(model, x):
    return hookviz.contributions(model, x, CONVOLUTION, channel=1, position=(2, 3))


def fields(model, x):
    return hookviz.receptive_field(model, x, nn.Conv2d)


def edit(model, x):
    with hookviz.edit(model, CONVOLUTION, 0, channels=[1, 2]) as edited:
        model(x)
    return edited


def curve(model, x):
    heatmaps = torch.rand(len(x), 64, 64)
    return hookviz.metrics.deletion_curve(model, x, heatmaps, lambda out: out.sum(), steps=2)


def sanity_check(model, x):
    return hookviz.metrics.sanity_check(network(), x, "saliency", steps=2)


def visualization(model, x):
    return hookviz.feature_visualization(network(), CONVOLUTION, [1, 2], steps=2, size=64)


def attention(model, x):
    """Return the attention of a module with a long name; the network itself has none."""
    attending = nn.Sequential()
    attending.add_module(LONG, nn.TransformerEncoderLayer(8, 2, 16, batch_first=True))
    return hookviz.attention(attending.eval(), x[:, 0, :5, :8])


def weights(model, x):
    explorer = hookviz.explore(model, x, layer="stem")
    found = explorer.weights(CONVOLUTION, channel=2)
    explorer.close()
    return found


RESULTS = {
    "graph": hookviz.graph,
    "contributions": contributions,
    "attention": attention,
    "weights": weights,
    "capture": cache,
    "trace": hookviz.trace,
    "diagnose": diagnosis,
    "compare": comparison,
    "similarity": similarity,
    "survey": survey,
    "layer_survey": layer_survey,
    "watch": training,
    "hooks": table_of_hooks,
    "remove_hooks": removed_hooks,
    "receptive_field": field,
    "receptive_fields": fields,
    "edit": edit,
    "curve": curve,
    "sanity_check": sanity_check,
    "feature_visualization": visualization,
}


@pytest.fixture(scope="module", params=[False, True], ids=["finite", "odd"])
def odd(request):
    return request.param


@pytest.fixture(scope="module", params=RESULTS)
def result(request, odd):
    """Return a result of a model with finite values, and of one with NaN and Inf."""
    model = network(odd)
    torch.manual_seed(1)
    x = torch.randn(4, 3, 64, 64)
    if odd and request.param in ("similarity", "receptive_field"):
        model = network()  # one needs finite values, the other reads none
    with warnings.catch_warnings():  # such as warnings of constant channels
        warnings.simplefilter("ignore")
        return request.param, RESULTS[request.param](model, x)


# The type of a key's values, which is the same in all results.
MEANINGS = {
    "layer": str,
    "layer_b": str,
    "type": str,
    "kind": str,
    "call": int,
    "channel": int,
    "index": int,
    "shape": list,
    "position": list,
    "dtype": str,
    "mean": float,
    "nans": int,
    "infs": int,
    "step": int,
    "phase": str,
    "file": str,
    "path": str,
}


def test_records_are_strict_json(result):
    name, found = result
    records = found.records()
    assert records, name
    assert json.loads(json.dumps(records, allow_nan=False)) == records
    assert len({tuple(record) for record in records}) == 1  # all records have the same columns
    for record in records:
        # The records of these are channels of one layer, or steps.
        assert "layer" in record or name in ("contributions", "weights", "curve", "sanity_check")
        # In a graph, "module" is the module whose code ran the operation.
        assert "module" not in record or name == "graph"
        for key, value in record.items():
            assert key.isidentifier()
            if key in MEANINGS and value is not None and value not in ("inf", "-inf"):
                assert isinstance(value, MEANINGS[key]), (key, value)
        for key in ("shape", "position"):
            assert all(type(each) is int for each in record.get(key) or ())


def test_tables_are_at_most_80_characters_wide(result):
    name, found = result
    for text in (repr(found), str(found)):
        wide = [line for line in text.splitlines() if len(line) > 80]
        assert not wide, name


def test_html_tables_have_unshortened_names(result, odd):
    name, found = result
    assert LONG in found._repr_html_() or name == "curve" or (name == "diagnose" and not odd)


VERDICTS = {"diagnose", "compare", "watch", "graph", "contributions", "attention", "weights"}
VERDICTS |= {"edit", "curve", "sanity_check", "feature_visualization"}


def test_result_pages_are_one_file_without_urls(result, odd, tmp_path):
    name, found = result
    if not odd:
        return  # a page of finite values has nothing else
    path = tmp_path / "page.html"
    if name == "survey":
        with pytest.raises(ValueError, match="only the numbers of its inputs|not a picture"):
            replace(found, reader=None).to_html(path)
    assert found.to_html(path, title="<b>A page</b>") is None
    page = path.read_text(encoding="utf-8")
    assert "<title>&lt;b&gt;A page&lt;/b&gt;</title>" in page
    assert "Content-Security-Policy" in page
    # Preact names these XML namespaces, which no browser fetches.
    own = re.sub("http://www.w3.org/(2000/svg|1999/xhtml|1998/Math/MathML)", "", page)
    assert "http://" not in own and "https://" not in own
    assert page == found.to_html(title="<b>A page</b>")


def test_a_pages_title_needs_no_rows(monkeypatch):
    layer = hookviz.survey(nn.Conv2d(1, 2, 1), torch.ones(1, 1, 2, 2), "")[""]
    page = layer.to_html()
    assert "<title>(model), Conv2d</title>" in page
    built, rows = [], type(layer)._as_table
    monkeypatch.setattr(type(layer), "_as_table", lambda self: built.append(self) or rows(self))
    assert layer.to_html() == page
    assert len(built) == 1


def test_verdicts_are_one_line(result, odd):
    name, found = result
    assert hasattr(found, "verdict") == (name in VERDICTS)
    verdict = getattr(found, "verdict", "")
    assert "\n" not in verdict
    assert name != "watch" or ("NaN first seen at step 0" in verdict) == odd


def test_contribution_records_have_infinity_as_text_and_nan_as_none():
    x = torch.randn(1, 3, 64, 64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        why = hookviz.contributions(network(odd=True), x, "classifier", channel=1)
    records = {each["channel"]: each for each in json.loads(json.dumps(why.records()))}
    assert records[0]["contribution"] is None and records[1]["contribution"] == "-inf"
    assert records[2]["contribution"] == pytest.approx(float(why.by_channel[2]))


def test_shortened_names_stay_distinct():
    names = [f"{LONG}_{number}.conv{place}" for number in range(3) for place in range(2)]
    rows = [(name, "x" * 60, "7") for name in names]
    told = text_table("Long names", ("layer", "note", "count"), rows)
    assert len({line.split()[0] for line in told.splitlines()[2:8]}) == len(names)


def test_a_table_of_one_row_has_one_line_per_cell():
    told = text_table("One", ("layer", "note"), [(LONG * 2, "as long as a note may well be")])
    assert told.splitlines()[1:] == [f"layer  {LONG * 2}", "note   as long as a note may well be"]
