"""Outputs that are pictures or boxes: each value and box has an expression for its number."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from architectures import model_of
from torch import nn
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops import MultiScaleRoIAlign

import hookviz
from hookviz.run.output import leaves_of, read_output
from hookviz.view.build import summary
from hookviz.view.health import verdict_of
from hookviz.view.messages import WhyQuestion
from hookviz.view.outputs import SHOWN, map_values, read_output_pictures
from hookviz.view.payload import answer_facts
from hookviz.view.predictions import output_of, target_name_of
from hookviz.view.reason import why_answer

SIZE = (1, 3, 40, 80)


def read(output, size=SIZE, sample=0, names=()):
    return read_output_pictures(leaves_of(output), size, sample, names)


def p_net(m, x):
    """MTCNN's first network: boxes and the probability of a face at every position."""
    x = m.pool1(m.prelu1(m.conv1(x)))
    x = m.prelu3(m.conv3(m.prelu2(m.conv2(x))))
    return m.conv4_2(x), m.softmax4_1(m.conv4_1(x))


@pytest.fixture(scope="module")
def pnet():
    return face_network()


def face_network():
    torch.manual_seed(0)
    return model_of(
        p_net,
        conv1=nn.Conv2d(3, 10, 3),
        prelu1=nn.PReLU(10),
        pool1=nn.MaxPool2d(2, 2, ceil_mode=True),
        conv2=nn.Conv2d(10, 16, 3),
        prelu2=nn.PReLU(16),
        conv3=nn.Conv2d(16, 32, 3),
        prelu3=nn.PReLU(32),
        conv4_1=nn.Conv2d(32, 2, 1),
        softmax4_1=nn.Softmax(dim=1),
        conv4_2=nn.Conv2d(32, 4, 1),
    ).eval()


@pytest.mark.parametrize(
    ("wrapped", "name"),
    [
        (lambda maps: maps, "output"),
        (lambda maps: {"out": maps}, 'output["out"]'),
        (lambda maps: (None, [maps]), "output[1][0]"),
        (lambda maps: SimpleNamespace(masks=maps), "output.masks"),
    ],
)
def test_dense_maps_are_found_anywhere_in_the_output(wrapped, name):
    maps = torch.randn(2, 5, 6, 7)
    output = wrapped(maps)
    (found,) = read(output, (2, 3, 40, 80)).maps
    assert str(found.at) == name and not found.picture
    assert torch.equal(found.target(1, 3, 2, 4)(output), maps[1, 3, 2, 4])
    assert read_output(str(found.target(1, 3, 2, 4))) == found.target(1, 3, 2, 4)
    assert np.array_equal(map_values(found, 1, 3)["values"], maps[1, 3].numpy())
    assert np.array_equal(map_values(found, 1, None)["classes"], maps[1].argmax(0).numpy())


def test_a_depth_map_needs_no_channels_and_tokens_are_not_a_map():
    depth = torch.rand(1, 20, 40)
    output = {"predicted_depth": depth, "hidden": torch.rand(1, 197, 768)}
    (found,) = read(output).maps
    assert str(found.target(0, 0, 3, 5)) == 'output["predicted_depth"][0, 3, 5]'
    assert torch.equal(found.target(0, 0, 3, 5)(output), depth[0, 3, 5])


def test_an_autoencoders_output_is_shown_as_a_picture():
    picture = torch.rand(*SIZE)
    (found,) = read(picture).maps
    assert found.picture
    pixels = map_values(found, 0, None)["pixels"]
    low, high = picture.min(), picture.max()
    wanted = (255 * ((picture[0] - low) / (high - low))).round().byte().permute(1, 2, 0).numpy()
    assert np.array_equal(pixels, wanted)


def test_maps_have_class_names_if_the_number_of_channels_fits():
    (found,) = read(torch.rand(1, 2, 8, 8), names=["sky", "sea"]).maps
    assert found.labels == ["sky", "sea"]
    (found,) = read(torch.rand(1, 3, 8, 8), names=["sky", "sea"]).maps
    assert found.labels == ["channel 0", "channel 1", "channel 2"]


def test_torchvision_boxes_are_read_from_the_output():
    output = [
        {"boxes": torch.zeros(0, 4), "scores": torch.zeros(0), "labels": torch.zeros(0).long()},
        {
            "boxes": torch.tensor([[0.0, 0, 40, 20], [40, 10, 80, 40]]),
            "scores": torch.tensor([0.3, 0.9]),
            "labels": torch.tensor([1, 2]),
            "keypoints": torch.tensor([[[8.0, 4, 1]], [[60, 20, 1]]]),
            "masks": torch.rand(2, 1, 40, 80),
        },
    ]
    size = (2, 3, 40, 80)
    assert not read(output, size, 0)
    answer = read(output, size, 1, ["nothing", "cat"])
    best, other = answer.boxes
    assert (best.label, best.corners, best.points) == (
        "class 2",
        (0.5, 0.25, 1, 1),
        [(0.75, 0.5)],
    )
    assert (other.label, other.target) == ("cat", 'output[1]["scores"][0]')
    assert read_output(best.target)(output) == output[1]["scores"][1]
    output[1]["boxes"][1, 0] = torch.nan  # a box that cannot be drawn, and that JSON lacks
    facts = answer_facts(read(output, size, 1), 1)
    assert [box.label for box in facts.boxes] == ["class 1"]


@pytest.mark.parametrize("keys", [("logits", "pred_boxes"), ("pred_logits", "pred_boxes")])
def test_detr_queries_are_read_as_boxes(keys):
    logits, boxes = torch.randn(1, 30, 4), torch.rand(1, 30, 4)
    output = dict(zip(keys, (logits, boxes), strict=True))
    answer = read(output, names=["cat", "dog", "cow"])
    assert (len(answer.boxes), answer.count) == (SHOWN, 30)
    shares = logits[0].softmax(-1)[:, :-1]
    assert answer.boxes[0].score == pytest.approx(float(shares.max()))
    assert answer.boxes[0].label == ["cat", "dog", "cow"][int(shares.amax(0).argmax())]
    query = int(shares.amax(1).argmax())
    right, down, wide, high = boxes[0, query].tolist()
    assert answer.boxes[0].corners[:2] == pytest.approx((right - wide / 2, down - high / 2))
    score = read_output(answer.boxes[0].target)(output)
    assert torch.equal(score, logits[0, query, :3].max())
    assert read(output, names=["cat", "dog", "cow", "hen"]).boxes[0].score == pytest.approx(
        float(logits.sigmoid().max())
    )


def test_yolo_anchors_are_read_as_boxes_without_overlaps():
    rows = torch.zeros(1, 4 + 2, 50)
    rows[0, :, 7] = torch.tensor([20.0, 10, 40, 20, 0.1, 0.9])
    rows[0, :, 8] = torch.tensor([21.0, 10, 40, 20, 0.1, 0.8])  # the same dog
    rows[0, :, 9] = torch.tensor([60.0, 30, 10, 10, 0.7, 0.2])
    output = (rows, {"feats": torch.rand(1, 66, 5, 10)})
    answer = read(output, names=["cat", "dog"])
    dog, cat = answer.boxes[:2]
    assert (dog.label, dog.target, dog.corners) == ("dog", "output[0][0, 5, 7]", (0, 0, 0.5, 0.5))
    assert (cat.label, cat.target) == ("cat", "output[0][0, 4, 9]")
    assert all(box.score == 0 for box in answer.boxes[2:])


def test_a_pixel_of_a_dense_output_can_be_the_target(pnet):
    picture = torch.rand(1, 3, 60, 48)
    explorer = hookviz.explore(pnet, picture)
    boxes, faces = output_of(explorer.displayed()).maps
    assert [tuple(each.values.shape) for each in (boxes, faces)] == [(1, 4, 25, 19), (1, 2, 25, 19)]
    target = faces.target(0, 1, 12, 9)
    explorer.target = str(target)  # the text that a click sends
    assert explorer.target == target and explorer.frame.target == "output[1][0, 1, 12, 9]"
    x = picture.clone().requires_grad_()
    kept = []
    handle = pnet.conv3.register_forward_hook(lambda *given: kept.append(given[2]))
    score = pnet(x)[1][0, 1, 12, 9]
    handle.remove()
    (wanted,) = torch.autograd.grad(score, kept)
    assert torch.allclose(explorer.cache["conv3"].gradient, wanted, atol=1e-7)
    explorer.target = "output[1][0, 1, 12, 9] - output[1][0, 1, 3, 3]"
    assert explorer.target == target - faces.target(0, 1, 3, 3)


def small_detector(kind, **more):
    """Build a torchvision detector with random weights on a ResNet18."""
    backbone = resnet_fpn_backbone(
        backbone_name="resnet18", weights=None, trainable_layers=5, returned_layers=[4]
    )
    fewer = {"min_size": 64, "max_size": 96, "num_classes": 3}
    return kind(backbone, **fewer, **more).eval()


ANCHORS = {
    "rpn_anchor_generator": AnchorGenerator(((32,), (64,)), ((1.0,),) * 2),
    "box_roi_pool": MultiScaleRoIAlign(["0"], 7, 2),
    "rpn_post_nms_top_n_test": 8,
    "box_score_thresh": 0.0,
    "box_detections_per_img": 4,
}


def plain_value_and_gradient(model, layer, given, expression):
    """Return the target's value and its gradient at a layer's output, by PyTorch alone."""
    kept = []
    handle = model.get_submodule(layer).register_forward_hook(lambda *each: kept.append(each[2]))
    score = expression(model(given))
    handle.remove()
    (slopes,) = torch.autograd.grad(score, kept[-1:])
    return float(score.detach()), slopes


def test_a_box_of_a_torchvision_detector_can_be_the_target():
    """Each box's expression gives its score, and the gradient equals that of plain PyTorch."""
    model = small_detector(FasterRCNN, **ANCHORS)
    picture = [torch.rand(3, 64, 96)]
    layer = "backbone.body.layer4.1.conv2"
    explorer = hookviz.explore(model, picture, layer=layer)
    found = output_of(explorer.displayed()).boxes
    with torch.no_grad():
        output = model(picture)[0]
    assert [box.score for box in found] == sorted(output["scores"].tolist(), reverse=True)
    for box in found[:2]:
        at = int(re.findall(r"\d+", box.target)[-1])
        left, top, right, bottom = output["boxes"][at].tolist()
        assert box.corners == pytest.approx((left / 96, top / 64, right / 96, bottom / 64))
        explorer.target = box.target  # the text that a click sends
        score, slopes = plain_value_and_gradient(model, layer, picture, read_output(box.target))
        assert score == pytest.approx(box.score, rel=1e-6)
        assert torch.equal(explorer.cache[layer].gradient, slopes)


def test_why_of_a_softmax_pixel_starts_at_the_number_that_raises_it_most(pnet):
    """The softmax has two inputs; the panel shows the one that raises the probability most."""
    picture = torch.rand(1, 3, 60, 48)
    target = hookviz.output[1][0, 1, 12, 9]
    explorer = hookviz.explore(pnet, picture, target)
    said, _ = why_answer(explorer.displayed(), WhyQuestion(key="", written=str(target)))
    assert (said.layer, said.channel, said.position) == ("conv4_1", 1, [12, 9])
    score, slopes = plain_value_and_gradient(pnet, "conv4_1", picture, target)
    slope = float(slopes.max())
    assert slope == pytest.approx(score * (1 - score), rel=1e-5) == float(slopes[0, 1, 12, 9])
    assert f"raises it most: by {slope:.3g} for each 1" in said.note
    explorer.target = "output[1][0, 1].sum()"
    said, _ = why_answer(explorer.displayed(), WhyQuestion(key="", written="output[1][0, 1].sum()"))
    assert said.layer == "conv4_1" and said.channel == 1


def cut_pictures(m, x):
    """Cut each picture into two and run them as a batch, as a detector does with its boxes."""
    parts = torch.cat(x.chunk(2, 3))
    return [{"scores": m.two(m.one(parts).relu()).amax((2, 3)).softmax(1)[:, 1]}]


def test_why_of_a_score_stays_in_its_part_of_the_picture():
    """Each part is a sample of the layers' batch."""
    model, picture = (
        model_of(cut_pictures, one=nn.Conv2d(3, 4, 3), two=nn.Conv2d(4, 2, 3)).eval(),
        torch.rand(1, 3, 10, 20),
    )
    target = hookviz.output[0]["scores"][1]
    explorer = hookviz.explore(model, picture, target)
    said, _ = why_answer(explorer.displayed(), WhyQuestion(key="", written=str(target)))
    assert (said.layer, said.sample, said.channel) == ("two", 1, 1)
    with torch.no_grad():
        first = model.one(picture[..., 10:])
        second = model.two(first.relu())
    assert float(said.value) == pytest.approx(float(second[0, 1].max()), rel=1e-5)
    term = said.terms[0].origins[0]
    assert (term.layer, term.sample) == ("one", 1)
    place = {"layer": term.layer, "call": term.call, "position": term.position}
    step = WhyQuestion(key="", channel=term.channel, sample=term.sample, **place)
    said, _ = why_answer(explorer.displayed(), step)
    row, column = said.position
    assert float(said.value) == pytest.approx(float(first[0, said.channel, row, column]))


def two_levels(m, x):
    """A detector with two feature levels: a box's score depends on the maps of one of them."""
    first = m.stem(x).relu()
    levels = m.head(first), m.deep_head(m.deep(first).relu())
    scores = torch.cat([level.flatten() for level in levels]).sigmoid()
    corners = torch.rand(len(scores), 2)
    boxes = torch.cat([corners, corners + 1], 1)
    return [{"boxes": boxes, "scores": scores, "labels": torch.ones(len(scores)).long()}]


def test_layers_on_which_a_box_does_not_depend_are_no_warning_and_not_shown():
    explorer = hookviz.explore(
        model_of(
            two_levels,
            stem=nn.Conv2d(3, 4, 3, 2, 1),
            deep=nn.Conv2d(4, 4, 3, 2, 1),
            head=nn.Conv2d(4, 1, 1),
            deep_head=nn.Conv2d(4, 1, 1),
        ).eval(),
        torch.rand(1, 3, 16, 16),
    )
    assert explorer.layer == "deep_head"
    assert "click a prediction" in " ".join(summary(explorer.displayed()))
    explorer.target = 'output[0]["scores"][3]'
    verdict = verdict_of(explorer.displayed())
    assert (verdict.kind, verdict.text) == ("good", "No problems found")
    assert "does not depend on 2 layers" in verdict.details
    assert explorer.layer in ("stem", "head")
    assert explorer.displayed().cache[explorer.layer].gradient.any()
    boxes = [box.target for box in output_of(explorer.displayed()).boxes]
    explorer.target = boxes[1]
    assert target_name_of(explorer.displayed()) == "box 2, class 1"


def test_a_gradient_that_is_stopped_on_its_way_from_a_value_is_a_warning():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)).eval()
    nn.init.constant_(model[0].bias, -9)
    explorer = hookviz.explore(model, torch.rand(1, 3, 16, 16), hookviz.output[0, 0, 3, 3])
    assert verdict_of(explorer.displayed()).text == "Zero gradient in 1 layer"
