"""Display of a survey: patches, beside the explorer, in its browser and as a page."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image
from seen import blocks, framed
from torch import nn

import hookviz
from hookviz.draw.mosaic import FEW, data_url, row, strip
from hookviz.studies.survey.layer import channel_words
from hookviz.studies.survey.survey import Survey

LAYERS = ["layer2.1.conv2", "layer3.1.conv2"]


def labelled():
    model = hookviz.demo_model()
    return [(p, model.class_names.index(p.info["label"])) for p in hookviz.demo_images()]


@pytest.fixture(scope="module")
def model():
    return hookviz.demo_model()


@pytest.fixture(scope="module")
def survey(model):
    return hookviz.survey(model, labelled(), LAYERS, k=4)


def decoded(url):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))))


# Patches


def test_patches_are_cut_to_the_receptive_fields(survey):
    for layer in LAYERS:
        for channel in (0, 17):
            tops = survey[layer].top(channel)
            for piece, (index, _, _, box) in zip(survey.patches(layer, channel), tops, strict=True):
                whole = np.asarray(hookviz.demo_images()[index].convert("RGB"))
                assert abs(piece.picture.astype(int) - whole).max() <= 1
                top, left, bottom, right = box
                cut = piece.picture[top:bottom, left:right]
                assert (np.asarray(piece.drawn()) == cut).all()
                assert f"input {index} (" in piece.words
    assert len(survey.dataset) == 30
    assert len(survey.patches("layer3.1.conv2", 3, 2)) == 2


def test_a_box_marks_the_receptive_field_in_the_whole_picture():
    model = nn.Sequential(nn.Conv2d(1, 1, 3, bias=False))
    nn.init.ones_(model[0].weight)
    picture = torch.zeros(1, 32, 32)
    picture[0, 20:23, 8:11] = 1
    (piece,) = hookviz.survey(model, [picture]).patches("0", 0)
    assert (np.asarray(piece.drawn()) == 255).all() and piece.drawn().size == (3, 3)
    assert piece.centre == (21.5 / 32, 9.5 / 32)
    drawn = np.asarray(piece.drawn(whole=True)).astype(int)
    orange = (drawn[..., 0] - drawn[..., 2] > 200).nonzero()
    ends = [each.min() / 224 * 32 for each in orange] + [each.max() / 224 * 32 for each in orange]
    assert np.allclose(ends, [20, 8, 23, 11], atol=0.5)


@pytest.mark.parametrize("column", range(8))
def test_a_box_smaller_than_a_drawn_pixel_is_marked(column):
    picture = torch.zeros(1, 4, 2000)
    picture[0, 2, column] = 1
    (piece,) = hookviz.survey(nn.Sequential(nn.Conv2d(1, 1, 1)), [picture]).patches("0", 0)
    drawn = np.asarray(piece.drawn(whole=True)).astype(int)
    assert (drawn[..., 0] - drawn[..., 2] > 200).any()


@pytest.mark.parametrize("shape", [(2, 40), (1, 5, 9, 9)])
def test_patches_of_signals_and_volumes_are_drawn(shape):
    kind = {2: nn.Conv1d, 4: nn.Conv3d}[len(shape)]
    inputs = [torch.rand(shape) for _ in range(3)]
    survey = hookviz.survey(nn.Sequential(kind(shape[0], 2, 3)), inputs)
    for piece in survey.patches("0", 1):
        assert piece.is_part and piece.drawn().width == 3


class TwoInputs(nn.Module):
    """One layer for each input, one that runs on both, and one that sees neither."""

    def __init__(self):
        super().__init__()
        self.rgb, self.flow = nn.Conv2d(3, 2, 3), nn.Conv2d(2, 2, 3)
        self.shared, self.still = nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1)

    def forward(self, image, flow):
        rgb, flow = self.rgb(image), self.flow(flow)
        still = self.still(torch.ones_like(image[:, :2]))
        every = (rgb, flow, self.shared(rgb), self.shared(flow), still)
        return sum(maps.flatten(1).sum(1) for maps in every)


def test_patches_show_the_input_tensor_that_a_call_sees(tmp_path):
    torch.manual_seed(0)
    data = [{"image": torch.rand(3, 12, 12), "flow": torch.rand(2, 9, 15)} for _ in range(3)]
    model = TwoInputs()
    hookviz.survey(model, data, k=1).save(tmp_path / "survey.npz")
    survey = hookviz.load(tmp_path / "survey.npz", data, model=model)
    sources = {"rgb": "image", "flow": "flow", ("shared", 0): "image", ("shared", 1): "flow"}
    for layer, name in sources.items():
        ((top,), (piece,)) = survey[layer].top(0), survey.patches(layer, 0)
        picture = data[top.index][name]
        picture = picture.mean(0, keepdim=True) if name == "flow" else picture
        shown = torch.from_numpy(piece.picture).permute(2, 0, 1) / 255
        assert (shown - picture).abs().max() < 0.01
        row, column = top.position
        height, width = picture.shape[1:]
        if layer in ("rgb", "flow"):
            assert top.box == (row, column, row + 3, column + 3)
            assert np.allclose(np.multiply(piece.box, (height, width) * 2), top.box)
    (piece,) = survey.patches("still", 0)
    assert piece.picture is None and "no input picture has an influence on it" in piece.words


def test_a_survey_follows_each_input_through_the_model_once():
    model, runs = TwoInputs(), []
    model.register_forward_pre_hook(lambda *_: runs.append(None))
    hookviz.survey(model, [{"image": torch.rand(3, 12, 12), "flow": torch.rand(2, 9, 15)}])
    assert len(runs) == 2 + 1  # that of the batch


def test_a_patch_of_an_input_that_is_not_a_picture_says_so():
    model = TwoInputs()
    model.flow = nn.Linear(5, 2)
    model.shared = nn.Identity()
    data = [{"image": torch.rand(3, 9, 9), "flow": torch.rand(5)} for _ in range(3)]
    piece = hookviz.survey(model, data, ["rgb", "flow"]).patches("flow", 0)[0]
    assert "input tensor 1, which the layer sees, is not a picture" in piece.words


def test_a_field_ends_when_its_own_input_has_another_size():
    sizes = zip([9, 9, 9], [9, 9, 7], strict=True)
    data = [{"image": torch.rand(3, a, a), "flow": torch.rand(2, b, b)} for a, b in sizes]
    survey = hookviz.survey(TwoInputs(), data, batch_size=1)
    assert survey["rgb"].top(0)[0].box is not None
    assert survey["flow"].top(0)[0].box is None
    assert survey.patches("flow", 0)[0].picture is not None


def test_a_piece_without_a_picture_says_why(tmp_path, model):
    survey = hookviz.survey(nn.Sequential(nn.Linear(6, 4)), list(torch.randn(5, 6)), "0")
    (piece,) = survey.patches("0", 1, 1)
    assert piece.picture is None and "it is not a picture" in piece.words
    assert "it is not a picture" in row([piece]) and strip([piece], 8).size == (8, 8)
    hookviz.demo_images()[0].save(tmp_path / "one.png")
    survey = hookviz.survey(model, tmp_path, "stem.0")
    (tmp_path / "one.png").unlink()
    (piece,) = survey.patches("stem.0", 1)
    assert "'one.png': " in piece.words and "cannot be read" in piece.words


def test_small_pictures_are_stored_exactly():
    small = Image.fromarray(np.arange(75, dtype=np.uint8).reshape(5, 5, 3))
    assert (
        data_url(small).startswith("data:image/png") and (decoded(data_url(small)) == small).all()
    )
    assert data_url(small.resize((FEW + 1, 5))).startswith("data:image/jpeg")


# From a file


def test_a_loaded_survey_needs_its_data_set_for_pictures(survey, model, tmp_path):
    survey.save(tmp_path / "survey.npz")
    alone = hookviz.load(tmp_path / "survey.npz")
    assert alone.dataset is None
    for show in (lambda: alone.patches(LAYERS[0], 0), alone.to_html, alone.show):
        with pytest.raises(ValueError, match="load it with the data set"):
            show()
    again = hookviz.load(tmp_path / "survey.npz", labelled(), model=model)
    pairs = zip(again.patches(LAYERS[0], 5), survey.patches(LAYERS[0], 5), strict=True)
    assert all((one.picture == two.picture).all() and one.box == two.box for one, two in pairs)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "give model=, or the transform= itself"),
        ({"transform": torch.neg}, "the transforms differ"),
        ({"model": nn.Conv2d(3, 4, 1)}, "one is of a DemoNet, the other of a Conv2d"),
        ({"inputs": [hookviz.demo_images()[0]]}, "a list of 30 inputs and a list of 1"),
    ],
)
def test_loading_with_another_data_set_is_refused(given, said, survey, model, tmp_path):
    survey.save(tmp_path / "survey.npz")
    usual = {"model": model} if "inputs" in given else {}
    with pytest.raises(ValueError, match=said):
        hookviz.load(tmp_path / "survey.npz", **{"inputs": labelled()} | usual | given)


# Beside the explorer


def test_the_explorer_shows_the_top_inputs_of_its_channel(survey, model):
    explorer = hookviz.explore(model, hookviz.demo_images()[6])
    assert explorer.survey is None
    explorer.layer = "stem.0"
    explorer.survey = survey
    line, shown = explorer.children[1].children
    assert "This survey has no layer &#x27;stem.0&#x27;" in line.children[0].value
    assert shown.value == ""
    for layer, channel in ((LAYERS[0], 0), (LAYERS[1], 0), (LAYERS[1], 7)):
        explorer.layer, explorer.channel = layer, channel
        assert shown.value == row(survey.patches(layer, channel))
        assert f"Of 30 inputs, channel {channel}" in line.children[0].value
    line.children[1].value = True
    assert shown.value == row(survey.patches(LAYERS[1], 7), whole=True)
    explorer.survey = None
    assert explorer.children[1].layout.display == "none"
    explorer.close()
    with pytest.raises(RuntimeError, match="closed"):
        explorer.survey = survey


def test_the_explorer_refuses_a_survey_of_another_model(survey, model):
    explorer = hookviz.explore(model, hookviz.demo_images()[6])
    with pytest.raises(TypeError, match="A value of type int is not a survey"):
        explorer.survey = 3
    other = hookviz.survey(nn.Sequential(nn.Conv2d(1, 1, 1)), [torch.zeros(1, 2, 2)])
    with pytest.raises(ValueError, match="not of the shown model: one is of a Sequential"):
        explorer.survey = other
    with torch.no_grad():
        model.stem[0].weight[0, 0, 0, 0] += 1
    try:
        with pytest.raises(ValueError, match="the two DemoNets differ in their weights"):
            explorer.survey = survey
    finally:
        with torch.no_grad():
            model.stem[0].weight[0, 0, 0, 0] -= 1
    assert explorer.survey is None


# The survey browser


def test_the_survey_browser_opens_at_the_requested_layer_channel_and_order(survey):
    browser = survey.show()
    assert framed(browser)["facts"]["start"] == {"layer": 1, "channel": 0, "order": "number"}
    cut = framed(browser)["layer-1"][5]["picture"]
    browser.close()
    assert browser.closed and "closed" in repr(browser)
    browser = survey.show(LAYERS[0], order="purity")
    first = survey[LAYERS[0]].order("purity")[0]
    start = {"layer": 0, "channel": first, "order": "purity"}
    assert framed(browser)["facts"]["start"] == start
    browser.close()
    browser = survey.show(channel=47, whole=True)
    assert framed(browser)["layer-1"][5]["picture"] != cut
    data, metadata = browser._repr_mimebundle_()
    assert base64.b64decode(data["image/png"])[:4] == b"\x89PNG"
    assert "channel 47" in metadata["image/png"]["alt"]
    browser.close()


def test_survey_channels_can_be_sorted_by_their_largest_value(survey):
    layer = survey[LAYERS[1]]
    largest = layer.largest[layer.order("largest value")]
    assert (largest.diff() <= 0).all()
    with pytest.raises(ValueError, match="Unknown order 'size': give one of number"):
        layer.order("size")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layer": "layer9"}, "This survey has no layer 'layer9'"),
        ({"channel": 96}, "give 0 to 95"),
        ({"order": "size"}, "Unknown order 'size'"),
    ],
)
def test_the_browser_refuses_unknown_settings(settings, message, survey):
    with pytest.raises(ValueError, match=message):
        survey.show(**settings)


# As a page


def test_a_page_contains_all_channels(survey, tmp_path):
    assert survey.to_html(tmp_path / "survey.html") is None
    page = (tmp_path / "survey.html").read_text(encoding="utf-8")
    found = blocks(page)
    assert [each["name"] for each in found["facts"]["layers"]] == LAYERS
    assert found["facts"]["notes"] == [] and found["facts"]["patches"] == 4
    for place, name in enumerate(LAYERS):
        channels = found[f"layer-{place}"]
        assert [each["channel"] for each in channels] == list(range(len(survey[name])))
        assert channels[3]["words"] == channel_words(survey[name], 3)
        assert decoded(channels[3]["picture"]).shape == (64, 256, 3)
    one = blocks(survey.to_html(layers="layer2*", whole=True, title="two"))
    assert len(one) == 2 and one["facts"]["title"] == "two"
    assert one["layer-0"][3]["picture"] != found["layer-0"][3]["picture"]


def test_a_page_fits_its_budget(survey):
    page = survey.to_html(max_bytes=4e5)
    assert len(page.encode()) <= 4e5
    assert "pixels large" in blocks(page)["facts"]["notes"][0]
    with pytest.raises(ValueError, match="too little for 144 channels"):
        survey.to_html(max_bytes=1e4)
    with pytest.raises(ValueError, match="no layer 'layer9'"):
        survey.to_html(layers="layer9")


def test_a_page_shows_at_most_twelve_patches_of_a_channel(model):
    survey = hookviz.survey(model, hookviz.demo_images(), "layer3.1.conv2", k=20)
    assert isinstance(survey, Survey)
    found = blocks(survey.to_html(max_bytes=3e6))
    assert "patches, the first 12 are in this page" in " ".join(found["facts"]["notes"])
