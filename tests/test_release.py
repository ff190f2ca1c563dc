"""The release scripts, workflows and Makefile agree with the repository."""

import importlib.util
import re
import shutil
import tomllib

import pytest
import yaml
from environments import ROOT
from release import faults

spec = importlib.util.spec_from_file_location("front", ROOT / "assets/front.py")
front = importlib.util.module_from_spec(spec)
spec.loader.exec_module(front)

WORKFLOWS = {path.stem: path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml")}
JOBS = {name: yaml.safe_load(text)["jobs"] for name, text in WORKFLOWS.items()}
STEPS = [step for jobs in JOBS.values() for job in jobs.values() for step in job.get("steps", ())]


def test_a_tag_needs_matching_version_citation_and_changelog(tmp_path):
    (tmp_path / "hookviz").mkdir()
    for name in ("hookviz/__init__.py", "CITATION.cff", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path / name)

    def write(name, pattern, line):
        path = tmp_path / name
        path.write_text(re.sub(pattern, line, path.read_text(), count=1, flags=re.MULTILINE))

    def lacking():
        return [fault.split(" lacks ")[0] for fault in faults("v9.8.7", tmp_path)]

    assert lacking() == ["CHANGELOG.md", "hookviz/__init__.py", "CITATION.cff", "CITATION.cff"]
    write("hookviz/__init__.py", r"^__version__ = .*$", '__version__ = "9.8.7"')
    write("CITATION.cff", r"^version: .*$", "version: 9.8.7\ndate-released: 2030-01-02")
    assert lacking() == ["CHANGELOG.md", "CITATION.cff"]
    write("CHANGELOG.md", r"^## .*$", "## 9.8.7 (unreleased)")
    assert lacking() == ["CHANGELOG.md", "CITATION.cff"]
    write("CHANGELOG.md", r"^## .*$", "## 9.8.7 (2030-01-03)")
    assert faults("v9.8.7", tmp_path) == ["CITATION.cff lacks 'date-released: 2030-01-03'."]
    write("CHANGELOG.md", r"^## .*$", "## 9.8.7 (2030-01-02)")
    assert faults("v9.8.7", tmp_path) == []
    assert faults("v9.8.8", tmp_path)


def test_one_command_writes_the_repository_name_everywhere(tmp_path):
    names = "README.md", "pyproject.toml", "CITATION.cff"
    for name in names:
        shutil.copy(ROOT / name, tmp_path / name)
    # The first name, and a new one after a move.
    for repository in ("someone/first", "Someone.Else/hook-viz"):
        front.write(repository, tmp_path)
        texts = {name: (tmp_path / name).read_text() for name in names}
        source = f"https://github.com/{repository}"
        assert tomllib.loads(texts["pyproject.toml"])["project"]["urls"]["Source"] == source
        assert yaml.safe_load(texts["CITATION.cff"])["repository-code"] == source
        opened = re.findall(r"/blob/main/(notebooks/\w+\.ipynb)", texts["README.md"])
        assert len(opened) == 3 and all((ROOT / path).is_file() for path in opened)
        assert f"{source}/actions/workflows/tests.yml/badge.svg" in texts["README.md"]
    assert "someone/first" not in "".join(texts.values())
    with pytest.raises(SystemExit, match="give OWNER/NAME"):
        front.write("hookviz", tmp_path)


def targets():
    """Return the Makefile's targets with their prerequisites."""
    rules = re.findall(r"^([\w-]+): *([^#\n]*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return {name: needed.split() for name, needed in rules}


def test_make_test_all_includes_every_test_target():
    every = {name for name in targets() if re.match("lint|test|ecosystem-sample", name)}
    assert set(targets()["test-all"]) == every - {"test-all"}


def test_workflows_use_existing_targets_and_files():
    commands = "\n".join(step.get("run", "") for step in STEPS)
    linux = JOBS["tests"]["linux"]["strategy"]["matrix"]
    called = {*re.findall(r"make (\w[\w-]*)", commands), *linux["target"]}
    called |= {more["target"] for more in linux["include"]}
    assert called == {"docs", *targets()["test-all"]} <= set(targets())
    paths = re.findall(r"\btests/[\w./-]+", "\n".join(WORKFLOWS.values()))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
