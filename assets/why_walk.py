"""Walk from "tiger cat" back to a pixel of an ear, as the explorer's panel "why?" does.

    python assets/why_walk.py

prints the walk, and then goes it by clicks on a page: its last step is the picture `why.png`.
`docs/howto/why.md` shows both. EfficientNet-Lite0 sees the shipped photograph whole, in its own
size. Each step goes on at the largest term, from the largest part of its input. It needs what the
browser tests need (``make test`` sets it up).
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torchvision import transforms

import hookviz
from hookviz.view.messages import WhyAnswer, WhyOrigin, WhyQuestion, WhyTerm
from hookviz.view.reason import why_answer

ROOT = Path(__file__).resolve().parent.parent
TARGET = "tiger cat"
WIDE = 1100
Step = tuple[WhyAnswer, WhyTerm, WhyOrigin]


def explored(**options: Any) -> Any:
    """Explore the photograph of a cat, uncropped."""
    model, weights = hookviz.pretrained("efficientnet_lite0")
    known: Any = model.pretrained_cfg
    mean, deviation = known["mean"], known["std"]
    whole = transforms.Compose(
        [transforms.ToTensor(), transforms.Normalize(list(mean), list(deviation))]
    )
    return hookviz.explore(
        model,
        hookviz.models.photographs()["chelsea"],
        transform=whole,
        class_names=weights.meta["categories"],
        target=TARGET,
        **options,
    )


def walk(explorer: Any) -> list[Step]:
    """Return the steps: the panel's answer, the term that is followed, and where it comes from."""
    steps: list[Step] = []
    view = explorer.displayed()
    question = WhyQuestion(key="", output=view.session.class_names.index(TARGET), sample=0)
    while not steps or steps[-1][2].layer != "input":
        answer, _ = why_answer(view, question)
        term = next(term for term in answer.terms if term.origins)
        origin = term.origins[0]
        steps.append((answer, term, origin))
        question = WhyQuestion(
            key="",
            layer=origin.layer,
            call=origin.call,
            channel=origin.channel,
            position=origin.position,
            sample=0,
        )
    return steps


def table(steps: Sequence[Step]) -> str:
    """Return the walk, a line a step."""
    lines = [f"{'layer':<26}{'channel':>7}  {'position':<10}{'value':>8}  term that is followed"]
    for answer, term, _ in steps:
        where = f"({', '.join(map(str, answer.position))})"
        passed = f", {answer.constants} constant passed" if answer.constants else ""
        lines.append(
            f"{answer.layer:<26}{answer.channel:>7}  {where:<10}{float(answer.value):>8.3g}  "
            f"channel {term.channel}: {float(term.contribution):.3g}{passed}"
        )
    end = steps[-1][2]
    lines.append(f"{'input':<26}{end.channel:>7}  ({', '.join(map(str, end.position))})")
    return "\n".join(lines)


def named(place: WhyAnswer | WhyOrigin) -> str:
    """Return a number of the network as the panel's buttons name it."""
    where = f" ({', '.join(map(str, place.position))})" if place.position else ""
    return f"{place.layer} · {place.channel}{where}"


def go(
    app: Any, steps: Sequence[Step], seen: Callable[[WhyAnswer], None] = lambda answer: None
) -> None:
    """Walk by clicks, on a page or in a notebook; ``seen`` is called at each step."""
    why = app.locator(".hv-why")
    app.locator(".hv-tab", has_text="Why this value?").click()
    why.get_by_role("button", name=f"start at {TARGET}").click()
    for answer, _, origin in steps:
        why.locator('.hv-why-trail [aria-current="true"]', has_text=named(answer)).wait_for()
        way = re.compile(rf"← {re.escape(named(origin))}$")
        why.locator(".hv-why-from > *").filter(has_text=way).first.wait_for()
        seen(answer)
        if origin.layer != "input":
            why.locator(".hv-why-from button").filter(has_text=way).first.click()


def clips(page: Any) -> list[Any]:
    """Return the places on the page of the input and the map beside it, and of the panel."""
    found = []
    for first, last in ((".hv-input", ".hv-activation"), (".hv-why", ".hv-why")):
        start, end = (page.locator(each).bounding_box() for each in (first, last))
        wide = end["x"] + end["width"] + 4
        top, high = start["y"] + page.evaluate("scrollY") - 4, start["height"] + 8
        found.append({"x": 0, "y": top, "width": wide, "height": high})
    return found


def draw(explorer: Any, steps: Sequence[Step], path: Path) -> None:
    """Take a picture of the last step on a page."""
    sys.path[:0] = [str(ROOT / "tests" / "browser")]
    from chromium import FLAGS, executable
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        explorer.to_html(Path(made) / "cat.html", max_bytes=400e6)
        browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
        page = browser.new_page(viewport={"width": WIDE, "height": 1400})
        page.goto((Path(made) / "cat.html").as_uri())
        go(page, steps)
        page.wait_for_timeout(1500)
        parts = [
            Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip))).convert("RGB")
            for clip in clips(page)
        ]
        picture = Image.new("RGB", (WIDE, sum(each.height for each in parts)), "white")
        for number, each in enumerate(parts):
            picture.paste(each, (0, sum(one.height for one in parts[:number])))
        picture.quantize(256).save(path, optimize=True)
        browser.close()


def main() -> None:
    explorer = explored(face="plain")
    steps = walk(explorer)
    print(table(steps))
    draw(explorer, steps, ROOT / "assets" / "why.png")
    explorer.close()


if __name__ == "__main__":
    main()
