"""A head in JupyterLab: seen from the class token, from a clicked patch, and switched off."""

from __future__ import annotations

import pytest
from front_end import CANVAS_ON, WIDGETS, wait_for

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


@pytest.mark.skipif(WIDGETS < 8, reason="the classic Notebook 6 has no anywidget")
def test_by_the_canvas(open_notebook, shots):
    notebook = open_notebook([CANVAS_ON, MAKE])
    page = notebook.page
    app = page.locator(".hookviz-app")
    app.locator(".hv-tile").first.wait_for()
    from_class, from_patch = page.locator(".expected").first.inner_text().split()
    frame, side = app.locator(".hv-activation .hv-frame"), app.locator(".hv-activation .hv-cap")

    def over(row, column):
        box = frame.bounding_box()
        return box["x"] + (column + 0.5) / 4 * box["width"], box["y"] + (row + 0.5) / 4 * box[
            "height"
        ]

    def value():
        names, values = (app.locator(f".hv-here {each}") for each in ("dt", "dd"))
        shown = dict(zip(names.all_inner_texts(), values.all_inner_texts(), strict=False))
        return f"{float(shown.get('value', '-1').replace('−', '-')):.4f}"

    page.mouse.move(*over(1, 2))
    wait_for(lambda: value() == from_class, "the class token's weight")
    assert "seen from the class token" in side.inner_text()
    page.mouse.click(*over(2, 1))
    wait_for(lambda: "seen from patch (2, 1)" in side.inner_text(), "the patch's map")
    page.mouse.move(*over(1, 2))
    wait_for(lambda: value() == from_patch, "the patch's weight")
    assert "looks beside the patches at: class token" in app.locator(".hv-notes").inner_text()
    page.screenshot(path=shots / "attention-canvas.png")
    assert "head 1 ×" in app.inner_text()
    app.get_by_title("switch the head off").click()
    wait_for(lambda: "head 1: off" in app.inner_text(), "the edit")
    page.mouse.move(*over(1, 2))
    wait_for(lambda: float(value()) == 0, "a head without weights")
    assert notebook.errors == []
