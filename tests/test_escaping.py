"""Names are shown as text: nothing in them becomes HTML, a formula or a command."""

import ast
import builtins
import inspect
import json
import os
import pickle
from pathlib import Path
from xml.etree import ElementTree

import ipywidgets as widgets
import pytest
import torch
import torchvision
from browsing import Browser
from hostile import CLASSES, CONTROL, LAYER, MARKUP, NAME, RESULTS, Harmless, X, hostile_model
from seen import NOTE, control, html, labels, parts

import hookviz
from hookviz import models
from hookviz.draw.html import note

ROOT = Path(hookviz.__file__).parent


def every_widget(widget):
    children = getattr(widget, "children", ())
    return [widget, *(each for child in children for each in every_widget(child))]


def named_target(output):
    return output[:, 0].sum()


named_target.__name__ = NAME


@pytest.fixture
def explorer(tmp_path):
    path = tmp_path / f"{MARKUP.replace('/', '')[:60]}.png"
    hookviz.demo_images()[0].save(path)
    names = [f"{NAME} {number}" for number in range(3)]
    return hookviz.explore(hostile_model(), path, class_names=names, all_layers=True)


def text_of(explorer):
    """Return all text of an explorer; fail if a name has become more than text."""
    pages = [Harmless(part.value) for part in parts(explorer) if isinstance(part, widgets.HTML)]
    assert len(pages) > 4
    return "\n".join(page.text for page in pages)


def test_names_in_the_explorer_are_text(explorer):
    assert MARKUP in text_of(explorer)  # model, layer, top class
    assert MARKUP[:20] in explorer.frame.input.alt  # the file
    for heatmap in ("activation × gradient", "layercam"):
        explorer.heatmap, explorer.over_input = heatmap, not explorer.over_input
        assert MARKUP in text_of(explorer)
    for explorer.target in (1, (0, 2), named_target, [f"{NAME} 2"]):
        assert MARKUP in text_of(explorer)


def test_options_of_menus_are_text(explorer):
    """Options and labels are drawn as text by ipywidgets unless HTML is enabled."""
    menus = labels(explorer)
    assert any(MARKUP in label for label in menus["target"].options)
    for menu in menus.values():
        assert not getattr(menu, "description_allow_html", False)
        assert not isinstance(menu, widgets.HTML)


def test_errors_and_heatmaps_in_the_explorer_are_text(explorer, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError(MARKUP)

    monkeypatch.setattr(explorer.cache[explorer.layer].module, "forward", fail)
    field = control(explorer, "target")
    field.value = field.options[2]
    assert MARKUP in Harmless(html(explorer, NOTE).value).text
    text_of(explorer)
    monkeypatch.setitem(hookviz.attribution.HEATMAPS, NAME, lambda activation: activation.mean(1))
    explorer.heatmap = NAME
    assert text_of(explorer).count(MARKUP) > 3


def test_the_notebook_output_of_an_explorer_has_no_html(explorer):
    data, metadata = explorer._repr_mimebundle_()
    assert not any("html" in kind or "svg" in kind for kind in data)
    assert MARKUP in data["text/plain"]
    assert MARKUP in metadata["image/png"]["alt"]


@pytest.mark.parametrize("name", RESULTS)
def test_results_show_names_as_text(name, tmp_path):
    """Texts, tables, pages and figures with a name that is markup, a formula and a command."""
    result = RESULTS[name]()
    assert repr(result).encode() and not CONTROL.search(repr(result))  # no terminal command either
    if hasattr(result, "_repr_html_"):
        assert Harmless(result._repr_html_()).text.encode()
    if hasattr(result, "records"):
        json.dumps(result.records(), allow_nan=False)
    if hasattr(result, "figure"):
        assert result.figure()._repr_png_()
    if hasattr(result, "to_html"):
        result.to_html(tmp_path / "page.html", title=NAME)
        page = (tmp_path / "page.html").read_text("utf-8")
        assert "hacked" in Harmless(page).text


@pytest.mark.parametrize("face", ["plain", "canvas"])
def test_half_characters_are_replaced_in_messages_to_the_browser(face):
    """They are replaced in every message, and a layer is found by its replaced name."""
    explorer = hookviz.explore(hostile_model(), X, face=face, class_names=CLASSES)
    explorer.all_layers = face == "plain"
    sent = [widget.get_state() for widget in every_widget(explorer)]
    sent.append(explorer._repr_mimebundle_())
    assert json.dumps(sent, ensure_ascii=False, default=str).encode()
    if face == "canvas":
        browser = Browser(explorer)
        name = browser.canvas.settings["layer"]
        answer, arrays = browser.ask("layer", layer=name)
        assert "none" not in answer and arrays["maps"].shape == (4, 14, 14), answer
        assert name != explorer.layer == LAYER
        browser.move(channel=2, layer=name)
        assert (explorer.layer, explorer.channel) == (LAYER, 2)


def test_saved_svg_figures_have_no_scripts(explorer, tmp_path):
    explorer.save(tmp_path / "view.svg")
    tree = ElementTree.parse(tmp_path / "view.svg")
    tags = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert not tags & {"script", "foreignObject", "a", "animate", "set"}
    for element in tree.iter():
        assert not any(name.lower().startswith("on") for name in element.attrib)


# Files with weights are data, not programs


TRICKED = "hookviz_was_tricked"


class Malicious:
    def __reduce__(self):
        return exec, (f"import builtins; builtins.{TRICKED} = True",)


@pytest.fixture
def not_tricked():
    yield
    assert not vars(builtins).pop(TRICKED, False)


def malicious_file(path, *, raw):
    """Write a weights file that runs a program if it is loaded carelessly."""
    content = {"stem.0.weight": Malicious()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content)) if raw else torch.save(content, path)
    return path


def test_the_malicious_file_runs_its_program_if_loaded_carelessly(tmp_path):
    torch.load(malicious_file(tmp_path / "weights.pt", raw=False), weights_only=False)
    assert vars(builtins).pop(TRICKED)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("raw", [False, True])
def test_a_pickle_in_place_of_the_weights_does_nothing(raw, tmp_path, monkeypatch, not_tricked):
    malicious_file(tmp_path / "weights.pt", raw=raw)
    monkeypatch.setattr(models, "_assets", lambda: tmp_path)
    monkeypatch.setattr(
        models, "_demo_weights", inspect.unwrap(models._demo_weights)
    )  # without the cache of conftest.py
    with pytest.raises(pickle.UnpicklingError):
        hookviz.demo_model()


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("raw", [False, True])
def test_a_pickle_among_downloaded_weights_does_nothing(raw, tmp_path, monkeypatch, not_tricked):
    """Torch checks the hash of a file only when downloading it, not of a cached file."""
    address = torchvision.models.ResNet18_Weights.DEFAULT.url
    path = tmp_path / "hub" / "checkpoints" / address.rpartition("/")[2]
    malicious_file(path, raw=raw)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    before = dict(os.environ)
    with pytest.raises(RuntimeError, match="hold more than weights") as raised:
        hookviz.pretrained("resnet18")
    assert "\n" not in str(raised.value)
    assert dict(os.environ) == before


def loading_calls(tree):
    """Return the calls that read weights from a file or an address."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    risky = ("torch.load", "load_state_dict_from_url", "pickle.load", "pickle.loads")
    last = tuple(each.rpartition(".")[2] for each in risky)
    named = [c for c in calls if getattr(c.func, "attr", getattr(c.func, "id", "")) in last]
    return [call for call in named if ast.unparse(call.func).endswith(risky)]


def test_weights_are_loaded_as_data():
    places = [*ROOT.rglob("*.py"), *(ROOT.parent / "assets").rglob("*.py")]
    texts = {path: text for path in places if "load" in (text := path.read_text())}
    found = [
        (path, call) for path, text in texts.items() for call in loading_calls(ast.parse(text))
    ]
    assert found
    for path, call in found:
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert given.get("weights_only") == "True", f"{path.name}:{call.lineno}"


def test_names_of_pictures_in_errors_are_text(tmp_path):
    path = tmp_path / f"{MARKUP.replace('/', '')[:60]}.png"
    path.write_text("no picture")
    with pytest.raises(ValueError) as raised:
        hookviz.explore(hookviz.demo_model(), path)
    assert "cannot be read as a picture" in Harmless(note(str(raised.value))).text
