"""The panel "Why this value?" in JupyterLab: terms, steps back, and a check by ablation."""

from __future__ import annotations

import re

import pytest
from demo import explore_demo
from face import close_drawer, find_layer, open_drawer
from front_end import needs_canvas, wait_for
from playwright.sync_api import expect

MAKE = (
    "import hookviz\n"
    "explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6],"
    " layer='layer3.1.conv2', channel=17)\n"
    "explorer"
)


@needs_canvas
def test_the_terms_of_a_value_are_shown_followed_and_checked(open_canvas):
    notebook, app = open_canvas(MAKE)
    why, offer = app.locator(".hv-why"), app.locator(".hv-why-offer")
    assert not offer.is_visible()
    open_drawer(app, "Why this value?")
    expect(why).to_contain_text("Click a value")
    notebook.page.keyboard.press("w")
    expect(why).to_be_hidden()
    app.locator(".hv-activation .hv-frame").click()
    offer.click()  # the button beside the value
    expect(offer).to_be_hidden()
    terms, chips = why.locator("input[type=checkbox]"), why.locator(".hv-why-trail button")
    expect(terms).to_have_count(8)
    total = why.locator(".hv-why-sum")
    wait_for(lambda: re.search(r"= bias .* \(88 others\)", total.inner_text()), "the sum")
    assert "layer3.1.conv2, channel 17 at" in why.inner_text()
    before = total.inner_text().partition(" (")[0]

    terms.first.check()
    why.get_by_role("button", name="switch these off").click()
    checked = lambda: re.search(r"predicted (\S+), measured (\S+);", why.inner_text())  # noqa: E731
    wait_for(checked, "the run without the channel")
    predicted, true = (float(each.replace("−", "-")) for each in checked().groups())
    assert predicted == pytest.approx(true, rel=0.02, abs=1e-3)

    why.locator(".hv-why-from button").first.click()
    expect(why).to_contain_text("layer3.1.conv1, channel")
    expect(chips).to_have_count(2)
    layer = app.get_by_label("layer", exact=True).first
    expect(layer).to_have_attribute("aria-valuetext", re.compile(r"^layer3\.1\.conv1"))
    chips.first.click()
    expect(why).to_contain_text("layer3.1.conv2, channel 17")
    expect(chips).to_have_count(2)

    open_drawer(app, "Edit")
    app.get_by_role("button", name="off", exact=True).click()
    open_drawer(app, "Why this value?")
    expect(why).to_contain_text("; its edits (off) make it 0; then batch_norm")
    assert total.inner_text().startswith(before)  # the value before the edit
    assert terms.count() == 8


SLOW = """import pathlib, time, torch, hookviz
class Slow(torch.nn.Conv2d):
    def forward(self, x):
        while pathlib.Path("wait").exists():
            pathlib.Path("waits").touch()
            time.sleep(0.01)
            x = x + 0  # as a network of many operations
        return super().forward(x)
torch.manual_seed(0)
net = torch.nn.Sequential(Slow(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 1))
explorer = hookviz.explore(net, torch.rand(1, 3, 16, 16), layer='2')
explorer"""


@needs_canvas
def test_terms_lead_to_layers_without_positions(open_canvas):
    _, app = open_canvas(
        "import hookviz, torch\n"
        "from torch import nn\n"
        "net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4))\n"
        "explorer = hookviz.explore(net, torch.rand(1, 5), layers=['0', '2'], layer='2')\n"
        "explorer"
    )
    open_drawer(app, "Why this value?")
    app.get_by_role("button", name=re.compile("^start at")).click()
    app.locator(".hv-why-from button").first.click()
    layer = app.get_by_label("layer", exact=True).first
    expect(layer).to_have_attribute("aria-valuetext", re.compile(r"^0\b"))


@needs_canvas
def test_interrupting_the_kernel_ends_the_explanation_and_the_map(open_canvas, lab):
    notebook, app = open_canvas(SLOW)
    page = notebook.page
    notebook.settle()
    stop = page.locator('[data-command="notebook:interrupt-kernel"]').first
    why, wait, waits = app.locator(".hv-why"), lab.files / "wait", lab.files / "waits"
    waits.unlink(missing_ok=True)
    # The receptive field, the recorded run and the explanation are queued; the interrupt ends all.
    wait.touch()
    app.locator(".hv-activation .hv-frame").click()
    app.locator(".hv-why-offer").click()
    app.get_by_text("interrupt the kernel to stop").wait_for()
    wait_for(waits.exists, "the network to run")  # an earlier interrupt would have no effect
    expect(why).to_contain_text("on its way")
    stop.click()
    expect(why).to_contain_text("Stopped. Press w twice")
    assert wait.exists()  # without the interrupt, the network would still wait
    # The explorer still answers to a change of channel and layer.
    app.locator(".hv-tile").nth(1).click()
    sliders = app.get_by_label("channel", exact=True).first
    wait_for(lambda: "channel 1" in sliders.get_attribute("aria-valuetext"), "the channel")
    find_layer(app, "0")
    expect(app.locator(".hv-tile")).to_have_count(4)
    waits.unlink()
    open_drawer(app, "Map")
    app.get_by_text("the map is being made").wait_for()
    wait_for(waits.exists, "the network to run")
    stop.click()
    app.get_by_text("Stopped. Press m twice to ask again.").wait_for()
    wait.unlink()
    close_drawer(app)
    open_drawer(app, "Map")
    app.locator('.hv-net-box[data-name="2"]').wait_for()
    open_drawer(app, "Why this value?")
    app.locator(".hv-activation .hv-frame").click(position={"x": 40, "y": 30})
    expect(why.locator("input[type=checkbox]")).to_have_count(3)
    expect(app.get_by_text("interrupt the kernel to stop")).to_be_hidden()


SLOW_WAY_BACK = """import pathlib, time, torch, hookviz
def wait(gradient):
    while pathlib.Path("wait").exists():
        time.sleep(0.01)
    if pathlib.Path("fail").exists():
        raise RuntimeError("no way back")
class Slow(torch.nn.ReLU):
    def forward(self, x):
        x.requires_grad and x.register_hook(wait)
        return super().forward(x)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), Slow(), torch.nn.Conv2d(4, 2, 1))
explorer = hookviz.explore(net, torch.rand(1, 3, 16, 16), layer='2')
explorer"""


@needs_canvas
def test_terms_are_shown_before_their_inputs_are_traced_back(open_canvas, lab):
    """Rows stay where they are when the origins arrive, or a reason why there are none."""
    notebook, app = open_canvas(SLOW_WAY_BACK)
    notebook.settle()
    why, wait = app.locator(".hv-why"), lab.files / "wait"
    terms, ways = why.locator(".hv-why-term"), why.locator(".hv-why-from button")
    app.locator(".hv-activation .hv-frame").click()
    notebook.settle()  # the receptive field runs a backward, too
    wait.touch()
    app.locator(".hv-why-offer").click()
    expect(why).to_contain_text("on its way")
    expect(terms).to_have_count(6)
    places = lambda: terms.evaluate_all("all => all.map((row) => row.offsetTop)")  # noqa: E731
    before, sums = places(), terms.locator(".hv-why-number").all_inner_texts()
    assert ways.count() == 0
    wait.unlink()
    expect(ways).to_have_count(4)
    expect(why).not_to_contain_text("on its way")
    assert places() == before
    assert terms.locator(".hv-why-number").all_inner_texts() == sums

    (lab.files / "fail").touch()
    app.locator(".hv-activation .hv-frame").click(position={"x": 40, "y": 30})
    expect(why).to_contain_text("This number cannot be traced back: no way back")
    expect(terms).to_have_count(6)
    expect(why).not_to_contain_text("on its way")


OUTSIDE = """(panel) => {
  const box = panel.getBoundingClientRect();
  return [...panel.querySelectorAll("*")].filter((each) => {
    const own = each.getBoundingClientRect();
    const scrolls = each.closest(".hv-kernels");
    const cut = each.clientWidth && each.scrollWidth > each.clientWidth + 1;
    return own.width && (own.left < box.left || own.right > box.right + 0.5
      || (!scrolls && own.bottom > box.bottom + 0.5) || (each.tagName === "SPAN" && cut));
  }).map((each) => `${each.className} ${each.textContent}`);
}"""


def within(panel):
    """Wait until all elements of a panel lie inside it and no text is cut off."""
    wait_for(lambda: panel.evaluate(OUTSIDE) == [], "all elements to be inside")


@pytest.mark.heavy
@needs_canvas
def test_the_weights_panel_shows_slices_kernels_and_rows(open_canvas):
    layers = "['stem.0', 'layer3.1.conv2', 'head.2']"
    _, app = open_canvas(MAKE.replace("layer=", f"layers={layers}, layer="))
    layer, channel = "layer3.1.conv2", 17
    made = explore_demo(layer=layer)
    wanted = made.weights(layer, channel=channel)
    rows = made.weights("head.2").kernels
    panel, kernels = app.locator(".hv-weights-panel"), app.locator(".hv-kernel")
    open_drawer(app, "Weights")
    expect(kernels).to_have_count(64)

    def listed():
        return [int(each) for each in app.locator(".hv-kernel > .hv-dim").all_inner_texts()]

    assert listed() == [each["channel"] for each in wanted.slices()[:64]]
    assert f"norm {float(wanted.norms[channel]):.3g}" in panel.inner_text()
    within(panel)

    find_layer(app, "stem.0")  # the page has a test of its kernels
    app.get_by_role("button", name="what excites it?").click()
    expect(panel.locator("img")).to_have_count(6)
    assert "any of 32 natural pictures" in panel.inner_text()
    within(panel)
    kernels.nth(3).click()
    expect(panel.locator("img")).to_have_count(0)
    pressed = lambda: kernels.nth(3).get_attribute("aria-pressed") == "true"  # noqa: E731
    wait_for(pressed, "the channel of a kernel")
    within(panel)

    find_layer(app, "head.2")
    shown = app.locator(".hv-kernel-bar")
    wait_for(lambda: shown.count() > 0, "the row of a class")
    own = int(re.search(r"head\.2, channel (\d+)", panel.inner_text()).group(1))
    numbers = shown.evaluate_all(
        "bars => bars.map((each) => [each.firstChild, each.lastChild].map((one) =>"
        " one.title || one.textContent).map(Number))"
    )
    assert [value for _, value in numbers] == pytest.approx(
        [float(rows[own, n]) for n, _ in numbers]
    )
    assert [n for n, _ in numbers] == rows[own].abs().argsort(descending=True)[:24].tolist()
    within(panel)
    close_drawer(app)
    expect(panel).to_be_hidden()
