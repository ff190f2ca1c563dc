"""The survey equals brute force for any division of the data set."""

import itertools
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
import torch
from architectures import model_of
from torch import nn

import hookviz
from hookviz.hooking.maps import as_maps

LENGTH, BATCH, K = 41, 4, 3
SETTINGS = {"k": K, "batch_size": BATCH}


class Pictures:
    """Random inputs with ties and classes; reading an index in ``errors`` raises that error."""

    classes = ["a", "b", "c"]

    def __init__(self, errors=(), seed=3):
        inputs = torch.randint(-2, 3, (LENGTH, 2, 7, 7), generator=torch.manual_seed(seed))
        self.inputs, self.errors = inputs.float(), dict(errors)

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        if index in self.errors:
            raise self.errors[index]
        return self.inputs[index], index % 3


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.Conv2d(4, 6, 3, stride=2)
    ).eval()


def brute_force(model, inputs, layer):
    """Return all activations ``(N, C, S)``, and the top inputs of each channel."""
    module, kept = model.get_submodule(layer), []
    handle = module.register_forward_hook(lambda m, i, o: kept.append(as_maps(o.clone(), m)))
    with torch.no_grad():
        for part in inputs.split(BATCH):
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
        tops.append([(i, -value, p) for value, i, p in sorted(ranked)[:K]])
    return flat, tops


def assert_agrees(layer, flat, tops):
    """Assert that a layer's survey equals brute force."""
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


def assert_same(one, two):
    """Assert that two surveys agree exactly, and in sums of floats to 12 digits."""
    assert list(one.layers) == list(two.layers)
    assert torch.equal(one.covered, two.covered) and one.unread == two.unread
    for a, b in zip(one.layers.values(), two.layers.values(), strict=True):
        assert a.shape == b.shape
        assert torch.equal(a.histogram, b.histogram) and torch.equal(a.first_nan, b.first_nan)
        for x, y in zip(a.top, b.top, strict=True):
            assert torch.equal(x, y)
        for name in ("count", "zeros", "nans", "infs"):
            assert torch.equal(getattr(a.moments, name), getattr(b.moments, name))
        for name in ("mean", "squares"):
            sums = getattr(a.moments, name), getattr(b.moments, name)
            torch.testing.assert_close(*sums, rtol=1e-12, atol=1e-12)
    assert repr(one) == repr(two)


@pytest.fixture(scope="module")
def whole():
    return hookviz.survey(network(), Pictures(), nn.Conv2d, **SETTINGS)


def parts_of(count, data=None, **settings):
    """Return the surveys of all parts of a data set."""
    data = data or Pictures()
    return [
        hookviz.survey(network(), data, nn.Conv2d, **SETTINGS, **settings, shard=(part, count))
        for part in range(count)
    ]


# Statistics


@pytest.mark.parametrize("layer", ["0", "3"])
def test_a_survey_equals_brute_force(whole, layer):
    assert whole.complete and whole.seen == LENGTH
    assert_agrees(whole[layer], *brute_force(network(), Pictures().inputs, layer))


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
def test_surveys_of_all_kinds_of_layers_equal_brute_force_and_can_be_saved(kind, tmp_path):
    model, shape, layer = NETWORKS[kind]
    dtype = next(model.parameters()).dtype
    inputs = torch.randn(13, *shape, generator=torch.manual_seed(1)).to(dtype)
    survey = hookviz.survey(model, list(inputs), layer, **SETTINGS)
    assert_agrees(survey[layer], *brute_force(model, inputs, layer))
    survey.save(tmp_path / "survey.npz")
    assert_same(hookviz.load(tmp_path / "survey.npz"), survey)


class NaNMaker(nn.Module):
    """Turn values above 3 into NaN, and a whole input if its first value is above 2."""

    def forward(self, x):
        whole = (x[:, :1, 0, 0] > 2)[..., None, None]
        return torch.where((x > 3) | whole, torch.nan, x)


def test_nan_is_counted_and_not_ranked():
    model = nn.Sequential(nn.Conv2d(2, 4, 3), NaNMaker())
    model[0].weight.data.mul_(3)
    inputs = Pictures().inputs
    survey = hookviz.survey(model, list(inputs), ["0", "1"], **SETTINGS)
    flat, tops = brute_force(model, inputs, "1")
    assert flat.isnan().any() and flat.isnan().all(2).any()
    assert_agrees(survey["1"], flat, tops)
    assert torch.equal(survey["1"].statistics.first_nan, flat.isnan().any(2).int().argmax(0))
    parts = [
        hookviz.survey(model, list(inputs), ["0", "1"], **SETTINGS, shard=(n, 2)) for n in (1, 0)
    ]
    assert_same(parts[0] + parts[1], survey)
    assert "NaN in 1 (channels " in survey.title and "first in input" in survey.title
    assert_agrees(survey["0"], *brute_force(model, inputs, "0"))


def test_inputs_of_several_sizes_need_batch_size_1():
    inputs = [torch.randn(1, 5 + n, 9 - n) for n in range(4)]
    model = nn.Sequential(nn.Conv2d(1, 2, 3))
    survey = hookviz.survey(model, inputs, batch_size=1)
    ((index, value, position, box),) = survey["0"].top(1, 1)
    with torch.no_grad():
        maps = model(inputs[index][None])[0, 1]
    assert maps[position] == maps.max() == value and box is None
    assert survey["0"].shape == (6, 7)  # the largest of each side
    with pytest.raises(ValueError, match="Inputs 0 and 1 differ in shape, 1×5×9 and 1×6×8"):
        hookviz.survey(model, inputs)


@pytest.mark.parametrize("labels", [torch.arange(4), torch.rand(4, 6, 6)])
def test_a_batch_of_a_loader_is_recognized(labels):
    model = nn.Sequential(nn.Conv2d(3, 2, 3))
    for batch in ([torch.rand(4, 3, 6, 6), labels], (torch.rand(4, 3, 6, 6), labels)):
        with pytest.raises(ValueError, match=r"inputs and labels, .*: give batch\[0\]"):
            hookviz.survey(model, batch)
    assert hookviz.survey(model, batch[0]).seen == 4


def test_quantiles_are_within_three_percent(whole):
    layer = whole["0"]
    values = brute_force(network(), Pictures().inputs, "0")[0].movedim(1, 0).flatten(1).double()
    for q in (0.02, 0.5, 0.99):
        share = (values <= layer.quantile(q)[:, None]).double().mean(1)
        assert (share - q).abs().max() < 0.03, q
    assert torch.equal(layer.quantile(1), values.amax(1))
    with pytest.raises(ValueError, match="q=50 cannot be used"):
        layer.quantile(50)


def test_a_survey_without_any_layer_says_why_it_cannot_be_shown():
    with pytest.warns(RuntimeWarning, match="'conv' is left out"):
        # A model of clips whose convolution takes their frames as samples.
        survey = hookviz.survey(
            model_of(
                lambda m, clips: m.conv(clips.flatten(0, 1)).mean((2, 3)).view(len(clips), -1),
                conv=nn.Conv2d(3, 2, 1),
            ),
            [torch.rand(4, 3, 5, 5)] * 3,
        )
    for show in (survey.show, survey.to_html):
        with pytest.raises(
            ValueError, match=r"no layers to show.*left out: conv \(it returns shape"
        ):
            show()


def test_layers_that_get_the_inputs_in_another_order_are_left_out():
    # The second layer gets the inputs in reverse order, the third gets each input twice.
    model = model_of(
        lambda m, x: m.first(x) + m.second(x.flip(0)) + m.third(torch.cat([x, x]))[: len(x)],
        **{name: nn.Conv2d(2, 2, 1) for name in ("first", "second", "third")},
    )
    with pytest.warns(RuntimeWarning, match="is left out: ") as told:
        survey = hookviz.survey(model, Pictures())
    messages = sorted(str(each.message) for each in told)
    assert "'second' is left out: its rows are the inputs in another order." in messages
    assert "'third' is left out: it returns shape (64, 2, 7, 7) for 32 inputs" in messages[-1]
    assert list(survey) == ["first"] and set(survey.left_out) == {"second", "third"}
    assert "; left out: " in survey.title and "second (its rows" in survey.title
    with pytest.raises(KeyError, match="was left out"):
        survey["third"]


def test_each_call_of_a_layer_has_its_own_survey():
    survey = hookviz.survey(
        model_of(
            lambda m, x: m.relu(m.conv(m.relu(m.conv(x)))),
            conv=nn.Conv2d(2, 2, 3, padding=1),
            relu=nn.ReLU(True),
        ),
        Pictures(),
        ["conv", "relu"],
        k=K,
    )
    assert list(survey) == ["conv", ("conv", 1), "relu", ("relu", 1)]
    assert survey["relu", 0] is survey["relu"]
    assert survey["relu", 1].top(0) != survey["relu"].top(0)
    with pytest.raises(KeyError, match="close to it: 'conv'"):
        survey["conf"]


# Parts of a data set


@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_parts_add_up_to_the_whole_in_any_order(whole, count):
    parts = parts_of(count)
    assert sum(part.seen for part in parts) == LENGTH
    assert all(part.complete == (count == 1) for part in parts)
    for order in (parts, parts[::-1], [*parts[1::2], *parts[::2]]):
        assert_same(reduce(add, order), whole)


def test_the_documented_torchrun_script_runs(tmp_path, monkeypatch):
    """Run the how-to's torchrun script in one process after the other."""
    monkeypatch.chdir(tmp_path)
    Path("pictures").mkdir()
    for number, picture in enumerate(hookviz.demo_images()[:16]):
        picture.resize((24, 24)).save(f"pictures/{number}.png")
    script = Path(__file__).parents[2] / "docs" / "howto" / "survey_part.py"
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        run_path(str(script))
    parts = [hookviz.load(f"part-{rank}-of-2.npz") for rank in range(2)]
    assert all(part.seen == 8 for part in parts) and (parts[1] + parts[0]).complete


def test_a_part_is_marked_as_partial_and_cannot_be_added_twice(whole):
    halves = parts_of(2)
    assert "20 of 41 inputs (partial)" in repr(halves[0])
    assert "41 inputs" in repr(whole) and "partial" not in repr(whole)
    with pytest.raises(ValueError, match="both contain input 0 and 19 more; add each part once"):
        halves[0] + halves[0]
    with pytest.raises(ValueError, match="both contain input 20 and 20 more"):
        halves[1] + whole


def other_weights():
    model = network()
    with torch.no_grad():
        model[3].weight[0] += 1e-3
    return model


def other_stride():
    model = network()
    model[3].stride = (1, 1)
    return model


class Longer(Pictures):
    def __len__(self):
        return LENGTH - 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": hookviz.demo_model, "layers": None}, "one is of a Sequential, the other"),
        ({"model": other_weights}, "the two Sequentials differ in their weights"),
        ({"model": other_stride}, "or in the settings of their layers"),
        ({"inputs": Longer()}, "a Pictures of 41 inputs and a Longer of 40"),
        ({"inputs": Pictures(seed=4)}, "both of class Pictures, in their first input"),
        ({"transform": torch.neg}, "the transforms differ"),
        ({"layers": "3"}, "they are of different layers"),
        ({"k": 4}, "k differs, 3 and 4"),
    ],
)
def test_parts_of_a_different_survey_cannot_be_added(changes, message, whole):
    arguments = {"model": network, "inputs": Pictures(), "layers": nn.Conv2d, "k": K} | changes
    if arguments["model"] is hookviz.demo_model:
        arguments["inputs"] = hookviz.demo_images()[:2]
    other = hookviz.survey(arguments.pop("model")(), **arguments, shard=(0, 2))
    with pytest.raises(ValueError, match="cannot be added: ") as raised:
        whole + other
    assert message in str(raised.value)


def test_a_saved_survey_refuses_other_inputs_of_the_same_kind(whole, tmp_path):
    whole.save(tmp_path / "survey.npz")
    assert hookviz.load(tmp_path / "survey.npz", Pictures()).dataset is not None
    with pytest.raises(ValueError, match="not the one of the survey: .* in their first input"):
        hookviz.load(tmp_path / "survey.npz", Pictures(seed=4))


def test_an_interrupt_returns_the_inputs_so_far(whole, tmp_path):
    interrupted = Pictures({22: KeyboardInterrupt()})
    with pytest.warns(RuntimeWarning, match="interrupted: it covers 20 of 41 inputs"):
        part = hookviz.survey(network(), interrupted, nn.Conv2d, **SETTINGS)
    assert part.seen == 20 and "20 of 41 inputs (partial)" in repr(part)
    part.save(tmp_path / "part.npz")
    # The interrupted survey covers the first half, so the second can be added to it.
    assert_same(hookviz.load(tmp_path / "part.npz") + parts_of(2)[1], whole)


def test_worker_processes_do_not_change_the_survey(whole):
    assert_same(hookviz.survey(network(), Pictures(), nn.Conv2d, **SETTINGS, num_workers=1), whole)


def test_skipped_inputs_are_the_same_for_every_division():
    data = Pictures(dict.fromkeys((0, 9, 10, 40), OSError("worn out")))
    whole = hookviz.survey(network(), data, nn.Conv2d, **SETTINGS, on_error="skip")
    assert_same(reduce(add, parts_of(2, data, on_error="skip")), whole)
    assert whole.unread[9] == "OSError: worn out"
    assert whole.seen == LENGTH - 4 and whole.complete
    assert "4 could not be read (0, 9, 10, 40)" in whole.title
    with pytest.raises(ValueError, match=r"Input 0 .*OSError: worn out.*on_error=.skip"):
        hookviz.survey(network(), data)


# Classes, records, boxes


def test_channels_are_found_by_the_classes_of_their_top_inputs(whole):
    inputs = [(torch.full((1, 2, 2), float(n % 5)), n % 5) for n in range(20)]
    model = nn.Sequential(nn.Conv2d(1, 2, 1))
    model[0].weight.data[:] = torch.tensor([1.0, -1.0])[:, None, None, None]
    survey = hookviz.survey(model, inputs, k=4, class_names=list("vwxyz"))
    assert survey["0"].classes(0) == [("z", 4)]
    assert [survey.find(name) for name in ("z", 0, "x")] == [[("0", 0, 4)], [("0", 1, 4)], []]
    six = hookviz.survey(model, inputs, k=6)
    assert six.find(4, fraction=0.5) == [("0", 0, 4)] and six.find(4) == []
    assert whole.class_names == ["a", "b", "c"]
    with pytest.raises(ValueError, match="No class is called 'eye'"):
        survey.find("eye")
    with pytest.raises(ValueError, match="fraction=2"):
        survey.find("z", fraction=2)
    with pytest.raises(ValueError, match="has no classes"):
        hookviz.survey(model, [each for each, _ in inputs]).find(0)


def test_a_survey_has_records_and_tables(whole):
    records = whole.records()
    assert len(records) == 10 and records[4]["layer"] == "3"
    assert records[4]["max"] == whole["3"].top(0)[0].value
    assert "2 layers, 10 channels, 41 inputs" in repr(whole)
    assert "<table>" in whole._repr_html_()
    assert len(repr(whole["3"]).splitlines()) == 8
    with pytest.raises(ValueError, match="has no channel 6"):
        whole["3"].top(6)


def test_boxes_equal_the_receptive_fields(whole):
    field = hookviz.receptive_field(network(), Pictures().inputs[:1], "3")
    for channel in range(6):
        for top in whole["3"].top(channel):
            assert top.box == field.box(*top.position)
    rule = {"size": [5, 3], "stride": [4, 5], "start": [-1, 0], "input_size": [7, 7]}
    layer = replace(whole, fields={"3": rule})["3"]
    assert layer.box((0, 0)) == (0, 0, 4, 3)
    assert layer.box((1, 1)) == (3, 5, 7, 7)
    assert replace(whole, fields={})["3"].top(0, 1)[0].box is None


def test_boxes_are_none_if_the_parts_have_inputs_of_different_sizes():
    model = nn.Sequential(nn.Conv2d(1, 2, 3))
    inputs = [torch.randn(1, 8, 9 if n < 3 else 7) for n in range(4)]
    assert hookviz.survey(model, inputs[:3], batch_size=1)["0"].top(0)[0].box is not None
    parts = [hookviz.survey(model, inputs, batch_size=1, shard=(n, 2)) for n in range(2)]
    assert parts[0].fields and not parts[1].fields
    for one, two in itertools.permutations(parts):
        assert (one + two)["0"].top(0)[0].box is None


# Data sets


def test_a_folder_of_pictures_can_be_surveyed(tmp_path):
    for number, picture in enumerate(hookviz.demo_images()[:12:2]):
        folder = tmp_path / picture.info["label"]
        folder.mkdir(exist_ok=True)
        picture.save(folder / f"{number}.png")
    model = hookviz.demo_model()
    survey = hookviz.survey(model, tmp_path, "layer3.1.conv2", k=2)
    assert survey.class_names[:2] == ["ball", "fish"] and len(survey.covered) == 6
    assert survey.records()[0]["class"] in survey.class_names
    (tmp_path / "loose.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"Input 4 .* cannot be read as a picture"):
        hookviz.survey(model, tmp_path, "stem.0")
    other = hookviz.survey(model, tmp_path, "layer3.1.conv2", k=2, on_error="skip")
    assert list(other.unread) == [4] and other.seen == 6 and other.complete
    with pytest.raises(ValueError, match="a PictureFolder of 6 inputs and a PictureFolder of 7"):
        survey + other


def test_an_input_called_image_may_have_others_beside_it():
    model = model_of(lambda m, image, depth: m.conv(image * depth), conv=nn.Conv2d(1, 2, 1))
    data = [{"image": torch.rand(1, 3, 3), "depth": torch.rand(1, 3, 3)} for _ in range(2)]
    found = hookviz.survey(model, data, "conv")
    with hookviz.capture(model, "conv") as cache:
        model(**{name: torch.stack([each[name] for each in data]) for name in data[0]})
    assert torch.equal(found["conv"].largest, cache["conv"].activation.amax((0, 2, 3)))


def test_a_surveyed_folder_is_recognized_by_its_names_alone(tmp_path, monkeypatch):
    hookviz.demo_images()[0].save(tmp_path / "ball.png")
    model, file = hookviz.demo_model(), tmp_path / "survey.npz"
    hookviz.survey(model, tmp_path, "stem.0").save(file)
    monkeypatch.setattr("hookviz.studies.survey.reading.load_picture", pytest.fail)
    assert hookviz.load(file, tmp_path, model=model).dataset.names == ["ball.png"]
    (tmp_path / "ball.png").rename(tmp_path / "bell.png")
    with pytest.raises(ValueError, match="in the names of their inputs"):
        hookviz.load(file, tmp_path, model=model)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(Pictures().inputs)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"k": 0}, ValueError, "k=0 cannot be used"),
        ({"batch_size": 0}, ValueError, "batch_size=0 cannot be used"),
        (
            {"num_workers": -1},
            ValueError,
            "num_workers=-1 cannot be used",
        ),
        ({"on_error": "hope"}, ValueError, "on_error='hope'"),
        ({"shard": 1}, ValueError, "shard=1 is not a part"),
        ({"shard": "0/2"}, ValueError, "shard='0/2' is not a part"),
        ({"k": 1.5}, ValueError, r"k=1\.5 cannot be used"),
        ({"shard": (2, 2)}, ValueError, r"shard=\(2, 2\) is not a part: give \(i, n\)"),
        ({"inputs": []}, ValueError, "list is empty"),
        ({"inputs": {"a": 1}}, TypeError, "inputs= of type dict has no inputs with an index"),
        ({"inputs": iter([])}, TypeError, "has no inputs with an index"),
        (
            {"inputs": Stream(), "shard": (0, 2)},
            TypeError,
            "type Stream has no inputs with an index",
        ),
        ({"inputs": "nowhere"}, ValueError, "'nowhere' does not exist: give a folder"),
        ({"inputs": __file__}, ValueError, "py' is not a folder: give a folder with pictures"),
        ({"inputs": [object()]}, ValueError, "a value of type object is not a picture"),
        ({"layers": "conv9"}, ValueError, "No layer of Sequential is called 'conv9'"),
        (
            {"inputs": torch.utils.data.DataLoader([1]), "shard": (0, 2)},
            TypeError,
            r"A DataLoader may shuffle.*\.dataset",
        ),
    ],
)
def test_invalid_survey_arguments_are_refused(changes, error, message):
    with pytest.raises(error, match=message):
        hookviz.survey(network(), **({"inputs": Pictures()} | changes))


# Files


def test_a_file_needs_no_pickle(whole, tmp_path):
    whole.save(tmp_path / "survey.npz")
    with np.load(tmp_path / "survey.npz", allow_pickle=False) as file:
        assert {file[name].dtype.kind for name in file.files} <= set("iufUb")
        arrays = {name: file[name] for name in file.files}
    arrays["histogram 0"] = arrays["histogram 0"][:, :5]
    np.savez(tmp_path / "other.npz", **arrays)
    with pytest.raises(ValueError, match="its arrays do not fit its settings"):
        hookviz.load(tmp_path / "other.npz")


def test_words_can_be_surveyed_though_they_have_no_receptive_fields():
    model = nn.Sequential(nn.Embedding(20, 6), nn.LayerNorm(6)).eval()
    words = [torch.randint(0, 20, (7,)) for _ in range(5)]
    survey = hookviz.survey(model, words, "1")
    with torch.no_grad():
        wanted = model(torch.stack(words)).mean((0, 1))
    assert survey["1"].mean == pytest.approx(wanted.tolist(), abs=1e-6)
