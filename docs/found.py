"""Help pages to be found: a description for search engines, ``sitemap.xml``, and ``llms.txt``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from docutils import nodes

PREVIEW = Path(__file__).parent.parent / "assets" / "door-explore.png"
"""The picture beside a link to a page, where that is shown before it is opened."""

LONGEST = 200  # characters; search engines cut a description at about that


def described(doctree: nodes.document | None) -> str:
    r"""Return the first paragraph of a page, cut after a word; empty where it has none.

    Examples
    --------
    >>> from docutils.core import publish_doctree
    >>> described(publish_doctree("Title\\n=====\\n\\nSee what a *place* sees."))
    'See what a place sees.'
    """
    first = None if doctree is None else next(iter(doctree.findall(nodes.paragraph)), None)
    text = "" if first is None else " ".join(first.astext().split())
    return text if len(text) <= LONGEST else text[:LONGEST].rpartition(" ")[0] + " …"


def describe(app: Any, name: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Add the description of a page, for search engines and for previews of its link."""
    text = escape(described(doctree), {'"': "&quot;"})
    title = escape(context.get("title", ""), {'"': "&quot;"})
    picture = app.config.html_baseurl + PREVIEW.name
    if text:
        context["metatags"] = context.get("metatags", "") + (
            f'<meta name="description" content="{text}">'
            f'<meta property="og:title" content="{title}">'
            f'<meta property="og:description" content="{text}">'
            f'<meta property="og:image" content="{picture}">'
        )


def write_lists(app: Any, error: Exception | None) -> None:
    """Write all pages into ``llms.txt``, with their descriptions, and into ``sitemap.xml``."""
    if error is not None or app.builder.name != "html":
        return
    base, env = app.config.html_baseurl, app.env
    names = sorted(env.found_docs)
    lines = [f"# {app.config.project}", "", f"> {described(env.get_doctree('index'))}", ""]
    for name in names:
        title = env.titles[name].astext()
        lines.append(f"- [{title}]({base}{name}.html): {described(env.get_doctree(name))}")
    out = Path(app.outdir)
    shutil.copy(PREVIEW, out)
    (out / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    places = "".join(f"<url><loc>{escape(base + name)}.html</loc></url>" for name in names)
    sitemap = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{places}</urlset>\n'
    (out / "sitemap.xml").write_text(sitemap, encoding="utf-8")
