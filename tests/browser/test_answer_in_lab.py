"""Outputs that are maps are shown, and a click in one chooses the target."""

from __future__ import annotations

import re

import pytest
import torch
from architectures import model_of
from demo import explore_demo
from face import open_drawer
from front_end import (
    CANVAS_ON,
    SAID,
    canvas_pixels,
    needs_canvas,
    point,
    wait_for,
    wait_for_tiles,
)
from playwright.sync_api import expect
from test_slow_in_lab import delayed
from torch import nn

import hookviz
from hookviz.view.predictions import output_of

pytestmark = needs_canvas

ON = f"{CANVAS_ON}\nimport hookviz, ipywidgets, torch\nfrom torch import nn\ntorch.manual_seed(0)"
TELL = """said = ipywidgets.Label('').add_class('said')
def tell(change=None):
    said.value = f'{explorer.target} | {explorer.frame.target}'
explorer.observe(tell)
said"""
# Like MTCNN's first network: boxes and the probability of a face at each position.
PNET = """class PNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.pool1 = nn.Conv2d(3, 10, 3), nn.MaxPool2d(2, 2, ceil_mode=True)
        self.conv2, self.conv3 = nn.Conv2d(10, 16, 3), nn.Conv2d(16, 32, 3)
        self.conv4_1, self.conv4_2 = nn.Conv2d(32, 2, 1), nn.Conv2d(32, 4, 1)

    def forward(self, x):
        x = self.pool1(self.conv1(x).relu())
        x = self.conv3(self.conv2(x).relu()).relu()
        return self.conv4_2(x), self.conv4_1(x).softmax(1)

model = PNet().eval()
x = torch.rand(1, 3, 60, 48)
explorer = hookviz.explore(model, x, layer='conv3')"""


@pytest.fixture
def opened(open_notebook):
    def opened(make):
        notebook = open_notebook([ON, make, TELL, "explorer"])
        app = notebook.page.locator(".hookviz-app")
        wait_for_tiles(app)
        return notebook, app, notebook.page.locator(".said").first

    return opened


def click(panel, row, column, size, **how):
    height, width = size
    frame = panel.locator(".hv-frame")
    point(frame, (row + 0.5) / height, (column + 0.5) / width, click=True, **how)


def test_a_click_in_a_face_map_is_the_target(opened):
    notebook, app, said = opened(PNET)
    open_drawer(app, "Pictures")
    output = app.locator(".hv-output")
    output.get_by_role("combobox", name="map of the output").select_option(
        label="channel 1 of output[1]"
    )
    described = "output output[1], channel 1, 25×19"
    expect(output.locator(".hv-frame")).to_have_attribute("aria-label", described)
    expect(output.locator(".hv-words")).to_be_empty()  # a click before would choose nothing
    output.locator(".hv-words").evaluate(SAID)
    click(output, 12, 9, (25, 19))
    written = "output[1][0, 1, 12, 9]"
    expect(said).to_contain_text(f"{written} | {written}")
    expect(app).to_contain_text(f"gradient of {written}")
    # The gradient of that single value reaches one position of conv3.
    slope = app.locator(".hv-gradient canvas").first

    def reaches_one_row():
        pixels = canvas_pixels(slope)
        rows = (pixels != pixels[0, 0]).any(-1).nonzero()[0].tolist()
        return pixels.shape[:2] == (25, 19) and rows in ([12], [])

    wait_for(reaches_one_row, "the gradient's map")
    click(output, 3, 4, (25, 19), modifiers=["Shift"])
    other = f"{written} - output[1][0, 1, 3, 4]"
    expect(said).to_contain_text(f"{other} | {other}")
    expect(app).to_contain_text(f"gradient of {other}")
    open_drawer(app, "Why this value?")
    why = app.locator(".hv-why")
    why.get_by_role("button", name=f"start at {other}").click()
    begins = re.compile(r"conv4_1, channel 1 at \(12, 9\).* raises it most: by 0\.\d+ for each 1")
    why.get_by_text(begins).wait_for()
    open_drawer(app, "Pictures")
    output.locator(".hv-frame").focus()
    notebook.page.mouse.move(0, 0)
    notebook.page.keyboard.press("Escape")
    notebook.page.keyboard.press("Shift+ArrowDown")  # moves from the middle position
    notebook.page.keyboard.press("Enter")
    by_key = "output[1][0, 1, 13, 9]"
    expect(said).to_contain_text(f"{by_key} | {by_key}")
    field = app.get_by_role("combobox", name="class whose gradient is shown")
    field.fill("output[0].sum() - output[1].sum()")
    field.press("Enter")
    expect(said).to_contain_text("output[0].sum() - output[1].sum() |")
    field.fill("output[7] - output[1].sum()")
    field.press("Enter")
    app.get_by_text("The model's output has no output[7]").first.wait_for()
    field.fill("foo(")
    field.press("Enter")
    app.get_by_text("target='foo(' is a name, but no class names are known").first.wait_for()
    assert "output[0].sum() - output[1].sum() |" in said.inner_text()
    # The output is unchanged, so its map stays and accepts clicks before the answer arrives.
    assert not any(notebook.page.evaluate("said"))


POSES = """class Poses(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.marks = nn.Conv2d(3, 8, 3, 2), nn.Linear(8, 6)

    def forward(self, x):
        scores = self.marks(self.conv(x).relu().mean((2, 3)))[0].sigmoid()
        boxes = torch.tensor([[4.0, 8, 40, 56], [36, 8, 60, 60]])
        points = torch.tensor([[[12.0, 20, 1], [30, 44, 1]], [[44, 20, 1], [56, 44, 1]]])
        sure = scores[:2] * torch.tensor([1.0, 0.2])  # the first box first
        return [{"boxes": boxes, "scores": sure, "labels": torch.tensor([1, 1]),
                 "keypoints": points, "keypoints_scores": scores[2:].reshape(2, 2)}]

model = Poses().eval()
explorer = hookviz.explore(model, torch.rand(1, 3, 64, 64), class_names=['', 'person'])"""


# The target of each keypoint and its centre in the picture, read at the same time.
PLACES = """all => all.map((each) => {
  const [box, frame] = [each, each.closest(".hv-frame")].map((one) => one.getBoundingClientRect());
  const middle = [box.x + box.width / 2 - frame.x, box.y + box.height / 2 - frame.y];
  return [each.dataset.target, middle.map((at) => Math.round((64 * at) / frame.width))];
})"""


def test_a_click_on_a_box_or_a_keypoint_is_the_target(opened):
    _, app, said = opened(POSES)
    bars = app.locator(".hv-prediction")
    expect(app.locator(".hv-input .hv-box")).to_have_count(2)
    expect(bars).to_have_count(2)
    bars.nth(1).click()
    expect(said).to_contain_text('output[0]["scores"][1] |')
    expect(app).to_contain_text("gradient of box 2")
    expect(bars.nth(1)).to_have_attribute("aria-pressed", "true")
    first = app.locator('.hv-box[data-place="0"]')
    first.locator("span").click()
    expect(said).to_contain_text('output[0]["scores"][0] |')
    first.locator("span").click(modifiers=["Shift"])
    expect(first).to_have_attribute("aria-pressed", "true")
    points = app.locator(".hv-input button.hv-point")
    expect(points).to_have_count(4)
    places = dict(points.evaluate_all(PLACES))
    wanted = [[[12, 20], [30, 44]], [[44, 20], [56, 44]]]
    for place, number in ((0, 1), (1, 0)):
        target = f'output[0]["keypoints_scores"][{place}, {number}]'
        assert places[target] == wanted[place][number]
        point = app.locator(f".hv-point[data-target='{target}']")
        point.click()
        expect(said).to_contain_text(f"{target} | {target}")
        expect(point).to_have_attribute("aria-pressed", "true")
        expect(app).to_contain_text(f"gradient of {target}")


def test_the_difference_of_two_classes_is_the_target(opened):
    make = "explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])"
    notebook, app, said = opened(make)
    field = app.get_by_role("combobox", name="class whose gradient is shown")
    field.fill("moon - fish")
    field.press("Enter")
    expect(said).to_contain_text("('moon', 'fish') | moon against fish")
    bars = app.locator(".hv-prediction")
    bars.nth(0).click()
    first = int(bars.nth(0).get_attribute("data-number"))
    second = int(bars.nth(2).get_attribute("data-number"))
    wait_for(lambda: said.inner_text().startswith(f"{first} |"), "one class")
    bars.nth(2).click(modifiers=["Shift"])
    expect(said).to_contain_text(f"({first}, {second}) |")
    # Click twice before the kernel answers.
    with delayed(notebook.page, 100):
        notebook.page.evaluate("() => { globalThis.looking = 0; }")
        bars.nth(1).click()
        bars.nth(0).click(modifiers=["Shift"])
        other = int(bars.nth(1).get_attribute("data-number"))
        expect(said).to_contain_text(f"({other}, {first}) |")
        notebook.settle()
    bars.nth(0).click()
    bars.nth(2).click(modifiers=["Shift"])
    expect(said).to_contain_text(f"({first}, {second}) |")
    three = app.locator(".hv-sides figure")
    expect(app.locator(".hv-sides canvas:visible")).to_have_count(3)
    twin = explore_demo(6, (first, second))
    sides = twin.sides()
    most = short(max(heat.max() for heat in sides.heats))
    apart = short(abs(sides.difference).max())
    one, two = sides.names
    told = [
        [one, f"0 to {most}"],
        [two, f"0 to {most}"],
        [f"{one} − {two}", f"−{apart} to {apart}"],
    ]
    captions = three.locator("figcaption")
    wait_for(lambda: [t.split("\n") for t in captions.all_inner_texts()] == told, "the captions")
    expect(app.locator(".hv-sides .hv-cap")).to_contain_text("Grad-CAM: both sides")
    for side in three.all():  # the whole picture is seen
        assert side.locator(".hv-frame").bounding_box() == side.locator("canvas").bounding_box()
    three.first.scroll_into_view_if_needed()
    bars.nth(0).click()
    expect(app.locator(".hv-sides canvas:visible")).to_have_count(0)


def short(value):
    """Format a number with three digits, like web/numbers.ts."""
    return str(float(f"{value:.3g}")).removesuffix(".0")


def test_a_target_is_typed_for_an_output_that_is_a_sequence(opened):
    make = """class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.lstm = nn.Conv2d(1, 8, 3), nn.LSTM(8, 5, batch_first=True)

    def forward(self, x):
        return self.lstm(self.conv(x).mean(2).transpose(1, 2))[0]

explorer = hookviz.explore(Reader().eval(), torch.rand(1, 1, 12, 30))"""
    _, app, said = opened(make)
    gradient = app.locator(".hv-panel.hv-gradient")
    expect(gradient).to_contain_text("choose a target first")
    field = app.get_by_role("combobox", name="class whose gradient is shown")
    field.fill("output[0, 3, 2]")
    field.press("Enter")
    expect(said).to_contain_text("| output[0, 3, 2]")
    expect(gradient).to_contain_text("Gradient of output[0, 3, 2]", ignore_case=True)
    expect(app.locator(".hv-predictions")).to_have_text("output[0, 3, 2]")


def test_a_page_shows_maps_and_boxes(shown):
    """A page without the network says that a click cannot choose a target."""
    names = {"hookviz": hookviz, "torch": torch, "nn": torch.nn}
    exec(PNET, names)
    explorer = names["explorer"]
    page = shown(explorer.to_html())
    wait_for_tiles(page)
    open_drawer(page, "Pictures")
    output = page.locator(".hv-output")
    wait_for(lambda: canvas_pixels(output.locator("canvas").first).shape[:2] == (25, 19), "the map")
    menu = output.get_by_role("combobox", name="map of the output")
    menu.select_option(label="channel 1 of output[1]")
    values = output_of(explorer.displayed()).maps[1].values[0, 1]
    ends, wanted = output.locator(".hv-scale .hv-end"), [float(values.min()), float(values.max())]

    def shown_range():
        return [float(each) for each in ends.evaluate_all("all => all.map((e) => e.value)")]

    wait_for(lambda: shown_range() == pytest.approx(wanted, rel=1e-2), "the channel's range")
    frame = output.locator(".hv-frame")
    assert "needs the notebook" in frame.get_attribute("title")
    frame.click()
    explorer.close()


def test_the_classes_of_a_segmentation_are_named_below_it(shown):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))
    explorer = hookviz.explore(model, torch.randn(1, 3, 32, 32), class_names=[*"abcd"])
    page = shown(explorer.to_html())
    wait_for_tiles(page)
    open_drawer(page, "Pictures")
    names = page.locator(".hv-output .hv-legend")
    names.get_by_role("button").first.wait_for()
    shown_part = "all => all.scrollHeight <= all.clientHeight && all.clientHeight > 15"
    assert names.evaluate(shown_part)
    explorer.close()


def quarters(m, x):
    """Process four parts of the input one by one, and the whole without a gradient."""
    parts = torch.cat([half for each in x.chunk(2, 2) for half in each.chunk(2, 3)])
    still = m.whole(x).detach().mean()
    return m.classify(m.parts(parts).relu().mean((0, 2, 3)))[None] + still


def test_positions_of_cropped_inputs_are_not_outlined_in_the_input(shown):
    x = torch.rand(1, 3, 32, 32)
    whole, parts = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 6, 3, padding=1)
    model = model_of(quarters, whole=whole, parts=parts, classify=nn.Linear(6, 3)).eval()
    explorer = hookviz.explore(model, x, layers=["whole", "parts"], layer="parts")
    assert explorer.frame.overlay is None
    explorer.heatmap = "saliency"  # the saliency of the whole input
    assert explorer.frame.overlay is not None
    explorer.heatmap = "gradcam"
    explorer.all_layers = True
    page = shown(explorer.to_html())
    thumb = page.locator(".hv-thumb canvas")
    wait_for(lambda: canvas_pixels(thumb).shape[:2] == (72, 72))  # the picture is 32×32
    page.keyboard.press("a")
    lines = "all => all.map((each) => each.checkVisibility())"
    cross = ".hv-cross, .hv-cell:not(.hv-field)"
    seen = {
        name: page.locator(f".hv-{name} :is({cross})")
        for name in ("input", "activation", "gradient")
    }

    def outlined():
        return {name for name, each in seen.items() if any(each.evaluate_all(lines))}

    page.locator(".hv-activation .hv-frame").click()
    wait_for(lambda: outlined() == {"input", "activation", "gradient"}, "the part's own pictures")
    assert canvas_pixels(page.locator(".hv-input canvas").first).shape[:2] == (16, 16)
    assert "ran on parts of the input" in page.locator(".hv-notes").inner_text()
    page.keyboard.press("ArrowUp")
    wait_for(lambda: outlined() == {"input", "activation"}, "no place where no gradient is")
