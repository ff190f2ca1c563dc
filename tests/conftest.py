"""Run each file in one worker with one thread: more threads slow down badly on a busy machine."""

from __future__ import annotations

import atexit
import gc
import os
import random
import re
import signal
import sys
from functools import cache

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the kernels that notebooks start
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy
import pytest
from _pytest.doctest import DoctestModule
from xdist import is_xdist_worker
from xdist.scheduler import LoadFileScheduling

# jsonschema, which nbformat imports, compiles a grammar of web addresses for two seconds.
sys.modules.setdefault("rfc3987_syntax", None)

# A shell's background process ignores Ctrl-C, and its child processes would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Every test draws the same numbers in every run and order. Run with other seeds to find tests that
# depend on them.
SEED = int(os.environ.get("HOOKVIZ_SEED", "0"))

# The longest files start first, so that no worker is still busy with one of them at the end.
LONG = [
    "tests/diagnosis/test_faults.py",
    "tests/diagnosis/test_doctor_in_scripts.py",
    "tests/notebooks/test_hooks_tutorial.py",
    "tests/widgets/test_explorer.py",
    "tests/hooking/test_interrupts.py",
    "tests/export/test_code.py",
    "tests/test_docs.py",
    "tests/test_records.py",
]
# Each group runs in one worker: its files share a Chromium or an ONNX export, a Lab, or a kernel.
TOGETHER = {
    "pages": r"tests/browser/test_\w*page|tests/export/test_network_export",
    "notebooks": "tests/browser/",
    "limits": "tests/limits/",
}
FIRST = ["notebooks", "pages", *LONG, "limits"]


def group_of(nodeid):
    """Name the group of tests that share a worker: one file, or several files that share a Lab.

    Examples
    --------
    >>> group_of("tests/run/test_a.py::test_it[3]"), group_of("tests/browser/test_a.py::test_it")
    ('tests/run/test_a.py', 'notebooks')
    """
    groups = (name for name, files in TOGETHER.items() if re.match(files, nodeid))
    return next(groups, nodeid.partition("::")[0])


class Groups(LoadFileScheduling):
    """Give each group one worker; xdist's ``--dist loadgroup`` does not work with pytest 9.2."""

    def _split_scope(self, nodeid):
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config, log):
    return Groups(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Look for examples only in helpers: looking through every test took a sixth of collection."""
    collectors = yield
    is_test = file_path.name.startswith("test_")
    return [each for each in collectors if not (is_test and isinstance(each, DoctestModule))]


def pytest_collection_modifyitems(items):
    order = {group: place for place, group in enumerate(FIRST)}
    items.sort(key=lambda item: order.get(group_of(item.nodeid), len(FIRST)))


def pytest_sessionstart(session):
    """Prepare the workers; the process that only distributes tests need not import torch."""
    if session.config.getoption("dist", "no") != "no" and not is_xdist_worker(session):
        return
    gc.disable()  # until everything is imported
    import torch

    from hookviz import models

    torch.set_num_threads(1)
    # Without such a device, torch.manual_seed records the whole call stack, which is slow.
    for device in (torch.cuda, torch.mtia, torch.xpu):
        if not device.is_available():
            vars(device)["manual_seed_all"] = lambda seed: None
    # Read the weights once; each demo model gets a copy.
    vars(models)["_demo_weights"] = cache(models._demo_weights)


def pytest_collection_finish():
    """Exclude the million objects of modules and tests from garbage collection."""
    gc.collect()
    gc.freeze()
    # Otherwise libraries report leaks at exit. Before that, pytest collects garbage five times.
    atexit.register(gc.unfreeze)
    gc.set_threshold(10_000)  # with the default threshold, collection took a tenth of the time
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Seed before fixtures are made, so that they do not depend on the order of tests."""
    import torch

    torch.manual_seed(SEED)
    numpy.random.seed(SEED)
    random.seed(SEED)


@pytest.fixture(autouse=True)
def closed_explorers():
    """Close the test's explorers: ipywidgets keeps a reference to every open widget."""
    before = _live_widgets()
    yield
    for key, widget in _live_widgets().items():
        if key not in before:
            widget.close()


def _live_widgets():
    if "hookviz.widgets.lifecycle" not in sys.modules:
        return {}
    from hookviz.widgets.lifecycle import LiveWidget, living

    return {each.model_id: each for each in living() if isinstance(each, LiveWidget)}


@pytest.fixture
def restored_heatmaps():
    """Restore HEATMAPS, including the order of its methods, after the test."""
    from hookviz.attribution import HEATMAPS

    methods = dict(HEATMAPS)
    yield
    HEATMAPS.clear()
    HEATMAPS.update(methods)


@pytest.fixture(scope="session")
def translations():
    """Cache torch's operator tables: each export to ONNX would spend a second on reading them."""
    import torch._export.utils as export
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib))
        )
        patch.setattr(export, "_materialize_cpp_cia_ops", cache(export._materialize_cpp_cia_ops))
        yield
