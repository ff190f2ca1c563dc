"""Pictures of every odd kind are shown right, or refused in one sentence that names them."""

from __future__ import annotations

import io
import random
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

import hookviz
from hookviz.draw.overlay import picture_of
from hookviz.run.inputs import load_picture, prepare_input

MODEL = hookviz.demo_model()
SIDE = 112  # the demo model takes this size: nothing is resized, pixels can be compared
DRAW = np.random.default_rng(0)
BYTES = DRAW.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
GREY = BYTES[..., 0]
ALPHA = BYTES[..., 1]


@pytest.fixture(autouse=True)
def settings_of_pillow_stay():
    before = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
    yield
    after = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
    assert after == before


def shown(image) -> np.ndarray:
    """What the explorer shows of it, ``(112, 112, 3)``: the transform, and back."""
    return picture_of(prepare_input(image, MODEL))[0].astype(int)


def grey(values) -> np.ndarray:
    return np.repeat(np.asarray(values, float)[..., None], 3, axis=2)


def over_white(colours, alpha) -> np.ndarray:
    share = np.asarray(alpha, float)[..., None] / 255
    return np.asarray(colours, float) * share + 255 * (1 - share)


def from_cmyk(values) -> np.ndarray:
    values = np.asarray(values, float)
    return (255 - values[..., :3]) * (255 - values[..., 3:]) / 255


SIXTEEN = DRAW.integers(0, 65536, (SIDE, SIDE), dtype=np.uint16)
WIDE = DRAW.integers(0, 2**31 - 1, (SIDE, SIDE), dtype=np.int32)
FLOATS = DRAW.random((SIDE, SIDE), dtype=np.float32)
CMYK = DRAW.integers(0, 256, (SIDE, SIDE, 4), dtype=np.uint8)
BITS = GREY > 127
PALETTE = DRAW.integers(0, 256, (256, 3), dtype=np.uint8)
CLEAR = DRAW.integers(0, 256, 256, dtype=np.uint8)


def paletted() -> Image.Image:
    image = Image.fromarray(GREY)
    image.putpalette(PALETTE.tobytes())
    return image


# Name of a file -> the image, how it is saved, and what is to be seen.
FILES = {
    "rgb.png": (lambda: Image.fromarray(BYTES), {}, BYTES),
    "grey.png": (lambda: Image.fromarray(GREY), {}, grey(GREY)),
    "sixteen.png": (lambda: Image.fromarray(SIXTEEN), {}, grey(SIXTEEN / 257)),
    "sixteen.tif": (lambda: Image.fromarray(SIXTEEN), {}, grey(SIXTEEN / 257)),
    "int32.tif": (lambda: Image.fromarray(WIDE), {}, grey(WIDE * (255 / WIDE.max()))),
    "int32-low.tif": (
        lambda: Image.fromarray(SIXTEEN.astype(np.int32)),
        {},
        grey(SIXTEEN / 257),
    ),
    "float.tif": (lambda: Image.fromarray(FLOATS), {}, grey(FLOATS * 255)),
    "float-dark.tif": (lambda: Image.fromarray(FLOATS / 4), {}, grey(FLOATS / 4 * 255)),
    "float-bright.tif": (
        lambda: Image.fromarray(FLOATS * 900),
        {},
        grey(FLOATS / FLOATS.max() * 255),
    ),
    "cmyk.tif": (lambda: Image.fromarray(CMYK, "CMYK"), {}, from_cmyk(CMYK)),
    "alpha.png": (
        lambda: Image.fromarray(np.dstack([BYTES, ALPHA])),
        {},
        over_white(BYTES, ALPHA),
    ),
    "alpha.webp": (
        lambda: Image.fromarray(np.dstack([BYTES, ALPHA])),
        {"lossless": True, "exact": True},
        over_white(BYTES, ALPHA),
    ),
    "la.png": (
        lambda: Image.merge("LA", [Image.fromarray(GREY), Image.fromarray(ALPHA)]),
        {},
        over_white(grey(GREY), ALPHA),
    ),
    "palette.png": (paletted, {}, PALETTE[GREY]),
    "palette-clear.png": (
        paletted,
        {"transparency": CLEAR.tobytes()},
        over_white(PALETTE[GREY], CLEAR[GREY]),
    ),
    "palette.gif": (paletted, {"optimize": False}, PALETTE[GREY]),
    "keyed.png": (
        lambda: Image.fromarray(GREY),
        {"transparency": 7},
        grey(np.where(GREY == 7, 255, GREY)),
    ),
    "bits.png": (lambda: Image.fromarray(BITS), {}, grey(BITS * 255)),
    "bits.tif": (lambda: Image.fromarray(BITS), {}, grey(BITS * 255)),
    "animated.gif": (
        paletted,
        {
            "save_all": True,
            "append_images": [Image.new("P", (SIDE, SIDE))] * 2,
            "optimize": False,
        },
        PALETTE[GREY],
    ),
    "pages.tif": (
        lambda: Image.fromarray(BYTES),
        {"save_all": True, "append_images": [Image.new("RGB", (SIDE, SIDE))]},
        BYTES,
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files_are_shown_right(name, tmp_path):
    make, options, expected = FILES[name]
    path = tmp_path / name
    make().save(path, **options)
    before = path.read_bytes()
    assert abs(shown(path) - expected).max() <= 1
    with Image.open(path) as opened:  # opened by the user, and not read yet
        assert abs(shown(opened) - expected).max() <= 1
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", FILES)
def test_images_stay_as_they_are(name):
    image = FILES[name][0]()
    before = image.mode, image.size, image.tobytes(), dict(image.info), image.getpalette()
    hookviz.explore(MODEL, image, layers="stem.0").close()
    assert (image.mode, image.size, image.tobytes(), image.info, image.getpalette()) == before


@pytest.mark.parametrize("turn", range(1, 9))
def test_exif_rotation_is_shown_upright(turn, tmp_path):
    # What each of EXIF's eight orientations does to a picture, undone by hand.
    stored = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a),
        7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
        8: lambda a: np.rot90(a, -1),
    }[turn](BYTES)
    exif = Image.Exif()
    exif[0x0112] = turn
    path = tmp_path / "turned.png"
    Image.fromarray(np.ascontiguousarray(stored)).save(path, exif=exif)
    assert abs(shown(path) - BYTES).max() <= 1


ARRAYS = {
    "uint8": (BYTES, BYTES),
    "uint16": (SIXTEEN, grey(SIXTEEN / 257)),
    "uint16 dark": (SIXTEEN // 300, grey((SIXTEEN // 300) / 257)),
    "uint16, big endian": (SIXTEEN.astype(">u2"), grey(SIXTEEN / 257)),
    "uint16, colours": (np.dstack([SIXTEEN] * 3), grey(SIXTEEN / 257)),
    "float": (FLOATS, grey(FLOATS * 255)),
    "half": (FLOATS.astype(np.float16), grey(FLOATS * 255)),
    "bool": (BITS, grey(BITS * 255)),
    "alpha": (np.dstack([BYTES, ALPHA]), over_white(BYTES, ALPHA)),
    "not contiguous": (BYTES[::-1, ::-1], BYTES[::-1, ::-1]),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_are_shown_right_and_stay_as_they_are(name):
    array, expected = ARRAYS[name]
    before = array.copy()
    array.setflags(write=False)
    assert abs(shown(array) - expected).max() <= 1
    assert (array == before).all()


def test_one_pixel():
    for pixel in (Image.new("RGB", (1, 1), (9, 99, 199)), np.uint8([[[9, 99, 199]]])):
        assert abs(shown(pixel) - (9, 99, 199)).max() <= 1


# Refused


def png_of_size(width: int, height: int) -> bytes:
    """A PNG that says it is so large, and holds next to nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        end = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + end

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(b"\0" * 1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + data + chunk(b"IEND", b"")


def encoded(kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(BYTES).save(buffer, kind, **options)
    return buffer.getvalue()


PNG, JPEG = encoded("PNG"), encoded("JPEG", quality=90)
BROKEN = {
    "empty.png": b"",
    "text.jpg": b"This is a text.\n" * 9,
    "page.png": b"<html><body>404 Not Found</body></html>",
    "half.png": PNG[: len(PNG) // 2],
    "half.jpg": JPEG[: len(JPEG) // 2],
    "half.gif": encoded("GIF")[:500],
    "half.webp": encoded("WEBP")[:900],
    "half.tif": encoded("TIFF")[:900],
    "header.png": PNG[:20],
    "header.jpg": JPEG[:20],
    "noise.bin": DRAW.bytes(5000),
    "signature.png": PNG[:8] + DRAW.bytes(5000),
    "signature.jpg": JPEG[:3] + DRAW.bytes(5000),
    "drawing.svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
    "huge.png": png_of_size(100_000, 100_000),
    "large.png": png_of_size(10_000, 10_000),
    "nothing.png": png_of_size(0, 0),
}


def refused(image) -> str:
    """The one sentence with which it is refused."""
    with pytest.raises(ValueError) as raised:
        hookviz.explore(MODEL, image)
    text = str(raised.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(BROKEN[name])
    text = refused(path)
    assert name in text
    bomb = name in ("huge.png", "large.png")
    assert ("too large to open safely" if bomb else "cannot be read as a picture") in text
    assert path.read_bytes() == BROKEN[name]


def test_what_resizing_would_blow_up():
    thin = Image.new("RGB", (60_000, 1))
    with pytest.raises(ValueError, match="'Image' is 60000×1 pixels, more than 100 times"):
        prepare_input(thin, MODEL)
    crop = prepare_input(thin, MODEL, transform=lambda picture: torch.zeros(3, *picture.size[::-1]))
    assert crop.args[0].shape == (1, 3, 1, 60_000)


def test_a_folder_and_a_missing_file(tmp_path):
    assert tmp_path.name in refused(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nothing\.png"):
        hookviz.explore(MODEL, tmp_path / "nothing.png")
    assert "null" in refused("a\0b.png")


def test_an_image_that_cannot_be_read_any_more(tmp_path):
    path = tmp_path / "half.png"
    path.write_bytes(BROKEN["half.png"])
    with Image.open(path) as opened:
        assert "half.png" in refused(opened)


def test_not_finite_floats(tmp_path):
    values = FLOATS.copy()
    values[0, :2] = np.nan, np.inf
    path = tmp_path / "float.tif"
    Image.fromarray(values).save(path)
    assert "2 values are NaN or infinite" in refused(path)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, of what it passes over
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "ICO", "PPM"])
def test_damaged_files_are_shown_or_refused(kind, tmp_path):
    """Bytes changed and cut off at random: a picture comes, or the one documented error."""
    draw, whole = random.Random(kind), encoded(kind)
    path = tmp_path / f"damaged.{kind.lower()}"
    refusals = 0
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(draw.choice([1, 3, 30])):
            # The headers are where it hurts most.
            data[draw.randrange(min(len(data), draw.choice([40, 400, 10**6])))] = draw.randrange(
                256
            )
        path.write_bytes(data[: draw.choice([len(data), draw.randrange(1, len(data))])])
        try:
            assert load_picture(path).mode == "RGB"
        except ValueError as error:
            assert path.name in str(error)
            refusals += 1
    assert refusals > 0
