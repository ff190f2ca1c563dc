"""The comparison with 0.3 notices a difference in each subject, so it can fail."""

import copy

import pytest
import torch

from zoo.against.__main__ import report
from zoo.against.compare import Known, differences, known
from zoo.against.measure import DEMOS, file_of, measure

pytestmark = pytest.mark.heavy  # for `make against-0.3`, until 1.0 is released

NAME = "demo transformer"
CHANGED = {
    "maps": "eval: conv_proj#0.0",
    "gradients": "train: conv_proj#0.0",
    "heatmaps": "encoder.layers.encoder_layer_1.mlp.3, layercam",
    "edges": "edges",
    "fields": "conv_proj",
    "terms": "heads.head, channel 5: by channel",
    "attention": "encoder.layers.encoder_layer_1.self_attention",
    "findings": "train",
    "orders": "conv_proj, max",
}
"""Subject -> one of its results, which a test changes."""


@pytest.fixture(scope="module")
def measured():
    return measure(DEMOS[NAME])


def changed(measured, subject, by=1e-3):
    """The results with one value changed by a fraction of the largest, or one item replaced."""
    results = copy.deepcopy(measured)
    entry = results[subject][CHANGED[subject]]
    if isinstance(entry, dict):
        values = entry["values"]
        values[len(values) // 2] += by * values.abs().max()
        assert values.any()
        entry["digest"] = "another"
    else:
        entry[-1:] = ["something else"]
    return results


def found(before, now, intended=()):
    return [(each.subject, each.key) for each in differences(NAME, before, now, intended)]


def test_measuring_twice_gives_no_difference(measured):
    assert found(measured, measure(DEMOS[NAME])) == []


@pytest.mark.parametrize("subject", CHANGED)
def test_a_changed_a_missing_and_a_new_result_are_noticed(measured, subject):
    assert set(CHANGED) == set(measured)
    results, place = changed(measured, subject), (subject, CHANGED[subject])
    assert set(found(measured, results)) == {place}
    del results[subject][CHANGED[subject]]
    assert found(measured, results) == found(results, measured) == [place]


def test_values_that_become_nan_are_noticed(measured):
    results = changed(measured, "heatmaps")
    results["heatmaps"][CHANGED["heatmaps"]]["values"][3] = torch.nan
    assert found(measured, results) == [("heatmaps", CHANGED["heatmaps"])]


@pytest.fixture
def folders(measured, tmp_path):
    """Equal results of two versions, as the two environments write them."""
    pair = tmp_path / "0.3", tmp_path / "today"
    for folder in pair:
        folder.mkdir()
        (folder / "hookviz.txt").write_text(folder.name)
        torch.save(measured, file_of(folder, NAME))
    return pair


def test_exit_status_and_words(measured, folders, capsys):
    assert report([NAME], *folders, []) == 0
    assert "Nothing differs unexpectedly from 0.3 on 1 models" in capsys.readouterr().out
    torch.save(changed(measured, "findings"), file_of(folders[1], NAME))
    assert report([NAME], *folders, []) == 1
    printed = capsys.readouterr().out
    assert "findings   train: without note training mode: the model" in printed
    assert "UNEXPECTED on 1 of 1 models and faults: findings 2." in printed
    intended = [Known("better words", "findings", what="with*"), Known("gone", "findings")]
    assert report([NAME], *folders, intended) == 0
    assert "[better words]" in (printed := capsys.readouterr().out)
    assert "2 differences are intended" in printed
    assert report([NAME], *folders, [Known("other", "findings", model="torchvision/*")]) == 1


def test_a_model_whose_process_died_and_equal_versions_are_errors(folders, capsys):
    file_of(folders[1], NAME).unlink()
    assert report([NAME], *folders, []) == 1
    assert "the process died with today" in capsys.readouterr().out
    (folders[1] / "hookviz.txt").write_text("0.3")
    assert report([NAME], *folders, []) == 1
    assert "nothing was compared" in capsys.readouterr().out


def test_every_intended_difference_has_a_reason():
    assert all(entry.reason for entry in known())
