"""Pictures and tensors in, and the picture of them back out."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import timm
import torch
from matplotlib import cbook
from PIL import Image
from torch import nn
from torchvision.models import Inception_V3_Weights, ResNet18_Weights, ResNet34_Weights
from torchvision.transforms import ToTensor, v2

import hookviz
from hookviz.draw.overlay import as_fed, picture_of
from hookviz.run.inputs import load_picture, prepare_input
from hookviz.run.session import Session
from hookviz.run.target import class_names_of
from hookviz.view.payload import model_payload

RGB = nn.Conv2d(3, 2, 1)


def photograph():
    return cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)


# Loading


def save(image, tmp_path, name="x.png", **options):
    path = tmp_path / name
    image.save(path, **options)
    return path


def ramp(mode="RGB", size=(8, 6)):
    values = np.linspace(0, 255, size[0] * size[1]).reshape(size[1], size[0]).astype("uint8")
    return Image.fromarray(values).convert(mode)


@pytest.mark.parametrize(
    "mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "LA"]
)
def test_modes(mode):
    picture = load_picture(ramp("L").convert("RGB").convert(mode) if mode != "LA" else ramp("LA"))
    assert picture.mode == "RGB"
    assert picture.size == (8, 6)


def test_sixteen_bits_are_scaled_not_clipped(tmp_path):
    values = np.linspace(0, 65535, 48).reshape(6, 8).astype("uint16")
    picture = load_picture(save(Image.fromarray(values), tmp_path))
    got = np.asarray(picture)[..., 0].astype(int)
    assert abs(got - values / 257).max() <= 1


def test_alpha_goes_over_white():
    clear = Image.new("RGBA", (2, 2), (255, 0, 0, 0))
    assert np.asarray(load_picture(clear)).min() == 255


def test_exif_rotation_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    path = save(ramp(), tmp_path, "x.jpg", exif=exif)
    assert load_picture(path).size == (6, 8)


def test_animation_gives_the_first_frame(tmp_path):
    frames = [Image.new("RGB", (3, 3), colour) for colour in ("red", "blue")]
    path = save(frames[0], tmp_path, "x.gif", save_all=True, append_images=frames[1:])
    assert np.asarray(load_picture(path))[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize(
    ("array", "pixel"),
    [
        (np.full((2, 3), 128, "uint8"), 128),
        (np.full((2, 3, 1), 128, "uint8"), 128),
        (np.full((2, 3, 3), 0.5, "float32"), 128),
        (np.full((2, 3, 3), 200, "int64"), 200),
        (np.ones((2, 3), bool), 255),
    ],
)
def test_arrays(array, pixel):
    picture = load_picture(array)
    assert picture.size == (3, 2)
    assert np.asarray(picture)[0, 0].tolist() == [pixel] * 3


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((2, 3, 5), "uint8"), r"shape \(2, 3, 5\) is not a picture"),
        (np.zeros((1, 2, 3, 3), "uint8"), "is not a picture"),
        (np.zeros((0, 3), "uint8"), "is not a picture"),
        (np.zeros((2, 3), "complex64"), "complex64 is not a picture"),
        (np.full((2, 3), 300), "from 300 to 300: scale them to 0 to 255"),
        (np.full((2, 3), 254.0), "from 254 to 254: scale them to 0 to 1"),
        (np.full((2, 3), np.nan), "6 NaN or infinite values"),
    ],
)
def test_arrays_that_are_no_pictures(array, words):
    with pytest.raises(ValueError, match=words):
        load_picture(array)


def test_files_that_are_no_pictures(tmp_path):
    with pytest.raises(FileNotFoundError, match="Missing file '.*nowhere.png': check the path"):
        load_picture(tmp_path / "nowhere.png")
    with pytest.raises(ValueError, match="is a folder"):
        load_picture(tmp_path)
    (tmp_path / "text.png").write_text("not a picture")
    with pytest.raises(ValueError, match="cannot be read as a picture"):
        load_picture(tmp_path / "text.png")
    whole = io.BytesIO()
    ramp(size=(300, 300)).save(whole, "PNG")
    (tmp_path / "half.png").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    with pytest.raises(ValueError, match="cannot be read as a picture"):
        load_picture(tmp_path / "half.png")


def test_decompression_bomb_is_refused(tmp_path, monkeypatch):
    path = save(ramp(size=(40, 40)), tmp_path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(ValueError, match="too large to open safely"):
        load_picture(path)


# Transforming


def test_weights_of_torchvision():
    weights = ResNet34_Weights.DEFAULT
    got = prepare_input(photograph(), RGB, weights=weights)
    expected = weights.transforms()(load_picture(photograph()))[None]
    assert torch.equal(got.args[0], expected)
    assert got.mean == (0.485, 0.456, 0.406)
    assert class_names_of(RGB, weights)[652] == "military uniform"
    assert prepare_input(photograph(), RGB, weights=Inception_V3_Weights.DEFAULT).args[0].shape == (
        1,
        3,
        299,
        299,
    )


def test_default_is_what_imagenet_models_take():
    got = prepare_input(photograph(), RGB).args[0]
    expected = ResNet34_Weights.IMAGENET1K_V1.transforms()(load_picture(photograph()))[None]
    assert torch.allclose(got, expected, atol=1e-6)


def test_own_transform_comes_first():
    transform = v2.Compose([v2.Resize((5, 7)), v2.PILToTensor(), v2.ToDtype(torch.float32)])
    got = prepare_input(photograph(), RGB, weights=ResNet34_Weights.DEFAULT, transform=transform)
    assert got.args[0].shape == (1, 3, 5, 7)


def test_pretrained_cfg_as_timm_reads_it():
    model = timm.create_model("efficientnet_lite0", pretrained=False)
    config = timm.data.resolve_model_data_config(model)
    expected = timm.data.create_transform(**config)(load_picture(photograph()))[None]
    got = prepare_input(photograph(), model).args[0]
    assert got.shape == expected.shape
    assert (got - expected).abs().max() < 0.02  # one grey level of 255


def test_grey_models():
    got = prepare_input(photograph(), nn.Conv2d(1, 2, 3)).args[0]
    assert got.shape == (1, 1, 224, 224)


def test_models_that_take_no_pictures():
    with pytest.raises(ValueError, match="takes 7 channels in 2d, not a picture: pass a tensor"):
        prepare_input(photograph(), nn.Conv2d(7, 2, 3))
    with pytest.raises(ValueError, match="3 channels in 1d"):
        prepare_input(photograph(), nn.Conv1d(3, 2, 3))


def test_device_and_dtype_are_the_models():
    half = nn.Conv2d(3, 2, 1).bfloat16()
    assert prepare_input(photograph(), half).args[0].dtype == torch.bfloat16


# Tensors and the rest


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Conv2d(3, 2, 1), (3, 4, 5)),  # a batch dimension is the session's affair
        (nn.Conv2d(3, 2, 1), (2, 3, 4, 5)),
        (nn.Conv1d(3, 2, 1), (3, 9)),
        (nn.Conv3d(1, 2, 1), (1, 4, 5, 6)),
        (nn.Linear(3, 2), (3, 4)),
    ],
)
def test_tensors_go_in_as_they_are(model, shape):
    tensor = torch.rand(shape)
    assert torch.equal(prepare_input(tensor, model).args[0], tensor)


def test_several_inputs():
    x = torch.rand(1, 3, 4, 4)
    assert len(prepare_input((x, x), RGB).args) == 2
    assert prepare_input({"input": x}, RGB).kwargs["input"].equal(x)
    whole = prepare_input({"pixel_values": x}, RGB)  # no argument of the model is called so
    assert whole.kwargs == {} and whole.args[0]["pixel_values"].equal(x)
    assert isinstance(prepare_input([x[0]], RGB).args[0], list)


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x,), lambda x: [x], lambda x: {"x": x}])
def test_nan_is_refused(wrap):
    x = torch.rand(1, 3, 4, 4)
    x[0, 0, 0, :2] = torch.tensor([torch.nan, torch.inf])
    with pytest.raises(ValueError, match="1 NaN and 1 infinite values of 48"):
        prepare_input(wrap(x), RGB)


def test_what_no_model_takes():
    with pytest.raises(TypeError, match="Cannot make an input of int"):
        prepare_input(3, RGB)
    with pytest.raises(TypeError, match="returned Image, not a tensor"):
        prepare_input(photograph(), RGB, transform=lambda picture: picture)
    with pytest.raises(TypeError, match="has no transforms"):
        prepare_input(photograph(), RGB, weights="DEFAULT")


# Back to a picture


def test_the_picture_is_what_the_network_saw():
    model = hookviz.demo_model()
    for image in hookviz.demo_images()[:3]:
        shown, _ = picture_of(prepare_input(image, model))
        assert np.abs(shown.astype(int) - np.asarray(image)).max() <= 1


def test_normalized_tensors_are_undone():
    pixels = torch.rand(1, 3, 8, 8)
    mean, std = (
        torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    shown, _ = picture_of(prepare_input((pixels - mean) / std, RGB))
    assert np.abs(shown.transpose(2, 0, 1) / 255 - pixels[0].numpy()).max() < 0.01
    plain, _ = picture_of(prepare_input(pixels, RGB))
    assert (plain == shown).all()


def test_pictures_of_other_inputs():
    wide, _ = picture_of(prepare_input(torch.randn(1, 7, 8, 8) * 100, nn.Conv2d(7, 1, 1)))
    assert wide.shape == (8, 8, 3)
    signal, _ = picture_of(prepare_input(torch.randn(1, 2, 60), nn.Conv1d(2, 1, 1)))
    assert signal.shape == (10, 60, 3)
    volume = torch.zeros(1, 1, 3, 4, 4)
    volume[0, 0, 2] = 1
    inputs = prepare_input(volume, nn.Conv3d(1, 1, 1))
    assert picture_of(inputs, depth=0.0)[0].max() == 0
    assert picture_of(inputs, depth=1.0)[0].min() == 255
    assert picture_of(prepare_input(torch.zeros(1, 4, dtype=torch.long), RGB)) == (None, "")
    batch = torch.stack([torch.zeros(3, 2, 2), torch.ones(3, 2, 2)])
    assert picture_of(prepare_input(batch, RGB), sample=1)[0].min() == 255


def test_class_names():
    assert class_names_of(hookviz.demo_model())[6] == "moon"
    assert class_names_of(RGB, None, ["a", "b"]) == ["a", "b"]
    assert class_names_of(RGB) == []
    with pytest.raises(TypeError, match="list of strings"):
        class_names_of(RGB, None, "abc")


# Inputs as people have them


@pytest.fixture(scope="module")
def cat(tmp_path_factory):
    picture = hookviz.demo_images()[6]
    path = tmp_path_factory.mktemp("home") / "cat.png"
    picture.save(path)
    return picture, path


def test_one_picture_in_many_forms(cat, monkeypatch):
    picture, path = cat
    monkeypatch.setenv("HOME", str(path.parent))
    model, array = hookviz.demo_model(), np.asarray(picture)
    wanted = prepare_input(picture, model).args[0]
    data = path.read_bytes()
    forms = [
        path,
        "~/cat.png",
        path.as_uri(),
        "data:image/png;base64," + base64.b64encode(data).decode(),
        data,
        bytearray(data),
        io.BytesIO(data),
        array,
        array.transpose(2, 0, 1),
        array.astype("float64") / 255,
        [picture],
        [str(path)],
        array[None],
    ]
    for form in forms:
        made = prepare_input(form, model)
        assert torch.equal(made.args[0], wanted), type(form)
        assert made.transform.startswith("transform of the model's pretrained_cfg: ")
        assert [each.size for each in made.pictures] == [(112, 112)]
    with path.open("rb") as opened:
        assert torch.equal(prepare_input(opened, model).args[0], wanted)


def test_many_pictures_are_a_batch(cat):
    picture, path = cat
    model, array = hookviz.demo_model(), np.asarray(picture)
    one = prepare_input(picture, model).args[0]

    class Column:  # of a data frame
        def __init__(self, values):
            self.values = values

        def to_numpy(self):
            return self.values

    frames = torch.from_numpy(np.stack([array, array]))
    forms = [
        [str(path), picture],
        [array, path],
        np.stack([array, array]),
        np.stack([array, array]).transpose(0, 3, 1, 2),
        Column(np.array([str(path), path], object)),
        list(frames),
    ]
    for form in forms:
        made = prepare_input(form, model)
        assert torch.equal(made.args[0], torch.cat([one, one])), type(form)
        assert made.name == "2 pictures" and len(made.pictures) == 2
    with pytest.raises(TypeError, match="give one column of paths"):
        prepare_input(Column(np.zeros((2, 2), object)), model)
    for missing in (None, float("nan"), 7):
        with pytest.raises(TypeError, match=f"Row 1 of the Column holds {missing}, which is not"):
            prepare_input(Column(np.array([str(path), missing], object)), model)
    with pytest.raises(ValueError, match="empty list"):
        prepare_input([], model)
    with pytest.raises(ValueError, match="tensors of 2 sizes"):
        prepare_input([picture, picture.crop((0, 0, 50, 60))], model, transform=ToTensor())


@pytest.mark.parametrize("order", ["CHW", "HWC", "NCHW", "NHWC"])
@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
def test_tensors_that_are_pictures(cat, order, kind):
    array = torch.from_numpy(np.array(cat[0]))
    made = array if order.endswith("HWC") else array.permute(2, 0, 1)
    made = made[None] if order.startswith("N") else made
    if kind == torch.float32:
        made = made / 255
    model = hookviz.demo_model()
    session = Session(model, prepare_input(made, model))
    got = session.inputs
    if kind == torch.float32 and "CHW" in order:  # as it is
        assert torch.equal(got.args[0], made.reshape(1, 3, 112, 112))
        assert got.transform == ""
        return
    assert torch.equal(got.args[0], prepare_input(cat[0], model).args[0])
    assert got.note.endswith(" was taken as a picture")


def test_a_gray_tensor_of_bytes_is_a_picture(cat):
    gray, model = cat[0].convert("L"), hookviz.demo_model()
    got = Session(model, prepare_input(torch.from_numpy(np.array(gray)), model)).inputs
    assert torch.equal(got.args[0], prepare_input(gray, model).args[0])


def test_a_model_that_takes_bytes_gets_bytes():
    class OfBytes(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 3)

        def forward(self, x):
            return self.conv(x / 255).mean((2, 3))

    x = torch.randint(0, 255, (2, 3, 8, 8), dtype=torch.uint8)
    model = OfBytes()
    assert torch.equal(Session(model, prepare_input(x, model)).inputs.args[0], x)


def test_channels_last_that_are_no_picture():
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten())
    with pytest.raises(RuntimeError, match=r"channels last: give tensor.permute\(0, 3, 1, 2\)"):
        hookviz.explore(model, torch.randn(1, 9, 8, 3))
    with pytest.raises(RuntimeError, match=r"channels last: give tensor.permute\(2, 0, 1\)"):
        hookviz.trace(model, torch.randn(9, 8, 3))


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        (torch.zeros(3, 9, 9, dtype=torch.long), "is of type int64: give floats, or a picture's"),
        (torch.ones(3, 9, 9, dtype=torch.bool), "is of type bool: give floats"),
        ([torch.rand(3, 9, 9)] * 2, r"give torch.stack\(tensors\) for a batch"),
        ((hookviz.demo_images()[0],) * 2, "give a list for a batch of pictures"),
        (("cat.jpg", "dog.jpg"), "given str and str: .* give a list for a batch"),
        ([hookviz.demo_images()[0], 3], "given a list of 2: .*pictures and paths: int is neither"),
        ({"image": 3}, r"The keys 'image' are not arguments of forward\(input\)"),
    ],
)
def test_what_the_model_cannot_take_is_refused_with_the_cure(given, cure):
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten())
    with pytest.raises(RuntimeError, match=cure):
        hookviz.explore(model, given)


def test_a_list_that_the_model_takes_is_no_reason():
    class OfList(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 3)

        def forward(self, tensors):
            return self.conv(torch.stack(tensors)).mean((2, 3))

    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size") as error:
        hookviz.explore(OfList(), [torch.rand(3, 9, 9), torch.rand(3, 8, 8)])
    assert "torch.stack(tensors)" not in str(error.value)


def test_files_that_are_no_picture(tmp_path):
    path, model = tmp_path / "cat.png", hookviz.demo_model()
    hookviz.demo_images()[0].save(path)
    with path.open() as text, pytest.raises(ValueError, match="open for reading text: open it for"):
        prepare_input(text, model)
    with pytest.raises(ValueError, match="is closed: open it for reading bytes"):
        prepare_input(text, model)
    with pytest.raises(ValueError, match="is a video: read its frames"):
        prepare_input("film.mp4", model)


def test_urls_that_are_no_picture(tmp_path):
    model = hookviz.demo_model()
    with pytest.raises(RuntimeError, match="could not be downloaded"):
        prepare_input((tmp_path / "no.png").as_uri(), model)
    (tmp_path / "page.png").write_text("<html>")
    with pytest.raises(ValueError, match="cannot be read as a picture"):
        prepare_input((tmp_path / "page.png").as_uri(), model)
    with pytest.raises(ValueError, match=r"^b'<html>' \(6 bytes\) cannot be read as a picture"):
        prepare_input(b"<html>", model)
    with pytest.raises(ValueError, match="not a format that Pillow reads") as error:
        prepare_input(io.BytesIO(b"<html>" * 50), model)
    assert str(error.value).startswith("'BytesIO' cannot") and "0x" not in str(error.value)
    with pytest.raises(ValueError, match="or a list of paths"):
        prepare_input(tmp_path, model)


def test_class_names_of_another_number():
    model, x = nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten()), torch.rand(1, 3, 8, 8)
    with pytest.raises(ValueError, match="class_names has 2 names for 4 classes"):
        hookviz.explore(model, x, class_names=["cat", "dog"])
    model.class_names = ["cat", "dog"]  # of another head
    explorer = hookviz.explore(model, x)
    assert explorer.frame.predictions[0].name not in model.class_names
    explorer.close()


def test_who_says_which_transform():
    picture, weights = hookviz.demo_images()[0], ResNet18_Weights.DEFAULT
    plain = nn.Conv2d(3, 2, 3)
    said = {
        "ImageNet's transform, a guess: resize to 256, crop 224×224, (x − (0.485, 0.456": {},
        "transform of the weights IMAGENET1K_V1: resize to 256, crop": {"weights": weights},
        "transform= as given: to values from 0 to 1": {"transform": ToTensor()},
    }
    for words, how in said.items():
        made = prepare_input(picture, plain, **how)
        assert made.transform.startswith(words)
        assert made.guessed == words.startswith("ImageNet")


def normed(mean, deviation):
    """A small network that has learnt with inputs of this mean and deviation."""
    model = nn.Sequential(nn.Conv2d(3, 3, 1, bias=False), nn.BatchNorm2d(3), nn.Flatten())
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(3)[..., None, None])
        model[1].running_mean.fill_(mean)
        model[1].running_var.fill_(deviation**2)
    return model.eval()


def test_the_transform_is_on_the_screen():
    """It is given, known or guessed; a guess that the first BatchNorm speaks against says so."""
    photograph = hookviz.models.photographs()["chelsea"]
    guessed = hookviz.explore(normed(0.0, 1.0), photograph)
    words = guessed.frame.input.note
    assert words == "preprocessing: guessed (ImageNet)"
    facts = model_payload(guessed._view)["transform"]
    assert facts["doubt"] == "" and facts["full"].startswith(
        "ImageNet's transform, a guess: resize"
    )
    guessed.close()
    of_bytes = hookviz.explore(normed(120.0, 60.0), photograph)
    assert "does not fit: at the first BatchNorm, '1'" in of_bytes.frame.input.note
    assert "Give transform= or weights=." in model_payload(of_bytes._view)["transform"]["doubt"]
    of_bytes.close()
    own = v2.Compose([v2.Resize([32, 32]), v2.PILToTensor(), v2.ToDtype(torch.float32)])
    given = hookviz.explore(normed(120.0, 60.0), photograph, transform=own)
    assert given.frame.input.note.endswith("preprocessing: as given")
    given.close()
    tensor = hookviz.explore(normed(0.0, 1.0), torch.rand(1, 3, 8, 8))
    assert model_payload(tensor._view)["transform"] is None
    tensor.close()


def test_the_network_s_numbers_follow_from_the_picture():
    made = prepare_input(hookviz.models.photographs()["coffee"], normed(0.0, 1.0))
    picture, _ = picture_of(made)
    fed = as_fed(made)
    seen = picture / 255 * np.array(fed["gain"]) + np.array(fed["shift"])
    numbers = made.args[0][0].permute(1, 2, 0).numpy()
    stretched = (numbers - numbers.min()) / np.ptp(numbers)
    assert np.abs(seen - stretched).max() < 1 / 255
    # Black and white are in this one: the same picture, of other numbers.
    full = Image.fromarray(np.array([[0, 255], [255, 0]], np.uint8)).resize((224, 224))
    known = hookviz.pretrained("efficientnet_lite0")[1]
    fed = as_fed(prepare_input(full, normed(0.0, 1.0), weights=known))
    assert fed["words"] == "−0.992 (black) to 1 (white)" and np.allclose(fed["gain"], 1, atol=1e-4)
    assert as_fed(prepare_input(torch.rand(1, 3, 8, 8), normed(0.0, 1.0))) is None
