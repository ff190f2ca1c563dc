"""Colours equal matplotlib's, levels are exact, and NaN and Inf have separate colours."""

import io
import zlib

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import LogNorm, Normalize, to_rgb
from matplotlib.figure import Figure
from PIL import Image

from hookviz.draw.colours import (
    DIVERGING,
    GAP,
    SEQUENTIAL,
    colormap,
    colour_ranges,
    dark_palette,
    palette,
    percentiles,
    to_levels,
)
from hookviz.draw.figures import drawn as drawn_once
from hookviz.draw.mosaic import mosaic

RANDOM = np.random.default_rng(0)


def drawn(values, name, low, high):
    return palette(name)[to_levels(values, low, high), :3]


@pytest.mark.parametrize("name", [SEQUENTIAL, DIVERGING, "magma", "gray", "tab10"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_colours_equal_matplotlibs(name, dtype):
    values = RANDOM.normal(size=(40, 30)).astype(dtype)
    low, high = values.min(), values.max()
    got = drawn(values, name, low, high).astype(int)
    exact = colormap(name)(Normalize(low, high)(values), bytes=True)[..., :3].astype(int)
    off = (got != exact).any(-1)
    assert off.mean() < 0.01  # rounding between two levels
    levels = to_levels(values, low, high).astype(int)
    expected = np.minimum((Normalize(low, high)(values) * 252).astype(int), 251)
    assert abs(levels - expected).max() <= 1
    # Also close to matplotlib's full colormap.
    full = colormaps[name](Normalize(low, high)(values), bytes=True)[..., :3].astype(int)
    assert name == "tab10" or abs(got - full).max() <= 12


def test_values_outside_the_range_have_the_colours_of_its_ends():
    values = np.array([[-9.0, 0.0, 1.0, 9.0]])
    assert to_levels(values, 0.0, 1.0).tolist() == [[0, 0, 251, 251]]


def test_nan_and_infinity_have_separate_colours():
    values = np.array([[0.0, np.nan, np.inf, -np.inf], [1.0, 0.5, 0.25, 0.75]])
    pixels = drawn(values, "viridis", 0.0, 1.0)
    special = [tuple(pixels[0, column]) for column in (1, 2, 3)]
    wanted = [
        tuple(round(255 * c) for c in to_rgb(name)) for name in ("#ff00ff", "#39ff14", "#00e5ff")
    ]
    assert special == wanted
    for name in ("viridis", "magma", "RdBu_r", "gray"):
        colours = {tuple(row) for row in palette(name)[:252, :3]}
        assert not colours & set(wanted)
    assert tuple(pixels[1, 0]) == tuple(palette("viridis")[251, :3])


def test_zero_is_the_middle_of_the_diverging_colormap():
    middle = palette(DIVERGING)[125:127, :3].astype(int)
    assert middle.min() > 235  # nearly white
    level = to_levels(np.zeros((1, 1)), -3.0, 3.0)[0, 0]
    assert level in (125, 126)


# Ranges

MAPS = np.stack([np.linspace(-1, 3, 100), np.linspace(0, 9, 100), np.full(100, 2.0), np.zeros(100)])
MAPS = MAPS.reshape(4, 10, 10)


def ranges(normalize, diverging=False):
    flat = MAPS.reshape(len(MAPS), -1)
    ends = np.fmin.reduce(flat, 1), np.fmax.reduce(flat, 1)
    return colour_ranges(MAPS, *ends, normalize, diverging=diverging)


def test_colour_ranges_of_each_normalization():
    low, high = ranges("channel")
    assert low.tolist() == [-1, 0, 2, 0]
    assert high.tolist() == [3, 9, 3, 1]
    low, high = ranges("layer")
    assert low.tolist() == [-1] * 4
    assert high.tolist() == [9] * 4
    low, high = ranges("symmetric")
    assert (low == -high).all()
    assert high.tolist() == [3, 9, 2, 1]
    low, high = ranges("percentile")
    assert np.allclose(low, np.append(np.percentile(MAPS[:3], 1, (1, 2)), 0))
    assert np.allclose(high[:2], np.percentile(MAPS[:2], 99, (1, 2)))
    low, high = ranges("channel", diverging=True)
    assert (low == -high).all()


@pytest.mark.parametrize("size", [1, 2, 100, 101, 150, 999, 1000, 1001, 12_544])
def test_percentiles_equal_numpys(size):
    maps = RANDOM.normal(size=(5, 1, size)).astype(np.float32)
    maps[2] = np.maximum(maps[2], 0)  # many equal values
    for got, exact in zip(percentiles(maps), (1, 99), strict=True):
        # In float64, since versions of numpy round float32 differently. We round three times.
        wanted = np.percentile(maps.astype(np.float64), exact, (1, 2))
        allowed = 3 * np.finfo(np.float32).eps * np.abs(maps).max()
        assert np.abs(got - wanted).max() <= allowed


@pytest.mark.parametrize("normalize", ["channel", "layer", "percentile", "symmetric"])
@pytest.mark.parametrize("diverging", [False, True])
def test_colour_ranges_ignore_nan_and_infinity(normalize, diverging):
    maps = MAPS.copy()
    maps[0, 0, :2] = np.nan, np.inf
    maps[1] = np.nan
    with np.errstate(all="raise"):
        flat = np.where(np.isfinite(maps), maps, np.nan).reshape(4, -1)
        low, high = colour_ranges(
            maps, np.fmin.reduce(flat, 1), np.fmax.reduce(flat, 1), normalize, diverging=diverging
        )
    assert np.isfinite(low).all()
    assert np.isfinite(high).all()
    assert (low < high).all()


# Mosaic


def tiles_of(maps, **options):
    flat = maps.reshape(len(maps), -1)
    return mosaic(maps, flat.min(1), flat.max(1) + (flat.min(1) == flat.max(1)), **options)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 2048])
def test_every_tile_shows_its_map_exactly(count):
    maps = RANDOM.normal(size=(count, 7, 7)).astype("float32")
    sheet = tiles_of(maps)
    height, width = sheet.levels.shape
    for position in {0, 1 % count, count // 2, count - 1}:
        left, top, wide, tall = sheet.box(position)
        x, y = round(left * width), round(top * height)
        tile = sheet.levels[y : y + round(tall * height), x : x + round(wide * width)]
        times = tile.shape[0] // 7
        expected = to_levels(maps[position], maps[position].min(), maps[position].max())
        assert (tile == expected.repeat(times, 0).repeat(times, 1)).all()
    assert max(height, width) <= 1000


@pytest.mark.parametrize(
    "shape",
    [(64, 112, 112), (512, 56, 56), (8, 1, 100), (2048, 1, 1), (3, 400, 20), (1, 1000, 1000)],
)
def test_mosaics_are_neither_too_small_nor_too_large(shape):
    sheet = tiles_of(np.ones(shape, "float32"))
    assert max(sheet.levels.shape) <= 1400
    assert min(sheet.levels.shape) >= 4
    assert len(zlib.compress(sheet.levels, 1)) < 200_000


def test_tiles_of_large_maps_are_averaged():
    maps = RANDOM.normal(size=(64, 112, 112)).astype("float32")
    sheet = tiles_of(maps)
    assert sheet.tile_width == 56
    mean = maps[0].reshape(56, 2, 56, 2).mean((1, 3))
    expected = to_levels(mean, maps[0].min(), maps[0].max()).astype(int)
    assert abs(sheet.levels[:56, :56].astype(int) - expected).max() <= 1


@pytest.mark.parametrize("cmap", ["viridis", "RdBu_r", "gray", "gray_r"])
def test_tiles_of_silent_channels_have_a_visible_cross(cmap):
    maps, ends = np.zeros((2, 9, 9), "float32"), np.zeros(2)
    low, high = colour_ranges(maps, ends, ends, "channel", diverging=cmap == DIVERGING)
    sheet = mosaic(maps, low, high, silent=np.array([False, True]))
    tall, wide = sheet.tile_height, sheet.tile_width
    plain, crossed = sheet.levels[:tall, :wide], sheet.levels[:tall, wide + 1 :]
    colours = palette(cmap)[:, :3].astype(int)
    colours[GAP] = 255  # the page, which is white
    ground, ink = colours[[plain[0, 1], crossed[0, 0]]]
    assert (plain == plain[0, 1]).all() and crossed[0, 1] == plain[0, 1]
    assert abs(ground - ink).sum() > 250


def test_gaps_between_tiles_are_transparent():
    assert palette("viridis")[[0, GAP], 3].tolist() == [255, 0]


def test_zero_is_dark_in_the_diverging_colormap_of_a_dark_page():
    dark, light = dark_palette(DIVERGING)[:, :3], palette(DIVERGING)[:, :3]
    assert dark[125].max() < 24 and light[125].min() > 240
    assert dark[0].max() > 200 and dark[251].max() > 200
    assert (dark[252:] == light[252:]).all()  # NaN and Inf keep their colours
    assert dark_palette("viridis") is None


@pytest.mark.parametrize("most", [1e-37, 1e37, 3e38])
def test_levels_are_exact_at_the_extremes_of_float32(most):
    values = np.array([-most, 0.0, most], np.float32)
    assert to_levels(values, np.float32(-most), np.float32(most)).tolist() == [0, 126, 251]


@pytest.mark.parametrize("layout", ["constrained", "tight", None])
def test_a_figure_is_drawn_once_with_the_pixels_of_savefig(layout, monkeypatch):
    def figure():
        made = Figure(figsize=(6, 4), layout=layout, facecolor="beige")
        for axes, norm in zip(made.subplots(2, 1), (Normalize(), LogNorm()), strict=True):
            picture = axes.imshow(np.arange(1.0, 31).reshape(3, 10), aspect="auto", norm=norm)
            made.colorbar(picture, ax=axes)
            axes.set_title("a long title " * 5)
        return made

    buffer = io.BytesIO()
    figure().savefig(buffer, format="png", dpi=72)
    once, draw, count = figure(), Figure.draw, []
    monkeypatch.setattr(Figure, "draw", lambda *given: count.append(1) or draw(*given))
    before = once.dpi, once.canvas
    assert np.array_equal(drawn_once(once, 72), Image.open(buffer))
    assert len(count) == 1 and (once.dpi, once.canvas) == before
