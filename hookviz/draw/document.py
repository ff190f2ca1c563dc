"""Self-contained pages: a program, a style sheet and data, under a strict content policy."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..hooking.arguments import check_finite
from ..tables import escape, html_page, megabytes

STATIC = Path(__file__).resolve().parent.parent / "static"


@lru_cache
def script(entry: str) -> str:
    """Return a program of the browser as ``make face`` bundles it: ``"widget"``, ``"page"`` …"""
    return (STATIC / f"{entry}.min.js").read_text(encoding="utf-8")


@lru_cache
def style(entry: str = "face") -> str:
    """Return a style sheet as ``make face`` bundles it."""
    return (STATIC / f"{entry}.min.css").read_text(encoding="utf-8")


IN_NOTEBOOK = 6e6
"""The default limit for a page in a notebook's output, in bytes.

All layers of EfficientNet-Lite0 need 5.0 MB, and marimo takes up to 8 MB in one output.
"""

# The page sends its height. It is told whether the notebook is dark, judged by the colour of the
# text around the frame. It has no other access to the notebook.
_SIZED = (
    "const frame = this; addEventListener('message', (event) => { "
    "if (event.source === frame.contentWindow && event.data.hookvizHeight) "
    "frame.style.height = event.data.hookvizHeight + 'px'; }); "
    "const seen = new MutationObserver(() => tell()); "
    "const tell = () => { if (!frame.isConnected) return seen.disconnect(); "
    "const { color } = getComputedStyle(frame); if (!color.startsWith('rgb')) return; "
    "const [r, g, b] = color.match(/[\\d.]+/g).map(Number); "
    "frame.contentWindow?.postMessage({ hookvizDark: r + g + b > 384 }, '*'); }; "
    "for (const each of [document.body, document.documentElement]) "
    "seen.observe(each, { attributes: true }); "
    "matchMedia('(prefers-color-scheme: dark)').addEventListener('change', tell); tell();"
)


_SHEETS = {"survey": "survey", "trace": "trace", "training": "steps"}


def _text(value: Any) -> str:
    """Return a text as it is, and another value as JSON in which ``<`` cannot end the element."""
    if isinstance(value, str):
        return value
    # Not as ASCII: as an escape, half a character would get past `without_half_characters`.
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c")


def document(
    title: str,
    face: str,
    blocks: Mapping[str, Any],
    alt: str,
    still: str,
    computes: bool = False,
    late: Mapping[str, Any] | None = None,
) -> str:
    """Return the page as HTML; only its program runs, and nothing is fetched.

    Parameters
    ----------
    face : {"page", "networkPage", "survey", "trace", "training"}
        The program that draws the page, which has a style sheet.
    blocks : mapping of str to object
        Data for the program, by its element's name: a text, or a value of JSON.
    alt : str
        A description of the page.
    still : str
        A data URL: a picture for places where scripts do not run.
    computes : bool
        If true, the program may run WebAssembly, in a worker made of the page's own data.
    late : mapping, optional
        As ``blocks``, but behind the program, which runs while the browser reads them.
    """
    program, sheet = f'"use strict";\n{script(face)}', style(_SHEETS.get(face, "face"))
    wasm, worker = (" 'wasm-unsafe-eval'", "worker-src blob:; ") if computes else ("", "")
    policy = (
        f"default-src 'none'; script-src '{_hash(program)}'{wasm}; style-src '{_hash(sheet)}'; "
        f"img-src data:; {worker}base-uri 'none'; form-action 'none'"
    )
    first, last = (
        "\n".join(
            f'<script type="application/json" id="{name}">{_text(value)}</script>'
            for name, value in each.items()
        )
        for each in (blocks, late or {})
    )
    body = f"""<div class="hookviz-app" id="hookviz">
<p>{escape(alt)}</p>
<img class="hv-still" alt="{escape(alt)}" src="{still}">
</div>
{first}
<script>{program}</script>"""
    body += f"\n{last}" if last else ""
    return html_page(title, policy, sheet, f'<body class="hookviz-page">\n{body}\n</body>')


def check_size(max_bytes: float) -> None:
    """Raise ``ValueError`` for a limit that is not a positive, finite number of bytes."""
    check_finite("max_bytes", max_bytes, "a number of bytes, such as 10e6 for 10 MB", above=0)


def fitting(pages: Iterable[str], max_bytes: float, why: str) -> str:
    """Return the first page that fits; ``pages`` yields ever smaller ones.

    Raises
    ------
    ValueError
        ``max_bytes`` is not a size, or none fits; ``why`` ends the sentence and may contain
        ``{takes}``, the last size.
    """
    check_size(max_bytes)
    takes = 0
    for page in pages:
        takes = len(page.encode())
        if takes <= max_bytes:
            return page
    raise ValueError(
        f"max_bytes={max_bytes:g} is too little" + why.format(takes=megabytes(takes)) + "."
    )


def in_frame(page: str, label: str) -> str:
    """Embed a page in another one, isolated in a sandboxed frame."""
    return (
        f'<div><iframe sandbox="allow-scripts" title="{escape(label)}" srcdoc="{escape(page)}" '
        f'style="width: 100%; height: 860px; border: 0" onload="{_SIZED}"></iframe></div>'
    )


def in_place_of_error(name: str, png: str, alt: str) -> str:
    """Return a picture that replaces JupyterLab's error about a widget without its kernel.

    JupyterLab prefers an output's widget to the picture beside it, and shows an error for a widget
    that was saved without its kernel. The picture is a style, so that sites which strip styles,
    such as GitHub, show nothing of it.

    Parameters
    ----------
    name : str
        The element's id, unique in the page.
    png : str
        The picture in base64.
    alt : str
        A description of the picture.
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
