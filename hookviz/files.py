"""Files that are whole or not there, and what is said of a broken one."""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def read_whole(path: str | os.PathLike, unpack: Callable[[bytes], T], kind: str) -> T:
    """What ``unpack`` makes of a file's content.

    Raises
    ------
    FileNotFoundError
        No such file.
    ValueError
        It is broken, or of another ``kind``.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no file {str(path)!r}: check the path.")
    try:
        return unpack(Path(path).read_bytes())
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        reason = f"{type(error).__name__}: {error}"
    except (zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        reason = str(error)
    raise ValueError(
        f"{str(path)!r} is broken, or no {kind} ({reason}). It was left as it is: move it away, or "
        "give another path."
    )


def pack_arrays(about: dict[str, Any], arrays: dict[str, np.ndarray], *, small: bool) -> bytes:
    """An .npz file of arrays and, as JSON, what they are of; ``small`` takes seconds more."""
    held = io.BytesIO()
    save = np.savez_compressed if small else np.savez
    save(held, about=np.array(json.dumps(about)), **arrays)  # type: ignore[arg-type]
    return held.getvalue()


def unpack_arrays(content: bytes, format: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `pack_arrays` was given; nothing in the file is run.

    Raises
    ------
    ValueError, KeyError, ...
        It is none, or of another format; see `read_whole`.
    """
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        held = {name: file[name] for name in file.files}
    about = json.loads(str(held.pop("about")))
    if about["format"] != format:
        raise ValueError(f"its format is {about['format']!r}, not {format!r}")
    return about, held


def format_of(content: bytes) -> str:
    """The format that `pack_arrays` was told, read without the arrays."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return json.loads(str(file["about"]))["format"]


def page_to(path: str | os.PathLike | None, page: str) -> str | None:
    """Write a page; without a path it is returned."""
    if path is None:
        return page
    Path(path).write_text(page, encoding="utf-8")
    return None


def write_whole(path: str | os.PathLike, content: bytes) -> None:
    """Write it whole or not at all: beside the old file, which it then replaces."""
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
