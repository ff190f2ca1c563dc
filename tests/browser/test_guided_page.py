"""A guided page in a browser, from the first question to the graded table, and on a projector."""

from __future__ import annotations

import json
import re

import pytest
import torch
from demo import explore_demo
from face import open_drawer
from front_end import point, wait_for, wait_for_tiles
from playwright.sync_api import expect
from torch import nn

import hookviz
from hookviz.classroom import Step

STEPS = [
    Step(
        "Which channel is the largest?",
        {"channel": 0},
        {"channel": 5},
        hint="Walk with the arrow keys.",
        explanation="Its eye is bright.",
    ),
    Step("How many channels are there?", answer=96, explanation="As many as in the mosaic."),
    Step("Which picture is it?", answer="eye", choices=["fish", "eye"]),
    Step("Why?"),
]


@pytest.fixture(scope="module")
def written():
    explorer = explore_demo(3, layers="layer3.*", layer="layer3.0.conv1")
    page = explorer.to_html(layers="layer3.0.conv1", max_bytes=1.5e6, steps=STEPS, title="Eyes")
    explorer.close()
    return page


def test_answers_are_checked_and_collected_in_a_table(written, shown, tmp_path):
    page = shown(written)
    lesson = page.get_by_role("region", name="questions")
    verdict, check = lesson.get_by_role("status"), lesson.get_by_role("button", name="check")
    lesson.get_by_role("heading", name="1. Which channel is the largest?").wait_for()
    lesson.get_by_role("button", name="save answers").click()
    expect(verdict).to_have_text("Write your name first.")
    lesson.get_by_role("textbox", name="your name").fill("Ada Lovelace")
    expect(verdict).to_be_empty()
    check.click()
    expect(verdict).to_have_text("✗ not right, try againWalk with the arrow keys.")
    page.get_by_role("slider", name="channel", exact=True).focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    lesson.get_by_text("your answer: channel 5 (it changes with the view)").wait_for()
    expect(verdict).to_be_empty()  # the verdict was about channel 0
    check.click()
    expect(verdict).to_have_text("✓ rightIts eye is bright.")
    page.get_by_role("slider", name="channel", exact=True).focus()
    page.keyboard.press("ArrowRight")
    expect(verdict).to_have_text("Its eye is bright.")
    page.keyboard.press("ArrowLeft")
    expect(verdict).to_contain_text("✓ right")
    lesson.get_by_role("button", name="next").click()
    # As in a page that is opened directly.
    expect(page.locator(".hv-number-now").first).to_have_text("0")
    lesson.get_by_role("textbox", name="your answer").fill("ninety")
    page.keyboard.press("Enter")
    expect(verdict).to_have_text("Write a number, such as 0.25.")
    lesson.get_by_role("textbox", name="your answer").fill("95")
    expect(verdict).to_be_empty()
    page.keyboard.press("Enter")
    expect(verdict).to_have_text("✗ not right, try again")
    lesson.get_by_role("textbox", name="your answer").fill("96")
    expect(verdict).to_be_empty()
    page.keyboard.press("Enter")
    lesson.get_by_text("2 of 3 right").wait_for()
    expect(verdict).to_contain_text("As many as in the mosaic.")

    page.reload()  # the progress and the name are kept
    lesson.get_by_text("2 of 3 right").wait_for()
    lesson.get_by_role("heading", name="2. How many channels are there?").wait_for()
    expect(lesson.get_by_role("textbox", name="your name")).to_have_value("Ada Lovelace")
    lesson.get_by_role("button", name="question 3, not answered").click()
    check.click()
    expect(verdict).to_have_text("Choose or write an answer first.")
    lesson.get_by_role("combobox", name="your answer").select_option("fish")
    expect(verdict).to_be_empty()
    check.click()
    expect(verdict).to_contain_text("not right")
    lesson.get_by_role("button", name="next").click()
    expect(lesson.get_by_role("button", name="next")).to_be_focused()  # though it leads nowhere
    lesson.get_by_role("textbox", name="your answer").press_sequentially("because\nit is")
    lesson.get_by_role("button", name="answer", exact=True).click()
    with page.expect_download() as download:
        lesson.get_by_role("button", name="save answers").click()
    assert download.value.suggested_filename == "Ada-Lovelace.json"
    file = tmp_path / "Ada-Lovelace.json"
    download.value.save_as(file)
    table = hookviz.grade(file, STEPS)
    assert table.title == "Eyes" and table[0].name == "Ada Lovelace"
    assert [answer.mark for answer in table[0].answers] == ["✓", "✓", "✗", "–"]
    assert [answer.tries for answer in table[0].answers] == [2, 2, 1, 1]
    assert table[0].answers[3].given == "because\nit is"
    marks = [answer["right"] for answer in json.loads(file.read_text())["answers"]]
    assert marks == [True, True, False, None]

    again = lesson.get_by_role("button", name="start again")
    again.click()
    lesson.get_by_role("button", name="delete all answers?").click()
    lesson.get_by_text("0 of 3 right").wait_for()
    expect(lesson.get_by_role("textbox", name="your name")).to_have_value("")
    page.reload()
    lesson.get_by_text("0 of 3 right").wait_for()


def test_text_that_was_never_checked_is_kept_and_handed_in(written, shown, tmp_path):
    page = shown(written)
    lesson = page.get_by_role("region", name="questions")
    field, menu = (lesson.get_by_role(role, name="your answer") for role in ("textbox", "combobox"))
    turn = {name: lesson.get_by_role("button", name=name) for name in ("back", "next")}
    lesson.get_by_role("textbox", name="your name").fill("Ada")
    turn["next"].click()
    field.fill("96")
    turn["next"].click()
    menu.select_option("fish")
    turn["next"].click()
    field.fill("because it is")
    page.reload()
    expect(field).to_have_value("because it is")
    turn["back"].click()
    expect(menu).to_have_value("fish")
    turn["back"].click()
    expect(field).to_have_value("96")
    with page.expect_download() as download:
        lesson.get_by_role("button", name="save answers").click()
    # Nothing was checked, so no verdict is shown.
    expect(lesson.get_by_text("0 of 3 right")).to_be_visible()
    expect(lesson.get_by_role("button", name="question 2, not answered")).to_be_visible()
    download.value.save_as(tmp_path / "ada.json")
    assert [answer.mark for answer in hookviz.grade(tmp_path, STEPS)[0].answers] == [
        "",
        "✓",
        "✗",
        "–",
    ]
    lesson.get_by_role("button", name="start again").click()
    lesson.get_by_role("button", name="delete all answers?").click()
    turn["next"].click()
    expect(field).to_have_value("")


def test_a_view_in_the_address_wins_over_the_question(written, shown):
    page = shown(written)
    lesson, number = page.get_by_role("region", name="questions"), page.locator(".hv-number-now")
    lesson.get_by_role("button", name="next").click()
    page.get_by_role("slider", name="channel", exact=True).press("End")
    expect(number.first).to_have_text("95")
    expect(page).to_have_url(re.compile("channel=95"))
    page.reload()
    expect(number.first).to_have_text("95")
    lesson.get_by_role("heading", name="2. How many channels are there?").wait_for()
    lesson.get_by_role("button", name="back").click()
    expect(number.first).to_have_text("0")


def test_undo_stays_within_a_question(written, shown):
    page = shown(written)
    lesson = page.get_by_role("region", name="questions")
    number, undo = page.locator(".hv-number-now").first, page.get_by_role("button", name="↶")
    wait_for_tiles(page)
    expect(number).to_have_text("0")
    expect(undo).to_be_disabled()
    page.get_by_role("slider", name="channel", exact=True).press("ArrowRight")
    expect(number).to_have_text("1")
    expect(undo).to_be_enabled()
    lesson.get_by_role("button", name="next").click()
    expect(number).to_have_text("0")
    expect(undo).to_be_disabled()
    page.keyboard.press("Control+z")
    page.get_by_role("slider", name="channel", exact=True).press("End")
    page.keyboard.press("Control+z")
    expect(number).to_have_text("0")
    expect(undo).to_be_disabled()


def test_a_page_that_runs_its_network_asks_for_edits(shown, tmp_path):
    pytest.importorskip("onnxscript", reason="the oldest versions have no such export")
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    names, x = list("uvwxyz"), torch.rand(1, 3, 12, 12)
    top = names[int(model(x).argmax())]
    explorer = hookviz.explore(model, x, class_names=names)
    steps = [
        Step("Switch off the channel.", {"channel": 3}, {"off": ("0", 5)}),
        Step(
            "What does the network see?", answer={"prediction": top}, explanation="Edits are gone."
        ),
        Step("Which number has it?", answer={"prediction": names.index(top)}),
    ]
    page = shown(explorer.to_html(network=True, steps=steps, title="Edits"))
    lesson = page.get_by_role("region", name="questions")
    check, verdict = lesson.get_by_role("button", name="check"), lesson.get_by_role("status")
    lesson.get_by_text("your answer: no channel off").wait_for()
    open_drawer(page, "Edit")
    off = page.get_by_role("button", name="off", exact=True)
    off.click()
    lesson.get_by_text("your answer: channel 3 of layer 0 off").wait_for()
    check.click()
    expect(verdict).to_contain_text("not right")
    expect(off).to_have_attribute("aria-pressed", "true")
    off.click()  # switch the channel on again
    expect(off).to_have_attribute("aria-pressed", "false")
    page.get_by_role("slider", name="channel", exact=True).focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".hv-number-now").first).to_have_text("5")
    off.click()
    lesson.get_by_text("your answer: channel 5 of layer 0 off").wait_for()
    check.click()
    expect(verdict).to_contain_text("✓ right")
    lesson.get_by_role("button", name="next").click()
    lesson.get_by_text(f"your answer: prediction {top}").wait_for()
    expect(page.get_by_role("button", name="↶")).to_be_disabled()  # edits belong to their question
    check.click()
    expect(verdict).to_have_text("✓ rightEdits are gone.")
    lesson.get_by_role("button", name="next").click()
    lesson.get_by_text(f"your answer: prediction {top}").wait_for()
    check.click()
    expect(verdict).to_contain_text("✓ right")
    lesson.get_by_role("textbox", name="your name").fill("Ada")
    with page.expect_download() as download:
        lesson.get_by_role("button", name="save answers").click()
    download.value.save_as(tmp_path / "ada.json")
    table = hookviz.grade(tmp_path, steps)
    assert [answer.mark for answer in table[0].answers] == ["✓", "✓", "✓"]
    assert table[0].answers[0].given == {"off": ["0", 5]}


def test_each_step_opens_its_view_and_a_click_answers_a_position_question(shown):
    explorer = explore_demo(3, layer="layer3.0.conv1", channel=3)
    explorer.position, explorer.heatmap = (2, 9), "layercam"
    view = explorer.settings()
    explorer.position, explorer.channel = None, 17
    steps = [Step("Go on.", view), Step("Where?", explorer.settings(), {"position": (4, 12)})]
    page = shown(explorer.to_html(layers="layer3.0.conv1", max_bytes=1.5e6, steps=steps))
    lesson, number = page.get_by_role("region", name="questions"), page.locator(".hv-number-now")
    expect(number.first).to_have_text("3")
    expect(page.locator(".hv-here")).to_contain_text("row 2, column 9")
    expect(page.get_by_label("heatmap", exact=True)).to_have_value("layercam")
    lesson.get_by_role("button", name="next").click()
    expect(number.first).to_have_text("17")
    lesson.get_by_text("your answer: no position yet").wait_for()
    check, verdict = lesson.get_by_role("button", name="check"), lesson.get_by_role("status")
    check.click()
    expect(verdict).to_contain_text("not right")
    point(page.locator(".hv-activation .hv-frame"), 4.5 / 14, 12.5 / 14, click=True)
    lesson.get_by_text("your answer: row 4, column 12").wait_for()
    check.click()
    expect(verdict).to_contain_text("✓ right")


def test_present_enlarges_the_view_also_where_full_screen_is_refused(written, shown):
    page = shown(written)
    button = page.get_by_role("button", name="present")
    wait_for_tiles(page)
    predictions, picture = page.locator(".hv-answers"), page.locator(".hv-activation .hv-frame")
    size = picture.bounding_box()["width"]
    label = page.locator(".hv-activation .hv-label")
    before = label.bounding_box()["height"]
    button.click()
    page.wait_for_function("document.fullscreenElement !== null")
    expect(predictions).to_be_hidden()
    expect(page.get_by_role("region", name="questions")).to_be_visible()
    wait_for(lambda: picture.bounding_box()["width"] > 1.1 * size, "larger pictures")
    wait_for(lambda: label.bounding_box()["height"] > 1.25 * before, "larger words")
    button.click()
    page.wait_for_function("document.fullscreenElement === null")
    expect(predictions).to_be_visible()
    expect(button).to_have_attribute("aria-pressed", "false")

    page.evaluate("() => { Element.prototype.requestFullscreen = () => Promise.reject(); }")
    button.click()
    expect(predictions).to_be_hidden()
    page.keyboard.press("Escape")
    expect(predictions).to_be_visible()
    expect(button).to_have_attribute("aria-pressed", "false")
