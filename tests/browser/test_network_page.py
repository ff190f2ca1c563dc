"""A page that runs a network, opened from the disk, agrees with torch."""

from __future__ import annotations

import base64
import io
import re
from functools import cache

import numpy as np
import pytest
import torch
from face import close_drawer, find_layer, open_drawer
from front_end import (
    VIEW,
    canvas_pixels,
    next_frame,
    nothing_wrong,
    point,
    wait_for,
    wait_for_tiles,
)
from PIL import Image, ImageOps
from playwright.sync_api import Error, expect
from torchvision import transforms

import hookviz
from hookviz.attribution.perturbation import ablation_scores
from hookviz.draw.colours import DIVERGING, SEQUENTIAL, palette, to_levels
from hookviz.run.inputs import prepare_input
from hookviz.run.session import Session
from hookviz.view.map import map_payload

pytestmark = pytest.mark.usefixtures("translations")
pytest.importorskip("onnxscript", reason="the oldest versions have no such export")

FARTHEST = 2e-5  # allowed error, as a fraction of a tensor's largest value
PICTURES = hookviz.demo_images()
FIRST, OTHER = PICTURES[10], PICTURES[9]  # the network predicts a star and a house


@cache
def small():
    """Return the demo network with one block per stage, for pictures of 56×56 pixels."""
    model = hookviz.demo_model()
    model.layer1, model.layer2, model.layer3 = model.layer1[:1], model.layer2[:1], model.layer3[:1]
    model.pretrained_cfg = model.pretrained_cfg | {"input_size": (3, 56, 56)}
    last = model.head[-1]
    with torch.no_grad():  # restore the spread of the scores, else all pictures get one class
        logits = model(torch.cat([prepare_input(each, model).args[0] for each in PICTURES]))
        last.bias.sub_(logits.mean(0)).mul_(2 / logits.std(0))
        last.weight.mul_(2 / logits.std(0)[:, None])
    return model


def likeliest(picture, rank=0):
    """Return the number and the name of the class with this rank."""
    with torch.no_grad():
        number = int(small()(given(picture))[0].argsort(descending=True)[rank])
    return number, small().class_names[number]


def given(picture):
    """Return the network's input for a picture."""
    return prepare_input(picture, small()).args[0]


# Arrays are read from the page as base64, which is shorter than JSON.
READ = """async ([name, ...given]) => {
  const found = await hookviz[name](...given);
  const bytes = new Uint8Array(found.data.buffer);
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192)
    text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return [found.shape, found.data.constructor.name, btoa(text)];
}"""
GIVE = """async ([type, text]) => {
  const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  await hookviz.setInput(new Blob([bytes], { type }));
}"""


def page_of(model, *given, explore=None, **how):
    """Return an explorer's page that runs its network."""
    explorer = hookviz.explore(model, *given, **(explore or {}))
    page = explorer.to_html(network=True, **how)
    explorer.close()
    return page


@pytest.fixture(scope="module")
def written():
    return page_of(small(), FIRST)


@pytest.fixture(scope="module")
def opened(written, browser, tmp_path_factory):
    """Open one page for all tests that leave it unchanged, since opening takes longer than most."""
    path = tmp_path_factory.mktemp("network") / "page.html"
    path.write_text(written, encoding="utf-8")
    page = browser.browser.new_page(viewport=VIEW)
    page.context.set_offline(True)
    with nothing_wrong(page):
        page.goto(path.as_uri())
        wait_for_tiles(page)
        yield page
    page.close()


@pytest.fixture
def network(opened, failed):
    """Return the same page for tests that change it, and restore its picture and channels."""
    yield opened
    if failed():
        opened.goto(opened.url.partition("#")[0])  # without the test's settings
        wait_for_tiles(opened)
        return
    opened.evaluate("hookviz.reset()")
    open_drawer(opened, "Pictures")
    first = opened.get_by_role("button", name="original picture", exact=True)
    next_frame(opened)  # whether the button is enabled
    if first.is_enabled():
        first.click()
    expect(first).to_be_disabled()
    close_drawer(opened)


def values(page, *asked):
    shape, kind, text = page.evaluate(READ, list(asked))
    assert kind == "Float32Array"
    return np.frombuffer(base64.b64decode(text), np.float32).reshape(shape)


def give(page, picture):
    file = io.BytesIO()
    picture.save(file, "PNG")
    page.evaluate(GIVE, ["image/png", base64.b64encode(file.getvalue()).decode()])


def close(found, wanted):
    wanted = wanted.detach().numpy()
    assert found.shape == wanted.shape
    return float(np.abs(found - wanted).max()) <= FARTHEST * float(np.abs(wanted).max())


def as_torch(model, x, number):
    with hookviz.capture(model) as cache:
        logits = model(x)
        logits[0, number].backward()
    return logits, cache


def as_near_as_torch(page, model, x, layers, number, name):
    """Compare the maps and gradients of a class with torch, and return the logits."""
    logits, cache = as_torch(model, x, number)
    for layer in layers:
        assert close(values(page, "activation", layer), cache[layer].activation), layer
        assert close(values(page, "gradient", layer, name), cache[layer].gradient), layer
    return logits


def test_maps_and_gradients_equal_torch_after_changes_of_picture_and_channel(network):
    page, model = network, small()
    layers = page.evaluate("hookviz.layers")
    assert layers == [n for n, m in model.named_modules() if isinstance(m, torch.nn.Conv2d)]
    assert np.array_equal(values(page, "input"), given(FIRST).numpy())

    picture = hookviz.models.photographs()["chelsea"].crop((3, 5, 300, 206))
    give(page, picture)
    x = given(picture)
    assert np.array_equal(values(page, "input"), x.numpy())
    for number, name in ((3, "flower"), (8, 8)):
        logits = as_near_as_torch(page, model, x, layers, number, name)
    told = page.evaluate("hookviz.predictions()")
    order = logits[0].argsort(descending=True).tolist()
    assert [each["index"] for each in told] == order
    assert [each["name"] for each in told] == [model.class_names[number] for number in order]
    assert np.allclose([each["logit"] for each in told], logits[0, order].tolist(), atol=1e-4)
    shares = logits[0].softmax(0)[order].tolist()
    assert np.allclose([each["probability"] for each in told], shares, atol=1e-5)

    page.evaluate("hookviz.scale('layer2.0.conv1', 4, 0)")
    page.evaluate("hookviz.scale('layer3.0.conv1', 7, 1.5)")
    off = hookviz.edit(model, "layer2.0.conv1", 0, channels=4)
    more = hookviz.edit(model, "layer3.0.conv1", 1.5, channels=7)
    with off, more:
        logits = as_near_as_torch(page, model, x, layers[3:], order[0], order[0])
    logit = {each["index"]: each["logit"] for each in page.evaluate("hookviz.predictions()")}
    assert np.allclose([logit[number] for number in range(10)], logits[0].tolist(), atol=1e-4)
    edits = ["layer2.0.conv1, channel 4: off ✕", "layer3.0.conv1, channel 7: × 1.5 ✕"]
    expect(page.locator(".hv-edit")).to_have_text(edits)
    page.evaluate("hookviz.reset()")
    expect(page.locator(".hv-edit")).to_have_count(0)
    assert close(
        values(page, "activation", layers[-1]), as_torch(model, x, 0)[1][layers[-1]].activation
    )


@pytest.mark.heavy
def test_the_page_states_the_error_of_int8_weights(shown):
    page = shown(page_of(small(), FIRST, precision="int8"), color_scheme="light")
    wait_for_tiles(page)
    said = page.get_by_text("This page runs the network").inner_text()
    largest, farthest = re.search(r"in int8, .* at most (\S+) % of .* \((\S+)\), ", said).groups()
    wanted = as_torch(small(), given(FIRST), 0)[1][farthest].activation.detach().numpy()
    error = np.abs(values(page, "activation", farthest) - wanted).max() / np.abs(wanted).max()
    assert error == pytest.approx(float(largest) / 100, rel=0.06)  # shown with two digits
    assert 2e-3 < error < 0.1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("hookviz.activation('layer9')", "No layer of this page is called 'layer9'"),
        ("hookviz.gradient('stem.0', 10)", "10 is not a class of this network"),
        ("hookviz.gradient('stem.0', 'cat')", '"cat" is not a class of this network'),
        ("hookviz.scale('stem.0', 24, 0)", "Channel 24 is not one of 0 to 23 of stem.0"),
        ("hookviz.scale('stem.0', 2, NaN)", "The factor NaN is not a number"),
        ("hookviz.setInput(new Blob(['no']))", "This file is not a picture"),
        ("hookviz.setInput('no')", "Give a Blob or a File"),
    ],
)
def test_invalid_calls_raise_a_clear_error(opened, call, words):
    said = opened.evaluate(f"{call}.then(() => '', (error) => error.message)")
    assert words in said
    assert len(opened.evaluate("hookviz.predictions()")) == 10  # the page still works


def test_on_a_phone_nothing_scrolls_sideways(opened):
    opened.set_viewport_size({"width": 390, "height": 800})
    across = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    wait_for(lambda: opened.evaluate(across) == 0, "no sideways scroll")
    opened.set_viewport_size(VIEW)


def test_the_view_follows_a_chosen_class_and_a_scaled_channel(written, shown):
    page = shown(written, color_scheme="light")
    wait_for_tiles(page)
    name = likeliest(FIRST, 1)[1]
    opening = page.get_by_text("contributes most to")
    expect(opening).to_be_visible()
    page.get_by_role("button", name=re.compile(f"^{name}")).click()
    page.locator(".hv-gradient .hv-label", has_text=f"gradient of {name}").wait_for()
    expect(opening).to_have_count(0)  # it is about the first class
    number, unlikely = likeliest(FIRST, 7)
    page.get_by_role("combobox", name="class whose gradient is shown").fill(unlikely)
    page.keyboard.press("Enter")
    row = page.get_by_role("group", name="predictions").get_by_text(unlikely).locator("..")
    with torch.no_grad():
        share = small()(given(FIRST))[0].softmax(0)[number]
    expect(row).to_contain_text(f"{100 * share:.1f} %")
    page.set_viewport_size({"width": 1280, "height": 640})
    drawer = open_drawer(page, "Edit")
    page.get_by_role("button", name="off", exact=True).click()
    chip = page.locator(".hv-edit").first
    chip.wait_for()
    expect(row).to_contain_text(" pp")

    def lowest():
        box = drawer.bounding_box()
        return round(box["y"] + box["height"])

    wait_for(lambda: lowest() <= 640, "the drawer, which grew, to be in view")
    page.get_by_label("whose pictures are shown").select_option("difference")
    page.locator(".hv-activation .hv-label", has_text="difference").first.wait_for()
    wait_for(lambda: page.evaluate("!document.querySelector('.hv-waiting')"))
    chip.click()
    wait_for(lambda: page.evaluate("!document.querySelector('.hv-edit')"))


def map_levels(model, picture, layer):
    """Return the colour levels of a layer's picture in the map."""
    explorer = hookviz.explore(model, picture)
    header, arrays = map_payload(explorer.displayed())
    explorer.close()
    parts = np.split(arrays["pictures"], np.cumsum([h * w for h, w in header["sizes"].values()]))
    return dict(zip(header["sizes"], parts, strict=False))[layer].reshape(header["sizes"][layer])


def is_coloured(pixels, levels, cmap):
    """Return whether pixels have the colours of levels, up to the rounding of float32."""
    if pixels.shape[:2] != levels.shape:
        return False
    near = [palette(cmap)[np.clip(levels.astype(int) + by, 0, 251)] for by in (-1, 0, 1)]
    return bool(np.any([(pixels == each).all(-1) for each in near], axis=0).all())


def test_the_map_shows_the_run_of_the_page(network):
    page, layer = network, "layer2.0.conv2"
    page.keyboard.press("m")
    find_layer(page, "layer2.0.conv1")  # the box of the shown layer has its own colours
    canvas = page.locator(f'.hv-net-box[data-name="{layer}"] canvas')
    for picture in (FIRST, OTHER):
        give(page, picture)
        wanted = map_levels(small(), picture, layer)
        wait_for(lambda w=wanted: is_coloured(canvas_pixels(canvas), w, SEQUENTIAL), "the picture")
    expect(page.locator(".hv-tab", has_text="Why this value?")).to_be_hidden()
    page.keyboard.press("m")


class Painter(torch.nn.Module):
    """A network whose outputs are maps: scores of five classes, and the input."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 6, 3, padding=1)
        self.scores = torch.nn.Conv2d(6, 5, 1)
        self.again = torch.nn.Conv2d(6, 3, 1)

    def forward(self, x):
        x = self.first(x).relu()
        return {"out": self.scores(x), "again": self.again(x)}


@pytest.fixture(scope="module")
def painter():
    """Return the network, its input, and a page that runs it."""
    torch.manual_seed(0)
    model, x = Painter().eval(), torch.rand(1, 3, 24, 32)
    return model, x, page_of(model, x)


def shows_output(canvas, model, x, channel):
    """Return whether a canvas shows a map of the second output."""
    with torch.no_grad():
        values = model(x)["again"][0, channel].numpy()
    most = np.abs(values).max()
    levels = to_levels(values, -most if values.min() < 0 else values.min(), most)
    return is_coloured(canvas_pixels(canvas), levels, DIVERGING if values.min() < 0 else SEQUENTIAL)


def as_torch_of(model, x, target):
    with hookviz.capture(model) as cache:
        target(model(x)).backward()
    return {name: cache[name].gradient for name in cache}


def click_place(page, panel, row, column, size, **how):
    page.locator(f"{panel} canvas").first.wait_for()  # the canvas is hidden until its map arrives
    shares = (row + 0.5) / size[0], (column + 0.5) / size[1]
    point(page.locator(f"{panel} .hv-frame"), *shares, click=True, **how)


def check_gradients(page, model, x, target):
    """Compare the page's target, gradients and heatmaps with torch in all layers it reaches."""
    gradient = page.locator(".hv-gradient .hv-label")
    expect(gradient).to_have_attribute("title", f"gradient of {target}")
    for layer, wanted in as_torch_of(model, x, target).items():
        if wanted is None:
            with pytest.raises(Error, match=f"No gradient reaches {layer}"):
                values(page, "gradient", layer)
        else:
            assert close(values(page, "gradient", layer), wanted), (layer, target)
            heat = hookviz.attribution.HEATMAPS["gradcam"](values_of(page, layer), wanted)
            assert close(values(page, "heatmap", layer), heat[0]), (layer, target)


def values_of(page, layer):
    return torch.from_numpy(values(page, "activation", layer).copy())


def test_a_clicked_pixel_of_the_output_is_the_target(painter, shown):
    (model, x, written), out = painter, hookviz.output["out"]
    page = shown(written, color_scheme="light")
    wait_for_tiles(page)
    open_drawer(page, "Pictures")
    page.locator(".hv-output canvas").first.wait_for()
    title = page.locator(".hv-facts")
    expect(title).to_contain_text("no class scores: click a pixel of the output to choose what to ")
    expect(title).to_contain_text("in memory")
    assert title.inner_text().count("no class scores") == 1
    for panel in ("gradient", "input"):
        expect(page.locator(f".hv-{panel} .hv-words")).to_have_text("choose a target first")
    expect(page.get_by_role("combobox", name="class whose gradient is shown")).to_be_visible()
    with torch.no_grad():
        classes = model(x)["out"][0].argmax(0)
    click_place(page, ".hv-output", 5, 20, (24, 32))
    first = out[0, int(classes[5, 20]), 5, 20]
    check_gradients(page, model, x, first)
    assert page.get_by_text("no class scores").count() == 0
    expect(page.locator(".hv-name")).to_have_text("again")  # the target is in the other head
    expect(page.locator(".hv-gradient .hv-words")).to_have_text("no gradient arrives here")
    page.locator(".hv-input").get_by_role("button", name="go to scores").click()
    expect(page.locator(".hv-name")).to_have_text("scores")
    expect(page.locator(".hv-way:visible")).to_have_count(0)
    click_place(page, ".hv-output", 17, 3, (24, 32), modifiers=["Shift"])
    check_gradients(page, model, x, first - out[0, int(classes[17, 3]), 17, 3])

    menu = page.get_by_role("combobox", name="map of the output")
    menu.select_option("0 2")
    page.get_by_role("button", name="mean as target").click()
    check_gradients(page, model, x, out[0, 2].mean())
    menu.select_option("1 1")
    described = 'output output["again"], channel 1, 24×32'
    expect(page.locator(".hv-output .hv-frame")).to_have_attribute("aria-label", described)
    expect(page.locator(".hv-output .hv-words")).to_be_empty()  # a click needs the values
    click_place(page, ".hv-output", 8, 9, (24, 32))
    again = hookviz.output["again"][0, 1, 8, 9]
    check_gradients(page, model, x, again)  # no gradient reaches the other head
    canvas = page.locator(".hv-output canvas").first
    wait_for(lambda: shows_output(canvas, model, x, 1), "the map of the output")

    pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
    give(page, Image.fromarray(pixels))
    other = torch.from_numpy(values(page, "input").copy())
    assert np.allclose(other[0].permute(1, 2, 0), pixels / 255, atol=1e-6)
    check_gradients(page, model, other, again)
    wait_for(lambda: shows_output(canvas, model, other, 1), "the map of the new picture")

    field = page.get_by_role("combobox", name="class whose gradient is shown")
    typed = 'output["out"][0, 1:3, 4].sum()'
    field.fill(typed)
    field.press("Enter")
    target = out[0, 1:3, 4].sum()
    check_gradients(page, model, other, target)
    wait_for(lambda: "sum" in page.evaluate("location.hash"), "the target in the address")
    page.reload()
    check_gradients(page, model, x, target)
    for wrong, words in {
        'output["out"][0, 9, 0, 0]': "index 9 is outside 0 to 4",
        'output["out"][0, 1]': "is 768 numbers, not one",
        "output[3]": "is not a target of this page: index output",
        "3": "3 is not a target of this page: index output",
    }.items():
        field.fill(wrong)
        field.press("Enter")
        page.get_by_text(words).wait_for()
    check_gradients(page, model, x, target)


def test_the_policy_allows_what_webassembly_needs_and_nothing_more(written):
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', written)[1]
    rules = dict(each.strip().split(" ", 1) for each in policy.split(";"))
    assert re.fullmatch(r"'sha256-\S+' 'wasm-unsafe-eval'", rules.pop("script-src"))
    assert re.fullmatch(r"'sha256-\S+'", rules.pop("style-src"))
    assert rules == {
        "default-src": "'none'",
        "img-src": "data:",
        "worker-src": "blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert len(written.encode()) < 8e6


def test_the_runtime_starts_before_the_network_is_read(written, shown):
    """The program precedes the network, which is the largest part, and reports if it is missing."""
    first, cut, rest = written.partition('<script type="application/json" id="model">')
    assert cut and len(rest) > 4 * sum(each.numel() for each in small().parameters())
    page = shown(first)
    page.get_by_role("alert").wait_for()
    said = (
        "This browser cannot run the network: the page was cut short: save or send it as a whole."
    )
    expect(page.get_by_role("alert")).to_have_text(said)


def test_a_picture_file_and_strokes_change_the_input_and_can_be_undone(network, tmp_path):
    page, model = network, small()
    number, name = likeliest(OTHER)
    first = values(page, "input")
    path = tmp_path / "house.png"
    OTHER.save(path)
    page.get_by_label("a picture's file").set_input_files(path)
    page.locator(".hv-gradient .hv-label", has_text=f"gradient of {name}").wait_for()
    x = given(OTHER)
    assert np.array_equal(values(page, "input"), x.numpy())
    cache = as_torch(model, x, number)[1]
    assert close(values(page, "gradient", "layer1.0.conv1"), cache["layer1.0.conv1"].gradient)

    open_drawer(page, "Edit")
    page.get_by_role("button", name="paint", exact=True).click()
    point(page.get_by_label("paint here"), 1 / 4, 1 / 2, click=True)
    wait_for(lambda: page.evaluate("!document.querySelector('.hv-waiting')"))
    painted = values(page, "input")
    changed = (painted != x.numpy()).any(1)[0]
    rows, columns = changed.nonzero()
    assert rows.min() > 10 and rows.max() < 18 and columns.min() > 24 and columns.max() < 32
    mean = x.mean((2, 3)).T.numpy()
    assert np.allclose(painted[0][:, changed], mean, atol=1e-6)
    cache = as_torch(model, torch.from_numpy(painted.copy()), 3)[1]
    assert close(values(page, "activation", "layer3.0.conv2"), cache["layer3.0.conv2"].activation)

    page.get_by_role("combobox", name="tool", exact=True).select_option("rectangle")
    sheet = page.get_by_label("paint here")
    point(sheet, 0.5, 0.25)
    page.mouse.down()
    point(sheet, 0.75, 0.75)
    page.mouse.up()
    changed[28:42, 14:42] = True
    assert np.array_equal((values(page, "input") != x.numpy()).any(1)[0], changed)

    open_drawer(page, "Pictures")
    for _ in range(2):
        page.get_by_role("button", name="undo", exact=True).click()
    assert np.array_equal(values(page, "input"), x.numpy())
    page.get_by_role("button", name="original picture", exact=True).click()
    assert np.array_equal(values(page, "input"), first)
    page.locator(".hv-gradient .hv-label", has_text=f"gradient of {likeliest(FIRST)[1]}").wait_for()
    (tmp_path / "no.png").write_text("no picture")
    page.get_by_label("a picture's file").set_input_files(tmp_path / "no.png")
    page.get_by_text("'no.png' is not a picture that this browser can read").wait_for()


def test_a_wrong_target_is_named_until_another_is_chosen(written, shown):
    page, (number, name) = shown(written), likeliest(FIRST)
    wait_for_tiles(page)
    field = page.get_by_role("combobox", name="class whose gradient is shown")
    message = page.locator(".hv-said")

    def write(text):
        field.fill(text)
        field.press("Enter")

    for wrong in ("nose", "99", "foo(", f"{name} - nose"):
        write(wrong)
        at_fault = wrong.split(" - ")[-1]
        expect(message).to_have_text(
            f"{at_fault} is not a target of this page: write a class by name or by number, 0 to 9."
        )
    write(str(number))
    expect(message).to_be_empty()
    write("nose")
    expect(message).not_to_be_empty()
    page.get_by_role("group", name="predictions").locator("button").nth(1).click()
    expect(message).to_be_empty()


def test_a_stroke_is_undone_and_redone_before_the_channel(network):
    page = network
    channel = page.locator(".hv-number-now").first
    before = channel.inner_text()
    page.keyboard.press("ArrowRight")
    expect(channel).not_to_have_text(before)
    after, first = channel.inner_text(), values(page, "input")
    open_drawer(page, "Edit")
    page.get_by_role("button", name="paint", exact=True).click()
    page.get_by_role("combobox", name="tool", exact=True).select_option("brush")
    point(page.get_by_label("paint here"), 1 / 4, 1 / 2, click=True)
    painted = values(page, "input")
    assert not np.array_equal(painted, first)
    for key, wanted in (("z", first), ("Shift+Z", painted), ("z", first)):
        page.keyboard.press(f"Control+{key}")
        assert np.array_equal(values(page, "input"), wanted), key
        expect(channel).to_have_text(after)
    page.keyboard.press("Control+z")
    expect(channel).to_have_text(before)
    close_drawer(page)


def test_card_and_keys_offer_only_what_the_page_can_do(network):
    page = network
    point(page.locator(".hv-activation .hv-frame"), 0.5, 0.5, click=True)
    card = page.get_by_role("group", name="the chosen position")
    expect(card.get_by_role("button", name="sort by this")).to_be_visible()
    expect(card.get_by_role("button", name="why?")).to_have_count(0)
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    keys = page.locator(".hv-keys th")
    expect(keys.filter(has_text="⇧ click a prediction")).to_have_count(1)
    expect(keys.filter(has_text=re.compile("^(m|a)$"))).to_have_count(2)
    expect(keys.filter(has_text=re.compile("thumbnail|^w$"))).to_have_count(0)
    page.keyboard.press("Escape")


def squared(picture):
    return transforms.functional.to_tensor(picture.resize((56, 56))) ** 2


@pytest.mark.parametrize("transform", [None, squared], ids=["a picture's values", "other values"])
def test_the_pictures_of_a_batch_are_fed_exactly_as_in_torch(shown, transform):
    batch = [PICTURES[2], PICTURES[6], hookviz.models.photographs()["coffee"]]
    x = prepare_input(batch, small(), transform=transform).args[0]
    page = shown(
        page_of(small(), batch, layers="layer3*", explore={"sample": 1, "transform": transform})
    )
    wait_for_tiles(page)
    thumbnails = open_drawer(page, "Pictures").locator(".hv-thumbnail")
    for sample in (1, 2, 0):
        thumbnails.nth(sample).click()
        expect(thumbnails.nth(sample)).to_have_attribute("aria-pressed", "true")
        assert np.array_equal(values(page, "input"), x[sample : sample + 1].numpy()), sample
    page.get_by_role("button", name="original picture", exact=True).click()
    expect(thumbnails.nth(1)).to_have_attribute("aria-pressed", "true")


# From the run of this number on, the network waits until it is told to continue.
RUNS_WAIT = """(first) => {
  const { postMessage } = Worker.prototype;
  const kept = [];
  let count = 0;
  Worker.prototype.postMessage = function (...given) {
    count += 1;
    if (count < first) postMessage.apply(this, given);
    else kept.push(() => postMessage.apply(this, given));
  };
  globalThis.goOn = () => {
    Worker.prototype.postMessage = postMessage;
    for (const each of kept) each();
  };
}"""


def test_occlusion_runs_the_network_equals_pythons_and_can_be_stopped(network):
    """Its progress is shown while it is computed."""
    page, layer = network, "layer1.0.conv1"
    model, picture = small(), FIRST
    x, number = given(picture), likeliest(picture)[0]
    gradcam = hookviz.heatmap(as_torch(model, x, number)[1][layer], "gradcam")
    assert close(values(page, "heatmap", layer), gradcam[0])
    with pytest.raises(Error, match="No heatmap of this page is called 'saliency'"):
        values(page, "heatmap", layer, "saliency")

    # The prediction changes, so the heatmap must be computed again.
    page.evaluate("hookviz.scale('layer2.0.conv1', 4, 0)")
    with hookviz.edit(model, "layer2.0.conv1", 0, channels=4):
        edited = hookviz.attribution.occlusion(model, picture, number)
    work = page.locator(".hv-input .hv-ablation")
    page.evaluate(RUNS_WAIT, 7)
    menu = page.get_by_label("heatmap", exact=True)
    before = menu.input_value()
    menu.select_option("occlusion")
    some = re.compile(r"^[1-5] of 196 runs$")
    work.get_by_text(some).wait_for()
    work.get_by_role("button", name="stop").click()
    page.locator(".hv-input").get_by_text("stopped", exact=True).wait_for()
    page.evaluate("goOn()")
    next_frame(page)
    assert some.match(work.locator("[role=status]").inner_text())
    work.get_by_role("button", name="go on").click()
    expect(work).to_be_hidden()
    page.locator(".hv-input canvas").first.wait_for()
    assert close(values(page, "heatmap", layer, "occlusion"), edited[0])
    menu.select_option(before)


def test_channels_are_sorted_by_their_grad_cam_weight(network):
    page, layer = network, "layer1.0.conv1"
    find_layer(page, layer)
    cache = as_torch(small(), given(FIRST), likeliest(FIRST)[0])[1]
    first = int(cache[layer].gradient.mean((0, 2, 3)).argmax())
    order = page.get_by_role("combobox", name="order of the channels")
    order.select_option("gradcam weight")
    expect(page.locator(".hv-tile").first).to_have_attribute("data-channel", str(first))
    order.select_option("index")


@pytest.mark.heavy
def test_the_order_by_score_drop_equals_pythons(written, shown):
    page = shown(written)
    wait_for_tiles(page)
    model, picture, layer = small(), FIRST, "layer1.0.conv1"
    drops = ablation_scores(Session(model, prepare_input(picture, model)), layer)[0].numpy()
    page.goto(f"{page.url.partition('#')[0]}#layer={layer}")
    page.reload()
    page.locator("h2, .hv-heading", has_text=layer).first.wait_for()
    wait_for_tiles(page)
    page.evaluate(RUNS_WAIT, 3)
    order = page.get_by_role("combobox", name="order of the channels")
    order.select_option("score drop")
    page.get_by_text(re.compile(r"\d+ % switched off")).wait_for()
    page.evaluate("goOn()")
    expect(page.locator(".hv-by")).to_contain_text("rank 1 of")
    assert order.input_value() == "score drop"
    number = page.locator(".hv-heading .hv-number-now").first
    assert drops[int(number.inner_text())] >= drops.max() - 1e-4
    tiles = page.locator(".hv-tile").evaluate_all("all => all.map((each) => +each.dataset.channel)")
    assert sorted(tiles) == [*range(len(drops))]
    assert (np.diff(drops[tiles]) < 1e-4).all()


DROP = """async (text) => {
  const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([bytes], "dropped.png", { type: "image/png" }));
  const how = { dataTransfer, bubbles: true, cancelable: true };
  document.body.dispatchEvent(new DragEvent("drop", how));
}"""


# Delay the next file until it is released, and the worker's answers until the test delivers them.
HOLD = """() => {
  const bitmap = createImageBitmap;
  globalThis.createImageBitmap = (...given) => {
    globalThis.createImageBitmap = bitmap;
    const released = new Promise((go) => { globalThis.release = go; });
    globalThis.held = released.then(() => bitmap(...given));
    return held;
  };
  globalThis.arrived = [];
  const post = Worker.prototype.postMessage;
  Worker.prototype.postMessage = function (message, ...others) {
    if (!this.held) {
      const take = this.onmessage;
      this.onmessage = (event) => arrived.push(() => take.call(this, event));
      this.held = true;
    }
    post.call(this, message, ...others);
  };
}"""
RELEASE = """async () => {
  release();
  await held;
  await new Promise((done) => setTimeout(done)); // after all that follows from it
}"""
# Deliver one answer while the browser draws no frame, so that only immediate drawing is seen.
ARRIVE = """async () => {
  const frame = requestAnimationFrame;
  globalThis.requestAnimationFrame = () => 0;
  arrived.shift()();
  await new Promise((done) => setTimeout(done));
  globalThis.requestAnimationFrame = frame;
}"""


def drop(page, picture):
    file = io.BytesIO()
    picture.save(file, "PNG")
    page.evaluate(DROP, base64.b64encode(file.getvalue()).decode())


def test_late_pictures_and_maps_are_not_shown(written, shown):
    """The newest picture is shown in any order of reading and running, and its maps at once."""
    page = shown(written)
    wait_for_tiles(page)
    page.get_by_role("slider", name="opacity of the heatmap").fill("0")
    next_frame(page)
    first, *others = (
        canvas_pixels(page.locator(f".hv-{panel} canvas").first)
        for panel in ("input", "activation")
    )
    pictures = [PICTURES[number].resize((56, 56)) for number in (13, 17, 20)]

    def shows(panel, wanted):
        return lambda: np.array_equal(
            canvas_pixels(page.locator(f".hv-{panel} canvas").first)[..., :3], wanted
        )

    page.evaluate(HOLD)
    slow, newer, last = pictures
    drop(page, slow)
    wait_for(lambda: page.evaluate("'release' in globalThis"), "the first file to be read")
    drop(page, newer)
    wait_for(shows("input", np.asarray(newer)), "the second picture")
    page.evaluate(RELEASE)
    assert shows("input", np.asarray(newer))()
    wait_for(lambda: page.evaluate("arrived.length === 1"), "the second picture's maps")
    drop(page, last)
    wait_for(shows("input", np.asarray(last)), "the last picture")
    page.evaluate(ARRIVE)  # maps of the second picture, which are obsolete
    assert shows("activation", others[0][..., :3])()
    wait_for(lambda: page.evaluate("arrived.length === 1"), "the last picture's maps")
    assert shows("activation", others[0][..., :3])()
    page.evaluate(ARRIVE)
    assert not shows("activation", others[0][..., :3])()
    assert not page.evaluate("Boolean(document.querySelector('.hv-waiting'))")
    assert np.array_equal(values(page, "input"), given(last).numpy())

    page.evaluate("delete globalThis.release")
    page.evaluate(HOLD)
    drop(page, slow)
    wait_for(lambda: page.evaluate("'release' in globalThis"), "the first file to be read again")
    open_drawer(page, "Pictures")
    page.get_by_role("button", name="original picture", exact=True).click()
    wait_for(shows("input", first[..., :3]), "the page's own picture")
    page.evaluate(RELEASE)
    assert shows("input", first[..., :3])()


# Record the changes from one frame to the next until eight camera frames were seen.
FRAMES = """() => new Promise((done) => {
  const panels = ["input", "activation"].map((name) => `.hv-${name} canvas`);
  const found = { inputs: 0, maps: 0, alone: [] };
  let before;
  const look = () => {
    const now = panels.map((each) => document.querySelector(each).toDataURL());
    const changed = panels.filter((_, n) => before && before[n] !== now[n]);
    if (changed.includes(panels[0])) found.inputs += 1;
    if (changed.includes(panels[1])) found.maps += 1;
    const waits = document.querySelector(".hv-waiting, .hv-stale");
    const empty = document.querySelectorAll(".hv-thumb").length < hookviz.layers.length;
    if ((changed.length && changed.length < panels.length) || waits || empty)
      found.alone.push([changed, Boolean(waits), empty]);
    before = now;
    if (found.inputs < 8) requestAnimationFrame(look);
    else done(found);
  };
  requestAnimationFrame(look);
})"""


def test_a_dropped_picture_ends_the_camera(network):
    page = network
    drop(page, OTHER)
    name = likeliest(OTHER)[1]
    page.locator(".hv-gradient .hv-label", has_text=f"gradient of {name}").wait_for()
    dropped = values(page, "input")
    page.evaluate(
        """() => {
          const devices = navigator.mediaDevices;
          const ask = devices.getUserMedia.bind(devices);
          devices.getUserMedia = async (wanted) => (globalThis.seen = await ask(wanted));
        }"""
    )
    open_drawer(page, "Pictures")
    page.get_by_role("button", name="camera", exact=True).click()
    wait_for(lambda: page.evaluate("globalThis.seen?.active"))
    stop = page.get_by_role("button", name="stop camera")
    stop.wait_for()
    wait_for(lambda: not np.array_equal(values(page, "input"), dropped))
    frame = values(page, "input")
    wait_for(lambda: not np.array_equal(values(page, "input"), frame))  # the camera continues
    open_drawer(page, "Heatmaps of all layers")
    layers = page.evaluate("hookviz.layers")
    expect(page.locator(".hv-thumb")).to_have_count(len(layers))
    seen = page.evaluate(FRAMES)
    assert seen["inputs"] > 3 and seen["maps"] > 3  # the maps follow the input
    assert seen["alone"] == []  # an input is never shown beside another frame's maps
    open_drawer(page, "Pictures")
    stop.click()
    tracks = "globalThis.seen.getTracks().map((track) => track.readyState)"
    wait_for(lambda: page.evaluate(tracks) == ["ended"], "the camera's light to go out")
    last = values(page, "input")
    cache = as_torch(small(), torch.from_numpy(last.copy()), 0)[1]
    assert close(values(page, "activation", "stem.0"), cache["stem.0"].activation)
    page.get_by_role("button", name="undo", exact=True).click()
    assert np.array_equal(values(page, "input"), dropped)


def photographs():
    """Return ten crops of photographs, of odd sizes, stored in each of the eight orientations."""
    sizes = [(451, 300), (57, 56), (56, 57), (333, 37), (41, 257), (97, 89)]
    sizes += [(100, 151), (151, 100), (65, 64), (600, 399)]
    for number, size in enumerate(sizes):
        picture = hookviz.models.photographs()[("chelsea", "coffee")[number % 2]]
        file, exif = io.BytesIO(), Image.Exif()
        exif[0x0112] = number % 8 + 1
        crop = picture.crop((0, 0, *size))
        crop.save(file, "JPEG", quality=95, subsampling=0, exif=exif)
        yield file.getvalue()


def test_the_page_prepares_photographs_like_torchvision(opened):
    """Resize, crop and normalization agree to 1/255, in every orientation."""
    transform = transforms.Compose([transforms.Resize(56), transforms.CenterCrop(56)])
    for data in photographs():
        picture = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        wanted = np.asarray(transform(picture), np.float32) / 255
        opened.evaluate(GIVE, ["image/jpeg", base64.b64encode(data).decode()])
        found = values(opened, "input")
        assert found.shape == (1, 3, 56, 56)
        shown = found[0].transpose(1, 2, 0) * 0.25 + 0.5  # without the normalization
        assert float(np.abs(shown - wanted).max()) <= 1.001 / 255, picture.size
    open_drawer(opened, "Pictures")
    opened.get_by_role("button", name="original picture", exact=True).click()
    close_drawer(opened)


LESSON = """<!doctype html><title>A lesson</title>
<iframe id="network" title="the network" src="network.html" width="1200" height="800"></iframe>
<p id="said"></p>
<script type="module">
  const frame = document.getElementById("network");
  await new Promise((done) => {
    frame.addEventListener("load", done);
    if (frame.contentWindow.hookviz) done();
  });
  const { hookviz } = frame.contentWindow;
  await hookviz.ready;
  const [before] = await hookviz.predictions();
  await hookviz.scale("layer3.0.conv2", 34, 0);
  const after = (await hookviz.predictions()).find(({ index }) => index === before.index);
  document.getElementById("said").textContent =
    `${before.name}: ${before.logit.toFixed(3)}, without the channel ${after.logit.toFixed(3)}`;
</script>
"""


def test_an_embedding_page_can_control_the_network_page(written, chrome):
    """Serve both pages from one origin, like files in a folder of a web site."""
    context = chrome.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    files = {"lesson.html": LESSON, "network.html": written}

    def served(route):
        name = route.request.url.rpartition("/")[2]
        body = files.get(name)
        route.fulfill(status=200 if body else 404, content_type="text/html", body=body or "")

    page.route("**/*", served)
    page.goto("https://lesson.example/lesson.html")
    wait_for(lambda: page.locator("#said").inner_text(), "the lesson's sentence")
    said = page.locator("#said").inner_text()
    words, *scores = re.fullmatch(r"(.+): (\S+), without the channel (\S+)", said).groups()
    assert words == likeliest(FIRST)[1] and scores[0] != scores[1]
    chip = page.frame_locator("#network").locator(".hv-edit")
    expect(chip).to_have_text("layer3.0.conv2, channel 34: off ✕")
    context.close()
