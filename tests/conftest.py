"""A worker for each file; one thread each, since two collapse when anything else uses a core."""

from __future__ import annotations

import gc
import os
import random
import re
import signal
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the kernels that notebooks start
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy
import pytest
from xdist import is_xdist_worker
from xdist.scheduler import LoadFileScheduling

# jsonschema, which nbformat imports, compiles a grammar of web addresses for two seconds.
sys.modules.setdefault("rfc3987_syntax", None)

# What a shell starts in the background ignores Ctrl-C, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Every test draws the same numbers in every run and order; other seeds find what rests on these.
SEED = int(os.environ.get("HOOKVIZ_SEED", "0"))

# The longest begin, so that no worker is left alone with one of them at the end.
LONG = ("code", "explorer", "docs", "hooks_tutorial", "records", "interrupts")
# One worker each: of one Chromium and what exports to ONNX, one Lab, one kernel.
TOGETHER = {
    "pages": r"tests/browser/test_\w*page|tests/test_network_export",
    "notebooks": "tests/browser/",
    "limits": "tests/limits/",
}
FIRST = ["notebooks", "pages", *(f"tests/test_{name}.py" for name in LONG), "limits"]


def group_of(nodeid: str) -> str:
    """The tests that share a worker: those of a file, or of several with one Lab or kernel.

    Examples
    --------
    >>> group_of("tests/test_code.py::test_it[3]"), group_of("tests/browser/test_a.py::test_it")
    ('tests/test_code.py', 'notebooks')
    """
    groups = (name for name, files in TOGETHER.items() if re.match(files, nodeid))
    return next(groups, nodeid.partition("::")[0])


class Groups(LoadFileScheduling):
    """A worker for each group. With pytest 9.2 xdist's own, ``--dist loadgroup``, has none."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    return Groups(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {group: place for place, group in enumerate(FIRST)}
    items.sort(key=lambda item: order.get(group_of(item.nodeid), len(FIRST)))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Prepare what runs tests; what only hands them out need not import torch."""
    if session.config.getoption("dist", "no") != "no" and not is_xdist_worker(session):
        return
    gc.disable()  # until all is imported
    import torch

    from hookviz import models

    torch.set_num_threads(1)
    # Where there is no such device torch.manual_seed writes down the whole stack for it.
    for device in (torch.cuda, torch.mtia, torch.xpu):
        if not device.is_available():
            vars(device)["manual_seed_all"] = lambda seed: None
    # A test's demo model is a copy of what was read once.
    vars(models)["_demo_weights"] = cache(models._demo_weights)


def pytest_collection_finish() -> None:
    """Keep the million objects of modules and tests out of each collection of garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)  # as often as by default, it took a tenth of the time
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # or libraries would tell of leaks at the end


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Seed before fixtures are made: a fixture of a file is the same whichever test asks first."""
    import torch

    torch.manual_seed(SEED)
    numpy.random.seed(SEED)
    random.seed(SEED)


@pytest.fixture(autouse=True)
def closed_explorers() -> Iterator[None]:
    """Close the explorers that a test has made: ipywidgets keeps every widget that is open."""
    before = _live_widgets()
    yield
    for key, widget in _live_widgets().items():
        if key not in before:
            widget.close()


def _live_widgets() -> dict[str, Any]:
    if "hookviz.widgets.lifecycle" not in sys.modules:
        return {}
    from hookviz.widgets.lifecycle import LiveWidget, living

    return {each.model_id: each for each in living() if isinstance(each, LiveWidget)}


@pytest.fixture
def own_methods() -> Iterator[None]:
    """What a test does to HEATMAPS is undone, their order, too."""
    from hookviz.attribution import HEATMAPS

    methods = dict(HEATMAPS)
    yield
    HEATMAPS.clear()
    HEATMAPS.update(methods)


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """No picture by matplotlib at each use of a control: for tests of what else it does."""
    monkeypatch.setattr("hookviz.widgets.plain.draw_figure", lambda frame, titled: None)
    monkeypatch.setattr("hookviz.widgets.plain._png", lambda figure: b"")


@pytest.fixture(scope="session")
def translations() -> Iterator[None]:
    """Read torch's tables of operators once; each export to ONNX reads them anew, for a second."""
    import torch._export.utils as export
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib))
        )
        patch.setattr(export, "_materialize_cpp_cia_ops", cache(export._materialize_cpp_cia_ops))
        yield
