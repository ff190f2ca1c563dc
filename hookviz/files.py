"""Files that are written whole or not at all, and validated when they are read."""

from __future__ import annotations

import io
import json
import math
import os
import re
import secrets
import shutil
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
Unpack = Callable[[dict[str, Any], dict[str, np.ndarray]], T]
"""A file's description and arrays -> the object that was written."""


def file_path(path: str | os.PathLike) -> Path:
    """Return the path of a file; raise ``TypeError`` or ``ValueError`` if it cannot be one."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path={path!r} is not a path: give that of a file.")
    if Path(path).is_dir():
        raise ValueError(f"{str(path)!r} is a folder: give the path of a file.")
    return Path(path)


def write_arrays(
    path: str | os.PathLike, about: dict[str, Any], arrays: dict[str, np.ndarray], *, small: bool
) -> None:
    """Write arrays and a description as one .npz file; ``small`` compresses, which takes seconds.

    ``about["format"]`` names the format, by which `read_arrays` finds its function.
    """
    held = io.BytesIO()
    save = np.savez_compressed if small else np.savez
    save(held, about=np.array(json.dumps(about)), **arrays)  # type: ignore[arg-type]
    write_whole(path, held.getvalue())


def read_arrays(path: str | os.PathLike, formats: Mapping[str, Unpack[T]], kind: str) -> T:
    """Read a file of `write_arrays` with the function of its format; no code in it is run.

    Raises
    ------
    FileNotFoundError
        The file is missing.
    ValueError
        The file is broken, of another ``kind``, or a folder.
    """
    if not file_path(path).is_file():
        raise FileNotFoundError(f"Missing file {str(path)!r}: check the path.")
    try:
        content = io.BytesIO(Path(path).read_bytes())
        # NumPy would suggest to unpickle anything that is not an archive.
        if not zipfile.is_zipfile(content):
            raise ValueError("no .npz archive, or its end is missing")
        with zipfile.ZipFile(content) as archive:
            _check_sizes(archive, content.getbuffer().nbytes)
        content.seek(0)
        with np.load(content, allow_pickle=False) as file:
            if "about" not in file:
                raise ValueError("an .npz archive that hookviz did not write")
            about = json.loads(str(file["about"]))
            if about["format"] not in formats:
                raise ValueError(f"its format is {about['format']!r}, not {' or '.join(formats)}")
            arrays = {name: file[name] for name in file.files if name != "about"}
        return formats[about["format"]](about, arrays)
    except Exception as error:  # a broken file can make NumPy and json raise nearly everything
        reason = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
    raise ValueError(
        f"{str(path)!r} is broken, or not a {kind} ({reason}). The file was not changed: move it "
        "or use another path."
    )


MOST_BYTES = 4e9
"""An archive that unpacks to more is not read."""
MOST_PACKED = 1032
"""Deflate packs this many bytes into one, at most."""


def _check_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """Raise ``ValueError`` for sizes that an archive of ``size`` bytes declares and cannot have."""
    entries = archive.infolist()
    unpacked = sum(each.file_size for each in entries)
    shared = sum(each.compress_size for each in entries) > size  # entries of the same bytes
    packed = any(each.file_size > MOST_PACKED * each.compress_size + 64 for each in entries)
    if shared or packed or unpacked > MOST_BYTES:
        raise ValueError(f"unpacked, its {size} bytes would be {unpacked}")
    for entry in entries:
        with archive.open(entry) as file:
            version = np.lib.format.read_magic(file)
            shape, _, dtype = _HEADERS[version](file)
            # NumPy would allocate the array before it reads.
            if math.prod(shape) * dtype.itemsize != entry.file_size - file.tell():
                raise ValueError(f"{entry.filename} has {entry.file_size} bytes for shape {shape}")


_HEADERS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def page_to(path: str | os.PathLike | None, page: str) -> str | None:
    """Write a page, or return it if there is no path."""
    if path is None:
        return page
    write_whole(path, page.encode())
    return None


def check_pictures(folder: str | os.PathLike) -> None:
    """Raise ``ValueError`` if this is not a folder."""
    if not Path(folder).is_dir():
        known = "is not a folder" if Path(folder).exists() else "does not exist"
        raise ValueError(f"{str(folder)!r} {known}: give a folder with pictures in it.")


def check_folder(path: str | os.PathLike | None) -> None:
    """Raise ``FileNotFoundError`` if a file's folder is missing: before long work, not after it."""
    if path is not None and not (target := file_path(path)).parent.is_dir():
        raise FileNotFoundError(
            f"Missing folder {str(target.parent)!r} for {target.name}: make it."
        )


ABANDONED = 3600.0
"""Seconds after which nobody is writing a temporary file any more."""


def write_whole(path: str | os.PathLike, content: bytes) -> None:
    """Write a file whole or not at all; all files for the user are written here.

    A new file is written in the same folder and then replaces the old one, so an error leaves the
    old one as it was. Of a symbolic link the file that it points to is replaced.
    """
    check_folder(path)
    target = Path(os.path.realpath(file_path(path)))
    if target.exists() and not target.is_file():  # a pipe or a device cannot be replaced
        target.write_bytes(content)
        return
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(f"{str(path)!r} is write-protected: choose another path.")
    for other in target.parent.glob(".hookviz-*.part"):  # left there by killed processes
        with suppress(OSError):
            if time.time() - other.stat().st_mtime > ABANDONED:
                other.unlink()
    # Nobody can predict the name, and "x" opens neither an existing file nor a link.
    part = target.with_name(f".hookviz-{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def without_half_characters(text: str) -> str:
    r"""Replace lone surrogates, which no file can hold, by U+FFFD.

    >>> without_half_characters("a\ud83db") == "a\ufffdb"
    True
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", "\ufffd", text)
    return text


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value of JSON with all its texts changed, keys included.

    >>> with_texts({"a": ["b", 3]}, str.upper)
    {'A': ['B', 3]}
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key): with_texts(each, change) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [with_texts(each, change) for each in value]
    return value
