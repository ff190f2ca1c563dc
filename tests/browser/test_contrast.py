"""All words on a page have a contrast of at least 4.5 to 1, as WCAG's level AA requires."""

from __future__ import annotations

import pytest
from demo import explore_demo
from face import open_drawer
from front_end import next_frame
from test_training_page import trained

import hookviz

# The contrast of every visible word with its background. Over a transparent background, the lower
# contrast of a black and a white picture counts. Disabled controls may be faint.
FAINT = """() => {
  const channels = text => {
    const numbers = text.match(/[\\d.]+/g).map(Number);
    const whole = text.startsWith("color(") ? 255 : 1;
    const [alpha = 1] = numbers.slice(3);
    return [...numbers.slice(0, 3).map(n => whole * n), alpha];
  };
  const over = (top, below) => below.map((each, i) => top[i] * top[3] + each * (1 - top[3]));
  const light = rgb => {
    const linear = n => n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4;
    const [red, green, blue] = rgb.map(n => linear(n / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const found = [];
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let count = 0;
  while (words.nextNode()) {
    const element = words.currentNode.parentElement;
    const text = words.currentNode.textContent.trim();
    const unused = ":disabled:not(.hv-chip), [aria-disabled]"; // the verdict may lead nowhere
    if (!text || element.closest(`script, style, noscript, ${unused}`)) continue;
    if (!element.checkVisibility({visibilityProperty: true, opacityProperty: true})) continue;
    count += 1;
    const layers = [];
    let whole = 1; // opacity
    for (let each = element; each; each = each.parentElement)
      whole *= getComputedStyle(each).opacity;
    for (let each = element; each; each = each.parentElement) {
      const colour = channels(getComputedStyle(each).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    const onPicture = Boolean(element.closest(".hv-tile"));
    const bases = onPicture ? [[0, 0, 0], [255, 255, 255]] : [[255, 255, 255]];
    const own = channels(getComputedStyle(element).color);
    own[3] *= whole;
    const least = Math.min(...bases.map(base => {
      const shown = onPicture ? layers.filter(each => each[3] < 1) : layers;
      const back = shown.reduceRight((below, top) => over(top, below), base);
      return ratio(over(own, back), back);
    }));
    if (least < 4.5) found.push(`${least.toFixed(2)}: ${text.slice(0, 40)} (${element.className})`);
  }
  return [count, found];
}"""


# An element that each page draws once it has unpacked its data.
LAST = {
    "explorer": ".hv-thumb",
    "map": ".hv-thumb",
    "trace": ".hv-frame",
    "survey": ".hv-card img",
    "training": ".hv-steps-numbers",
}


@pytest.fixture(scope="module")
def pages(trace):
    explorer = explore_demo(12, layers="layer3.*")
    explorer.all_layers = True
    survey = hookviz.survey(hookviz.demo_model(), hookviz.demo_images()[:6], "layer3.1.conv2")
    made = {
        "explorer": explorer.to_html(max_bytes=3e6),
        "trace": trace.to_html(max_bytes=1e6),
        "survey": survey.to_html(),
        # White crosses with black edges lie on the pictures where training breaks.
        "training": trained(broken=None).to_html(),
    }
    made["map"] = made["explorer"]
    explorer.close()
    return made


@pytest.mark.parametrize("name", ["explorer", "map", "trace", "survey", "training"])
def test_all_words_have_enough_contrast(name, pages, shown):
    page = shown(pages[name], color_scheme="light")
    page.locator(LAST[name]).first.wait_for()
    if name == "map":
        open_drawer(page, "Map")
        page.locator(".hv-net-box.hv-on").wait_for()
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        next_frame(page)
        count, faint = page.evaluate(FAINT)
        assert count > 5
        assert faint == [], theme
