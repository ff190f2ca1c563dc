"""Kernels that are connected by files.

A port that is chosen for a kernel may be taken by another process before the kernel starts.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from traitlets.config import Config

# Windows has no such files. A file's path has 103 characters at most on macOS, and pytest's folders
# are too long for that.
FOLDER = "/tmp" if os.name == "posix" else None


@contextmanager
def connection() -> Iterator[Config]:
    """Yield the configuration of a kernel's manager, with a folder for the kernel's files."""
    with tempfile.TemporaryDirectory(prefix="hv-", dir=FOLDER) as folder:
        config = Config()
        config.KernelManager.connection_file = f"{folder}/kernel.json"
        if FOLDER:
            config.KernelManager.transport = "ipc"
        yield config
