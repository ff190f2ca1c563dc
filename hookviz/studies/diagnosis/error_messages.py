"""PyTorch's own error messages: the only file in which they are matched, tested per version."""

from __future__ import annotations

import re

OVERWRITTEN = re.compile("modified by an inplace operation")
NO_GRAPH = re.compile("without a gradient|does not require grad")
WRONG_ARGUMENTS = re.compile(
    r"missing \d+ required (positional|keyword)|positional arguments? but|unexpected keyword"
)
