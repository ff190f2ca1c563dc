"""Which line of the user's code is running, and how it is told."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from types import FrameType

import torch

_OURS, _TORCHS = str(Path(__file__).parents[1]), str(Path(torch.__file__).parent) + "/"


def users_line(frame: FrameType | None) -> tuple[str, int]:
    """Return file and line of the innermost code that is neither torch's nor hookviz's.

    Above a frame of hookviz's is nothing of the model: then there is no such line, ``("", 0)``.
    """
    while frame is not None:
        whose = _whose(frame.f_code.co_filename)
        if whose == "hookviz":
            break
        if whose == "user":
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "", 0


@cache
def _whose(file: str) -> str:
    if file.startswith(_OURS):
        return "hookviz"
    return "torch" if file.startswith((_TORCHS, "<frozen")) else "user"


def legible(file: str) -> str:
    """Name a notebook's cell by its number, where the notebook knows it."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    said = getattr(getattr(shell, "compile", None), "format_code_name", lambda name: None)(file)
    if said:
        return str(said[1])
    if number := re.search(r"ipython-input-(\d+)-", file):  # IPython 7, as in Colab
        return f"In[{number[1]}]"
    return "a notebook cell" if re.search(r"ipykernel_|ipython-input|__marimo__", file) else file


def line_of(file: str, line: int) -> str:
    """Name a line of code for people, a notebook's cell by its number; empty if there is none.

    >>> line_of("/home/me/net.py", 12), line_of("<ipython-input-3-aa>", 5), line_of("", 0)
    ('net.py:12', 'In[3], line 5', '')
    """
    if not file:
        return ""
    said = Path(legible(file))
    return f"{said.name}:{line}" if said.suffix else f"{said}, line {line}"
