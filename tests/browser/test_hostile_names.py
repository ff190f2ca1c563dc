"""No script in a name runs on any page."""

from __future__ import annotations

import pytest
from hostile import NAME, RESULTS

WITHOUT_PAGE = ("capture", "record", "survey of a layer")


@pytest.mark.parametrize("name", [name for name in RESULTS if name not in WITHOUT_PAGE])
def test_no_script_of_a_name_runs(shown, name):
    page = shown(RESULTS[name]().to_html(title=NAME))
    assert "hacked=1" in page.locator("body").inner_text() + page.title()
    assert page.evaluate("globalThis.hacked") is None
