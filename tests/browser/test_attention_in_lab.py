"""A head in JupyterLab: seen from the class token, from a clicked patch, and switched off."""

from __future__ import annotations

import pytest
from front_end import CANVAS_ON, WIDGETS, numeral, point, wait_for

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

    def value():
        """What is told at row 1, column 2, by the pointer."""
        point(frame, 1.5 / 4, 2.5 / 4)
        names, values = (app.locator(f".hv-here {each}") for each in ("dt", "dd"))
        shown = dict(zip(names.all_inner_texts(), values.all_inner_texts(), strict=False))
        return f"{numeral(shown.get('value', '')):.4f}"

    wait_for(lambda: value() == from_class, "the class token's weight")
    assert "seen from the class token" in side.inner_text()
    point(frame, 2.5 / 4, 1.5 / 4, click=True)
    wait_for(lambda: "seen from patch (2, 1)" in side.inner_text(), "the patch's map")
    wait_for(lambda: value() == from_patch, "the patch's weight")
    words, notes = "looks beside the patches at: class token", app.locator(".hv-notes")
    wait_for(lambda: words in notes.inner_text(), "the patch's note")
    page.screenshot(path=shots / "attention-canvas.png")
    assert "head 1 ×" in app.inner_text()
    app.get_by_title("switch the head off").click()
    wait_for(lambda: "head 1: off" in app.inner_text(), "the edit")
    wait_for(lambda: float(value()) == 0, "a head without weights")
    assert notebook.errors == []
