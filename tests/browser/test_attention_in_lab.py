"""An attention head in JupyterLab: from the class token, from a clicked patch, switched off."""

from __future__ import annotations

import re

from face import open_drawer
from front_end import needs_canvas, numeral, point, wait_for
from playwright.sync_api import expect

MAKE = (
    "import hookviz, torch, ipywidgets, torchvision\n"
    "_ = torch.manual_seed(0)\n"
    "model = torchvision.models.VisionTransformer(32, 8, 2, 2, 16, 16, num_classes=3).eval()\n"
    "for each in model.encoder.layers:\n"
    "    _ = torch.nn.init.normal_(each.self_attention.in_proj_weight, std=0.4)\n"
    "name = 'encoder.layers.encoder_layer_0.self_attention'\n"
    "x = torch.rand(1, 3, 32, 32)\n"
    "maps = hookviz.attention(model, x)[name][0, 1, :, 1:].unflatten(-1, (4, 4))\n"
    "explorer = hookviz.explore(model, x, 0, layer=f'{name}.heads', channel=1)\n"
    "words = f'{maps[0, 1, 2]:.4f} {maps[1 + 2 * 4 + 1, 1, 2]:.4f}'\n"
    "display(ipywidgets.Label(words).add_class('expected'), explorer)"
)


def place(row, column, side):
    """Return the centre of a position in a square map, as fractions of height and width."""
    return (row + 0.5) / side, (column + 0.5) / side


def read(app, name, where):
    """Return a value shown for the position under the pointer, to four digits; NaN if none is."""
    point(app.locator(".hv-activation .hv-frame"), *where)
    names, values = (app.locator(f".hv-here {each}") for each in ("dt", "dd"))
    shown = dict(zip(names.all_inner_texts(), values.all_inner_texts(), strict=False))
    return round(numeral(shown.get(name, "")), 4)


@needs_canvas
def test_a_head_shows_the_weights_of_the_clicked_query_and_can_be_switched_off(open_canvas):
    notebook, app = open_canvas(MAKE)
    page = notebook.page
    from_class, from_patch = page.locator(".expected").first.inner_text().split()
    frame, side = app.locator(".hv-activation .hv-frame"), app.locator(".hv-activation .hv-cap")

    where = place(1, 2, 4)
    wait_for(lambda: read(app, "value", where) == float(from_class), "the class token's weight")
    expect(side).to_contain_text("query: the class token")
    point(frame, *place(2, 1, 4), click=True)
    expect(side).to_contain_text("query: patch (2, 1)")
    wait_for(lambda: read(app, "value", where) == float(from_patch), "the patch's weight")
    expect(app.locator(".hv-notes")).to_contain_text("on class token")
    open_drawer(app, "Edit")
    expect(app).to_contain_text("scale head 1:")
    app.get_by_title("switch the head off").click()
    chip = app.locator(".hv-edit")
    expect(chip).to_have_text(re.compile("heads, head 1: off ✕$"))
    assert chip.evaluate("chip => chip.scrollWidth <= chip.clientWidth")
    wait_for(lambda: read(app, "value", where) == 0, "a head without weights")
