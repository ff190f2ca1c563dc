"""A layer in words: what it does and what comes out of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..hooking.records import LayerRecord


class LayerWords(NamedTuple):
    """What is said of a layer beside its name.

    Attributes
    ----------
    kind : str
        ``"Conv2d"``.
    text : str
        ``"3×3, stride 2, 48 → 96 channels, groups 4, 41,472 parameters"``.
    size : str
        Of one sample of what it returns: ``"96×14×14"``.
    """

    kind: str
    text: str
    size: str


def layer_words(record: LayerRecord) -> LayerWords:
    """Describe a layer: kernel, stride and groups where they say something.

    Examples
    --------
    >>> import hookviz, torch
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(48, 96, 3, stride=2, groups=4))
    >>> with hookviz.capture(model) as cache:
    ...     _ = model(torch.zeros(1, 48, 9, 9))
    >>> layer_words(cache["0"]).text
    '3×3, stride 2, 48 → 96 channels, groups 4, 10,464 parameters'
    """
    module, outputs = record.module, record.last.outputs
    kernel, stride = getattr(module, "kernel_size", None), getattr(module, "stride", None)
    dilation, groups = getattr(module, "dilation", None), getattr(module, "groups", 1)
    inside = _count(module, "in_channels", "in_features")
    outside = _count(module, "out_channels", "out_features")
    parts = [_times(kernel)] if kernel is not None else []
    parts += [f"stride {_short(stride)}"] if stride is not None and _short(stride) != "1" else []
    parts += [f"dilation {_short(dilation)}"] if dilation and _short(dilation) != "1" else []
    if inside is not None and outside is not None:
        parts.append(f"{inside} → {outside} {'channels' if kernel is not None else 'features'}")
    parts += [f"groups {groups}"] if isinstance(groups, int) and groups > 1 else []
    count = sum(p.numel() for p in module.parameters())
    parts += [f"{count:,} parameters"] if count else []
    size = "×".join(map(str, outputs[0].shape[1:])) if outputs else ""
    return LayerWords(type(module).__name__, ", ".join(parts), size)


def _count(module: Any, *names: str) -> int | None:
    found = (getattr(module, name, None) for name in names)
    return next((each for each in found if isinstance(each, int)), None)


def _times(sizes: Any) -> str:
    """``(3, 3)`` as ``3×3``; a 1d kernel as ``kernel 5``."""
    sizes = sizes if isinstance(sizes, tuple) else (sizes,)
    return "×".join(map(str, sizes)) if len(sizes) > 1 else f"kernel {sizes[0]}"


def _short(sizes: Any) -> str:
    """``(2, 2)`` as ``2``, ``(2, 1)`` as ``2×1``."""
    sizes = sizes if isinstance(sizes, tuple) else (sizes,)
    return str(sizes[0]) if len(set(sizes)) == 1 else "×".join(map(str, sizes))
