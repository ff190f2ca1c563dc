"""Files are written completely or not at all, and only by one function."""

import errno
import io
import json
import os
import re
import struct
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from demo import explore_demo
from matplotlib.figure import Figure
from torch import nn

import hookviz
from hookviz import files
from hookviz.files import write_whole

PACKAGE = Path(hookviz.__file__).parent


@pytest.fixture(scope="module")
def explorer():
    made = explore_demo(layers="layer3.*")
    yield made
    made.close()


def no_space(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


WRITERS = {
    "a.txt": lambda explorer, path: write_whole(path, b"new"),
    "page.html": lambda explorer, path: explorer.to_html(path),
    "view.png": lambda explorer, path: explorer.save(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_failed_write_keeps_the_old_file(explorer, tmp_path, monkeypatch, name):
    path = tmp_path / name
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        WRITERS[name](explorer, path)
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

    def recorded_open(self, mode="r", *arguments, **options):
        opened.append((self.name, mode))
        return original(self, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", recorded_open)
    for _ in range(2):
        write_whole(tmp_path / "view.html", b"new")
    names, modes = zip(*opened, strict=True)
    assert set(modes) == {"xb"} and len({*names}) == 2
    assert all(re.fullmatch(r"\.hookviz-[0-9a-f]{16}\.part", name) for name in names)


def test_files_of_killed_processes_are_deleted_and_those_of_running_ones_stay(tmp_path):
    old, new, own = (
        tmp_path / name for name in (".hookviz-0a.part", ".hookviz-1b.part", ".mine.part")
    )
    for path in (old, new, own):
        path.write_text("half")
    for path in (old, own):
        os.utime(path, (0, 0))
    write_whole(tmp_path / "view.html", b"new")
    assert [path.exists() for path in (old, new, own)] == [False, True, True]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes and pipes")
def test_file_modes_are_kept_and_pipes_are_written_to(tmp_path):
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
    monkeypatch.setattr("hookviz.widgets.results.write_page", lambda *_, **__: pytest.fail("ran"))
    for write in (explorer.to_html, explorer.save):
        with pytest.raises(FileNotFoundError, match="Missing folder"):
            write(tmp_path / "missing" / "view.html")


@pytest.mark.parametrize("name", ["to_html", "save", "load", "watch", "survey"])
def test_a_folder_and_no_path_are_refused_in_one_sentence(explorer, tmp_path, name):
    function = {
        "to_html": explorer.to_html,
        "save": explorer.save,
        "load": hookviz.load,
        "watch": lambda path: hookviz.watch(hookviz.demo_model(), path=path),
        "survey": hookviz.survey(nn.Conv2d(3, 2, 1), torch.rand(2, 3, 4, 4)).save,
    }[name]
    with pytest.raises(ValueError, match=r"' is a folder: give the path of a file\.$"):
        function(tmp_path)
    with pytest.raises(TypeError, match=r"^path=3 is not a path: give that of a file\.$"):
        function(3)
    if name in ("save", "load", "survey"):  # the others take None
        with pytest.raises(TypeError, match=r"^path=None is not a path: give that of a file\.$"):
            function(None)
    assert not list(tmp_path.iterdir())


def test_half_characters_do_not_break_a_page(tmp_path):
    model, path = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten()), tmp_path / "view.html"
    explorer = hookviz.explore(model, torch.rand(1, 3, 2, 2), class_names=["half \ud83d"] * 16)
    explorer.to_html(path, title="half \ud83d")
    assert "half \ufffd" in path.read_text(encoding="utf-8")
    explorer.save(tmp_path / "view.png")


def test_one_function_writes_files():
    """Any other code would leave a partial file behind after an error."""
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


def test_one_file_writes_the_policy_of_all_pages():
    """Only `html_page` writes what a page may run and load."""
    sources = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    found = {path.name for path, text in sources.items() if "Content-Security-Policy" in text}
    assert found == {"tables.py"}


def test_three_files_use_the_network():
    """No other module imports a network library; torch and timm fetch weights for `models.py`."""
    network = re.compile(
        r"import (socket|ssl|subprocess|requests)|(from|import) (urllib\.request|http)"
        r"|get_state_dict|pretrained=|load_state_dict_from_url|npm pack"
    )
    sources = {path.relative_to(PACKAGE): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    found = {path.as_posix() for path, source in sources.items() if network.search(source)}
    assert found == {"run/pictures.py", "models.py", "export/network/runtime.py"}


# Reading


def array_file(header, data=b""):
    """Return a .npy file with the given header."""
    text = header.encode() + b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def archive(**entries):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in entries.items():
            file.writestr(f"{name}.npy", data)
    return content.getvalue()


def description_file(about):
    content = io.BytesIO()
    text = about if isinstance(about, str) else json.dumps(about)
    np.save(content, np.array(text))
    return content.getvalue()


SURVEY = description_file({"format": "hookviz survey 1"})

BROKEN = {
    "an empty file": b"",
    "no archive": b"PK\x03\x04" + bytes(100),
    "no description": archive(values=array_file("{'descr': '<f4', 'shape': (1,)}")),
    "a shape larger than the file": archive(
        about=SURVEY,
        values=array_file("{'descr': '<f8', 'fortran_order': False, 'shape': (3000000000,), }"),
    ),
    "a description larger than the file": archive(
        about=array_file("{'descr': '<U2000000000', 'fortran_order': False, 'shape': (), }")
    ),
    "a negative shape": archive(
        about=array_file("{'descr': '<U8', 'fortran_order': False, 'shape': (-1,), }", bytes(32))
    ),
    "objects": archive(
        about=array_file("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", bytes(8))
    ),
    "an open bracket in a header": archive(about=array_file("{'descr': ((((((((((")),
    "a header of brackets": archive(about=array_file("[" * 5000)),
    "nested JSON": archive(about=description_file("[" * 100_000)),
    "JSON that is a list": archive(about=description_file([1, 2])),
    "no JSON": archive(about=description_file("{")),
    "an unknown format": archive(about=description_file({"format": "hookviz survey 999"})),
}


@pytest.mark.parametrize("name", BROKEN)
def test_errors_of_broken_files_are_one_sentence(tmp_path, name):
    path = tmp_path / "survey.npz"
    path.write_bytes(BROKEN[name])
    with pytest.raises(
        ValueError, match=r"survey.npz' is broken, or not a ((?!Memory).)*\. The file was"
    ):
        hookviz.load(path)
    assert path.read_bytes() == BROKEN[name]


def test_an_archive_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(
    saved, tmp_path, monkeypatch
):
    path = tmp_path / "survey.npz"
    path.write_bytes(saved["survey"])
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    monkeypatch.setattr(np, "load", None)
    with pytest.raises(ValueError, match=r"unpacked, its \d+ bytes would be \d+"):
        hookviz.load(path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return the bytes of a saved survey and a watch."""
    folder, model = tmp_path_factory.mktemp("saved"), hookviz.demo_model()
    hookviz.survey(model, hookviz.demo_images()[:2], "stem.0").save(folder / "survey.npz")
    with hookviz.watch(model, path=folder / "watch.npz"):
        model(torch.rand(1, 3, 112, 112)).sum().backward()
    return {path.stem: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", ["survey", "watch"])
def test_wrong_types_in_a_description_raise_only_value_errors(saved, tmp_path, kind):
    """Each value of the description is replaced by values of other types."""
    path = tmp_path / "file.npz"
    path.write_bytes(saved[kind])
    assert type(hookviz.load(path)).__name__ in ("Survey", "Training")
    with np.load(io.BytesIO(saved[kind])) as file:
        arrays = {name: file[name] for name in file.files}
    about = json.loads(str(arrays.pop("about")))
    for key in [each for each in about if each != "format"]:
        for value in (None, [[]], "x", -1, {"a": None}, 1e400):
            changed = np.array(json.dumps(about | {key: value}))
            np.savez(path, about=changed, **arrays)
            with suppress(ValueError):  # many wrong values do not matter
                hookviz.load(path)


@pytest.mark.parametrize("kind", ["survey", "watch"])
def test_missing_and_wrong_arrays_raise_only_value_errors(saved, tmp_path, kind):
    with np.load(io.BytesIO(saved[kind])) as file:
        arrays = {name: file[name] for name in file.files}
    path = tmp_path / "file.npz"
    for name in [each for each in arrays if each != "about"][:12]:
        for other in (None, np.zeros(()), np.array("text"), np.zeros((2, 3, 4, 5), np.int8)):
            kept = {key: each for key, each in arrays.items() if key != name}
            np.savez(path, **kept, **({} if other is None else {name: other}))
            with suppress(ValueError):
                hookviz.load(path)
