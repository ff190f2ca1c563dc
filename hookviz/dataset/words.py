"""A survey in words: a layer in a line, its channels in a table, what is known of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hooking.tables import number, text_table

if TYPE_CHECKING:
    from .layer_survey import Key, LayerSurvey

HEADER = ("layer", "channels", "map", "mean", "std", "zeros", "dead", "NaN", "classes")


def key_words(key: Key) -> str:
    """A layer's name, with its run if it has several."""
    return key or "(model)" if isinstance(key, str) else f"{key[0] or '(model)'} (run {key[1]})"


def layer_row(layer: LayerSurvey) -> tuple[str, ...]:
    """The layer in a line of the table."""
    values, (count, mean, _) = layer.moments[0].sum(), layer.moments
    middle = float((count * mean).sum() / values)
    spread = float(((count * (mean - middle) ** 2 + layer.moments[2]).sum() / values) ** 0.5)
    pure = [layer.classes(channel) for channel in range(len(layer))]
    of_one = sum(len(each) == 1 for each in pure)
    call = f" (run {layer.column.call})" if layer.column.call else ""
    return (
        f"{layer.name or '(model)'}{call}",
        str(len(layer)),
        "×".join(map(str, layer.shape)),
        number(middle),
        number(spread),
        f"{100 * float(layer.data['zeros'].sum() / values):.3g} %",
        str(int(layer.dead.sum())),
        str(int(layer.nans.sum())),
        f"{of_one} of one class" if any(pure) else "–",
    )


def layer_table(layer: LayerSurvey) -> str:
    """Each channel in a line."""
    header = ("channel", "max", "mean", "std", "zeros", "top inputs", "classes")
    rows = []
    for each in layer.records():
        best = ", ".join(str(index) for index, *_ in layer.top(each["channel"], 5))
        said = ", ".join(f"{name} {count}" for name, count in layer.classes(each["channel"])[:3])
        top = "–" if each["max"] is None else number(each["max"])
        rows.append(
            (
                *(str(each["channel"]), top, number(each["mean"]), number(each["std"])),
                *(f"{100 * each['zeros']:.3g} %", best, said or "–"),
            )
        )
    return text_table(f"{layer.name}, {layer.column.kind}", header, rows)


def channel_words(layer: LayerSurvey, channel: int) -> list[str]:
    """What is known of a channel, in few words: classes, and how its values are spread."""
    named = ", ".join(f"{name} {count}" for name, count in layer.classes(channel)[:4])
    facts = [f"mean {number(float(layer.mean[channel]))}"]
    facts += [f"std {number(float(layer.std[channel]))}"]
    facts += [f"zeros {100 * float(layer.zeros[channel]):.3g} %"] if layer.zeros[channel] else []
    facts += ["never above 0"] if layer.dead[channel] else []
    facts += [f"{int(layer.nans[channel]):,} NaN"] if layer.nans[channel] else []
    return [*([named] if named else []), *facts]


def nan_words(layer: LayerSurvey) -> str:
    """Where there were NaN, in words."""
    channels = layer.nans.nonzero()[:, 0].tolist()
    which = ", ".join(map(str, channels[:3])) + ", …" * (len(channels) > 3)
    first = int(layer.data["first_nan"].min())
    return (
        f"{int(layer.nans.sum()):,} NaN in {layer.name or 'the model'}, channel"
        f"{'s' * (len(channels) > 1)} {which}, first in input {first}"
    )
