"""The arguments of all public functions have consistent names and order."""

import functools
import inspect
import re

import pytest
import torch
from demo import explore_demo
from torch import nn

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


X = torch.rand(2, 1, 6, 6)
NET = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, 3)).eval()
NAN = float("nan")


@functools.cache
def result(name):
    """Return a result whose methods take numbers."""
    return {
        "field": lambda: hookviz.receptive_field(NET, X, "0"),
        "survey": lambda: hookviz.survey(NET, X, "0"),
        "weights": lambda: hookviz.explore(NET, X).weights("0"),
        "visualization": lambda: hookviz.feature_visualization(NET, "0", 1, size=6, steps=1),
    }[name]()


def edited(**options):
    hookviz.edit(NET, "0", 0, **options)


def visualized(channel=0, **options):
    hookviz.feature_visualization(NET, "0", channel, **{"size": 6, "steps": 1} | options)


def contributed(**options):
    hookviz.contributions(NET, X, "0", channel=0, position=(0, 0), **options)


def occluded(**options):
    hookviz.attribution.occlusion(NET, X, **options)


def deleted(**options):
    hookviz.metrics.deletion_curve(NET, X, torch.rand(2, 6, 6), **options)


def pointed(tolerance):
    hookviz.metrics.pointing_game(X[0, 0], X[0, 0] > 0.5, tolerance)


def integrated(baselines):
    hookviz.attribute(NET, X, method="integrated_gradients", baselines=baselines)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: hookviz.capture(NET, max_bytes="a"), "max_bytes='a' cannot be used"),
        (lambda: hookviz.explore(NET, X, max_bytes=NAN), "max_bytes=nan cannot be used"),
        (lambda: hookviz.watch(NET, every="a"), "every='a' cannot be used"),
        (lambda: hookviz.watch(NET, every=1.5), "every=1.5 cannot be used"),
        (lambda: hookviz.watch(NET, max_bytes=NAN), "max_bytes=nan cannot be used"),
        (lambda: hookviz.watch(NET, save_every=None), "save_every=None cannot be used"),
        (lambda: hookviz.survey(NET, X, batch_size=None), "batch_size=None cannot be used"),
        (lambda: hookviz.edits.noise(-1), "std=-1 cannot be used: give a number from 0 up"),
        (lambda: hookviz.edits.noise("a"), "std='a' cannot be used"),
        (lambda: hookviz.edits.blur("a"), "sigma='a' cannot be used"),
        (lambda: hookviz.edits.clip_norm(None), "max_norm=None cannot be used"),
        (lambda: edited(call="a"), "call='a' cannot be used: give a whole number from 0 up"),
        (lambda: edited(call=-1), "call=-1 cannot be used"),
        (lambda: visualized(seed="a"), "seed='a' cannot be used"),
        (lambda: visualized(steps=1.5), "steps=1.5 cannot be used"),
        (lambda: visualized(size=NAN), "size=nan cannot be used"),
        (lambda: visualized(1.5), "Layer '0' has no channel 1.5"),
        (lambda: visualized("a"), "Layer '0' has no channel 'a'"),
        (lambda: contributed(call="a"), "call='a' is out of range"),
        (lambda: hookviz.receptive_field(NET, X, "0", call=None), "call=None is out of range"),
        (lambda: hookviz.graph(NET, X).sources("0", "a"), "call='a' is out of range"),
        (lambda: occluded(window="a"), "window='a' cannot be used"),
        (lambda: occluded(stride=1.5), "stride=1.5 cannot be used"),
        (lambda: occluded(value=None), "value=None cannot be used"),
        (lambda: occluded(batch_size=1.5), "batch_size=1.5 cannot be used"),
        (lambda: deleted(steps=None), "steps=None cannot be used"),
        (lambda: deleted(baseline=None), "baseline=None cannot be used"),
        (lambda: pointed("a"), "tolerance='a' cannot be used"),
        (lambda: integrated(NAN), "baselines=nan cannot be used"),
        (lambda: hookviz.compare(NET, NET, X).first("a"), "tolerance='a' cannot be used"),
        (lambda: hookviz.diagnose(NET, X).show("a"), "Unknown finding 'a'"),
        (lambda: hookviz.trace(NET, X).to_html(max_bytes="a"), "max_bytes='a' cannot be used"),
        (lambda: result("field").box("a", 1), "no position ('a', 1): its map is 4×4"),
        (lambda: result("field").box(1.5, 1), "no position (1.5, 1)"),
        (lambda: result("field").effective(X, position=1), "no position 1"),
        (lambda: result("field").effective(X, channel="a"), "no channel 'a'"),
        (lambda: result("survey")["0"].box(1), "no position 1: its maps are 4×4"),
        (lambda: result("survey")["0"].top(0, 1.5), "count=1.5 cannot be used"),
        (lambda: result("survey")["0"].purity("a"), "no channel 'a'"),
        (lambda: result("survey")["0"].quantile("a"), "q='a' cannot be used"),
        (lambda: result("survey").find(0, "a"), "fraction='a' cannot be used"),
        (lambda: result("survey").patches("0", 1.5), "no channel 1.5"),
        (lambda: result("weights").slices("a"), "no channel 'a'"),
        (lambda: result("weights").inputs_of(-1), "no channel -1"),
        (lambda: result("weights").rows("a"), "most='a' cannot be used"),
        (lambda: result("visualization").pieces("a"), "No pictures of channel 'a'"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_in_one_sentence(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()


HEATS = torch.rand(2, 6, 6)
OTHER = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, 3)).eval()


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("fish - moon", (1, 0)),
        ("2 - 0", (2, 0)),
        ("output[:, 1].sum()", lambda output: output[:, 1].sum()),
    ],
)
@pytest.mark.parametrize(
    "function",
    [
        lambda **given: hookviz.attribute(NET, X, **given).tolist(),
        lambda **given: hookviz.attribution.scorecam(NET, X, "0", **given).tolist(),
        lambda **given: hookviz.metrics.deletion_curve(NET, X, HEATS, **given).records(),
        lambda **given: hookviz.compare(NET, OTHER, X, **given).records(),
        lambda **given: [each["mean"] for each in hookviz.trace(NET, X, **given).records()],
        lambda **given: hookviz.diagnose(NET, X, **given).text(),
    ],
)
def test_targets_may_be_texts(function, text, target):
    names = ["moon", "fish", "star"]
    assert function(target=text, class_names=names) == function(target=target, class_names=names)
