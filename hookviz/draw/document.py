"""A page that holds all that it needs: a program, a style sheet, data, under a strict policy."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterable
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

from ..files import page_to
from ..hooking.tables import megabytes

STATIC = Path(__file__).resolve().parent.parent / "static"
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w-]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(async )?(function|class|const|let)\b)", re.MULTILINE)


@lru_cache
def script(entry: str) -> str:
    """An entry and all modules that it imports, each after those that it needs.

    A bundler would be a build step, and node a requirement, for what two expressions do: the
    modules use one form of ``import`` and one of ``export``. In one script no two modules may have
    the same name, which a test holds. What the entry exports by ``export default`` stays.

    Parameters
    ----------
    entry : str
        ``"widget"``, ``"page"`` or ``"survey"``.

    Examples
    --------
    >>> "import {" in script("page")
    False
    """
    found: dict[str, str] = {}
    _collect(entry, found)
    return "\n".join(found.values())


def _collect(name: str, found: dict[str, str]) -> None:
    source = (STATIC / f"{name}.js").read_text(encoding="utf-8")
    for other in _IMPORT.findall(source):
        if other not in found:
            _collect(other, found)
    found[name] = _EXPORT.sub("", _IMPORT.sub("", source))


@lru_cache
def style(*names: str) -> str:
    """The style sheet, or those of these names as one."""
    paths = [STATIC / f"{name}.css" for name in names or ("style",)]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


IN_NOTEBOOK = 3e6
"""Bytes of a page in a notebook's output, where nothing else is said: notebooks stay small."""

# The page says how high it is; it has no other way to its surroundings.
_SIZED = (
    "const frame = this; addEventListener('message', (event) => { "
    "if (event.source === frame.contentWindow && event.data.hookvizHeight) "
    "frame.style.height = event.data.hookvizHeight + 'px'; });"
)


def json_text(value: Any) -> str:
    """As the text of a script, which nothing in it can end."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def document(
    title: str,
    program: str,
    sheet: str,
    blocks: dict[str, str],
    alt: str,
    still: str,
    language: str = "en",
) -> str:
    """The page as HTML; nothing runs but the program, and nothing is fetched.

    Parameters
    ----------
    program : str
        JavaScript, see `script`.
    sheet : str
        CSS.
    blocks : dict of str to str
        Data for the program, by its element's name, as `json_text` makes it.
    alt : str
        What the page shows, in words.
    still : str
        A data URL: what it shows where no program runs.
    language : str
        Of its words, such as ``"de"``.
    """
    program = f'(() => {{\n"use strict";\n{program}}})();'
    policy = (
        f"default-src 'none'; script-src '{_hash(program)}'; style-src '{_hash(sheet)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    data = "\n".join(
        f'<script type="application/json" id="{name}">{text}</script>'
        for name, text in blocks.items()
    )
    body = f"""<div class="hookviz-app" id="hookviz">
<p>{escape(alt)}</p>
<img class="hv-still" alt="{escape(alt)}" src="{still}">
</div>
{data}
<script>{program}</script>"""
    return _page(title, policy, sheet, f'<body class="hookviz-page">\n{body}\n</body>', language)


def _page(title: str, policy: str, sheet: str, body: str, language: str = "en") -> str:
    return f"""<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{sheet}</style>
</head>
{body}
</html>
"""


_PLAIN = (
    "body { font: 14px system-ui, sans-serif; margin: 2em; } table { border-collapse: collapse; } "
    "caption { text-align: left; padding: 0.5em 0; } th, td { padding: 2px 10px; text-align: left; "
    "vertical-align: top; border-bottom: 1px solid #8884; } img { max-width: 100%; }"
)


def plain_page(title: str, body: str, png: bytes | None = None) -> str:
    """Return a page of tables and one picture, which nothing runs in and which fetches nothing.

    >>> "<script" in plain_page("Two layers", "<table></table>")
    False
    """
    picture = ""
    if png is not None:
        source = base64.b64encode(png).decode()
        picture = f'<p><img alt="{escape(title)}" src="data:image/png;base64,{source}"></p>'
    return plain_document(title, _PLAIN, picture + body)


def plain_document(title: str, sheet: str, body: str) -> str:
    """Return a page without a program, which fetches nothing; ``body`` is HTML."""
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return _page(title, policy, sheet, f"<body>{body}</body>")


class TablePage:
    """A result whose page is its table, below its figure if it has one."""

    def _repr_html_(self) -> str:
        raise NotImplementedError

    def _heading(self) -> str:
        raise NotImplementedError

    def _png(self) -> bytes | None:
        return None

    def to_html(
        self, path: str | os.PathLike | None = None, *, title: str | None = None
    ) -> str | None:
        """Write the table, and the figure, as one file that needs no kernel and no network.

        Parameters
        ----------
        path : str or path-like, optional
            Where to write; left out, the page is returned.
        title : str, optional
            Of the page.
        """
        page = plain_page(title or self._heading(), self._repr_html_(), self._png())
        return page_to(path, page)


def fitting(pages: Iterable[str], max_bytes: float, why: str) -> str:
    """Return the first page that fits, of pages that are made one after another, ever smaller.

    Raises
    ------
    ValueError
        None fits; ``why`` ends the sentence, and may have ``{takes}``, the last one's size.
    """
    takes = 0
    for page in pages:
        takes = len(page.encode())
        if takes <= max_bytes:
            return page
    raise ValueError(
        f"max_bytes={max_bytes:g} is too little" + why.format(takes=megabytes(takes)) + "."
    )


def in_frame(page: str, label: str) -> str:
    """A page as a part of another, which its program cannot reach."""
    return (
        f'<div><iframe sandbox="allow-scripts" title="{escape(label)}" srcdoc="{escape(page)}" '
        f'style="width: 100%; height: 860px; border: 0" onload="{_SIZED}"></iframe></div>'
    )


def in_place_of_error(name: str, png: str, alt: str) -> str:
    """A picture that is seen only where JupyterLab says that the next output's widget is lost.

    Of an output it takes the widget and not the picture beside it, and of a widget that was saved
    without its kernel it shows an error. All is a style, so that what shows no styles of others,
    such as GitHub, shows nothing of this.

    Parameters
    ----------
    name : str
        Of the element: no other in the page may have it.
    png : str
        The file in base64.
    alt : str
        What it shows, in words.
    """
    output = f".jp-OutputArea-child:has(> * > #{name})"
    lost = f"{output}:has(+ * > .lm-Widget.jupyter-widgets)"
    return f"""<style>
#{name}, {output}, .output_area:has(> * > #{name}) {{ display: none }}
{lost} {{ display: table }}
{lost} #{name} {{ display: block; max-width: 100%; content: url(data:image/png;base64,{png}) }}
{lost} + .jp-OutputArea-child {{ display: none }}
</style><div id="{name}" role="img" aria-label="{escape(alt)}"></div>"""


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
