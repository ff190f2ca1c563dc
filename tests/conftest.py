"""One thread each: two of them collapse when anything else uses a core."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the kernels that notebooks start
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch

torch.set_num_threads(1)

# What a shell starts in the background ignores Ctrl-C, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def own_methods() -> Iterator[None]:
    """What a test does to HEATMAPS is undone, their order, too."""
    from hookviz.attribution import HEATMAPS

    methods = dict(HEATMAPS)
    yield
    HEATMAPS.clear()
    HEATMAPS.update(methods)
