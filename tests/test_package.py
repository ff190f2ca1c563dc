"""What a user installs works in an environment that has nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from environments import pins_here
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
TRY = """
import hookviz
explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])
assert explorer.frame.predictions[0][1] == "moon"
explorer.save("view.png")
print(hookviz.__file__)
"""


def run(*command, cwd, **variables):
    # Neither this environment nor this checkout may be of help.
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    clean.pop("VIRTUAL_ENV", None)
    clean |= variables
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "uv", "build", "--wheel", "-o", str(folder), str(ROOT), cwd=folder)
    return next(folder.glob("*.whl"))


def test_wheel_holds_what_it_needs_and_no_more(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "hookviz/assets/weights.pt" in names
    assert sum(name.startswith("hookviz/assets/pictures/") for name in names) == 30
    assert not [name for name in names if name.startswith(("tests", "notebooks"))]
    assert wheel.stat().st_size < 4_000_000


@pytest.mark.parametrize("what", ["wheel", "."])
def test_install_in_an_empty_environment(wheel, what, tmp_path):
    # At the same place each time, so that the other's torch need not be compiled once more.
    venv, compiled = wheel.parent / "venv", wheel.parent / "compiled"
    shutil.rmtree(venv, ignore_errors=True)
    python = venv / ("Scripts" if os.name == "nt" else "bin") / "python"
    uv = [sys.executable, "-m", "uv"]
    run(*uv, "venv", "--python", sys.executable, str(venv), cwd=tmp_path)
    source = str(wheel) if what == "wheel" else str(ROOT)
    install = [*uv, "pip", "install", "--python", str(python), "-c", str(pins_here())]
    run(*install, source, cwd=tmp_path)
    where = run(str(python), "-c", TRY, cwd=tmp_path, PYTHONPYCACHEPREFIX=str(compiled))
    assert str(venv) in where
    assert (tmp_path / "view.png").stat().st_size > 10_000


def test_no_file_names_a_package_registry():
    hosts = ["pypi" + ".org", "pythonhosted" + ".org", "debian" + ".org", "npmjs" + ".org"]
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split("\n")
    for name in filter(None, listed):
        text = (
            (ROOT / name).read_bytes().decode("utf-8", "ignore") if (ROOT / name).is_file() else ""
        )
        assert not [host for host in hosts if host in text], name


def test_the_readme_moves_and_is_light():
    path = ROOT / "assets" / "explorer-moves.png"
    assert path.name in (ROOT / "README.md").read_text()
    assert path.stat().st_size < 3e6
    with Image.open(path) as moving:
        frames = []
        for number in range(moving.n_frames):
            moving.seek(number)
            frames.append(moving.convert("RGB").tobytes())
    assert len(set(frames)) > 10
