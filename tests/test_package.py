"""The package as users install it: its contents, and that it works in an empty environment."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from environments import pins_here
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
USE = """
import hookviz

model, image = hookviz.demo_model(), hookviz.demo_images()[6]
with hookviz.capture(model) as cache:
    model(hookviz.attribution.prepare_input(image, model).args[0]).amax(1).sum().backward()
assert {"stem.0", "layer3.1.conv2"} < set(cache)
assert all(record.activation.shape == record.gradient.shape for record in cache.values())

explorer = hookviz.explore(model, image)
assert explorer.frame.predictions[0][1] == "moon"
explorer.save("view.png")
explorer.to_html("explorer.html")
print(hookviz.__file__)
"""
OFFLINE = """
import socket

def refuse(*args, **options):
    raise OSError("something was asked of a network")

socket.getaddrinfo = socket.socket.connect = refuse
"""


def run(*command, cwd):
    # Hide this environment and this checkout from the command.
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    clean.pop("VIRTUAL_ENV", None)
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(folder, *options):
    run(sys.executable, "-m", "uv", "build", *options, "-o", str(folder), str(ROOT), cwd=folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(tmp_path_factory.mktemp("wheel"), "--wheel")


def test_the_wheel_contains_the_needed_files_and_no_others(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    files = [path for path in (ROOT / "hookviz").rglob("*") if path.is_file()]
    source = {path.relative_to(ROOT).as_posix() for path in files if path.suffix != ".pyc"}
    demo = {name for name in names if name.startswith("hookviz/assets/")}
    assert {name for name in names if ".dist-info/" not in name} == source | demo
    stubs = {f"hookviz/{each}.pyi" for each in ("__init__", "results", "attribution/__init__")}
    assert {"hookviz/py.typed", "hookviz/widgets/__init__.pyi", *stubs} < source
    assert {Path(name).suffix for name in source} >= {".js", ".css"}
    assert "hookviz/assets/weights.pt" in demo
    assert sum(name.startswith("hookviz/assets/pictures/") for name in demo) == 30
    assert "hookviz/assets/transformer.pt" in demo
    assert sum(name.startswith("hookviz/assets/digits/") for name in demo) == 20
    assert wheel.stat().st_size < 4_000_000


@pytest.mark.heavy
def test_the_source_distribution_makes_the_same_wheel(wheel, tmp_path):
    """``pip install .`` installs the same files, so the next test covers both."""
    # Without --wheel, the wheel is built from the source distribution.
    from_source = build(tmp_path)

    def record(path):
        packed = zipfile.ZipFile(path)
        (name,) = [name for name in packed.namelist() if name.endswith("/RECORD")]
        return packed.read(name).decode().splitlines()  # one line per file, with its hash

    assert len(list(tmp_path.glob("*.tar.gz"))) == 1
    assert record(from_source) == record(wheel)


@pytest.fixture(scope="module")
def scripts(wheel):
    """Return the scripts folder of an environment with the wheel and its dependencies, offline."""
    venv = wheel.parent / "venv"
    uv = [sys.executable, "-m", "uv"]
    run(*uv, "venv", "--python", sys.executable, str(venv), cwd=wheel.parent)
    scripts = venv / ("Scripts" if os.name == "nt" else "bin")
    install = [*uv, "pip", "install", "--python", str(scripts / "python")]
    run(*install, "-c", str(pins_here()), str(wheel), cwd=wheel.parent)
    (packages,) = {path.parent for path in venv.rglob("hookviz-*.dist-info")}
    (packages / "offline.py").write_text(OFFLINE)
    (packages / "offline.pth").write_text("import offline\n")
    return scripts


@pytest.mark.heavy
def test_hookviz_works_in_an_empty_environment(scripts, tmp_path):
    where = run(str(scripts / "python"), "-c", USE, cwd=tmp_path)
    assert str(scripts.parent) in where
    assert (tmp_path / "view.png").stat().st_size > 10_000
    assert_page(tmp_path / "explorer.html")


@pytest.mark.heavy
def test_the_command_line_writes_a_page_in_an_empty_environment(scripts, tmp_path):
    run(str(scripts / "hookviz"), "page", "--demo", "-o", "view.html", cwd=tmp_path)
    assert_page(tmp_path / "view.html")


def assert_page(path):
    """Assert that a page has the model's layers and the scripts and styles that show them."""
    page = path.read_text(encoding="utf-8")
    assert "layer3.1.conv2" in page and "Content-Security-Policy" in page
    assert "<script" in page and "<style" in page and len(page) > 100_000


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


def test_the_readme_animation_has_frames_and_a_small_file():
    path = ROOT / "assets" / "explorer-moves.png"
    assert path.name in (ROOT / "README.md").read_text()
    assert path.stat().st_size < 3e6
    with Image.open(path) as moving:
        frames = []
        for number in range(moving.n_frames):
            moving.seek(number)
            frames.append(moving.convert("RGB").tobytes())
    assert len(set(frames)) > 10
