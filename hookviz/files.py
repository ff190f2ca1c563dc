"""Files that are whole or not there, and what is said of a broken one."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

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
