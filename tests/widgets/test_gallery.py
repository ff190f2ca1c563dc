"""Pictures uploaded by the browser get the model's transform and keep all settings."""

import base64
import io

import numpy as np
import pytest
import torch
from browsing import Browser
from PIL import Image

import hookviz
from hookviz.attribution import prepare_input

LAYER = "layer3.1.conv2"
MODEL, PICTURES = hookviz.demo_model(), hookviz.demo_images()


@pytest.fixture
def explorer():
    made = hookviz.explore(MODEL, PICTURES[6], layer=LAYER, channel=17, face="canvas")
    made.place, made.order = (0.4, 0.6), "value"
    yield made
    made.close()


def encoded_picture(picture, kind="PNG", **options):
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def send(explorer, data, name="a.png", size=4_000_000, **more):
    """Send a file in parts, as the browser does."""
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    for part, each in enumerate(parts):
        Browser(explorer).request("picture", each, name=name, part=part, parts=len(parts), **more)


def strip(explorer):
    """Return the thumbnails that the browser shows."""
    return Browser(explorer).canvas.pictures


def thumbnail(said):
    data = base64.b64decode(said["url"].partition(",")[2])
    return Image.open(io.BytesIO(data))


@pytest.mark.parametrize("size", [4_000_000, 1000], ids=["whole", "in parts"])
def test_an_uploaded_file_becomes_the_model_input(explorer, size):
    before = {name: getattr(explorer, name) for name in ("layer", "channel", "place", "order")}
    send(explorer, encoded_picture(PICTURES[2]), "flower.png", size)
    wanted = prepare_input(PICTURES[2], MODEL).args[0]
    assert torch.equal(explorer.inputs.args[0], wanted)
    with hookviz.capture(MODEL, LAYER) as cache, torch.no_grad():
        logits = MODEL(wanted)
    assert torch.equal(explorer.cache[LAYER].activation, cache[LAYER].activation)
    assert before == {name: getattr(explorer, name) for name in before}
    assert explorer.frame.predictions[0].number == int(logits.argmax())
    assert [each["name"] for each in strip(explorer)] == [
        "picture 1",
        "flower.png",
    ]
    assert [each["now"] for each in strip(explorer)] == [False, True]


def test_a_changed_top_class_is_noted_and_the_target_is_kept(explorer):
    first = explorer.frame.predictions[0].name
    send(explorer, encoded_picture(PICTURES[2]))
    now = explorer.frame.predictions[0].name
    assert Browser(explorer).canvas.note == f"The top class is {now} now; before it was {first}."
    send(explorer, encoded_picture(PICTURES[2]))
    assert Browser(explorer).canvas.note == ""
    explorer.target = 3
    Browser(explorer).request("again", key=0, sample=0)
    assert explorer.target == 3 and "top class is" in explorer.frame.note
    assert explorer.image is PICTURES[6] and len(strip(explorer)) == 3


def test_frames_of_a_camera_are_one_picture_of_the_strip(explorer):
    """The frames do not push other pictures out of the strip."""
    send(explorer, encoded_picture(PICTURES[2]), "flower.png")
    for number in range(15):
        send(explorer, encoded_picture(PICTURES[number]), "camera", again=number > 0)
    names = [each["name"] for each in strip(explorer)]
    assert names == ["picture 1", "flower.png", "camera"]
    assert torch.equal(explorer.inputs.args[0], prepare_input(PICTURES[14], MODEL).args[0])
    send(
        explorer, encoded_picture(PICTURES[3]), "camera", again=False
    )  # the camera is switched on again
    Browser(explorer).request("again", key=1, sample=0)
    send(explorer, encoded_picture(PICTURES[4]), "camera", again=True)
    names = [each["name"] for each in strip(explorer)]
    assert names == ["picture 1", "flower.png", "camera", "camera"]


def test_the_exif_orientation_of_a_photograph_is_applied(explorer):
    """The browser applies the orientation, too."""
    wide = PICTURES[2].convert("RGB").resize((120, 60))
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90 degrees
    send(explorer, encoded_picture(wide, "PNG", exif=exif))
    upright = prepare_input(wide.transpose(Image.Transpose.ROTATE_270), MODEL).args[0]
    assert torch.equal(explorer.inputs.args[0], upright)
    shown = thumbnail(strip(explorer)[-1])
    assert shown.height > shown.width


def test_an_unreadable_file_changes_nothing(explorer):
    before = explorer.inputs
    send(explorer, b"no picture")
    assert explorer.inputs is before and "picture" in Browser(explorer).canvas.note
    assert len(strip(explorer)) == 1
    send(explorer, encoded_picture(PICTURES[2]))
    assert len(strip(explorer)) == 2


def test_pictures_of_a_batch_are_in_the_strip(tmp_path):
    for number in (2, 6, 12):
        PICTURES[number].save(tmp_path / f"{number}.png")
    paths = [tmp_path / f"{number}.png" for number in (2, 6, 12)]
    made = hookviz.explore(MODEL, paths, face="canvas")
    names = ["2.png", "6.png", "12.png"]
    assert [(each["name"], each["sample"], each["now"]) for each in strip(made)] == [
        (name, sample, True) for sample, name in enumerate(names)
    ]
    send(made, encoded_picture(PICTURES[3]), "3.png")
    assert [(each["name"], each["sample"], each["now"]) for each in strip(made)] == [
        *((name, sample, False) for sample, name in enumerate(names)),
        ("3.png", 0, True),
    ]
    Browser(made).request("again", key=0, sample=2)
    wanted = [prepare_input(path, MODEL).args[0] for path in paths]
    assert made.sample == 2 and torch.equal(made.inputs.args[0], torch.cat(wanted))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"no picture", "cannot be read as a picture"),
        (b"", "cannot be read as a picture"),
        (encoded_picture(Image.new("RGB", (3000, 20))), "is 3000×20 pixels"),
    ],
    ids=["text", "empty", "too long"],
)
def test_a_refused_file_is_called_by_its_name(explorer, data, reason):
    Browser(explorer).request("picture", data, name="cat.png", part=0, parts=1)
    assert Browser(explorer).canvas.note.startswith(f"'cat.png' {reason}")


def test_the_oldest_pictures_but_the_first_go_when_there_are_too_many(explorer):
    batches = [torch.rand(20, 3, 32, 32) for _ in range(3)]
    for batch in batches:
        explorer.image = batch
    keys = [each["key"] for each in strip(explorer)]
    assert keys == [0] + 20 * [2] + 20 * [3]
    for number in range(12):
        explorer.image = PICTURES[number]
    keys = [each["key"] for each in strip(explorer)]
    assert keys == [0, *range(4, 15)]  # picture 6 was the first input already


def explore_red_and_blue():
    """Return an explorer of a channel for red and two for blue, at the first, of a red picture."""
    colours = torch.tensor([[1.0, 0, 0], [0, 0, 1], [0, 0, 3]])
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 3, 1, bias=False),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(3, 1, bias=False),
    )
    model[0].weight.data = colours[:, :, None, None]
    model[4].weight.data.fill_(1.0)
    return hookviz.explore(model, RED, layers="1", channel=0, face="canvas")


RED, BLUE = Image.new("RGB", (8, 8), "red"), Image.new("RGB", (8, 8), "blue")


def test_a_channel_that_is_silent_on_a_new_picture_gives_way():
    made = explore_red_and_blue()
    send(made, encoded_picture(BLUE))
    assert made.channel == 2  # it contributes most
    assert made.frame.opened == "Channel 0 is silent on this input; channel 2 is not."
    Browser(made).request("again", key=0, sample=0)
    assert made.channel == 0


def test_a_channel_that_was_silent_before_stays():
    made = explore_red_and_blue()
    made.channel = 1
    made.image = BLUE.resize((9, 9))
    made.edit()
    made.image = BLUE
    assert made.channel == 1


def test_a_camera_keeps_the_channel_that_is_silent_in_a_frame():
    made = explore_red_and_blue()
    send(made, encoded_picture(RED), "camera")
    send(made, encoded_picture(BLUE), "camera", again=True)
    assert made.channel == 0


def test_a_model_of_signals_has_no_strip():
    made = hookviz.explore(torch.nn.Conv1d(2, 3, 3), torch.rand(1, 2, 9), face="canvas")
    assert strip(made) == []


@pytest.mark.parametrize("is_tensor", [False, True])
def test_two_pictures_of_a_batch_are_compared(is_tensor):
    pictures = [PICTURES[number] for number in (2, 6, 12)]
    inputs = torch.cat([prepare_input(picture, MODEL).args[0] for picture in pictures])
    made = hookviz.explore(
        MODEL, inputs if is_tensor else pictures, layer=LAYER, sample=1, face="canvas"
    )
    browser = Browser(made)
    browser.request("beside", key=0, sample=2)
    assert browser.canvas.facts["run_names"] == ["sample 2", "sample 1", "sample 1 − sample 2"]
    with hookviz.capture(MODEL, LAYER) as cache, torch.no_grad():
        MODEL(inputs)
    maps = cache[LAYER].activation.numpy()
    wanted = {"original": maps[2], "edited": maps[1], "difference": maps[1] - maps[2]}
    for run, values in wanted.items():
        _, arrays = browser.ask("layer", layer=LAYER, sample=1, shown_run=run)
        assert np.array_equal(arrays["maps"], values)
    made.sample = 0  # another picture ends the comparison
    assert not browser.canvas.facts["pair"] and made.frame.run_names == ()
    browser.request("beside", key=0, sample=0)  # the picture beside itself
    assert browser.canvas.facts["run_names"] == ["other", "this", "this − other"]


def test_two_pictures_are_compared_in_one_explorer(explorer):
    """Shift+click on a thumbnail shows both runs and their difference in one explorer."""
    send(explorer, encoded_picture(PICTURES[2]), "flower.png")
    Browser(explorer).request("again", key=0, sample=0)
    explorer.target = 3
    press = {"set": "beside", "key": 1, "sample": 0}
    browser = Browser(explorer)
    browser.request(**press)
    assert explorer.target == 3 and browser.canvas.facts["pair"]
    names = ["flower.png", "picture 1", "picture 1 − flower.png"]
    assert browser.canvas.facts["run_names"] == names
    maps = {}
    for name, number in (("one", 6), ("other", 2)):
        with hookviz.capture(MODEL, LAYER) as cache, torch.no_grad():
            MODEL(prepare_input(PICTURES[number], MODEL).args[0])
        maps[name] = cache[LAYER].activation[0, 20].numpy()
    wanted = {
        "original": maps["other"],
        "edited": maps["one"],
        "difference": maps["one"] - maps["other"],
    }
    for run, values in wanted.items():
        _, arrays = browser.ask("layer", layer=LAYER, shown_run=run)
        assert np.array_equal(arrays["maps"][20], values)
        explorer.channel, explorer.shown_run = 20, run
        assert np.array_equal(explorer.frame.panels[0].values, values)
        assert browser.canvas.facts["run_names"] == names and browser.canvas.facts["pair"]
    pictures = [browser.ask("picture", of=[0, 0, 0], shown_run=run)[1] for run in wanted]
    assert not np.array_equal(pictures[0]["pixels"], pictures[1]["pixels"])
    browser.request(**press)
    assert not browser.canvas.facts["pair"] and explorer.frame.run_names == ()
    browser.request(**press)
    browser.request("again", key=1, sample=0)  # another picture ends it
    assert not browser.canvas.facts["pair"] and explorer.channel == 20
    browser.request("beside", key=0, sample=0)
    browser.request("factor", layer=LAYER, channel=3, factor=0)  # so does an edit
    assert not browser.canvas.facts["pair"] and len(explorer.edits) == 1
    assert browser.canvas.facts["run_names"] == ["original", "edited", "difference"]
