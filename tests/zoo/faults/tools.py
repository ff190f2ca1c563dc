"""Run other tools on the same faults, each used as its documentation says.

They are tested on NaN and Inf. Two of them do not look for wrong shapes, dead channels or unused
layers, and TorchLens's audits of gradients and neurons are tables without a verdict.
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from linecache import getline

import torch
from torch import distributed, nn
from torch.utils._pytree import tree_structure, tree_unflatten

from .fault import PLANTED, Fault


@dataclass
class Answer:
    """A tool's answer to a fault.

    Attributes
    ----------
    said : str
        The answer in short; empty if it found nothing.
    layer, operation, line : bool
        Whether the answer has the right one.
    crashed : str
        The tool's error.
    """

    said: str = ""
    layer: bool = False
    operation: bool = False
    line: bool = False
    crashed: str = ""

    @property
    def named(self) -> bool:
        """Return whether layer and operation are right."""
        return self.layer and self.operation


Tool = Callable[[Fault, nn.Module], Answer]


def by_detect_anomaly(fault: Fault, model: nn.Module) -> Answer:
    """``with torch.autograd.detect_anomaly(): loss.backward()``: it names a backward function, and
    prints the forward's traceback, which counts as layer and operation if the planted line is in
    it; without a planted line the function's name must be the operation's.
    """
    error = ""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            with torch.autograd.detect_anomaly():
                fault.step(model)
        except RuntimeError as raised:
            error = str(raised)
    function = re.search(r"Function '(\w+?)(Backward\d*)?' returned nan", error)
    if function is None:
        return Answer()
    traces = " ".join(str(each.message) for each in told)
    line = PLANTED in traces
    operation = line if fault.truth.line else _same(function[1], fault.truth.operation)
    return Answer(f"{function[1]}{function[2] or ''}", line, operation, line)


def by_transformers(fault: Fault, model: nn.Module) -> Answer:
    """``DebugUnderflowOverflow(model)`` (transformers): it names the first module whose weights,
    input or output hold NaN or Inf, and no operation.
    """
    from transformers.debug_utils import DebugUnderflowOverflow

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        DebugUnderflowOverflow(model)
        try:
            fault.step(model)
        except ValueError as raised:
            if "DebugUnderflowOverflow" not in str(raised):
                raise
        else:
            return Answer()
    frames = re.findall(r"^ {17} (\S*) (\w+)$", printed.getvalue(), re.M)
    name, kind = frames[-1] if frames else ("", "")
    return Answer(f"{name or 'the model'} ({kind})", name == fault.truth.layer)


def by_torchlens(fault: Fault, model: nn.Module) -> Answer:
    """``torchlens.debug.find_nan(model, x)``; if it finds nothing,
    ``torchlens.debug.bisect_nan_backward`` of a trace with ``save_grads=True``.
    """
    import torchlens
    from torchlens import debug

    if not distributed.is_initialized():  # in a child process TorchLens runs only as a rank
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    given = fault.given()
    named = given if isinstance(given, dict) else None
    args = () if named is not None else given
    args = list(args) if isinstance(args, tuple) else args
    capture = torchlens.options.CaptureOptions(unwrap_when_done=True)
    with fault.around():
        found = debug.find_nan(model, args, input_kwargs=named, capture=capture)
    if found.found:
        return _answer(fault, found.module_address, found.func_name, found.source_line, found.label)
    trace = _backward(fault, fault.build(), args, named)
    born = debug.bisect_nan_backward(trace).birth
    if born is None:
        return Answer()
    name = re.sub(r"Backward\d*$", "", born.grad_fn_class)
    return _answer(fault, born.module, name, born.source_line, born.grad_fn_label)


def _backward(fault: Fault, model: nn.Module, args: object, named: object) -> object:
    """Return a trace with its backward."""
    import torchlens

    capture = torchlens.options.CaptureOptions(unwrap_when_done=True, save_grads=True)
    with fault.around():
        # The trace's outputs are a list, while the loss may need a dictionary.
        form = tree_structure(fault.run(fault.build()))
        trace = torchlens.trace(model, args, named, capture=capture)
        loss = fault.loss(tree_unflatten([trace[each].out for each in trace.output_layers], form))
    trace.log_backward(loss)
    return trace


def _answer(
    fault: Fault, module: str | None, operation: str | None, source: str | None, label: str | None
) -> Answer:
    truth, module = fault.truth, (module or "").removeprefix("self").lstrip(".")
    name, _, call = module.partition(":")
    layer = name == (truth.layer or "") and (not call or int(call) == truth.call + 1)
    file, _, line = (source or "").rpartition(":")
    planted = bool(file) and PLANTED in getline(file, int(line))
    right = planted or _same(operation, truth.operation)
    return Answer(f"{label} in {module or 'the model'}", layer, right, planted)


def _same(name: str | None, operation: str | None) -> bool:
    """Return whether a tool's name of an operation means the expected operation."""
    said, asked = ((each or "").replace("_", "").lower() for each in (name, operation))
    return bool(asked) and (said == asked or said in _ALIKE.get(asked, ()))


_ALIKE = {"convolution": ("conv1d", "conv2d"), "addmm": ("linear",), "mm": ("linear",)}
_ALIKE |= {"bmm": ("matmul",), "div": ("truediv",), "reciprocal": ("rtruediv", "div")}
"""The dispatcher's name -> what Python calls it."""


@dataclass(frozen=True)
class Way:
    """A tool and its package."""

    run: Tool
    package: str

    @property
    def there(self) -> bool:
        """Return whether the package is installed."""
        return find_spec(self.package) is not None


TOOLS = {
    "detect_anomaly": Way(by_detect_anomaly, "torch"),
    "DebugUnderflowOverflow": Way(by_transformers, "transformers"),
    "TorchLens": Way(by_torchlens, "torchlens"),
}
