"""The widget of a result, found by name: no study imports the room above it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WIDGETS: dict[str, Callable[[], Callable[..., Any]]] = {}
"""A widget's name -> a function that imports it. The package's ``__init__`` fills it in."""


def widget(name: str, *args: Any, **kwargs: Any) -> Any:
    """Make the widget with this name."""
    return WIDGETS[name]()(*args, **kwargs)
