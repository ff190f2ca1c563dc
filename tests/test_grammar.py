"""One grammar: the names and the order of the arguments of all public functions."""

import inspect
import re

import pytest

import hookviz
from hookviz.__main__ import main
from hookviz.view.settings import SETTINGS

ROOMS = hookviz, hookviz.attribution, hookviz.edits, hookviz.metrics
FUNCTIONS = {
    f"{room.__name__}.{name}": getattr(room, name)
    for room in ROOMS
    for name in dir(room)
    if inspect.isfunction(getattr(room, name))
}
MODELS = {"model", "model_a", "model_b"}
# `capture` and `edit` stand around a run of the user's own: their inputs= keeps a layer's.
OWN_RUN = {"hookviz.capture", "hookviz.edit"}


def parameters(function):
    return inspect.signature(function).parameters


def test_all_are_here():
    assert {"hookviz.explore", "hookviz.metrics.deletion_curve"} <= set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_model_is_given_is_called_inputs(name):
    known = list(parameters(FUNCTIONS[name]))
    assert not {"image", "images", "x", "x_b", "dataset", "loader"} & set(known)
    if "inputs" in known and name not in OWN_RUN | {"hookviz.attribution.prepare_input"}:
        models = [each for each in known if each in MODELS]
        assert known[: len(models) + 1] == [*models, "inputs"] or known[0] == "path"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_target_is_the_last_by_position(name):
    known = parameters(FUNCTIONS[name])
    if "target" in known:
        behind = list(known.values())[list(known).index("target") + 1 :]
        assert behind
        assert {each.kind for each in behind} <= {inspect.Parameter.KEYWORD_ONLY, VARIABLE}


VARIABLE = inspect.Parameter.VAR_KEYWORD


@pytest.mark.parametrize("name", FUNCTIONS)
def test_how_a_picture_is_prepared_has_one_order(name):
    order = ("weights", "transform", "class_names")
    known = [each for each in parameters(FUNCTIONS[name]) if each in order]
    assert known == [each for each in order if each in known]


def test_every_setting_is_in_the_signature_of_explore():
    known = parameters(hookviz.explore)
    assert set(SETTINGS) < set(known)
    assert VARIABLE not in {each.kind for each in known.values()}
    with pytest.raises(TypeError, match="Unknown setting 'colour'"):
        hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[0], colour="red")


def test_bytes_are_bytes_in_a_terminal(capsys, tmp_path):
    with pytest.raises(SystemExit):
        main(["page", "--help"])
    said = capsys.readouterr().out
    assert "--max-bytes" in said and "inputs" in said
    path = tmp_path / "page.html"
    assert main(["page", "--demo", "--max-bytes", "2e6", "-o", str(path)]) == 0
    assert path.stat().st_size <= 2_000_000


DEFAULTS = {"call": -1, "sample": 0, "position": None}


@pytest.mark.parametrize("name", ["hookviz.contributions", "hookviz.receptive_field"])
def test_a_single_value_is_addressed_alike(name):
    """The last call, the first sample, and no position where a layer has none."""
    addressed = {
        key: each.default for key, each in parameters(FUNCTIONS[name]).items() if key in DEFAULTS
    }
    assert addressed and addressed == {key: DEFAULTS[key] for key in addressed}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_has_the_class_that_a_function_returns(name):
    returned = str(inspect.signature(FUNCTIONS[name]).return_annotation)
    elsewhere = {
        "Tensor",
        "Any",
        "Image",
        "Explorer",
        "DemoNet",
        "Callable",
        "ModelInput",
        "Module",
    }
    ours = set(re.findall(r"\b[A-Z]\w+", returned)) - elsewhere
    assert ours <= set(dir(hookviz.results))
