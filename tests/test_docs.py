"""The documentation: its code runs, its messages are real, and its pages are complete."""

from __future__ import annotations

import ast
import gc
import io
import os
import pkgutil
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pytest
import yaml
from documented_errors import PROVOKED, SEEN_ELSEWHERE, error_text
from heavy import heavy_but

import hookviz

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
# How-tos that take seconds because they train, compile, ablate, or write pages and figures.
HOWTOS = (
    "attention",
    "edit",
    "feature-visualization",
    "field",
    "heatmaps",
    "layers",
    "map",
    "models",
    "network-page",
    "other-tools",
    "places",
    "port",
    "share",
    "side-by-side",
    "survey",
    "teach",
    "watch",
    "why",
)
SLOW = {f"docs/howto/{name}.md" for name in HOWTOS}


def path_in_checkout(page):
    """Return a page's path within the checkout, such as ``docs/howto/watch.md``."""
    return page.relative_to(ROOT).as_posix()


# Every block of Python runs


class Block(NamedTuple):
    page: str
    line: int
    heading: str
    code: str

    @property
    def left_out(self):
        """True if the block is marked as not run, or is a notebook magic."""
        return self.code.startswith(("# not run:", "%"))


def blocks(page):
    """Return the Python blocks of a page, each with the heading above it."""
    found, code, heading, start = [], None, "", 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if code is None and line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.rstrip() == "```python":
            code, start = [], number + 1
        elif code is not None and line.rstrip() == "```":
            found.append(Block(path_in_checkout(page), start, heading, "\n".join(code) + "\n"))
            code = None
        elif code is not None:
            code.append(line)
    return found


def run(block, names):
    """Run a block with the line numbers of the page in tracebacks."""
    code = compile("\n" * (block.line - 1) + block.code, block.page, "exec")
    exec(code, names)


def parts_of_a_survey():
    """Run the terminal command of the page."""
    script = ROOT / "docs/howto/survey_part.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(script)]
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return {}


# Page and heading -> what must run before the blocks under this heading.
PREPARATIONS = {
    ("docs/howto/survey.md", "In several processes, or on several machines"): parts_of_a_survey,
}
NOT_RUN = [
    ("docs/howto/places.md", "Use it in Colab, JupyterLab, VS Code and elsewhere"),  # Colab
    ("docs/howto/places.md", "Use it in Colab, JupyterLab, VS Code and elsewhere"),  # marimo
]


@cache
def photo():
    """Return the content of the photo.jpg that pages read."""
    file = io.BytesIO()
    hookviz.demo_images()[12].save(file, "JPEG")
    return file.getvalue()


@pytest.fixture
def folder_with_photo(tmp_path, monkeypatch, restored_heatmaps):
    """Change to a folder with photo.jpg, and restore HEATMAPS afterwards."""
    monkeypatch.chdir(tmp_path)
    Path("photo.jpg").write_bytes(photo())
    return tmp_path


@pytest.mark.filterwarnings("ignore:.* went over max_bytes")  # a page demonstrates it
@pytest.mark.parametrize(
    "page", heavy_but({*map(path_in_checkout, PAGES)} - SLOW, PAGES, path_in_checkout)
)
def test_code_of_every_page_runs(page, folder_with_photo):
    names = {"__name__": "page"}  # nothing else, since a page must import what it uses
    prepared = set()
    for block in blocks(page):
        key = (block.page, block.heading)
        if key in PREPARATIONS and key not in prepared:
            prepared.add(key)
            names |= PREPARATIONS[key]()
        if not block.left_out:
            run(block, names)
    names.clear()
    if "hookviz.watch(" in page.read_text():
        gc.collect()  # lets the watch write its last records before the folder is deleted


def test_lines_of_code_fit_into_the_column():
    """The column of `docs/static/hookviz.css` in a window of 1400 pixels has 108 characters."""
    lines = [
        (block.page, line)
        for page in PAGES
        for block in blocks(page)
        for line in block.code.split("\n")
    ]
    assert [(page, line) for page, line in lines if len(line) > 108] == []


def test_every_block_that_is_not_run_is_listed():
    left = [block for page in PAGES for block in blocks(page) if block.left_out]
    assert [(block.page, block.heading) for block in left] == NOT_RUN


def test_every_heading_with_a_preparation_exists():
    there = {(block.page, block.heading) for page in PAGES for block in blocks(page)}
    assert set(PREPARATIONS) <= there


# Every message is real


def titles():
    """Return the messages in the headings of the troubleshooting page."""
    page = (DOCS / "troubleshooting.md").read_text()
    return re.findall(r"^### `(.+)`$", page, re.MULTILINE)


def matches_title(message, title):
    """Return whether a message begins like a title, in which dots stand for any text."""
    pattern = ".*?".join(map(re.escape, title.removesuffix("…").split("…")))
    return re.match(pattern, message, re.DOTALL) is not None


cached_error_text = cache(error_text)  # two tests use each provocation


@pytest.mark.parametrize("provocation", PROVOKED, ids=lambda function: function.__name__)
def test_every_provoked_message_has_one_title(provocation, folder_with_photo):
    message = cached_error_text(provocation)
    explained = [title for title in titles() if matches_title(message, title)]
    assert len(explained) == 1, message


@cache
def words_of_hookviz():
    """Return all strings of the package, with dots for the values in formatted ones."""
    found = []
    for path in Path(hookviz.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (
                    each.value if isinstance(each, ast.Constant) else "…" for each in node.values
                )
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def is_written_in_hookviz(title):
    """Return whether strings of the package have a title's words, apart from its values."""
    parts = [part.strip(" .,") for part in title.partition(": ")[2].split("…")]
    parts = [part for part in parts if re.search(r"\w{3}", part)]
    return bool(parts) and all(part in words_of_hookviz() for part in parts)


def test_every_title_is_a_real_message(folder_with_photo):
    messages = [cached_error_text(provocation) for provocation in PROVOKED]
    unreal = [
        title
        for title in titles()
        if not any(matches_title(each, title) for each in messages)
        and not is_written_in_hookviz(title)
    ]
    assert sorted(unreal) == sorted(SEEN_ELSEWHERE)
    assert len(set(titles())) == len(titles())


# Citation


def test_the_citation_file_is_valid():
    """It follows the schema and has the version of the package."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    known = {"cff-version", "message", "type", "title", "abstract", "authors", "version"}
    assert {"message", "title", "authors"} <= set(citation)
    assert set(citation) <= known | {"license", "keywords", "date-released"}
    assert citation["authors"] == [{"name": "The hookviz developers"}]
    assert citation["license"] == "MIT"
    assert citation["version"] == hookviz.__version__


def test_the_citation_file_has_the_date_of_the_changelog():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    first = re.search(r"^## (\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None and first[1] == hookviz.__version__
    released = None if first[2] == "unreleased" else first[2]
    assert str(citation.get("date-released")) == str(released)


# The built pages


class Page(HTMLParser):
    """The links, loaded files, ids and alternative texts of a built page."""

    def __init__(self, path):
        super().__init__()
        self.path = path
        self.ids = set()
        self.links = []
        self.loads = []
        self.alts = []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("script", "img", "iframe", "source") and "src" in given:
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") not in (
            "canonical",
            "search",
            "index",
            "next",
            "prev",
        ):
            self.loads.append(given["href"])
        if tag == "img":
            self.alts.append(given.get("alt", ""))


def test_everything_public_is_named_in_the_reference():
    pages = "\n".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    named = re.findall(r"^\.\. (?:auto\w+|py:\w+):: (?:hookviz\.)?(\w+)", pages, re.MULTILINE)
    assert set(hookviz.__all__) <= set(named), "add them to a page of docs/api"


def test_every_howto_is_listed_on_the_first_page():
    first = (DOCS / "index.md").read_text()
    there = {f"howto/{page.stem}" for page in (DOCS / "howto").glob("*.md")}
    assert there == set(re.findall(r"^howto/[\w-]+$", first, re.MULTILINE))


def test_each_promise_names_a_test():
    page = (DOCS / "explanation" / "promises.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and "| test |" not in line]
    for row in rows:
        file, name = re.search(r"`(tests/[\w/]+\.py)::(test_\w+)` \|$", row).groups()
        assert f"\ndef {name}(" in (ROOT / file).read_text(), row
    assert len(rows) > 20


def test_every_object_in_the_reference_exists():
    """Each directive's object can be imported, which is checked without building the pages."""
    directives = re.compile(
        r"^\.\. auto(?:class|function|method|data|module):: (\S+)", re.MULTILINE
    )
    for page in (DOCS / "api").glob("*.md"):
        for name in directives.findall(page.read_text()):
            whole = name if name.startswith("hookviz.") else f"hookviz.{name}"
            pkgutil.resolve_name(whole)  # raises if the name does not exist


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site and return its pages by path."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    command += ["-d", str(folder / "doctrees"), str(DOCS), str(folder / "html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    html = folder / "html"
    return {path.relative_to(html).as_posix(): Page(path) for path in html.rglob("*.html")}


@pytest.mark.heavy
def test_built_notebooks_have_all_their_pictures(site):
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        page = site[f"notebooks/{notebook.stem}.html"]
        pictures = notebook.read_text().count('"image/png": "')
        assert pictures >= 3
        assert sum(load.startswith("../_images/") for load in page.loads) == pictures
        assert not [alt for alt in page.alts if alt.endswith(".png")]
        assert f"notebooks/{notebook.stem}.html" in site["notebooks.html"].links


@pytest.mark.heavy
def test_no_link_of_the_site_is_broken(site):
    broken = []
    for name, page in site.items():
        for link in page.links:
            target, _, anchor = unquote(link).partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            path = (page.path.parent / target).resolve() if target else page.path
            top = page.path.parents[name.count("/")]
            other = site.get(path.relative_to(top).as_posix())
            if not path.is_file() or (other and anchor and anchor not in other.ids):
                broken.append((name, link))
    assert broken == []


@pytest.mark.heavy
def test_pages_have_metadata_for_search_engines(site):
    listed = (site["index.html"].path.parent / "llms.txt").read_text()
    pages = re.findall(r"^- \[.+\]\((.+)\): ", listed, re.MULTILINE)
    assert {*pages} < {*site} and "howto/debug.html" in pages
    assert all(
        f"{name}</loc>" in (site[name].path.parents[name.count("/")] / "sitemap.xml").read_text()
        for name in pages
    )
    debug = site["howto/debug.html"].path.read_text()
    assert '<meta name="description" content="' in debug and "og:title" in debug
    picture = re.findall(r'property="og:image" content="([^"]*)"', debug)
    assert [Path(each).name for each in picture] == ["door-explore.png"]
    assert (site["index.html"].path.parent / "door-explore.png").exists()


@pytest.mark.heavy
def test_live_pages_are_in_the_site_and_small(site):
    shown = [load for load in site["live.html"].loads if load.startswith("live/")]
    assert shown == [f"live/{name}.html" for name in ("explorer", "trace", "survey", "training")]
    sizes = [site[name].path.stat().st_size for name in shown]
    assert min(sizes) > 100e3 and max(sizes) <= 3e6 and sum(sizes) < 6e6
    assert all("Content-Security-Policy" in site[name].path.read_text() for name in shown)
    (first,) = [load for load in site["index.html"].loads if load.startswith("live/")]
    assert "Content-Security-Policy" in site[first].path.read_text()
    small = [load for load in site["index.html"].loads if load.startswith("gallery/")]
    assert len(small) == 6
    folder = site["index.html"].path.parent
    assert all((folder / name).stat().st_size < 100e3 for name in small)


@pytest.mark.heavy
def test_pages_load_nothing_from_elsewhere(site):
    for name, page in site.items():
        for load in page.loads:
            assert not re.match(r"(https?:)?//", load), (name, load)
            path = page.path.parent / unquote(load.partition("?")[0])
            assert load.startswith("data:") or path.is_file(), (name, load)
        for script in page.path.parent.glob("_static/**/*.css"):
            assert not re.search(r"(@import|url\()\W*(https?:)?//", script.read_text()), script
