"""Metrics of heatmaps compared with hand-computed values and a slow loop, and unusual inputs."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import hookviz
from hookviz.attribution.metrics import (
    deletion_curve,
    insertion_curve,
    pointing_game,
)
from hookviz.run.inputs import prepare_input

MODEL = hookviz.demo_model()
PICTURES = hookviz.demo_images()


def mask_at(row, column, size=(8, 8)):
    mask = torch.zeros(size, dtype=torch.bool)
    mask[row, column] = True
    return mask


def heatmap_with_peak(row, column, size=(4, 4)):
    return mask_at(row, column, size).float()


# The pointing game


def test_the_pointing_game_checks_the_largest_value():
    heatmap = heatmap_with_peak(
        1, 2
    )  # at twice the size the peak covers rows 2 and 3, columns 4 and 5
    assert pointing_game(heatmap, mask_at(2, 4)) is True
    assert pointing_game(heatmap, mask_at(6, 4)) is False
    assert pointing_game(heatmap, mask_at(1, 2, (4, 4))) is True
    assert pointing_game(-heatmap, mask_at(0, 0)) is True  # the first of several largest values


def test_the_tolerance_of_the_pointing_game_is_in_pixels():
    inside = mask_at(6, 5, (9, 9))  # 4 down and 3 to the right of the peak
    for tolerance, hit in ((5, True), (4.9, False)):
        assert pointing_game(heatmap_with_peak(2, 2, (9, 9)), inside, tolerance) is hit


def test_constant_and_nonfinite_heatmaps_never_hit():
    everywhere = torch.ones(8, 8)
    for value in (0.0, 0.7, torch.nan):
        assert pointing_game(torch.full((4, 4), value), everywhere) is False
    for value in (torch.nan, torch.inf):
        assert (
            pointing_game(heatmap_with_peak(1, 1) + heatmap_with_peak(2, 2) * value, everywhere)
            is False
        )


def test_the_pointing_game_takes_batches():
    heatmaps = torch.stack([heatmap_with_peak(0, 0), heatmap_with_peak(3, 3), torch.zeros(4, 4)])
    hits = pointing_game(heatmaps, mask_at(0, 0))
    assert hits.tolist() == [True, False, False]
    masks = torch.stack([mask_at(7, 7), mask_at(7, 7), mask_at(0, 0)])
    assert pointing_game(heatmaps, masks).tolist() == [False, True, False]
    assert pointing_game(heatmaps[:1], mask_at(0, 0)).tolist() == [True]


def test_masks_may_be_arrays_tensors_or_pictures():
    inside = mask_at(2, 4).numpy()
    kinds = [
        inside,
        inside[None],
        inside.astype(float),
        (inside * 255).astype(np.uint8),
        torch.from_numpy(inside * 255),
        Image.fromarray(inside),
        Image.fromarray((inside * 255).astype(np.uint8)),
    ]
    for heatmap in (heatmap_with_peak(1, 2).numpy(), heatmap_with_peak(1, 2).bfloat16()):
        for kind in kinds:
            assert pointing_game(heatmap, kind) is True
    mirrored = np.flip(heatmap_with_peak(2, 2).numpy(), 0)  # negative strides
    assert pointing_game(mirrored, np.flip(mask_at(5, 4).numpy(), 0)) is True


# Deletion and insertion


class Sum(nn.Module):
    """A model of two classes: the first has the sigmoid of the sum of all pixels."""

    def forward(self, x):
        total = x.flatten(1).sum(1)
        return torch.stack([total, torch.zeros_like(total)], 1)


X = torch.tensor([[[[4.0, 1.0], [2.0, 3.0]]]])


def test_curves_equal_hand_computed_values():
    falling = deletion_curve(Sum(), X, X[0, 0], 0, steps=4)
    expected = torch.tensor([10.0, 6.0, 3.0, 1.0, 0.0]).sigmoid()
    torch.testing.assert_close(falling.fractions, torch.tensor([0, 0.25, 0.5, 0.75, 1]))
    torch.testing.assert_close(falling.scores, expected)
    area = (expected[1:-1].sum() + (expected[0] + expected[-1]) / 2) / 4
    assert falling.area == pytest.approx(area.item())
    rising = insertion_curve(Sum(), X, X[0, 0], 0, steps=2, baseline=-1)
    expected = torch.tensor([-4.0, 5.0, 10.0]).sigmoid()  # inserts 4 and 3, then 2 and 1
    torch.testing.assert_close(rising.scores, expected)
    ties = deletion_curve(Sum(), X, torch.zeros(2, 2), lambda out: out[0, 0], steps=8)
    assert ties.scores[::2].tolist() == [10, 6, 5, 3, 0]  # ties are deleted row by row
    lifted = deletion_curve(Sum(), X, -X[0, 0], lambda out: out[0, 0], steps=2, baseline=X[0] + 1)
    assert lifted.scores.tolist() == [10, 12, 14]


def slow_insertion(x, heatmap, target, steps):
    """Compute the insertion curve by the loop of RISE, one picture at a time."""
    offsets = torch.arange(-5.0, 6.0)
    weights = torch.exp(-(offsets[:, None] ** 2 + offsets**2) / 50)
    padded = nn.functional.pad(x, (5, 5, 5, 5), mode="replicate")
    kernel = (weights / weights.sum()).expand(3, 1, 11, 11)
    picture = nn.functional.conv2d(padded, kernel, groups=3).flatten(2)
    order = np.argsort(-heatmap.flatten().numpy(), kind="stable")
    scores, done = [], 0
    for step in range(steps + 1):
        upto = round(step / steps * len(order))
        for place in order[done:upto]:
            picture[..., place] = x.flatten(2)[..., place]
        done = upto
        scores.append(MODEL(picture.view_as(x)).softmax(1)[0, target])
    return torch.stack(scores)


@torch.no_grad()
def test_the_insertion_curve_equals_a_slow_loop():
    x = prepare_input(PICTURES[4], MODEL).args[0]
    heatmap = torch.rand(112, 112)
    curve = insertion_curve(MODEL, PICTURES[4], heatmap, "fish", steps=7, batch_size=3)
    torch.testing.assert_close(curve.scores, slow_insertion(x, heatmap, 2, 7), atol=1e-5, rtol=0)


def test_curves_of_a_batch_equal_those_of_single_samples():
    x = torch.cat([prepare_input(PICTURES[number], MODEL).args[0] for number in (2, 15)])
    with hookviz.capture(MODEL, "layer3.1.conv2") as cache:
        MODEL(x).amax(1).sum().backward()
    heatmaps = hookviz.heatmap(cache["layer3.1.conv2"])
    for curve in (deletion_curve, insertion_curve):
        together = curve(MODEL, x, heatmaps, steps=5)
        assert together.scores.shape == (2, 6)
        assert together.area.shape == (2,)
        for number in range(2):
            alone = curve(MODEL, x[number], heatmaps[number].numpy(), steps=5)
            torch.testing.assert_close(together.scores[number], alone.scores)
            assert together.area[number] == pytest.approx(alone.area)


@pytest.mark.parametrize("spatial", [1, 3])
def test_curves_of_signals_and_volumes(spatial):
    x = torch.rand(1, 2, *(6, 5, 7)[:spatial]) / 100
    heatmap = torch.rand((3, 3, 4)[:spatial])
    for curve in (deletion_curve, insertion_curve):
        found = curve(Sum(), x, heatmap, 0, steps=3)
        assert found.scores.shape == (4,)
    assert found.scores[-1] == pytest.approx(x.sum().sigmoid().item())
    # The blur repeats the edges, so that the sum of the blurred input differs a little.
    assert found.scores[0] != found.scores[-1]


# Errors


@pytest.mark.parametrize(
    ("heatmap", "mask", "message"),
    [
        (torch.rand(4), torch.ones(4, 4), "A heatmap of shape (4,) does not fit a mask"),
        (torch.rand(4, 4), torch.ones(1, 1, 4, 4), "mask of shape (1, 1, 4, 4)"),
        (torch.rand(4, 4), torch.ones(4), "mask of shape (4,)"),
        (torch.rand(4, 0), torch.ones(4, 4), "The heatmap of shape (4, 0) has no values"),
        (torch.rand(4, 4), torch.ones(0, 4), "The mask of shape (0, 4) has no values"),
        (torch.rand(2, 4, 4), torch.ones(3, 4, 4), "one mask or one for each heatmap"),
        (torch.rand(9, 4), torch.ones(8, 8), "at the size of the model's input"),
        (torch.rand(4, 4), torch.zeros(8, 8), "The mask is 0 everywhere, so that it marks no"),
        (
            torch.rand(2, 4, 4),
            torch.stack([torch.ones(4, 4), torch.zeros(4, 4)]),
            "The mask of sample 1 is 0 everywhere",
        ),
        (torch.rand(4, 4), torch.zeros(4), "The mask is 0 everywhere"),
        (torch.rand(4, 4), torch.arange(16.0).view(4, 4), "has 16 values, from 0 to 15"),
        (torch.rand(4, 4), torch.arange(3.0).expand(3, 3), "give mask == label"),
        (torch.rand(4, 4), -torch.ones(8, 8), "A mask is true or one number"),
        (torch.rand(4, 4), torch.full((8, 8), torch.nan), "A mask is true or one number"),
    ],
)
def test_masks_that_do_not_fit_are_refused(heatmap, mask, message):
    with pytest.raises(ValueError) as error:
        pointing_game(heatmap, mask)
    assert message in str(error.value)


@pytest.mark.parametrize("curve", [deletion_curve, insertion_curve])
@pytest.mark.parametrize(
    ("heatmap", "options", "message"),
    [
        (torch.rand(2), {}, "A heatmap of shape (2,) does not fit an input of 1 samples"),
        (torch.rand(3, 2, 2), {}, "(3, 2, 2)"),
        (torch.full((2, 2), torch.nan), {}, "4 NaN or infinite values"),
        (torch.rand(2, 2), {"steps": 0}, "steps=0"),
        (torch.rand(2, 2), {"target": 2}, "classes are 0 to 1"),
        (torch.rand(2, 2), {"baseline": "black"}, "baseline='black'"),
        (torch.rand(2, 2), {"baseline": torch.zeros(3)}, "does not fit the input"),
    ],
)
def test_wrong_arguments_of_curves_are_refused(curve, heatmap, options, message):
    with pytest.raises(ValueError) as error:
        curve(Sum(), X, heatmap, **options)
    assert message in str(error.value)
