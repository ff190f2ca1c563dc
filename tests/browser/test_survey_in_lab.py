"""The top inputs of a channel in a real notebook, beside the explorer and alone."""

from __future__ import annotations

import pytest
from front_end import wait_for, wait_for_names
from playwright.sync_api import expect

from hookviz.draw.mosaic import data_url

MAKE = """import hookviz
model, pictures = hookviz.demo_model(), hookviz.demo_images()
labelled = [(each, model.class_names.index(each.info["label"])) for each in pictures]
survey = hookviz.survey(model, labelled, "layer3.*.conv2")"""


def patches(survey, layer, channel, whole=False):
    return [data_url(piece.drawn(whole)) for piece in survey.patches(layer, channel)]


def agree(pictures, wanted):
    """Return whether the page shows these pictures."""
    return pictures.evaluate_all("all => all.map((each) => each.getAttribute('src'))") == wanted


SHOW = """explorer = hookviz.explore(model, pictures[6], layer="layer3.1.conv2", channel=15)
explorer.survey = survey
explorer"""


@pytest.fixture(scope="module")
def survey():
    names = {}
    exec(MAKE, names)
    return names["survey"]


@pytest.mark.heavy
def test_a_survey_is_shown_beside_the_core_widgets_and_alone(open_notebook, survey):
    notebook = open_notebook([MAKE, SHOW, "survey.show(channel=15)"])
    page = notebook.page
    explorer = page.locator(".hookviz-explorer").first
    wait_for_names(explorer)
    row = explorer.locator(".pieces img")
    wait_for(lambda: agree(row, patches(survey, "layer3.1.conv2", 15)), "its patches")
    explorer.get_by_role("slider", name="channel").focus()
    page.keyboard.press("ArrowRight")
    wait_for(lambda: agree(row, patches(survey, "layer3.1.conv2", 16)), "the next one's")
    explorer.get_by_role("button", name="whole pictures").focus()
    page.keyboard.press("Space")
    wait_for(lambda: agree(row, patches(survey, "layer3.1.conv2", 16, True)), "the whole")
    explorer.get_by_role("slider", name="layer").focus()
    page.keyboard.press("ArrowLeft")
    sentence = explorer.get_by_text("This survey has no layer 'layer3.1.conv1'; close to it")
    sentence.wait_for()
    expect(row).to_have_count(0)

    alone = page.frame_locator(".hookviz-explorer iframe")
    cards = alone.get_by_role("region")
    cards.first.wait_for()
    expect(cards.first).to_have_attribute("aria-label", "channel 15")
    alone.get_by_label("order of the channels").select_option("purity")
    first = survey["layer3.1.conv2"].order("purity")[0]
    wait_for(lambda: cards.first.get_attribute("aria-label") == f"channel {first}", "the purest")


def test_the_page_of_a_survey_is_searched_and_sorted(browser, survey, tmp_path):
    survey.to_html(tmp_path / "survey.html")
    page = browser.browser.new_page(viewport={"width": 1280, "height": 900})
    noted = []
    page.context.set_offline(True)
    page.on("console", lambda said: noted.append(said.text))
    page.on("pageerror", lambda error: noted.append(str(error)))
    page.goto((tmp_path / "survey.html").as_uri())
    cards, count = page.get_by_role("region"), page.get_by_role("status")
    cards.first.wait_for()
    expect(count).to_have_text("96 channels")
    layer = survey["layer3.1.conv2"]
    page.get_by_label("order of the channels").select_option("purity")
    first = layer.order("purity")[0]
    expect(cards.first).to_have_attribute("aria-label", f"channel {first}")
    assert page.locator(".hv-card img").first.evaluate("each => each.decode().then(() => true)")
    page.get_by_label("layer", exact=True).select_option("all")
    page.get_by_label("find channels").fill("eye conv2 17")
    expect(count).to_contain_text(f" of {sum(map(len, survey.values()))} channels")
    for each in cards.all():
        assert each.get_attribute("aria-label").endswith("channel 17")
        assert "eye" in each.inner_text()
    page.get_by_label("find channels").fill("")
    page.get_by_role("button", name="more").scroll_into_view_if_needed()
    wait_for(lambda: cards.count() > 48, "more channels")
    page.close()
    assert noted == []
