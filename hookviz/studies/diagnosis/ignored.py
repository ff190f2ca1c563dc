"""Findings that a user knows of and does not want to be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from ...hooking.select import close_names
from .findings import KINDS, Finding

Ignored = Sequence[str | tuple[str, str]]
"""Kinds of findings, or a kind and a pattern of layers' names."""


def checked(ignore: Ignored) -> list[tuple[str, str]]:
    """As pairs of a kind and a pattern; ValueError for what is no such thing.

    >>> checked(["batchnorm", ("saturated", "head.*")])
    [('batchnorm', '*'), ('saturated', 'head.*')]
    """
    if isinstance(ignore, str):
        raise ValueError(f"ignore={ignore!r} is no list: give ignore=[{ignore!r}].")
    pairs = []
    for each in ignore:
        kind, pattern = (each, "*") if isinstance(each, str) else each
        if kind not in KINDS:
            raise ValueError(f"ignore= has no kind {kind!r}; {close_names(kind, KINDS)}.")
        pairs.append((kind, pattern))
    return pairs


def without(findings: Sequence[Finding], pairs: Sequence[tuple[str, str]]) -> list[Finding]:
    """The findings but for those that are ignored; of several layers some may remain."""
    kept = []
    for each in findings:
        patterns = [pattern for kind, pattern in pairs if kind == each.kind]
        layers = [n for n in each.layers if not any(fnmatchcase(n, p) for p in patterns)]
        if len(layers) == len(each.layers):
            kept.append(each)
        elif layers:
            kept.append(replace(each, layers=layers, layer=layers[0]))
    return kept
