"""The survey: equal to brute force however the set is cut, and nothing lost on the way."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sharded_survey import BATCH, LENGTH, K, Pictures, network, run
from torch import nn
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.hooking.tensors import as_maps
from hookviz.studies.survey.channels import _first_largest, picked
from hookviz.studies.survey.file import IndexRanges


def brute_force(model, inputs, layer, k=K, batch=BATCH):
    """Every activation kept, then sorted: maps ``(N, C, S)``, and the top of each channel."""
    module, kept = model.get_submodule(layer), []
    handle = module.register_forward_hook(lambda m, i, o: kept.append(as_maps(o.clone(), m)))
    with torch.no_grad():
        for part in inputs.split(batch):
            model(part)
    handle.remove()
    maps = torch.cat(kept)
    shape, flat = maps.shape[2:], maps.flatten(2)
    tops = []
    for channel in range(flat.shape[1]):
        ranked = []
        for index, values in enumerate(flat[:, channel].tolist()):
            known = [value for value in values if value == value]
            if known:
                place = values.index(max(known))
                position = tuple(int(each) for each in np.unravel_index(place, shape))
                ranked.append((-max(known), index, position))
        tops.append([(i, -value, p) for value, i, p in sorted(ranked)[:k]])
    return flat, tops


def agrees(layer, flat, tops):
    """Whether a layer's survey says what brute force does."""
    for channel, top in enumerate(tops):
        assert [each[:3] for each in layer.top(channel)] == top, channel
        values = flat[:, channel].flatten().double()
        values = values[~values.isnan()]
        tolerance = {"rtol": 1e-6, "atol": 1e-6}
        torch.testing.assert_close(layer.mean[channel], values.mean(), **tolerance)
        torch.testing.assert_close(layer.std[channel], values.std(correction=0), **tolerance)
        assert layer.zeros[channel] == (values == 0).double().mean()
        assert bool(layer.never_positive[channel]) == bool(values.max() <= 0)
    assert torch.equal(layer.nans, flat.isnan().sum((0, 2)))


def same(one, two):
    """Whether two surveys are the same: to the bit, and sums of floats to 12 digits."""
    for a, b in ((one, two), (two, one)):
        assert dict(a.channels.layout) == dict(b.channels.layout)
        assert a.done.runs == b.done.runs and a.unread == b.unread
        for name, tensor in a.channels.data.items():
            other = b.channels.data[name]
            if name == "moments":
                assert torch.equal(tensor[0], other[0]), "counts"
                torch.testing.assert_close(tensor, other, rtol=1e-12, atol=1e-12)
            else:
                assert torch.equal(tensor, other), name
    assert repr(one) == repr(two)


@pytest.fixture(scope="module")
def whole():
    return hookviz.survey(network(), Pictures(), nn.Conv2d, k=K, batch_size=BATCH)


# Equal to brute force


@pytest.mark.parametrize("layer", ["0", "3"])
def test_equal_to_brute_force(whole, layer):
    assert whole.complete and whole.seen == LENGTH
    agrees(whole[layer], *brute_force(network(), Pictures().inputs, layer))


def test_ties_are_in_the_order_of_indices():
    model = nn.Sequential(nn.Conv2d(2, 3, 1))
    model[0].weight.data.copy_(torch.eye(3, 2)[..., None, None])
    model[0].bias.data.zero_()
    inputs = Pictures().inputs
    halves = [
        hookviz.survey(model, list(inputs), k=K, batch_size=BATCH, shard=(n, 2)) for n in (1, 0)
    ]
    flat, tops = brute_force(model, inputs, "0")
    assert len({value for _, value, _ in tops[0]}) == 1
    agrees((halves[0] + halves[1])["0"], flat, tops)


@pytest.mark.parametrize("kind", ["plain", "ties", "zeros", "NaN", "few"])
def test_the_first_of_equal_values_are_found_among_many(kind):
    values = torch.randn(1600, 7, generator=torch.Generator().manual_seed(0))
    values = {
        "plain": values,
        "ties": (values * 4).round(),
        "zeros": values.relu(),
        "NaN": values.where(values > -2.5, torch.nan),
        "few": values.where(values > 3, -torch.inf),
    }[kind]
    found = _first_largest(values, 9)
    assert torch.equal(found, values.argsort(dim=0, descending=True, stable=True)[:9])


@pytest.mark.parametrize("count", [1, 2, 7])
def test_shards_make_the_whole(whole, count):
    given = {"k": K, "batch_size": BATCH}
    parts = [
        hookviz.survey(network(), Pictures(), nn.Conv2d, **given, shard=(rank, count))
        for rank in range(count)
    ]
    assert sum(len(each.done) for each in parts) == LENGTH
    same(reduce(add, parts), whole)
    same(reduce(add, parts[::-1]), whole)
    with pytest.raises(ValueError, match="both have the inputs"):
        parts[0] + parts[0]


def test_another_batch_size_sums_up_alike(whole):
    # Small whole numbers, so that the first layer is the same for every batch size.
    model = nn.Sequential(nn.Conv2d(2, 4, 3, bias=False))
    nn.init.ones_(model[0].weight)
    one, two = (hookviz.survey(model, Pictures(), k=K, batch_size=size) for size in (BATCH, LENGTH))
    same(one, two)


NETWORKS = {
    "1d": (nn.Sequential(nn.Conv1d(2, 5, 3), nn.ReLU(), nn.Conv1d(5, 3, 2)), (2, 17), "2"),
    "3d": (nn.Sequential(nn.Conv3d(1, 4, 3), nn.ReLU()), (1, 5, 6, 4), "1"),
    "features": (nn.Sequential(nn.Linear(6, 4), nn.ReLU()), (6,), "1"),
    "tokens": (nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8)), (16, 6), "1"),
    "float64": (nn.Sequential(nn.Conv2d(1, 3, 3)).double(), (1, 6, 6), "0"),
    "channels last": (
        nn.Sequential(nn.Conv2d(3, 4, 3)).to(memory_format=torch.channels_last),
        (3, 9, 8),
        "0",
    ),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_kinds_of_layers(kind):
    model, shape, layer = NETWORKS[kind]
    dtype = next(model.parameters()).dtype
    inputs = torch.randn(13, *shape, generator=torch.manual_seed(1)).to(dtype)
    survey = hookviz.survey(model, list(inputs), layer, k=K, batch_size=BATCH)
    agrees(survey[layer], *brute_force(model, inputs, layer))


class Sour(nn.Module):
    """Makes NaN of what is above 3; all of an input's values if its first is."""

    def forward(self, x):
        whole = (x[:, :1, 0, 0] > 2)[..., None, None]
        return torch.where((x > 3) | whole, torch.nan, x)


def test_nan_is_counted_and_not_ranked():
    model = nn.Sequential(nn.Conv2d(2, 4, 3), Sour())
    model[0].weight.data.mul_(3)
    inputs = Pictures().inputs
    survey = hookviz.survey(model, list(inputs), ["0", "1"], k=K, batch_size=BATCH)
    flat, tops = brute_force(model, inputs, "1")
    assert flat.isnan().any() and flat.isnan().all(2).any()
    agrees(survey["1"], flat, tops)
    first = flat.isnan().any(2).int().argmax(0)
    assert torch.equal(survey["1"].data["first_nan"], first)
    assert "NaN in 1, channels" in survey.title and "first in input" in survey.title
    agrees(survey["0"], *brute_force(model, inputs, "0"))


def test_large_means_keep_their_spread():
    model = nn.Sequential(nn.Conv2d(1, 1, 1))
    model[0].weight.data[:] = 1
    model[0].bias.data[:] = 5000
    inputs = torch.rand(9, 1, 20, 20)
    survey = hookviz.survey(model, list(inputs))
    flat, _ = brute_force(model, inputs, "0")
    torch.testing.assert_close(
        survey["0"].std[0], flat.double().std(correction=0), rtol=1e-5, atol=0
    )


def test_inputs_of_several_sizes():
    inputs = [torch.randn(1, 5 + n, 9 - n) for n in range(4)]
    model = nn.Sequential(nn.Conv2d(1, 2, 3))
    survey = hookviz.survey(model, inputs, batch_size=1)
    for index, _, position, _ in survey["0"].top(1):
        with torch.no_grad():
            maps = model(inputs[index][None])[0, 1]
        assert maps[position] == maps.max()
    with pytest.raises(ValueError, match="Inputs 0 and 1 differ in shape, 1×5×9 and 1×6×8"):
        hookviz.survey(model, inputs)


def test_quantiles():
    model = nn.Sequential(nn.Conv2d(2, 4, 3))
    inputs = torch.randn(300, 2, 8, 8, generator=torch.manual_seed(0))
    layer = hookviz.survey(model, list(inputs))["0"]
    flat, _ = brute_force(model, inputs, "0")
    values = flat.movedim(1, 0).flatten(1).double()
    for q in (0.02, 0.25, 0.5, 0.9, 0.99):
        share = (values <= layer.quantile(q)[:, None]).double().mean(1)
        assert (share - q).abs().max() < 0.03, q
    assert torch.equal(layer.quantile(1), values.amax(1))
    assert layer.quantile(0.5, 2) == layer.quantile(0.5)[2]
    with pytest.raises(ValueError, match="q=50 is not a quantile"):
        layer.quantile(50)


def test_the_sketch_looks_everywhere():
    places = picked(torch.arange(128), 10_000, 100)
    assert places.shape == (128, 2)
    assert places.flatten().bincount(minlength=100).max() <= 4


def test_a_layer_that_runs_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.relu = nn.Conv2d(2, 2, 3, padding=1), nn.ReLU(True)

        def forward(self, x):
            return self.relu(self.conv(self.relu(self.conv(x))))

    survey = hookviz.survey(Twice(), Pictures(), ["conv", "relu"], k=K)
    assert list(survey) == ["conv", ("conv", 1), "relu", ("relu", 1)]
    assert survey["relu", 0] is survey["relu"]
    assert survey["relu", 1].top(0) != survey["relu"].top(0)
    with pytest.raises(KeyError, match="close to it: 'conv'"):
        survey["conf"]


def test_what_is_no_maps_is_left_out():
    class Cut(nn.Module):
        def forward(self, x):
            return x.unflatten(2, (7, 1)).movedim(2, 0).flatten(0, 1)

    model = nn.Sequential(nn.Conv2d(2, 2, 1), Cut())
    with pytest.warns(RuntimeWarning, match="'1' is left out: it returns shape"):
        survey = hookviz.survey(model, Pictures(), ["0", "1"])
    assert list(survey) == ["0"] and "1 was left out" in survey.title
    with pytest.raises(KeyError, match="was left out"):
        survey["1"]


# What it says


def test_classes(whole):
    inputs = [(torch.full((1, 2, 2), float(n % 5)), n % 5) for n in range(20)]
    model = nn.Sequential(nn.Conv2d(1, 2, 1))
    with torch.no_grad():
        model[0].weight[:] = torch.tensor([1.0, -1.0])[:, None, None, None]
    survey = hookviz.survey(model, inputs, k=4, class_names=list("vwxyz"))
    assert survey["0"].classes(0) == [("z", 4)]
    assert survey.find("z") == [("0", 0, 4)] and survey.find(0) == [("0", 1, 4)]
    assert survey.find("x") == []
    assert hookviz.survey(model, inputs, k=6).find(4, fraction=0.5) == [("0", 0, 4)]
    assert whole.class_names == ["a", "b", "c"]
    with pytest.raises(ValueError, match="No class is called 'eye'"):
        survey.find("eye")
    with pytest.raises(ValueError, match="fraction=2"):
        survey.find("z", fraction=2)
    with pytest.raises(ValueError, match="has no classes"):
        hookviz.survey(model, [each for each, _ in inputs]).find(0)


def test_records_and_tables(whole):
    records = whole.records()
    assert len(records) == 10 and records[4]["layer"] == "3"
    assert records[4]["max"] == whole["3"].top(0)[0][1]
    assert "2 layers, 10 channels, 41 inputs" in repr(whole)
    assert "<table>" in whole._repr_html_()
    assert len(repr(whole["3"]).splitlines()) == 8
    with pytest.raises(ValueError, match="has no channel 6"):
        whole["3"].top(6)


def test_boxes(whole):
    field = hookviz.receptive_field(network(), Pictures().inputs[:1], "3")
    for channel in range(6):
        for *_, position, box in whole["3"].top(channel):
            assert box == field.box(*position)
    rule = {"size": [5, 3], "stride": [2, 1], "start": [-1, 0], "input_size": [7, 7]}
    layer = replace(whole, fields={"3": rule})["3"]
    assert layer.box((0, 0)) == (0, 0, 4, 3)
    assert layer.box((2, 5)) == (3, 5, 7, 7)
    unknown = replace(whole, fields={})["3"]
    assert unknown.box((0, 0)) is None and unknown.top(0, 1)[0][3] is None


def test_boxes_are_known_only_of_inputs_of_one_size():
    model = nn.Sequential(nn.Conv2d(1, 2, 3))
    inputs = [torch.randn(1, 8, 9 if n < 3 else 7) for n in range(4)]
    given = {"batch_size": 1}
    assert hookviz.survey(model, inputs[:3], **given)["0"].top(0)[0][3] is not None
    parts = [hookviz.survey(model, inputs, **given, shard=(n, 2)) for n in range(2)]
    assert parts[0].fields and not parts[1].fields
    for whole in (parts[0] + parts[1], parts[1] + parts[0]):
        assert whole["0"].top(0)[0][3] is None


def test_a_folder_of_pictures(tmp_path):
    for number, picture in enumerate(hookviz.demo_images()[:12:2]):
        folder = tmp_path / picture.info["label"]
        folder.mkdir(exist_ok=True)
        picture.save(folder / f"{number}.png")
    survey = hookviz.survey(hookviz.demo_model(), tmp_path, "layer3.1.conv2", k=2)
    assert survey.class_names[:2] == ["ball", "fish"] and survey.mark.length == 6
    assert survey.find("fish", fraction=0.5)
    (tmp_path / "loose.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"Input 4 .* cannot be read as a picture"):
        hookviz.survey(hookviz.demo_model(), tmp_path, "stem.0")
    survey = hookviz.survey(hookviz.demo_model(), tmp_path, "stem.0", on_error="skip")
    assert list(survey.unread) == [4] and survey.seen == 6 and survey.complete


def test_skipped_inputs_are_the_same_in_every_cut():
    class Holes(Pictures):
        def __getitem__(self, index):
            if index in (0, 9, 10, 40):
                raise OSError("worn out")
            return super().__getitem__(index)

    given = {"k": K, "batch_size": BATCH, "on_error": "skip"}
    whole = hookviz.survey(network(), Holes(), **given)
    halves = [hookviz.survey(network(), Holes(), **given, shard=(n, 2)) for n in range(2)]
    same(halves[1] + halves[0], whole)
    assert whole.unread[9] == "OSError: worn out"
    assert "4 could not be read (0, 9, 10, 40)" in whole.title
    with pytest.raises(ValueError, match=r"Input 0 .*OSError: worn out"):
        hookviz.survey(network(), Holes())


def test_the_model_is_untouched():
    model = hookviz.demo_model().train()
    before = snapshot(model)
    hookviz.survey(model, hookviz.demo_images()[:5])
    assert_untouched(model, before)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"k": 0}, ValueError, "k=0 is too small"),
        ({"batch_size": 0}, ValueError, "batch_size=0 is too small"),
        ({"num_workers": -1}, ValueError, "num_workers=-1 is negative"),
        ({"on_error": "hope"}, ValueError, "on_error='hope'"),
        ({"shard": (2, 2)}, ValueError, "shard="),
        ({"inputs": []}, ValueError, "list is empty"),
        ({"inputs": {"a": 1}}, TypeError, "A dict has no inputs with an index"),
        ({"inputs": iter([])}, TypeError, "has no inputs with an index"),
        ({"inputs": "nowhere"}, ValueError, "Missing folder 'nowhere'"),
        ({"inputs": [object()]}, ValueError, "an object|a object is not a picture"),
        ({"layers": "conv9"}, ValueError, "No layer of Sequential is called 'conv9'"),
        ({"path": "nowhere/survey.npz"}, ValueError, "Missing folder 'nowhere'"),
        (
            {"inputs": torch.utils.data.DataLoader([1])},
            TypeError,
            r"A DataLoader may shuffle.*\.dataset",
        ),
    ],
)
def test_errors_are_a_sentence(given, error, said):
    with pytest.raises(error, match=said):
        hookviz.survey(network(), **({"inputs": Pictures()} | given))


# Nothing lost


class Stopped(Pictures):
    """Ends the survey at an input, once."""

    def __init__(self, at, error):
        super().__init__()
        self.at, self.error = at, error

    def __getitem__(self, index):
        if index == self.at:
            self.at = -1
            raise self.error
        return super().__getitem__(index)


Stopped.__name__ = "Pictures"  # the data set's class is in the file


def test_an_interrupt_keeps_what_was_done(whole, tmp_path):
    path = tmp_path / "survey.npz"
    given = {"k": K, "batch_size": BATCH, "path": path}
    with pytest.warns(RuntimeWarning, match="interrupted after 20 of 41 inputs"):
        part = hookviz.survey(network(), Stopped(22, KeyboardInterrupt()), nn.Conv2d, **given)
    assert not part.complete and part.seen == 20 and "20 of 41 inputs" in repr(part)
    same(hookviz.load(path), part)
    same(hookviz.survey(network(), Pictures(), nn.Conv2d, **given), whole)
    same(hookviz.load(path), whole)
    assert [each.name for each in tmp_path.iterdir()] == ["survey.npz"]


def test_an_error_keeps_what_was_done(whole, tmp_path):
    given = {"k": K, "batch_size": BATCH, "path": tmp_path / "survey.npz"}
    with pytest.raises(ValueError, match="Input 22"):
        hookviz.survey(network(), Stopped(22, OSError("worn out")), nn.Conv2d, **given)
    assert hookviz.load(given["path"]).seen == 20
    same(hookviz.survey(network(), Pictures(), nn.Conv2d, **given), whole)


def test_a_killed_survey_goes_on(whole, tmp_path):
    assert run(tmp_path, 1, dies=True) == [(-9, "")]
    assert hookviz.load(tmp_path / "survey.npz").seen == 32
    assert run(tmp_path, 1) == [(0, "")]
    same(hookviz.load(tmp_path / "survey.npz"), whole)


def test_two_processes_and_one_that_dies(whole, tmp_path):
    assert run(tmp_path, 2, dies=True) == [(0, ""), (-9, "")]
    names = ["survey.0-of-2.npz", "survey.1-of-2.npz"]
    assert sorted(path.name for path in tmp_path.glob("*.npz")) == names
    assert hookviz.load(tmp_path / names[0]).seen == 20
    assert hookviz.load(tmp_path / names[1]).seen == 12
    assert run(tmp_path, 2) == [(0, ""), (0, "")]
    assert sorted(path.name for path in tmp_path.glob("*.npz")) == names
    same(hookviz.load(tmp_path / "survey.*-of-2.npz"), whole)


def test_one_process_goes_on_where_two_were(whole, tmp_path):
    run(tmp_path, 2, dies=True)
    hookviz.load(tmp_path / "survey.*-of-2.npz").save(tmp_path / "survey.npz")
    given = {"k": K, "batch_size": BATCH, "path": tmp_path / "survey.npz"}
    same(hookviz.survey(network(), Pictures(), nn.Conv2d, **given), whole)


def test_a_shard_has_a_file_of_its_own(whole, tmp_path):
    given = {"k": K, "batch_size": BATCH, "path": tmp_path / "survey.npz"}
    for rank in range(3):
        hookviz.survey(network(), Pictures(), nn.Conv2d, **given, shard=(rank, 3))
    same(hookviz.load(tmp_path / "survey.*-of-3.npz"), whole)
    with pytest.raises(FileNotFoundError, match="Missing file"):
        hookviz.load(tmp_path / "survey.*-of-4.npz")


def other_weights():
    model = network()
    with torch.no_grad():
        model[3].weight[0] += 1e-3
    return model


def stride():
    model = network()
    model[3].stride = (1, 1)
    return model


class Longer(Pictures):
    def __len__(self):
        return LENGTH - 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": hookviz.demo_model, "layers": None}, "one is of a Sequential, the other"),
        ({"model": other_weights}, "the models differ, in the values of '3.weight'"),
        ({"model": stride}, "the models differ, in the settings of their layers"),
        ({"inputs": Longer()}, "a Pictures of 41 inputs and a Longer of 40"),
        ({"transform": torch.neg}, "the transforms differ"),
        ({"layers": "3"}, "the layers differ, '0' in only one of them"),
        ({"k": 4}, "k differs, 3 and 4"),
    ],
)
def test_a_file_of_something_else_is_refused(given, said, whole, tmp_path):
    path = tmp_path / "survey.npz"
    whole.save(path)
    before = path.read_bytes()
    usual = {"model": network, "inputs": Pictures(), "layers": nn.Conv2d, "k": K} | given
    usual["model"] = usual["model"]()
    with pytest.raises(ValueError, match="is not of this survey: ") as raised:
        hookviz.survey(**usual, path=path)
    assert said in str(raised.value)
    assert path.read_bytes() == before


def test_other_names_of_pictures_are_refused(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / f"{name}.png")
    given = {"layers": "stem.0", "path": tmp_path / "survey.npz"}
    hookviz.survey(hookviz.demo_model(), tmp_path / "one", **given)
    with pytest.raises(ValueError, match="differ, both PictureFolders, in the names"):
        hookviz.survey(hookviz.demo_model(), tmp_path / "two", **given)


def forbidden(path):
    raise PermissionError(13, "Permission denied", str(path))


@pytest.mark.parametrize("harm", ["cut", "text", "empty", "other"])
def test_a_broken_file_is_told_and_kept(harm, whole, tmp_path, monkeypatch):
    path = tmp_path / "survey.npz"
    whole.save(path)
    content = path.read_bytes()
    if harm == "other":
        np.savez(path, values=np.zeros(3))
    else:
        path.write_bytes({"cut": content[: len(content) // 2], "text": b"hello"}.get(harm, b""))
    before = path.read_bytes()
    reason = "an .npz archive that hookviz did not write" if harm == "other" else "no .npz archive"
    with pytest.raises(ValueError, match=rf"is broken, or not a survey.*\({reason}"):
        hookviz.survey(network(), Pictures(), nn.Conv2d, k=K, path=path)
    assert path.read_bytes() == before
    with monkeypatch.context() as patch, pytest.raises(ValueError, match=r"broken.*\(Permission"):
        patch.setattr(Path, "read_bytes", forbidden)
        hookviz.load(path)
    with pytest.raises(FileNotFoundError, match="Missing file"):
        hookviz.load(tmp_path / "none.npz")


def test_a_file_needs_no_pickle(whole, tmp_path):
    whole.save(tmp_path / "survey.npz")
    with np.load(tmp_path / "survey.npz", allow_pickle=False) as file:
        assert {file[name].dtype.kind for name in file.files} <= set("iufU")


def test_workers_read_alike(whole):
    given = {"k": K, "batch_size": BATCH, "num_workers": 1}
    same(hookviz.survey(network(), Pictures(), nn.Conv2d, **given), whole)


def test_spans():
    spans = IndexRanges([(0, 4), (6, 9)])
    assert spans.batches(12, 4) == [range(4, 6), range(9, 12)]
    assert (spans & IndexRanges([(3, 7)])).runs == [(3, 4), (6, 7)]
