"""A page is one file that fetches nothing and runs only scripts whose hashes it lists."""

import base64
import hashlib
import re
import zlib
from html import unescape

import numpy as np
import pytest
import torch
from architectures import model_of
from demo import explore_demo
from seen import blocks
from torch import nn

import hookviz


@pytest.fixture(scope="module")
def explorer():
    made = explore_demo(layer="layer3.1.conv2")
    yield made
    made.close()


@pytest.fixture(scope="module")
def page(explorer):
    return explorer.to_html()


def arrays(block):
    """Return the arrays of a block that are stored in single or half precision."""
    data, header = base64.b64decode(block["data"]), block["header"]
    whole, at = b"", 0
    for length in header["streams"]:
        whole, at = whole + zlib.decompress(data[at : at + length]), at + length
    found, at = {}, 0
    for coding in header["arrays"]:
        part, at = whole[at : at + coding["bytes"]], at + coding["bytes"]
        if coding["kind"] in ("f4", "f2"):
            size = int(coding["kind"][1])
            part = np.frombuffer(part, np.uint8).reshape(size, -1).T.tobytes()
            values = np.frombuffer(part, coding["kind"]).reshape(coding["shape"])
            found[coding["name"]] = values * np.float32(coding.get("scale", 1))
    return found


def test_numbers_are_exact_if_they_fit_the_budget(page, explorer):
    found = blocks(page)
    names = [each["name"] for each in found["facts"]["facts"]["layers"]]
    assert names == list(explorer.cache)
    for place, name in enumerate(names):
        own = arrays(found[f"layer-{place}"])
        assert (own["maps"] == explorer.cache[name].activation[0].numpy()).all()
        assert (own["gradients"] == explorer.cache[name].gradient[0].numpy()).all()
    assert "values and gradients are exact" in found["facts"]["facts"]["notes"][0]
    assert found["facts"]["settings"]["layer"] == "layer3.1.conv2"


def test_a_page_contains_heatmaps_of_all_methods_and_top_classes(page, explorer):
    codings = blocks(page)["heatmaps"]["header"]["arrays"]
    names = {coding["name"] for coding in codings}
    for place in range(len(explorer.cache)):
        assert {f"{method} {place}" for method in hookviz.attribution.HEATMAPS} <= names
        others = [each.number for each in explorer.frame.predictions[1:]]
        assert {f"gradcam {number} {place}" for number in others} <= names


def test_only_hashed_scripts_and_styles_may_run(page):
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', page)[1]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    for tag in ("script", "style"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_nothing_is_fetched(page):
    assert not re.findall(r"<[^>]*(?:src|href)=(?![\"']?data:)", page)
    addresses = re.findall(r"https?://[\w./]+", page)
    assert {address.split("/")[2] for address in addresses} <= {
        "www.w3.org"
    }  # XML namespaces, which are not fetched


def test_without_scripts_a_page_shows_a_picture_with_alternative_text(page, explorer):
    alt = re.search(r'<img class="hv-still" alt="(.*?)" src="data:image/png;base64,', page)[1]
    assert alt == explorer.frame.description


@pytest.mark.parametrize("most", [5e6, 3e6, 1.2e6])
def test_a_page_keeps_its_size_and_names_what_was_reduced(explorer, most):
    page = explorer.to_html(max_bytes=most)
    assert 0.3 * most < len(page.encode()) <= most
    found = blocks(page)
    (note,) = found["facts"]["facts"]["notes"]
    assert "gradient" in note and note.startswith("This page needs no kernel. To fit")
    shown = arrays(found[f"layer-{list(explorer.cache).index(explorer.layer)}"])
    if "shown first" in note:
        record = explorer.cache[explorer.layer]
        assert (shown["maps"] == record.activation[0].numpy()).all()
        assert (shown["gradients"] == record.gradient[0].numpy()).all()
    if "half precision" in note:
        wanted = explorer.cache["stem.0"].gradient[0].numpy()
        rounded = arrays(found[f"layer-{list(explorer.cache).index('stem.0')}"])["gradients"]
        assert np.allclose(rounded, wanted, rtol=1e-3, atol=1e-6 * np.abs(wanted).max())
    # The explanation is small and never left out.
    assert found["why"]["header"]["answers"][-1]["layer"] == "stem.0"


def test_a_page_in_the_notebook_takes_a_budget_and_a_title(explorer):
    page = explorer.page(layers="layer3.*", max_bytes=2e6, title="<i>two</i>").data
    assert page.startswith('<div><iframe sandbox="allow-scripts"')
    assert len(page) <= 2e6
    written = unescape(page[page.index('srcdoc="') :])
    assert "<title>&lt;i&gt;two&lt;/i&gt;</title>" in written
    assert len(page) < len(explorer.page(layers="layer3.*", max_bytes=6e6).data)


def test_a_page_can_be_limited_to_some_layers_and_written_to_a_path(explorer, tmp_path):
    path = tmp_path / "view.html"
    assert explorer.to_html(path, layers="layer2.*", title="two") is None
    page = path.read_text(encoding="utf-8")
    names = [each["name"] for each in blocks(page)["facts"]["facts"]["layers"]]
    assert names == [name for name in explorer.cache if name.startswith("layer2.")]
    assert blocks(page)["facts"]["settings"]["layer"] == names[0]
    assert "<title>two</title>" in page


def test_impossible_page_options_are_refused(explorer):
    with pytest.raises(ValueError, match="too little for any page"):
        explorer.to_html(max_bytes=1000)
    with pytest.raises(ValueError, match=r"of these 15 layers takes at least \S+ [kM]B; give more"):
        explorer.to_html(max_bytes=420_000)
    for size in (float("inf"), float("nan"), -1):
        with pytest.raises(ValueError, match=f"max_bytes={size} cannot be used: give a number"):
            explorer.to_html(max_bytes=size)
    with pytest.raises(ValueError, match="stem"):
        explorer.to_html(layers="stern.*")


@pytest.mark.parametrize("size", [float("inf"), float("nan"), 0])
def test_trace_and_survey_pages_refuse_invalid_sizes(size):
    model, picture = hookviz.demo_model(), hookviz.demo_images()[6]
    traced = hookviz.trace(model, picture)
    surveyed = hookviz.survey(model, [picture], layers="stem.*")
    for result in (traced, surveyed):
        with pytest.raises(ValueError, match="cannot be used: give a number of bytes"):
            result.to_html(max_bytes=size)


def test_a_precision_is_not_taken_for_network_true(explorer):
    with pytest.raises(TypeError, match="network= must be True or False, not 'int8'"):
        explorer.to_html(network="int8")


def test_a_page_of_two_input_pictures_has_both():
    def pair(m, a, b):
        maps = m.one(a), m.two(b)
        return m.head(torch.cat([each.mean((2, 3)) for each in maps], 1))

    explorer = hookviz.explore(
        model_of(pair, one=nn.Conv2d(3, 4, 3), two=nn.Conv2d(3, 4, 3), head=nn.Linear(8, 3)),
        (torch.rand(1, 3, 8, 8), torch.rand(1, 3, 9, 9)),
    )
    found = blocks(explorer.to_html())
    assert "inputs 1×3×8×8 and 1×3×9×9" in found["facts"]["facts"]["summary"]
    assert [found[f"layer-{place}"]["header"]["place"] for place in (0, 1)] == [
        [0, 0, 0],
        [0, 0, 1],
    ]
    sizes = [found[f"picture-0-{tensor}"]["header"]["size"] for tensor in (0, 1)]
    assert sizes == [[8, 8], [9, 9]]


class Generated(nn.Module):
    """Its convolution gets another tensor as kernels in each run."""

    def __init__(self):
        super().__init__()
        self.make, self.code = nn.Linear(2, 4 * 27), nn.Parameter(torch.rand(2))
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        del self.conv.weight

    def forward(self, x):
        self.conv.weight = self.make(self.code).view(4, 3, 3, 3)
        return self.conv(x).mean((2, 3))


def test_page_of_a_model_whose_first_kernels_are_generated():
    explorer = hookviz.explore(Generated(), torch.rand(1, 3, 8, 8), face="plain")
    assert blocks(explorer.to_html())["why"]["header"]["weights"] == []


def test_a_page_says_which_sample_and_slice_of_each_layer_it_has():
    model = nn.Sequential(nn.Conv3d(1, 2, 1), nn.Conv3d(2, 2, 2, stride=2))
    explorer = hookviz.explore(model, torch.rand(3, 1, 8, 4, 4), layer="0", sample=1, depth=7)
    found = blocks(explorer.to_html())
    assert [found[f"layer-{place}"]["header"]["notes"] for place in (0, 1)] == [
        ["In this page: sample 1 (of 0 to 2), depth 7 (of 0 to 7)."],
        ["In this page: sample 1 (of 0 to 2), depth 3 (of 0 to 3)."],
    ]
