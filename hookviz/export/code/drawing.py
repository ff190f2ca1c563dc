"""The heatmap and the pictures: feature map, gradient and overlay, in the explorer's colours."""

from __future__ import annotations

import ast
import inspect
from types import FunctionType
from typing import Any

import numpy as np

from ...attribution import cam
from ...draw.overlay import GAMMA, LUMINANCE, heat_colours, undoing
from ...view.frame import Panel
from ...view.settings import PRODUCT
from ...view.view import ShownMaps
from .context import CodeContext, as_drawn
from .inputs import quoted


def heatmap_lines(context: CodeContext) -> list[str]:
    """Write ``heatmap = ...``, with hookviz's function printed, or with the user's by name."""
    method, at = context.method, context.settings
    if method is None:
        return []
    if method == "saliency":
        assert context.x is not None
        end = f"[{context.view.input_sample}]{as_drawn(context.x)}"
        return [f"heatmap = input_gradient.abs().amax(1){end}"]
    if method == PRODUCT:
        return [f"heatmap = (activation * gradient)[{at.sample}, {at.channel}]"]
    function: Any = cam.HEATMAPS[method]
    name, lines = getattr(function, "__name__", ""), []
    if vars(cam).get(name) is function:
        lines = ["", *_printed(function), ""]
    else:
        name = "method"
        context.take("method", f"your function: hookviz.attribution.HEATMAPS[{quoted(method)}]")
    alone = len(inspect.signature(function).parameters) == 1
    given = "activation" if alone else f"activation, {'gradient' if context.graded else None}"
    return [*lines, f"heatmap = {name}({given})[{at.sample}]"]


def _printed(function: Any) -> list[str]:
    """Return the source of a function of `cam` without its docstring, after its helpers."""
    used = (vars(cam).get(name) for name in function.__code__.co_names)
    helpers = [_printed(each) for each in used if isinstance(each, FunctionType)]
    source = inspect.getsource(function)
    lines, (node,) = source.splitlines(), ast.parse(source).body
    assert isinstance(node, ast.FunctionDef)
    docstring = node.body[0]
    del lines[docstring.lineno - 1 : docstring.end_lineno]
    return [*(line for helper in helpers for line in (*helper, "")), *lines]


def drawing_lines(context: CodeContext) -> list[str]:
    """Write the code that draws a row of pictures."""
    panels = ShownMaps(context.view).panels()
    if len(panels) == 1 and context.method is None:
        return [f"plt.{_panel(context, 'activation', panels[0])}", "plt.show()"]
    named = zip(("activation", "gradient"), panels, strict=False)
    lines = [f"axes[{i}].{_panel(context, *each)}" for i, each in enumerate(named)]
    count = len(panels)
    if context.heatmap.values is not None:
        lines += _heatmap(context, context.heatmap.values, f"axes[{count}]")
        count += 1
    return [f"_, axes = plt.subplots(1, {count})", *lines, "plt.show()"]


def _panel(context: CodeContext, name: str, panel: Panel) -> str:
    values = f"{name}[{context.settings.sample}, {context.settings.channel}]"
    if context.spatial == 1:
        return f"plot({values})"
    colours = _colours(panel.values, panel.low, panel.high)
    return f"imshow({values}, {quoted(panel.cmap)}{colours})"


def _colours(values: np.ndarray, low: float, high: float) -> str:
    """Return the colour range as arguments; empty if it is matplotlib's default."""
    if np.isfinite(values).all() and low < high:
        if high == -low == np.abs(values).max():
            return ", norm=CenteredNorm()"
        if (low, high) == (values.min(), values.max()):
            return ""
    return f", vmin={low:.7g}, vmax={high:.7g}"


def _heatmap(context: CodeContext, values: np.ndarray, axes: str) -> list[str]:
    x, alpha, colours = context.x, context.settings.alpha, heat_colours(values)
    assert x is not None
    if len(values) == 1 and (context.spatial == 1 or x.ndim == 3):
        return [f"{axes}.plot(heatmap)"]
    if context.heatmap.alone or x.ndim < 4:
        name, low, high = colours or ("viridis", 0.0, 1.0)
        return [f"{axes}.imshow(heatmap, {quoted(name)}{_colours(values, low, high)})"]
    lines = _picture(context, axes, muted=colours is not None)
    if colours is None:
        return [*lines, f'{axes}.set_title("heatmap: zero everywhere")']
    name, low, _ = colours
    shown = "heatmap"
    if values.shape != tuple(x.shape[-2:]):
        shown = "large"
        enlarged = 'interpolate(heatmap[None, None], x.shape[-2:], mode="bilinear")[0, 0]'
        lines.append(f"large = {enlarged}")
    # The larger the value, the more opaque; the range is that of the heatmap before resizing.
    sign = "" if low == 0 else ".abs()"
    limits = "vmin=0, vmax=top" if low == 0 else "norm=CenteredNorm(halfrange=top)"
    return [
        *lines,
        f"top = heatmap{sign}.max()",
        f"opacity = {alpha:g} * ({shown}{sign} / top).clip(0, 1)",
        f"{axes}.imshow({shown}, {quoted(name)}, {limits}, alpha=opacity)",
    ]


def _picture(context: CodeContext, axes: str, muted: bool) -> list[str]:
    """Write the code for the input's picture, with less colour if ``muted``."""
    x, sample, alpha = context.x, context.view.input_sample, context.settings.alpha
    assert x is not None
    own = (".detach()" if context.scored else "") + as_drawn(x)
    lines = [f"picture = x[{sample}]{own}.permute(1, 2, 0)"]
    lines += _undone(context, x[sample].detach().float().cpu().numpy())
    if x.shape[1] != 3:
        return [*lines, f'{axes}.imshow(picture.mean(2), "gray", vmin=0, vmax=1)']
    if not muted:
        return [*lines, f"{axes}.imshow(picture)"]
    luminance = np.round(LUMINANCE.astype(float), 4).tolist()
    return [
        *lines,
        f"light = picture.numpy() ** {GAMMA}",
        f"gray = (light @ {luminance})[..., None]  # luminance",
        f"{axes}.imshow((light + {alpha:g} * (gray - light)) ** (1 / {GAMMA}))",
    ]


def _undone(context: CodeContext, values: np.ndarray) -> list[str]:
    """Write the lines that bring one sample ``(C, H, W)`` to 0..1."""
    scale, offset, words = undoing(values, context.inputs)
    if not words:
        return []
    if words.startswith("stretched"):
        return ["picture = (picture - picture.min()) / (picture.max() - picture.min())"]
    std, mean = ([round(float(each), 6) for each in both.ravel()] for both in (scale, offset))
    if len({*std}) == len({*mean}) == 1:
        return [f"picture = (picture * {std[0]} + {mean[0]}).clip(0, 1)"]
    return [
        f"mean, std = torch.tensor([{mean}, {std}])",
        "picture = (picture * std + mean).clip(0, 1)",
    ]
