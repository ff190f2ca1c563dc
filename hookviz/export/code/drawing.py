"""The pictures: the feature map, its gradient and the heatmap, in the explorer's colours."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ...attribution.gradients import ATTRIBUTIONS
from ...draw.input_picture import undoing
from ...draw.overlay import GAMMA, LUMINANCE, heat_colours
from ...view.frame import Panel
from ...view.view import ShownMaps
from .draft import CodeContext, as_drawn
from .inputs import quoted


def drawing_lines(draft: CodeContext) -> list[str]:
    """One row of pictures."""
    panels = ShownMaps(draft.view).panels()
    if len(panels) == 1 and draft.method is None:
        return [f"plt.{_panel(draft, 'activation', panels[0])}", "plt.show()"]
    named = zip(("activation", "gradient"), panels, strict=False)
    lines = [f"axes[{i}].{_panel(draft, *each)}" for i, each in enumerate(named)]
    count = len(panels)
    if draft.heatmap.values is not None:
        lines += _heatmap(draft, draft.heatmap.values, f"axes[{count}]")
        count += 1
    return [f"_, axes = plt.subplots(1, {count})", *lines, "plt.show()"]


def _panel(draft: CodeContext, name: str, panel: Panel) -> str:
    values = f"{name}[{draft.index(draft.at.sample, draft.at.channel)}]"
    if draft.spatial == 1:
        return f"plot({values})"
    colours = _colours(panel.values, panel.low, panel.high)
    return f"imshow({values}, {quoted(panel.cmap)}{colours})"


def _colours(values: np.ndarray, low: float, high: float) -> str:
    """The range of colours as arguments: matplotlib's own choice where it is the same."""
    if np.isfinite(values).all() and low < high:
        if high == -low == np.abs(values).max():
            return ", norm=CenteredNorm()"
        if (low, high) == (values.min(), values.max()):
            return ""
    return f", vmin={low:.7g}, vmax={high:.7g}"


def _heatmap(draft: CodeContext, values: np.ndarray, axes: str) -> list[str]:
    if len(values) == 1 and (draft.spatial == 1 or draft.method in ATTRIBUTIONS):
        return [f"{axes}.plot(heatmap)"]
    colours = heat_colours(values)
    name, low, high = colours or ("viridis", 0.0, 1.0)
    x = draft.x
    if draft.heatmap.alone or x is None or x.ndim < 4:
        limits = _heat_range(values, low, high)
        return [f"{axes}.imshow(heatmap, {quoted(name)}{limits})"]
    lines = _picture(draft, x, axes, muted=colours is not None)
    if colours is None:
        return [*lines, f'{axes}.set_title("heatmap: zero everywhere")']
    heatmap, limits = "heatmap", _heat_range(values, low, high)
    if values.shape != tuple(x.shape[-2:]):
        heatmap, limits = "large", _heat_range(values, low, high, enlarged=True)
        enlarge = 'interpolate(heatmap[None, None], x.shape[-2:], mode="bilinear")[0, 0]'
        lines.append(f"large = {enlarge}")
    # The larger the value, the less of the picture is seen.
    sign = "" if low == 0 else ".abs()"
    share = f"({heatmap}{sign} / heatmap{sign}.max()).clip(0, 1)"
    if not np.isfinite(values).all():
        share = f"({heatmap}.abs() / {high:.7g}).nan_to_num(1).clip(0, 1)"
    lines.append(f"opacity = {draft.at.alpha:g} * {share}")
    return [*lines, f"{axes}.imshow({heatmap}, {quoted(name)}{limits}, alpha=opacity)"]


def _heat_range(values: np.ndarray, low: float, high: float, enlarged: bool = False) -> str:
    """The colours' range; of an enlarged heatmap still that of its own values."""
    if not np.isfinite(values).all() or not values.any():
        return f", vmin={low:.7g}, vmax={high:.7g}"
    if low == 0:
        return ", vmin=0" + (", vmax=heatmap.max()" if enlarged else "")
    return f", norm=CenteredNorm({'halfrange=heatmap.abs().max()' if enlarged else ''})"


def _picture(draft: CodeContext, x: Tensor, axes: str, muted: bool) -> list[str]:
    """The input as the network saw it, the normalization undone; with less colour if ``muted``."""
    colours = x.shape[1] == 3
    less = [
        f"light = {{}} ** {GAMMA}",
        f"gray = (light @ {np.round(LUMINANCE.astype(float), 4).tolist()})[..., None]  # luminance",
        f"{axes}.imshow((light + {draft.at.alpha:g} * (gray - light)) ** (1 / {GAMMA}))",
    ]
    if draft.preparation is not None and draft.preparation.picture is not None:
        if colours and muted:
            return [less[0].format(f"(np.asarray({draft.preparation.picture}) / 255)"), *less[1:]]
        gray = "" if colours else ', "gray", vmin=0, vmax=255'
        return [f"{axes}.imshow({draft.preparation.picture}{gray})"]
    at = [draft.view.input_sample, *(f":, {depth}" for depth in draft.x_depth)]
    shown = x[draft.view.input_sample]
    for depth in draft.x_depth:
        shown = shown[:, depth]
    own = (".detach()" if draft.scored else "") + as_drawn(x)
    lines = [f"picture = x[{', '.join(map(str, at))}]{own}.permute(1, 2, 0)"]
    lines += _undone(draft, shown.detach().float().cpu().numpy())
    if colours and muted:
        return [*lines, less[0].format("picture.numpy()"), *less[1:]]
    if colours:
        return [*lines, f"{axes}.imshow(picture)"]
    return [*lines, f'{axes}.imshow(picture.mean(2), "gray", vmin=0, vmax=1)']


def _undone(draft: CodeContext, values: np.ndarray) -> list[str]:
    """What brings one sample ``(C, H, W)`` to 0..1."""
    scale, offset, words = undoing(values, draft.inputs)
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
