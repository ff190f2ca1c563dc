"""The picture beside a map is the one that the map was computed from, or none is shown."""

import numpy as np
import pytest
import torch
from browsing import Browser
from test_origins import Net, pictures
from torch import nn

from hookviz import explore
from hookviz.view.payload import layer_payload, model_payload, picture_payload


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.last = nn.Conv2d(3, 4, 3), nn.Linear(4, 3)

    def one(self, x):
        return self.c(x).relu().mean((2, 3))

    def forward(self, a, b):
        return self.last((self.one(a) - self.one(b)).abs())


def shown(explorer, **at):
    """Return the picture beside the maps, in the frame and in the browser's data."""
    for name, value in at.items():
        setattr(explorer, name, value)
    view, panel = explorer.displayed(), explorer.frame.input
    header, _ = layer_payload(view)
    found = picture_payload(view, header.place)
    if panel is None:
        assert found is None and header.place is None
        assert header.no_picture and header.no_picture in explorer.frame.panels[0].note
        return header.no_picture
    assert found is not None and (found[1] == panel.pixels).all() and not header.no_picture
    return torch.from_numpy(panel.pixels)


def as_pixels(picture):
    return (picture * 255).round().to(torch.uint8).permute(1, 2, 0)


def test_each_call_of_a_siamese_network_has_its_own_picture():
    dark, bright = torch.rand(1, 3, 12, 12) * 0.4, 0.6 + torch.rand(1, 3, 12, 12) * 0.4
    explorer = explore(Siamese(), (dark, bright), layer="c")
    assert torch.equal(shown(explorer, call=0), as_pixels(dark[0]))
    assert torch.equal(shown(explorer, call=1), as_pixels(bright[0]))
    assert torch.equal(shown(explorer, call=0), as_pixels(dark[0]))
    assert not model_payload(explorer.displayed())["answer"]


def test_mirrored_samples_have_their_original_picture():
    (x,) = pictures(2)
    explorer = explore(Net(lambda net, x: net.conv(torch.cat([x, x.flip(3)]))), x, layer="conv")
    for row, sample in enumerate((0, 1, 0, 1)):
        assert torch.equal(shown(explorer, sample=row), as_pixels(x[sample]))


def test_several_pictures_are_replaced_by_a_sentence():
    explorer = explore(Net(lambda net, a, b: net.conv(a - b)), pictures(1, 1), layer="conv")
    assert shown(explorer) == (
        "No picture is shown beside this map: it was computed from several input pictures."
    )
    assert explorer.frame.overlay is None  # no heatmap over an unrelated picture


@pytest.mark.parametrize("count", [1, 2])
def test_crops_that_a_model_folds_into_the_batch_are_no_volume(count):
    crops = torch.rand(count, 5, 3, 8, 8)
    model = Net(lambda net, x: net.conv(x.flatten(0, 1)))
    assert "folds the pictures" in shown(explore(model, crops, layer="conv"))


def test_a_stroke_changes_the_first_input_only():
    explorer = explore(Siamese(), pictures(1, 1), layer="c", call=1, face="canvas")
    stroke = np.zeros((8, 8), np.uint8)
    stroke[2:4] = 1
    Browser(explorer).request("paint", stroke.tobytes(), shape=[8, 8])
    assert not explorer.edits and "Only the first input picture" in explorer.frame.note
    explorer.call = 0
    Browser(explorer).request("paint", stroke.tobytes(), shape=[8, 8])
    assert len(explorer.edits) == 1
