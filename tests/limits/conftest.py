"""One kernel for all tests of limits: starting one and importing torch takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from limits.kernel import new_kernel

PREPARE = f"""
import gc, re, sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[1])!r})
import torch
torch.set_num_threads(1)
import hookviz, ipywidgets
from ipywidgets import HBox, VBox
from limits.resources import census, living, resident
from seen import control, parts
model, image, kept = hookviz.demo_model(), hookviz.demo_images()[6], []
new = lambda: hookviz.explore(model, image, layers='stem.*')
explorers = lambda: [w for w in living() if isinstance(w, hookviz.widgets.Explorer)]
gc.collect(); gc.freeze()
"""


@pytest.fixture(scope="session")
def started():
    with new_kernel() as kernel:
        assert kernel.run(PREPARE) == []
        yield kernel


@pytest.fixture
def kernel(started):
    """Return the kernel without the widgets of the previous test."""
    yield started
    started.run("for w in living(): w.close()\nkept.clear()")
