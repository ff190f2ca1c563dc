"""A page that runs the demo network, opened from the disk: every number against torch."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
import torch

import hookviz

pytest.importorskip("onnxscript", reason="the oldest versions have no such export")

FARTHEST = 2e-5  # of a tensor's largest value

# Arrays leave the page as base64: as JSON each value would be a text.
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


@pytest.fixture(scope="module")
def written():
    explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])
    page = explorer.to_html(network=True)
    explorer.close()
    return page


def values(page, *asked):
    shape, kind, text = page.evaluate(READ, list(asked))
    assert kind == "Float32Array"
    return np.frombuffer(base64.b64decode(text), np.float32).reshape(shape)


def give(page, picture, kind="PNG"):
    file = io.BytesIO()
    picture.save(file, kind)
    page.evaluate(GIVE, [f"image/{kind.lower()}", base64.b64encode(file.getvalue()).decode()])


def close(found, wanted):
    wanted = wanted.detach().numpy()
    assert found.shape == wanted.shape
    return float(np.abs(found - wanted).max()) <= FARTHEST * float(np.abs(wanted).max())


def as_torch(model, x, number, *edits):
    with hookviz.capture(model) as cache:
        logits = model(x)
        logits[0, number].backward()
    return logits, cache


def test_every_map_and_gradient_for_another_picture_and_a_silenced_channel(written, shown):
    page = shown(written)
    page.locator(".hv-tile").first.wait_for()
    model = hookviz.demo_model()
    layers = page.evaluate("hookviz.layers")
    assert layers == [n for n, m in model.named_modules() if isinstance(m, torch.nn.Conv2d)]
    given = hookviz.attribution.prepare_input
    first = given(hookviz.demo_images()[6], model).args[0]
    assert np.array_equal(values(page, "input"), first.numpy())

    picture = hookviz.models.photographs()["chelsea"].crop((3, 5, 300, 206))
    give(page, picture)
    x = given(picture, model).args[0]
    assert np.array_equal(values(page, "input"), x.numpy())
    for number, name in ((3, "flower"), (8, 8)):
        logits, cache = as_torch(model, x, number)
        for layer in layers:
            assert close(values(page, "activation", layer), cache[layer].activation), layer
            assert close(values(page, "gradient", layer, name), cache[layer].gradient), layer
    told = page.evaluate("hookviz.predictions()")
    order = logits[0].argsort(descending=True).tolist()
    assert [each["index"] for each in told] == order
    assert [each["name"] for each in told] == [model.class_names[number] for number in order]
    assert np.allclose([each["logit"] for each in told], logits[0, order].tolist(), atol=1e-4)
    shares = logits[0].softmax(0)[order].tolist()
    assert np.allclose([each["probability"] for each in told], shares, atol=1e-5)

    page.evaluate("hookviz.scale('layer2.0.conv1', 4, 0)")
    page.evaluate("hookviz.scale('layer2.1.conv2', 7, 1.5)")
    off = hookviz.edit(model, "layer2.0.conv1", 0, channels=4)
    more = hookviz.edit(model, "layer2.1.conv2", 1.5, channels=7)
    with off, more:
        logits, cache = as_torch(model, x, order[0])
    for layer in layers[4:]:
        assert close(values(page, "activation", layer), cache[layer].activation), layer
        assert close(values(page, "gradient", layer, order[0]), cache[layer].gradient), layer
    logit = {each["index"]: each["logit"] for each in page.evaluate("hookviz.predictions()")}
    assert np.allclose([logit[number] for number in range(10)], logits[0].tolist(), atol=1e-4)
    assert page.locator(".hv-edit").all_inner_texts() == [
        "layer2.0.conv1, channel 4: off ✕",
        "layer2.1.conv2, channel 7: × 1.5 ✕",
    ]
    page.evaluate("hookviz.reset()")
    assert page.locator(".hv-edit").count() == 0
    assert close(
        values(page, "activation", layers[-1]), as_torch(model, x, 0)[1][layers[-1]].activation
    )


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
def test_what_cannot_be_done_is_said(opened, call, words):
    said = opened.evaluate(f"{call}.then(() => '', (error) => error.message)")
    assert words in said
    assert len(opened.evaluate("hookviz.predictions()")) == 10  # and goes on


@pytest.fixture(scope="module")
def opened(written, browser, tmp_path_factory):
    """One page for tests that leave it as it was."""
    path = tmp_path_factory.mktemp("network") / "page.html"
    path.write_text(written, encoding="utf-8")
    page = browser.browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(path.as_uri())
    page.locator(".hv-tile").first.wait_for()
    yield page
    page.close()


def test_the_face_follows_a_click_on_a_class_and_a_hand_on_a_channel(written, shown, shots):
    page = shown(written, color_scheme="light")
    page.locator(".hv-tile").first.wait_for()
    page.get_by_role("button", name=re.compile("^flower")).click()
    page.locator(".hv-gradient .hv-label", has_text="gradient of flower").wait_for()
    page.get_by_role("button", name="off", exact=True).click()
    chip = page.locator(".hv-edit").first
    chip.wait_for()
    page.get_by_label("whose pictures are shown").select_option("difference")
    page.locator(".hv-activation .hv-label", has_text="difference").first.wait_for()
    page.wait_for_function("!document.querySelector('.hv-waiting')")
    page.screenshot(path=shots / "network-page.png")
    chip.click()
    page.wait_for_function("!document.querySelector('.hv-edit')")


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
