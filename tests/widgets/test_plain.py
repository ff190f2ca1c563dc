"""The explorer without a canvas: ipywidgets sliders, predictions and a matplotlib picture."""

import numpy as np
import pytest
import torch
from demo import explore_demo
from PIL import ImageChops
from seen import control, parts, says
from torch import nn

import hookviz
from hookviz.draw.figures import drawn
from hookviz.export import kept
from hookviz.export.figure import draw_figure, measure, shown_pictures

LAYER = "layer3.1.conv2"


@pytest.fixture
def explorer():
    return explore_demo(face="plain")


def test_predictions_are_shown_with_their_percentages(explorer):
    for prediction in explorer.frame.predictions:
        assert prediction.words.endswith(" %") and says(explorer, prediction.words)
    explorer.edit(change=0)
    changed = explorer.frame.predictions[0]
    assert says(explorer, f"{changed.words} ({changed.change})")


def test_the_reason_for_the_opened_channel_is_shown_until_the_view_changes(explorer):
    assert says(explorer, explorer.frame.opened) and "contributes most to" in explorer.frame.opened
    explorer.channel = (explorer.channel + 1) % 96
    assert not says(explorer, "contributes most to")


def test_the_picture_has_map_gradient_heatmap_and_a_grid_of_the_channels(explorer):
    explorer.layer = LAYER
    titles = [axes.get_title() for axes in draw_figure(explorer.frame).axes]
    assert titles[0] == "input" and titles[1].startswith(f"channel {explorer.channel}, 14×14")
    assert titles[2].startswith("gradient of moon") and titles[3] == "Grad-CAM of moon"
    assert titles[4] == "all 96 channels"
    (*_, grid) = draw_figure(explorer.frame).axes
    (outline,) = grid.patches  # around the shown channel
    assert outline.get_width() < grid.images[0].get_array().shape[1] / 15


def signal_explorer():
    model = nn.Sequential(nn.Conv1d(2, 5, 3), nn.Flatten(), nn.Linear(310, 4))
    return hookviz.explore(model, torch.rand(1, 2, 64), face="plain")


@pytest.mark.parametrize("size", [(1, 1, 64), (1, 1, 20, 20)])  # a curve, a map
def test_a_power_of_ten_does_not_stand_under_the_caption(size):
    layer = nn.Conv1d if len(size) == 3 else nn.Conv2d
    model = nn.Sequential(layer(1, 2, 3), nn.Flatten(), nn.LazyLinear(2))
    model(torch.rand(size))
    with torch.no_grad():
        model[2].weight *= 1e-9
    explorer = hookviz.explore(model, torch.rand(size), 1, class_names=["fish", "a moon " * 20])
    figure = draw_figure(explorer.frame)
    figure.draw_without_rendering()
    axes = figure.axes[2]
    power = (axes.child_axes or [axes])[0].yaxis.get_offset_text()  # at the colourbar, if any
    assert power.get_text() and axes.get_title().count("\n") > 2
    assert not axes.title.get_window_extent().overlaps(power.get_window_extent())


STEPS = [
    [("channel", 3), ("channel", 95), ("position", (5, 8))],
    [("channel", 6), ("position", None), ("alpha", 0.3)],
    [("channel", 7), ("over_input", True), ("cmap", "magma")],
    [("channel", 9), ("order", "max"), ("channel", 11)],
    [("layer", "stem.0"), ("channel", 12)],
]


def new_pictures(frame):
    """Return the parts of a new figure, without the outline in the grid."""
    figure = draw_figure(frame, captions=False)
    for patch in [*figure.axes[-1].patches]:
        patch.remove()
    return measure(shown_pictures(frame)).cut(drawn(figure, figure.dpi).convert("RGB"))


def test_the_kept_figure_has_the_pixels_of_a_new_one_after_several_steps(explorer):
    explorer.layer, figure = LAYER, kept.KeptFigure()
    for steps in STEPS:
        for name, value in steps:
            setattr(explorer, name, value)
            kept_pictures = figure.draw(explorer.frame)
        assert kept_pictures == new_pictures(explorer.frame), steps


def test_the_kept_figure_shows_other_curves():
    explorer, figure = signal_explorer(), kept.KeptFigure()
    for channel in range(3):
        explorer.channel = channel
        assert figure.draw(explorer.frame) == new_pictures(explorer.frame)


def test_the_chosen_tile_is_outlined_where_a_figure_outlines_it(explorer):
    explorer.layer, figure = LAYER, kept.KeptFigure()
    for channel in (3, 95):
        explorer.channel = channel
        (*_, grid) = figure.draw(explorer.frame)
        left, top, width, height = np.array(figure.box(explorer.frame)) * (grid.size * 2)
        whole = draw_figure(explorer.frame, captions=False)
        outlined = drawn(whole, whole.dpi).convert("RGB")
        (*_, outlined) = measure(shown_pictures(explorer.frame)).cut(outlined)
        changed = ImageChops.difference(grid, outlined).getbbox()
        # Half of the figure's line of 2.5 pixels is around the tile, in whole pixels.
        assert changed == pytest.approx((left, top, left + width, top + height), abs=3)


def test_only_the_parts_that_differ_are_sent_again(explorer, monkeypatch):
    monkeypatch.setattr("hookviz.widgets.plain.in_front_end", lambda widget: True)
    explorer.layer = LAYER
    before = images(explorer)
    explorer.channel = 17
    after = images(explorer)
    assert len(before) == len(after) == 5
    changed = [old != new for old, new in zip(before, after, strict=True)]
    assert changed == [False, True, True, False, False]
    assert says(explorer, f'alt="{explorer.frame.description}"')


def images(explorer):
    texts = [str(getattr(part, "value", "")) for part in parts(explorer)]
    return [text for text in texts if "<img class" in text]


def test_one_figure_serves_all_channels_of_a_layer(explorer, monkeypatch):
    explorer.layer, figure, built = LAYER, kept.KeptFigure(), []

    def counted(*given, **options):
        built.append(1)
        return draw_figure(*given, **options)

    monkeypatch.setattr(kept, "draw_figure", counted)
    for channel in range(5):
        explorer.channel = channel
        figure.draw(explorer.frame)
    explorer.alpha = 0.2
    figure.draw(explorer.frame)
    assert len(built) == 1


def test_the_orders_have_the_words_of_the_canvas(explorer):
    """They come from one table, which the browser gets with the facts."""
    words = dict(control(explorer, "order").options)
    assert words["z-score here"] == "contrast" and words["number"] == "index"
    assert words["value × gradient here"] == "contribution"
