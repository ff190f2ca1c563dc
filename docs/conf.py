"""Sphinx's settings: ``python -m sphinx -W --keep-going -b html docs build/docs``, offline too."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

import found  # noqa: E402
import gather  # noqa: E402
from docutils import nodes  # noqa: E402
from docutils.utils.math.latex2mathml import tex2mathml  # noqa: E402
from sphinx import addnodes  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402
from sphinx.ext.napoleon.docstring import NumpyDocstring  # noqa: E402

import hookviz  # noqa: E402

project = "hookviz"
author = copyright = "The hookviz developers"
version = release = hookviz.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]

# Markdown and notebooks. Notebooks are shown as they are committed: pictures, not live widgets.
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_mime_priority_overrides = [
    ("html", "application/vnd.jupyter.widget-view+json", None),
    ("html", "image/png", 5),
]

# Docstrings. A name in single backticks must be found; other packages' have two.
default_role = "py:obj"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_preprocess_types = True
# "min, max : float" and "ValueError, TypeError" are one line each there.
napoleon_custom_sections = [("Attributes", "params_style"), ("Raises", "params_style")]
# A property's docstring is prose: in "Bytes held: the copy" there is no type before the colon.
NumpyDocstring._consume_inline_attribute = lambda self: ("", self._consume_to_end())
nitpicky = True
nitpick_ignore_regex = [(r"py:class", r".*")]  # types are prose: "sequence of (str, str)"

html_theme = "furo"
pygments_dark_style = "monokai"  # the theme's own underlines names of modules, like links
html_math_renderer = "mathml"
# The sitemap's and the previews' addresses begin with it; assets/front.py writes it where it is.
urls = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"].get("urls", {})
site = os.environ.get("HOOKVIZ_SITE", urls.get("Documentation", ""))
html_baseurl = site and site.rstrip("/") + "/"
html_title = f"hookviz {release}"
html_static_path = ["static"]
html_css_files = ["hookviz.css"]
html_extra_path = ["extra"]
(DOCS / "extra").mkdir(exist_ok=True)  # it is looked for before anything is gathered
html_show_sphinx = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def by_last_name(app: Sphinx, env: Any, node: addnodes.pending_xref, content: Any) -> Any:
    """Find ``hookviz.run.inputs.prepare_input``, or ``ModelInput``, by what it is documented as."""
    domain, last = env.domains["py"], node.get("reftarget", "").rpartition(".")[2]
    name = next((name for name in domain.objects if name.rpartition(".")[2] == last), None)
    if node.get("refdomain") != "py" or name is None:
        return None
    kind, page = node["reftype"], node["refdoc"]
    return domain.resolve_xref(env, page, app.builder, kind, name, node, content)


def formula(translator: Any, node: nodes.Element) -> None:
    """As MathML, which browsers draw themselves: MathJax would come from another server."""
    block = isinstance(node, nodes.math_block)
    translator.body.append(tex2mathml(node.astext(), as_block=block))
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("builder-inited", gather.gather)
    app.connect("missing-reference", by_last_name)
    app.connect("html-page-context", found.describe)
    app.connect("build-finished", found.write_lists)
