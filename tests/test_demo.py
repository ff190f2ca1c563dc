"""The shipped models match their cards, and the shipped pictures are reproducible."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from demo_pictures import CLASSES, draw
from train_demo_model import HELD_OUT, TRAIN_SEED, accuracy, held_out
from train_digit_transformer import digits, scattered

import hookviz
from hookviz.run.inputs import prepare_input

ASSETS = Path(__file__).resolve().parent.parent / "assets"


@pytest.mark.heavy
def test_held_out_accuracy_is_that_of_the_card():
    card = json.loads((ASSETS / "demo" / "card.json").read_text())
    assert card["held_out_pictures"] == HELD_OUT
    score = accuracy(hookviz.demo_model(), *held_out(400))
    assert score >= 0.95
    assert abs(score - card["held_out_accuracy"]) < 0.03


def test_shipped_pictures_are_recognized_and_masked():
    model = hookviz.demo_model()
    pictures = hookviz.demo_images()
    assert len(pictures) == 3 * len(CLASSES)
    right = 0
    for picture in pictures:
        x = prepare_input(picture, model).args[0]
        with torch.no_grad():
            right += model.class_names[model(x).argmax()] == picture.info["label"]
        mask = np.asarray(picture.info["mask"])
        assert mask.shape == picture.size
        assert 0.01 < (mask == 255).mean() < 0.5
        assert set(np.unique(mask)) == {0, 255}
    assert right >= 29


def test_the_demo_model_is_small_and_has_in_place_layers():
    assert (ASSETS / "demo" / "weights.pt").stat().st_size <= 2_000_000
    model = hookviz.demo_model()
    assert not model.training
    assert any(getattr(module, "inplace", False) for module in model.modules())
    assert model.class_names == CLASSES


def test_training_pictures_are_reproducible_from_their_seed():
    first, second = (draw(np.random.default_rng([TRAIN_SEED, 5])) for _ in range(2))
    assert np.array_equal(np.asarray(first[0]), np.asarray(second[0]))
    assert first[2] == second[2]


def test_shipped_digits_are_recognized_and_reproducible():
    model, pictures = hookviz.models.demo_transformer(), hookviz.models.demo_digits()
    read = []
    for picture in pictures:
        with torch.no_grad():
            scores = model(prepare_input(picture, model).args[0])
        read.append(model.class_names[scores.argmax()] == picture.info["label"])
    assert sum(read) >= 18
    held, labels = digits(train=False)
    x, corners = scattered(held, torch.Generator().manual_seed(1))
    for picture, made, label, corner in zip(pictures, x, labels, corners, strict=False):
        assert picture.info == {"label": str(int(label)), "corner": tuple(corner.tolist())}
        known = prepare_input(picture, model).args[0][0]
        assert (known - made).abs().max() <= 0.51 / 255  # rounding to bytes
