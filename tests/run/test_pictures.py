"""Pictures of every kind are read correctly, or refused in one sentence."""

import base64
import gc
import http.server
import io
import os
import struct
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

import hookviz
from hookviz.draw.overlay import picture_of
from hookviz.run import pictures
from hookviz.run.inputs import prepare_input

MODEL = hookviz.demo_model()
SIDE = 112  # the demo model's input size, so that nothing is resized
RANDOM = np.random.default_rng(0)
RGB = RANDOM.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
GRAY, ALPHA = RGB[..., 0], RGB[..., 1]
BITS = GRAY > 127
SIXTEEN = RANDOM.integers(0, 65536, (SIDE, SIDE), dtype=np.uint16)
SCAN = RANDOM.integers(0, 4001, (SIDE, SIDE), dtype=np.uint16)  # 12 bits
SCAN[0, :2] = 0, 4000
WIDE = RANDOM.integers(0, 2**31 - 1, (SIDE, SIDE), dtype=np.int32)
FLOATS = RANDOM.random((SIDE, SIDE), dtype=np.float32)
CMYK = RANDOM.integers(0, 256, (SIDE, SIDE, 4), dtype=np.uint8)
PALETTE = RANDOM.integers(0, 256, (256, 3), dtype=np.uint8)
CLEAR = RANDOM.integers(0, 256, 256, dtype=np.uint8)


@pytest.fixture(autouse=True)
def pillow_settings_unchanged():
    before = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
    yield
    assert before == (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)


def shown(source):
    """Return the picture of the model's input, ``(112, 112, 3)``."""
    return picture_of(prepare_input(source, MODEL))[0].astype(int)


def gray(values):
    return np.repeat(np.asarray(values, float)[..., None], 3, axis=2)


def over_white(colours, alpha):
    fraction = np.asarray(alpha, float)[..., None] / 255
    return np.asarray(colours, float) * fraction + 255 * (1 - fraction)


def with_palette():
    image = Image.fromarray(GRAY)
    image.putpalette(PALETTE.tobytes())
    return image


def stretched(values):
    values = values.astype(float)
    return gray((values - values.min()) / np.ptp(values) * 255)


OTHER_FRAME = {"save_all": True, "append_images": [Image.new("P", (SIDE, SIDE))]}
RGBA, BLACK_ON_CMYK = np.dstack([RGB, ALPHA]), CMYK.astype(float)
# File name -> the image, the options for saving it, and the expected picture.
FILES = {
    "rgb.png": (Image.fromarray(RGB), {}, RGB),
    "gray.png": (Image.fromarray(GRAY), {}, gray(GRAY)),
    "sixteen.png": (Image.fromarray(SIXTEEN), {}, gray(SIXTEEN / 257)),
    "scan.png": (Image.fromarray(SCAN), {}, gray(SCAN / 4000 * 255)),
    "int32.tif": (Image.fromarray(WIDE), {}, stretched(WIDE)),
    "float.tif": (Image.fromarray(FLOATS), {}, gray(FLOATS * 255)),
    "float-bright.tif": (Image.fromarray(FLOATS * 900 - 50), {}, stretched(FLOATS)),
    "cmyk.tif": (
        Image.fromarray(CMYK, "CMYK"),
        {},
        (255 - BLACK_ON_CMYK[..., :3]) * (255 - BLACK_ON_CMYK[..., 3:]) / 255,
    ),
    "alpha.png": (Image.fromarray(RGBA), {}, over_white(RGB, ALPHA)),
    "la.png": (
        Image.merge("LA", [Image.fromarray(GRAY), Image.fromarray(ALPHA)]),
        {},
        over_white(gray(GRAY), ALPHA),
    ),
    "palette.png": (with_palette(), {}, PALETTE[GRAY]),
    "palette-clear.png": (
        with_palette(),
        {"transparency": CLEAR.tobytes()},
        over_white(PALETTE[GRAY], CLEAR[GRAY]),
    ),
    "keyed.png": (
        Image.fromarray(GRAY),
        {"transparency": 7},
        gray(np.where(GRAY == 7, 255, GRAY)),
    ),
    "animated.gif": (with_palette(), {**OTHER_FRAME, "optimize": False}, PALETTE[GRAY]),
    "pages.tif": (Image.fromarray(RGB), OTHER_FRAME, RGB),
}


@pytest.mark.parametrize("name", FILES)
def test_files_are_shown_right_and_stay_unchanged(name, tmp_path):
    image, options, expected = FILES[name]
    state = image.mode, image.size, image.tobytes(), dict(image.info), image.getpalette()
    path = tmp_path / name
    image.save(path, **options)
    before = path.read_bytes()
    assert abs(shown(path) - expected).max() <= 1
    with Image.open(path) as opened:  # opened by the user, but not read yet
        assert abs(shown(opened) - expected).max() <= 1
    if not options:
        assert abs(shown(image) - expected).max() <= 1
    assert path.read_bytes() == before
    assert (image.mode, image.size, image.tobytes(), image.info, image.getpalette()) == state


def test_exif_rotated_pictures_are_shown_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # stored turned to the left
    path = tmp_path / "rotated.png"
    Image.fromarray(np.rot90(RGB).copy()).save(path, exif=exif)
    assert abs(shown(path) - RGB).max() <= 1


ARRAYS = {
    "uint8": (RGB, RGB),
    "int64": (RGB.astype(np.int64), RGB),
    "uint16": (SIXTEEN, gray(SIXTEEN / 257)),
    "uint16, 12 bits": (SCAN, gray(SCAN / 4000 * 255)),
    "uint16, colours": (np.dstack([SIXTEEN, SIXTEEN // 2, SIXTEEN]), None),
    "float": (FLOATS, gray(FLOATS * 255)),
    "float, colours": (RGB / 255, RGB),
    "float, channels first": ((RGB / 255).transpose(2, 0, 1), RGB),
    "bool": (BITS, gray(BITS * 255)),
    "alpha": (RGBA, over_white(RGB, ALPHA)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_are_shown_right_and_stay_unchanged(name):
    array, expected = ARRAYS[name]
    if expected is None:
        expected = array / 257
    before = array.copy()
    array.setflags(write=False)
    assert abs(shown(array) - expected).max() <= 1
    assert (array == before).all()


def test_a_12_bit_scan_keeps_all_of_its_gray_levels(tmp_path):
    path = tmp_path / "scan.png"
    Image.fromarray(SCAN).save(path)
    levels = len(np.unique(SCAN))
    assert levels > 3000
    for network in (MODEL, torch.nn.Conv2d(1, 2, 3), torch.nn.Conv2d(4, 2, 3)):
        prepared = prepare_input(path, network)
        assert prepared.note.startswith("values 0 to 4000 stretched to 0 to 1")
        if network is MODEL:
            assert len(prepared.args[0][0, 0].unique()) == levels
    explorer = hookviz.explore(MODEL, path)
    assert prepared.note in explorer.frame.summary
    assert prepare_input(SIXTEEN, MODEL).note == ""  # 65535 is white


def test_lost_precision_is_noted_and_constant_pictures_are_not_stretched():
    colours = png_of_size(2, 1, 16, b"\0" + RANDOM.bytes(12))
    # Pillow reads only 8 bits of colour.
    assert prepare_input(colours, MODEL).note == "16-bit colours were read as 8 bits"
    constant = prepare_input(np.full((SIDE, SIDE), 4096, np.uint16), MODEL)
    assert constant.note == "" and abs(picture_of(constant)[0] - 16.0).max() <= 1


def test_float_colours_keep_their_precision():
    values = RANDOM.random((SIDE, SIDE, 3), dtype=np.float32) / 1000
    prepared = prepare_input(values, MODEL)
    mean, std = prepared.mean[0], prepared.std[0]
    restored = prepared.args[0][0].permute(1, 2, 0).numpy() * std + mean
    assert np.abs(restored - values).max() < 1e-6


def test_paths_urls_bytes_and_arrays_give_the_same_picture(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "a cat.png"
    Image.fromarray(RGB).save(path)
    data = path.read_bytes()
    forms = [
        path,
        str(path),
        "~/a cat.png",
        path.as_uri(),
        path.as_uri().replace("%20", " "),
        "data:image/png;base64," + base64.b64encode(data).decode(),
        data,
        bytearray(data),
        memoryview(data),
        io.BytesIO(data),
        [path],
        RGB[None],
    ]
    for form in forms:
        assert (shown(form) == RGB).all(), type(form)
    with path.open("rb") as file:
        assert (shown(file) == RGB).all()


# Refused pictures


def png_of_size(width, height, bits=8, rows=bytes(1000)):
    """Return a PNG in RGB that declares this size, by default almost without data."""

    def chunk(kind, data):
        end = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + end

    header = struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + data + chunk(b"IEND", b"")


def encoded(kind, **options):
    buffer = io.BytesIO()
    Image.fromarray(RGB).save(buffer, kind, **options)
    return buffer.getvalue()


PNG, JPEG = encoded("PNG"), encoded("JPEG", quality=90)
BROKEN = {
    "empty.png": b"",
    "page.png": b"<html><body>404 Not Found</body></html>",
    "half.png": PNG[: len(PNG) // 2],
    "half.jpg": JPEG[: len(JPEG) // 2],
    "header.png": PNG[:20],
    "noise.bin": RANDOM.bytes(5000),
    "signature.png": PNG[:8] + RANDOM.bytes(5000),
    "nothing.png": png_of_size(0, 0),
}
BOMBS = {"large.png": 10_000, "huge.png": 100_000, "signed.png": 2**31 - 1, "endless.png": 2**31}
BROKEN |= {name: png_of_size(side, side) for name, side in BOMBS.items()}


def refused(source, kind=ValueError):
    """Return the message with which a picture is refused."""
    with pytest.raises(kind) as raised:
        hookviz.explore(MODEL, source)
    text = str(raised.value)
    assert "\n" not in text and "0x" not in text
    return text


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(BROKEN[name])
    text = refused(path)
    assert name in text
    reason = "too large to open safely" if name in BOMBS else "cannot be read as a picture"
    assert reason in text
    assert path.read_bytes() == BROKEN[name]
    assert reason in refused(BROKEN[name])


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((2, 3, 5), "uint8"), r"shape (2, 3, 5) is not a picture"),
        (np.zeros((0, 3), "uint8"), "is not a picture"),
        (np.zeros((), "uint8"), "is not a picture"),
        (np.zeros((2, 3), "complex64"), "complex64 is not a picture"),
        (np.full((2, 3), 300), "from 300 to 300: scale them to 0 to 255"),
        (np.full((2, 3), 254.0), "from 254 to 254: scale them to 0 to 1, or give a tensor"),
        (np.full((2, 3), np.nan), "6 NaN or infinite values of 6"),
        (np.ma.masked_array(GRAY, BITS), f"{BITS.sum()} masked values of {SIDE**2}: fill them"),
    ],
)
def test_arrays_that_are_not_pictures_are_refused(array, words):
    assert words in refused(array)


def test_paths_that_are_not_pictures_are_refused(tmp_path):
    assert "is a folder: give the path of one picture, or a list of paths" in refused(tmp_path)
    assert "null" in refused("a\0b.png")
    for missing in (tmp_path / "no.png", (tmp_path / "no.png").as_uri()):
        assert "Missing file" in refused(missing, FileNotFoundError)
    values = FLOATS.copy()
    values[0, :2] = np.nan, np.inf
    Image.fromarray(values).save(tmp_path / "float.tif")
    assert "2 values are NaN or infinite" in refused(tmp_path / "float.tif")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_pipes_and_devices_are_refused_and_not_read(tmp_path):
    pipe, link = tmp_path / "pipe.png", tmp_path / "link.png"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for special in (pipe, link, pipe.as_uri(), Path("/dev/zero"), "file:///dev/zero"):
        assert "is a pipe or a device, not a file" in refused(special)
    with pytest.raises(ValueError, match="nothing could be read|pipe or a device"):
        hookviz.survey(MODEL, [str(pipe)], "stem.0")


def test_the_refusal_names_the_data_that_is_not_a_picture(tmp_path):
    path = tmp_path / "half.png"
    path.write_bytes(BROKEN["half.png"])
    with path.open("rb") as closed:
        pass
    assert "half.png' cannot be read as a picture" in refused(closed)
    with Image.open(path) as opened:
        assert "half.png" in refused(opened)
    assert refused(b"<html>").startswith("b'<html>' (6 bytes) cannot be read as a picture")


def test_very_long_pictures_are_refused_unless_a_transform_is_passed():
    long = Image.new("RGB", (60_000, 1))
    with pytest.raises(ValueError, match="'Image' is 60000×1 pixels, more than 100 times"):
        prepare_input(long, MODEL)
    prepared = prepare_input(
        long, MODEL, transform=lambda picture: torch.zeros(3, *picture.size[::-1])
    )
    assert prepared.args[0].shape == (1, 3, 1, 60_000)


# URLs

HEADER = b"HTTP/1.0 200 OK\r\n"
ANSWERS = {
    "/a%20cat.png": HEADER + b"\r\n" + PNG,
    "/caf%C3%A9.png": HEADER + b"\r\n" + PNG,
    "/chunked.png": HEADER.replace(b"1.0", b"1.1")
    + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(PNG), PNG),
    "/status": b"nonsense\r\n\r\n",
    "/missing": b"HTTP/1.0 404 Not Found\r\n\r\n",
    "/chunks": HEADER.replace(b"1.0", b"1.1") + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nPNG",
    "/pipe": b"HTTP/1.0 302 Found\r\nLocation: file:///dev/zero\r\n\r\n",
}


@pytest.fixture(scope="module")
def server():
    """Return the address of a server that sends `ANSWERS`; ``/slow…`` sends bytes slowly."""
    stop = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if not self.path.startswith("/slow"):
                self.wfile.write(ANSWERS[self.path])
                return
            self.wfile.write(HEADER + b"\r\n" if self.path == "/slow" else HEADER + b"X-Slow: ")
            while not stop.wait(0.02):
                try:
                    self.wfile.write(b"x")
                except OSError:
                    return

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http_server:
        http_server.daemon_threads = True
        threading.Thread(target=http_server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http_server.server_port}"
        stop.set()
        http_server.shutdown()


@pytest.mark.parametrize("page", ["/a cat.png", "/a%20cat.png", "/café.png", "/chunked.png"])
def test_pictures_are_read_from_urls(server, page):
    assert (shown(server + page) == RGB).all()


@pytest.mark.parametrize("page", ["/status", "/missing", "/chunks", "/pipe"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_invalid_responses_of_servers_are_reported(server, page):
    assert "could not be downloaded" in refused(server + page, RuntimeError)
    gc.collect(1)  # urllib leaves the socket open after an invalid status line


@pytest.mark.parametrize(
    ("limit", "most", "page", "reason"),
    [
        ("MAX_DOWNLOAD_SECONDS", 0.3, "/slow", "more than 0.3 seconds"),
        ("MAX_DOWNLOAD_SECONDS", 0.3, "/slow-header", "more than 0.3 seconds"),
        ("MAX_DOWNLOAD_BYTES", 100, "/a cat.png", "it is larger than"),
    ],
)
def test_downloads_have_limits(server, monkeypatch, limit, most, page, reason):
    monkeypatch.setattr(pictures, limit, most)
    assert f"could not be downloaded ({reason}" in refused(server + page, RuntimeError)
    assert "could not be downloaded" in refused("http://127.0.0.1:9/x.png", RuntimeError)
