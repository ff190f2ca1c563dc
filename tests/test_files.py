"""Files for the user are written whole or not at all, and by one function."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

import hookviz
from hookviz.files import write_whole

PACKAGE = Path(hookviz.__file__).parent


@pytest.fixture(scope="module")
def explorer():
    made = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6], layers="layer3.*")
    yield made
    made.close()


def no_space(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "view.html"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["page.html", "view.png"])
def test_a_failed_export_keeps_the_old_file(explorer, tmp_path, monkeypatch, name):
    path = tmp_path / name
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        explorer.to_html(path) if name == "page.html" else explorer.save(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_figure_that_cannot_be_drawn_keeps_the_old_file(explorer, tmp_path, monkeypatch):
    path = tmp_path / "view.pdf"
    explorer.save(path)
    content = path.read_bytes()

    def half_drawn(figure, file, **options):
        file.write(b"half")
        raise ValueError("cannot draw")

    monkeypatch.setattr(Figure, "savefig", half_drawn)
    with pytest.raises(ValueError, match="cannot draw"):
        explorer.save(path)
    assert path.read_bytes() == content


def test_a_link_stays_and_its_target_is_written(tmp_path):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "target.html", tmp_path / "link.html"
    target.write_text("old")
    link.symlink_to(target)
    write_whole(link, b"new")
    assert link.is_symlink() and target.read_text() == "new"
    dangling = tmp_path / "dangling.html"
    dangling.symlink_to(tmp_path / "real" / "later.html")
    write_whole(dangling, b"new")
    assert (tmp_path / "real" / "later.html").read_text() == "new"


def test_the_temporary_name_cannot_be_predicted_and_is_opened_exclusively(tmp_path, monkeypatch):
    opened = []
    original = Path.open

    def noted(self, mode="r", *arguments, **options):
        opened.append((self.name, mode))
        return original(self, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", noted)
    for _ in range(2):
        write_whole(tmp_path / "view.html", b"new")
    names, modes = zip(*opened, strict=True)
    assert set(modes) == {"xb"} and len({*names}) == 2
    assert all(re.fullmatch(r"\.[0-9a-f]{16}\.part", name) for name in names)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes and pipes")
def test_modes_are_kept_and_pipes_are_written_to(tmp_path):
    path = tmp_path / "view.html"
    path.write_text("old")
    path.chmod(0o640)
    write_whole(path, b"new")
    assert path.stat().st_mode & 0o777 == 0o640
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, b"new")
    assert os.read(reader, 10) == b"new" and pipe.is_fifo()
    os.close(reader)


def test_a_missing_folder_is_reported_before_the_work(explorer, tmp_path, monkeypatch):
    monkeypatch.setattr("hookviz.widgets.explorer.write_page", lambda *_, **__: pytest.fail("ran"))
    for write in (explorer.to_html, explorer.save):
        with pytest.raises(FileNotFoundError, match="Missing folder"):
            write(tmp_path / "missing" / "view.html")


def test_half_characters_do_not_break_a_page(tmp_path):
    model, path = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten()), tmp_path / "view.html"
    explorer = hookviz.explore(model, torch.rand(1, 3, 2, 2), class_names=["half \ud83d"] * 16)
    explorer.to_html(path, title="half \ud83d")
    assert "half \ufffd" in path.read_text(encoding="utf-8")
    explorer.save(tmp_path / "view.png")
    explorer.close()


def test_one_function_writes_files():
    """Others would leave half a file behind after an error."""
    pattern = re.compile(
        r"\.write_(text|bytes)\(|open\([^)]*[\"'][wxa]b?[\"']|savefig\((path|file)"
    )
    for path in PACKAGE.rglob("*.py"):
        source = "\n".join(
            line for line in path.read_text("utf-8").splitlines()
            if not line.strip().startswith((">>>", "..."))
        )  # fmt: skip
        if path.relative_to(PACKAGE) != Path("files.py"):
            assert not pattern.search(source), path
