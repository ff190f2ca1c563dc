"""Draw the demo pictures: one object of ten classes on a cluttered, textured ground.

``draw(rng)`` returns the picture, the object's mask and its class; everything
comes from ``rng``, so a seed is a data set.
"""

from __future__ import annotations

import colorsys
import math

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SIZE = 112  # pixels, what the network sees
_FINE = 2 * SIZE  # drawn at twice the size, then averaged down: smooth edges


def draw(
    rng: np.random.Generator, label: int | None = None
) -> tuple[Image.Image, Image.Image, int]:
    """Draw one picture.

    Parameters
    ----------
    rng : numpy.random.Generator
        Where all chance comes from.
    label : int, optional
        Index into ``CLASSES``; drawn by chance if left out.

    Returns
    -------
    picture : PIL.Image.Image
        RGB, ``SIZE`` × ``SIZE``.
    mask : PIL.Image.Image
        Mode ``L``, the same size: 255 where the object is.
    label : int
        Index into ``CLASSES``.
    """
    if label is None:
        label = int(rng.integers(len(CLASSES)))
    picture = _ground(rng)
    for _ in range(rng.integers(3, 9)):
        _clutter(picture, rng)
    sprite, shape = _object(rng, CLASSES[label])
    size = int(_FINE * rng.uniform(0.34, 0.62))
    angle = float(rng.uniform(-30, 30))
    sprite = sprite.resize((size, size)).rotate(angle, Image.Resampling.BICUBIC)
    shape = shape.resize((size, size)).rotate(angle, Image.Resampling.BICUBIC)
    corner = int(rng.uniform(0, _FINE - size)), int(rng.uniform(0, _FINE - size))
    picture.paste(sprite, corner, shape)
    mask = Image.new("L", picture.size)
    mask.paste(shape, corner)
    picture = _weather(picture.resize((SIZE, SIZE), Image.Resampling.BOX), rng)
    return picture, mask.resize((SIZE, SIZE), Image.Resampling.BOX).point(_threshold), label


def _threshold(value: int) -> int:
    return 255 if value > 127 else 0


def _colour(
    rng: np.random.Generator,
    saturation: tuple[float, float] = (0.35, 1.0),
    value: tuple[float, float] = (0.35, 1.0),
) -> tuple[int, int, int]:
    hsv = (rng.uniform(), rng.uniform(*saturation), rng.uniform(*value))
    red, green, blue = (int(255 * part) for part in colorsys.hsv_to_rgb(*hsv))
    return red, green, blue


def _noise(rng: np.random.Generator, size: int) -> np.ndarray:
    """Smooth noise of several octaves, 0 to 1, ``(size, size)``."""
    total = np.zeros((size, size), np.float32)
    for octave in (4, 9, 20, 45):
        grid = rng.uniform(0, 255, (octave, octave)).astype(np.uint8)
        smooth = Image.fromarray(grid).resize((size, size), Image.Resampling.BICUBIC)
        total += np.asarray(smooth, np.float32) / octave**0.7
    total -= total.min()
    return total / total.max()


def _ground(rng: np.random.Generator) -> Image.Image:
    """Two colours mixed by noise, stripes, checks or a slope."""
    y, x = np.mgrid[0:_FINE, 0:_FINE].astype(np.float32)
    angle, period = rng.uniform(0, math.pi), rng.uniform(14, 60)
    along = x * math.cos(angle) + y * math.sin(angle)
    across = y * math.cos(angle) - x * math.sin(angle)
    noise = _noise(rng, _FINE)
    kind = rng.integers(4)
    if kind == 0:
        mix = noise
    elif kind == 1:
        mix = 0.5 + 0.5 * np.sin(2 * math.pi * along / period)
    elif kind == 2:
        mix = (np.floor(along / period) + np.floor(across / period)) % 2
    else:
        mix = (along - along.min()) / np.ptp(along)
    mix = np.clip(0.75 * mix + 0.5 * (noise - 0.5) + 0.1, 0, 1)[..., None]
    first, second = (np.array(_colour(rng, (0.0, 0.7), (0.15, 0.95))) for _ in range(2))
    grain = rng.normal(0, rng.uniform(0, 10), (_FINE, _FINE, 1))
    return Image.fromarray(np.clip(first * mix + second * (1 - mix) + grain, 0, 255).astype("u1"))


def _clutter(picture: Image.Image, rng: np.random.Generator) -> None:
    """One line, bar, wedge or scribble that is no object of any class."""
    pen = ImageDraw.Draw(picture)
    x, y = rng.uniform(0, _FINE, 2)
    reach, colour = rng.uniform(12, 60), _colour(rng, (0.1, 1.0), (0.2, 1.0))
    turns = rng.uniform(0, 2 * math.pi, 4)
    points = [(x + reach * math.cos(t), y + reach * math.sin(t)) for t in turns]
    kind = rng.integers(3)
    if kind == 0:
        pen.line(points[:2], colour, int(rng.integers(2, 12)))
    elif kind == 1:
        pen.polygon(points[:3], colour)
    else:
        pen.line(points, colour, int(rng.integers(2, 6)))


def _weather(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Uneven light, blur and sensor noise."""
    if rng.uniform() < 0.25:
        picture = picture.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.9)))
    light = rng.uniform(0.75, 1.15) * (0.8 + 0.4 * _noise(rng, SIZE))[..., None]
    pixels = np.asarray(picture, np.float32) * light
    pixels += rng.normal(0, rng.uniform(1, 7), pixels.shape)
    return Image.fromarray(np.clip(pixels, 0, 255).astype("u1"))


def _object(rng: np.random.Generator, name: str) -> tuple[Image.Image, Image.Image]:
    """Draw the object in a square of its own: colours and mask."""
    body, detail = _colour(rng, (0.5, 1.0), (0.55, 1.0)), _colour(rng, (0.0, 1.0), (0.2, 1.0))
    sprite = Image.new("RGB", (200, 200), body)
    shape = Image.new("L", sprite.size)
    _DRAW[name](ImageDraw.Draw(sprite), ImageDraw.Draw(shape), detail, rng)
    shading = 0.7 + 0.5 * np.linspace(1, 0, 200, dtype=np.float32)[:, None, None]
    pixels = np.clip(np.asarray(sprite, np.float32) * shading, 0, 255)
    return Image.fromarray(pixels.astype("u1")), shape


def _ball(sprite, shape, detail, rng):
    shape.ellipse((8, 8, 192, 192), 255)
    sprite.ellipse((45, 30, 85, 70), (255, 255, 255))


def _eye(sprite, shape, detail, rng):
    lids = [(100 + 95 * math.cos(t), 100 - 58 * math.sin(t) ** 3) for t in _turn(60)]
    shape.polygon(lids, 255)
    sprite.rectangle((0, 0, 200, 200), (245, 240, 235))
    sprite.ellipse((60, 60, 140, 140), detail)
    sprite.ellipse((82, 82, 118, 118), (10, 10, 10))


def _fish(sprite, shape, detail, rng):
    shape.ellipse((5, 50, 150, 150), 255)
    shape.polygon([(125, 100), (195, 45), (180, 100), (195, 155)], 255)
    shape.polygon([(60, 60), (95, 22), (115, 60)], 255)
    sprite.ellipse((28, 78, 48, 98), (255, 255, 255))
    sprite.ellipse((34, 84, 44, 94), (0, 0, 0))
    for x in (75, 100, 125):
        sprite.arc((x - 30, 60, x, 140), -60, 60, detail, 6)


def _flower(sprite, shape, detail, rng):
    petals = int(rng.integers(5, 8))
    for turn in _turn(petals):
        x, y = 100 + 58 * math.cos(turn), 100 + 58 * math.sin(turn)
        shape.ellipse((x - 36, y - 36, x + 36, y + 36), 255)
    shape.ellipse((60, 60, 140, 140), 255)
    sprite.ellipse((68, 68, 132, 132), detail)


def _heart(sprite, shape, detail, rng):
    curve = [
        (
            100 + 5.6 * 16 * math.sin(t) ** 3,
            92
            - 5.6
            * (13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)),
        )
        for t in _turn(80)
    ]
    shape.polygon(curve, 255)


def _house(sprite, shape, detail, rng):
    shape.rectangle((30, 90, 170, 190), 255)
    shape.polygon([(10, 95), (100, 12), (190, 95)], 255)
    sprite.polygon([(0, 97), (100, 5), (200, 97)], detail)
    sprite.rectangle((85, 130, 120, 190), (60, 40, 25))
    sprite.rectangle((45, 112, 72, 140), (230, 235, 160))


def _moon(sprite, shape, detail, rng):
    shape.ellipse((20, 10, 180, 190), 255)
    shape.ellipse((70, 0, 215, 165), 0)


def _mushroom(sprite, shape, detail, rng):
    shape.pieslice((8, 12, 192, 196), 180, 360, 255)
    shape.rounded_rectangle((72, 95, 128, 192), 20, 255)
    sprite.rectangle((60, 105, 140, 200), (240, 228, 205))
    for x, y, r in ((55, 75, 14), (100, 50, 17), (145, 78, 13)):
        sprite.ellipse((x - r, y - r, x + r, y + r), (255, 250, 245))


def _ring(sprite, shape, detail, rng):
    hole = int(rng.integers(42, 58))
    shape.ellipse((8, 8, 192, 192), 255)
    shape.ellipse((8 + hole, 8 + hole, 192 - hole, 192 - hole), 0)


def _star(sprite, shape, detail, rng):
    reach = (95, 40)
    points = [
        (100 + reach[i % 2] * math.sin(t), 100 - reach[i % 2] * math.cos(t))
        for i, t in enumerate(_turn(10))
    ]
    shape.polygon(points, 255)


def _turn(steps: int) -> list[float]:
    return [2 * math.pi * step / steps for step in range(steps)]


_DRAW = {
    "ball": _ball,
    "eye": _eye,
    "fish": _fish,
    "flower": _flower,
    "heart": _heart,
    "house": _house,
    "moon": _moon,
    "mushroom": _mushroom,
    "ring": _ring,
    "star": _star,
}

CLASSES = tuple(_DRAW)
