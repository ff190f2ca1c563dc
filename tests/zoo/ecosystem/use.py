"""Check what users do besides capturing: figure, code and trace."""

from __future__ import annotations

import io
import re

import torch
from matplotlib import pyplot
from seen import registered
from untouched import snapshot

import hookviz
from hookviz.hooking.maps import as_maps
from hookviz.hooking.select import unwrapped

from ..check import (
    build,
    capture,
    differences,
    note_changes,
    note_left,
)
from ..running import score, seed


def trace(case, truths, result):
    """Trace all hooks of every module; the trace must have each call of each convolution."""
    model = build(case, result.gain)
    seed()
    before = snapshot(model)
    traced = hookviz.trace(model, case.input(), target=score)
    note_changes("trace", model, before, result)
    core, _ = unwrapped(model)
    names = {id(module): name for name, module in core.named_modules()}
    for name, calls in truths.items():
        known = names[id(model.get_submodule(name))]
        count = sum(event.name == known and event.kind == "forward" for event in traced)
        if count != len(calls):
            result.raised.append(f"trace: {count} forward events of {name}, {len(calls)} calls")
    if not traced.scored:
        result.raised.append("trace: no backward")


def show(case, truths, result):
    """Show a layer of each shape in an explorer, and test figure and code of three of them."""
    model = build(case, result.gain)
    alive, figures = registered(), set(pyplot.get_fignums())
    seed()
    before = snapshot(model)
    explorer = hookviz.explore(model, case.input())
    explorer.target = score
    result.explored_wrong = [f"explore: {each}" for each in differences(explorer.cache, truths)]
    names = list(explorer.cache)
    shapes = {explorer.cache[name].last.activation.shape: name for name in names}
    for name in shapes.values():
        explorer.layer = name
        result.explored += explorer.layer == name
    for name in dict.fromkeys([names[0], names[len(names) // 2], names[-1]]):
        explorer.layer = name
        explorer.call = len(explorer.cache[name].calls) - 1
        _check_figure(explorer, result)
        _check_code(explorer, model, result)
    explorer.close()
    note_changes("explore", model, before, result)
    note_left(alive, figures, result)


def _check_figure(explorer, result):
    figure = explorer.figure()
    figure.savefig(io.BytesIO(), format="png")
    if not any(axes.images or axes.lines for axes in figure.axes):
        result.raised.append(f"figure of {explorer.layer}: nothing is drawn")


def _check_code(explorer, model, result):
    """Run the code, without hookviz, and compare it with what the explorer shows."""
    name = explorer.layer
    try:
        code = explorer.code()
    except ValueError as error:
        result.refused.append(f"code of {name}: {error}")
        return
    scope = {"model": model}
    modes = [(module, module.training) for module in model.modules()]  # the code calls eval()
    for what, where in re.findall(r"^# (\w+): .*?(explorer\.\S+)$", code, re.MULTILINE):
        scope[what] = eval(where, {"explorer": explorer})  # as the code's comments say
    backend = pyplot.get_backend()
    pyplot.switch_backend("agg")
    seed()
    try:
        exec(compile(code, "code", "exec"), scope)
    except Exception as error:
        at = error.__traceback__ and error.__traceback__.tb_next
        line = code.splitlines()[at.tb_lineno - 1].strip() if at else ""
        message = " ".join(str(error).split())[:200]
        result.raised.append(f"code of {name}: {type(error).__name__}: {message} | {line}")
        return
    finally:
        for module, training in modes:
            module.training = training
        pyplot.close("all")
        pyplot.switch_backend(backend)
    result.raised += [f"code of {name}: {each}" for each in _otherwise(explorer, scope)]


def _otherwise(explorer, scope):
    """Yield the names of results of the code that differ from the explorer's."""
    call = explorer.cache[explorer.layer].calls[explorer.call]
    wanted = {"activation": as_maps(call.activation, call.module, call.grid)}
    if call.gradient is not None:
        wanted["gradient"] = as_maps(call.gradient, call.module, call.grid)
    if (heatmap := explorer.frame.heatmap) is not None:
        wanted["heatmap"] = torch.as_tensor(heatmap)
    for what, values in wanted.items():
        if what not in scope:
            yield f"no {what}"
        elif not _close(torch.as_tensor(scope[what]), values):
            yield f"{what} is another"


def _close(got, wanted):
    if got.numel() != wanted.numel():
        return False
    got, wanted = got.detach().double().flatten(), wanted.detach().double().flatten()
    return bool((got - wanted).abs().max() <= 1e-4 * wanted.abs().max().clamp(min=1e-12))


STEPS = (capture, show, trace)
