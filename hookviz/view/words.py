"""A layer in words: what it is, how it is built, how large its maps are."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..hooking.records import LayerRecord


class LayerWords(NamedTuple):
    """What is said of a layer.

    Attributes
    ----------
    kind : str
        Its type, such as ``Conv2d``.
    text : str
        Kernel, stride, channels, groups and parameters; only what it has.
    size : str
        Of what one sample gives, ``96×14×14``.
    """

    kind: str
    text: str
    size: str

    @property
    def line(self) -> str:
        """All of it."""
        return " · ".join(filter(None, (f"{self.kind} {self.text}".strip(), self.size)))


def layer_words(record: LayerRecord) -> LayerWords:
    """Words for a layer that has run.

    Examples
    --------
    >>> import torch
    >>> from hookviz import capture
    >>> conv = torch.nn.Conv2d(48, 96, 3, stride=2, padding=1, groups=4)
    >>> with capture(conv) as cache:
    ...     _ = conv(torch.zeros(1, 48, 28, 28))
    >>> layer_words(cache[""]).line
    'Conv2d 3×3, stride 2, 48 → 96 channels, groups 4, 10,464 parameters · 96×14×14'
    """
    module: Any = record.module
    text = [_sizes(getattr(module, "kernel_size", None), always=True)]
    for name in ("stride", "dilation"):
        if said := _sizes(getattr(module, name, None)):
            text.append(f"{name} {said}")
    ends = [
        (getattr(module, f"in_{what}", None), getattr(module, f"out_{what}", None), what)
        for what in ("channels", "features")
    ]
    text += [f"{a} → {b} {w}" for a, b, w in ends if isinstance(a, int) and isinstance(b, int)]
    groups = getattr(module, "groups", 1)
    text += [f"groups {groups}"] if isinstance(groups, int) and groups > 1 else []
    count = sum(parameter.numel() for parameter in module.parameters())
    text += [f"{count:,} parameters"] if count else []
    outputs = record.last.outputs
    size = outputs[0].shape if outputs else ()
    kernel = getattr(module, "kernel_size", None)
    unbatched = isinstance(kernel, tuple) and len(size) == len(kernel) + 1
    shown = size if unbatched else size[1:]
    return LayerWords(
        type(module).__name__, ", ".join(filter(None, text)), "×".join(map(str, shown))
    )


def _sizes(given: Any, always: bool = False) -> str:
    """A kernel's size as ``3×3``; a stride as ``2``, or nothing where it is 1."""
    numbers = given if isinstance(given, tuple) else (given,)
    if not numbers or not all(isinstance(each, int) for each in numbers):
        return ""
    if always:
        return "×".join(map(str, numbers))
    if set(numbers) == {1}:
        return ""
    return str(numbers[0]) if len(set(numbers)) == 1 else "×".join(map(str, numbers))
