"""The arguments of all public functions have consistent names and order."""

import inspect
import re

import pytest
from demo import explore_demo

import hookviz
from hookviz.view.settings import SETTINGS, WRITTEN

ROOMS = hookviz, hookviz.attribution, hookviz.edits, hookviz.metrics
FUNCTIONS = {
    f"{room.__name__}.{name}": getattr(room, name)
    for room in ROOMS
    for name in dir(room)
    if inspect.isfunction(getattr(room, name))
}
MODELS = {"model", "model_a", "model_b"}
# `capture` and `edit` surround a run by the user: inputs= means the inputs of layers there.
AROUND_A_USERS_RUN = {"hookviz.capture", "hookviz.edit"}


def parameters(function):
    return inspect.signature(function).parameters


def test_the_list_of_functions_is_complete():
    assert {"hookviz.explore", "hookviz.metrics.deletion_curve"} <= set(FUNCTIONS)


@pytest.mark.parametrize("room", ["attribution", "classroom", "edits", "metrics", "models"])
def test_only_public_names_are_offered_for_completion(room):
    offered = getattr(hookviz, room)
    shown = {name for name in dir(offered) if not name.startswith("_")}
    assert shown == set(offered.__all__)
    assert all(getattr(offered, name) is not None for name in offered.__all__)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_model_input_is_called_inputs_and_follows_the_models(name):
    known = list(parameters(FUNCTIONS[name]))
    assert not {"image", "images", "x", "x_b", "dataset", "loader"} & set(known)
    if "inputs" in known and name not in AROUND_A_USERS_RUN | {"hookviz.attribution.prepare_input"}:
        models = [each for each in known if each in MODELS]
        assert known[: len(models) + 1] == [*models, "inputs"] or known[0] == "path"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_after_target_are_keyword_only(name):
    known = parameters(FUNCTIONS[name])
    if "target" in known:
        behind = list(known.values())[list(known).index("target") + 1 :]
        assert behind
        assert {each.kind for each in behind} <= {inspect.Parameter.KEYWORD_ONLY, VARIABLE}


VARIABLE = inspect.Parameter.VAR_KEYWORD


@pytest.mark.parametrize("name", FUNCTIONS)
def test_weights_transform_and_class_names_have_one_order(name):
    order = ("weights", "transform", "class_names")
    known = [each for each in parameters(FUNCTIONS[name]) if each in order]
    assert known == [each for each in order if each in known]


def test_every_setting_is_in_the_signature_of_explore():
    known = parameters(hookviz.explore)
    assert {*SETTINGS, *WRITTEN} < set(known)
    assert VARIABLE not in {each.kind for each in known.values()}
    with pytest.raises(TypeError, match="Unknown setting 'colour'"):
        explore_demo(0, colour="red")


DEFAULTS = {"call": -1, "sample": 0, "position": None}


@pytest.mark.parametrize("name", ["hookviz.contributions", "hookviz.receptive_field"])
def test_call_sample_and_position_have_the_same_defaults(name):
    """Defaults are the last call, the first sample and no position."""
    addressed = {
        key: each.default for key, each in parameters(FUNCTIONS[name]).items() if key in DEFAULTS
    }
    assert addressed and addressed == {key: DEFAULTS[key] for key in addressed}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_classes_of_return_values_are_in_hookviz_results(name):
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
