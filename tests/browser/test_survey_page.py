"""The page of a survey in a browser."""

from __future__ import annotations

import re

import pytest
from front_end import wait_for
from playwright.sync_api import expect

import hookviz


@pytest.fixture(scope="module")
def survey():
    model, pictures = hookviz.demo_model(), hookviz.demo_images()
    labelled = [(each, model.class_names.index(each.info["label"])) for each in pictures]
    return hookviz.survey(model, labelled, "layer3.*.conv2")


def test_the_page_of_a_survey_is_searched_and_sorted(shown, survey):
    page = shown(survey.to_html())
    cards, count = page.get_by_role("region"), page.get_by_role("status")
    cards.first.wait_for()
    expect(count).to_have_text("96 channels")
    layer = survey["layer3.1.conv2"]
    page.get_by_label("order of the channels").select_option("purity")
    first = layer.order("purity")[0]
    expect(cards.first).to_have_attribute("aria-label", f"channel {first}")
    assert page.locator(".hv-card img").first.evaluate("each => each.decode().then(() => true)")
    find = page.get_by_label("find channels")
    find.fill("channel 17")
    expect(count).to_have_text("1 of 96 channels")
    find.fill("channel")
    expect(count).to_have_text("96 channels")
    name, counts = cards.first.get_attribute("aria-label"), cards.first.locator(".hv-dim").first
    label, number = counts.inner_text().split(",")[0].split()  # such as "ring 3"
    find.fill(f"{label} {number}")
    expect(count).to_have_text(re.compile(r"^\d+ of 96 channels"))
    found = {each.get_attribute("aria-label"): each.inner_text() for each in cards.all()}
    assert name in found
    found.pop(f"channel {number}", None)  # a number alone is that of the channel
    assert all(f"{label} {number}" in text for text in found.values())
    page.get_by_label("layer", exact=True).select_option("all")
    page.get_by_label("find channels").fill("eye conv2 17")
    expect(count).to_contain_text(f" of {sum(map(len, survey.values()))} channels")
    for each in cards.all():
        assert each.get_attribute("aria-label").endswith("channel 17")
        assert "eye" in each.inner_text()
    page.get_by_label("find channels").fill("")
    page.get_by_role("button", name="more").scroll_into_view_if_needed()
    wait_for(lambda: cards.count() > 48, "more channels")
