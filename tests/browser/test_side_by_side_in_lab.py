"""Two runs beside each other in JupyterLab: one set of controls moves all three columns."""

from __future__ import annotations

TWO_PICTURES = [
    "import hookviz",
    "model, pictures = hookviz.demo_model(), hookviz.demo_images()",
    "both = hookviz.compare(model, model, pictures[6], inputs_b=pictures[9]).show()\nboth",
]
FINE_TUNED = [
    "import copy, hookviz, torch",
    "model, pictures = hookviz.demo_model(), hookviz.demo_images()\n"
    "tuned = copy.deepcopy(model).train()\n"
    "torch.manual_seed(0)\n"
    "x = torch.cat([hookviz.attribution.prepare_input(p, model).args[0] for p in pictures[:4]])\n"
    "y = torch.tensor([model.class_names.index(p.info['label']) for p in pictures[:4]])\n"
    "optimizer = torch.optim.SGD(tuned.parameters(), 0.05, momentum=0.9)\n"
    "for _ in range(4):\n"
    "    optimizer.zero_grad()\n"
    "    torch.nn.functional.cross_entropy(tuned(x), (y + 1) % 10).backward()\n"
    "    optimizer.step()",
    "comparison = hookviz.compare(model, tuned, pictures[6])\nprint(comparison.verdict)",
    "both = comparison.show()\nboth.layer = 'layer3.1.conv2'\nboth",
]


def maps(page):
    """The addresses of the pictures of the three feature maps."""
    return [page.locator(f".hookviz-side-{n} img").first.get_attribute("src") for n in range(3)]


def test_two_pictures(open_notebook, shots):
    notebook = open_notebook(TWO_PICTURES)
    page = notebook.page
    page.locator(".hookviz-columns").wait_for()
    page.locator(".hookviz-columns").scroll_into_view_if_needed()
    before = maps(page)
    assert len(set(before)) == 3
    slider = page.locator(".hookviz-by-channel [role=slider], .hookviz-by-channel .noUi-handle")
    slider.first.focus()
    slider.first.press("ArrowRight")
    page.wait_for_function(
        "(before) => [0, 1, 2].every((n) =>"
        " document.querySelector(`.hookviz-side-${n} img`).src !== before[n])",
        arg=before,
    )
    page.screenshot(path=shots / "side-by-side-pictures.png")


def test_before_and_after_fine_tuning(open_notebook, shots):
    notebook = open_notebook(FINE_TUNED)
    page = notebook.page
    page.locator(".hookviz-columns").wait_for()
    page.locator(".hookviz-columns").scroll_into_view_if_needed()
    assert len(set(maps(page))) == 3
    assert page.get_by_text("channel 0", exact=True).count() >= 3
    assert page.locator("figcaption", has_text="b − a").count() >= 2
    page.screenshot(path=shots / "side-by-side-tuned.png")
