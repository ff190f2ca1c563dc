"""Every message from the kernel to the browser, as it is sent: its bytes of JSON and buffers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import ipywidgets as widgets


@contextmanager
def sent_by() -> Iterator[list[int]]:
    """The size in bytes of each message that the widgets send within the block."""
    sizes: list[int] = []

    def note(publish: Any) -> Any:
        def publish_msg(
            self: Any,
            msg_type: str,
            data: Any = None,
            metadata: Any = None,
            buffers: Any = None,
            **keys: Any,
        ) -> Any:
            text = json.dumps([data, metadata, keys], default=str)
            sizes.append(len(text.encode()) + sum(memoryview(b).nbytes for b in buffers or ()))
            return publish(self, msg_type, data, metadata, buffers, **keys)

        return publish_msg

    with _patched(note):
        yield sizes


@contextmanager
def _patched(note: Any) -> Iterator[None]:
    """The one method through which all messages go: of whatever class the comms are here."""
    layout = widgets.Layout()
    kind = type(layout.comm)
    layout.close()
    name = "publish_msg" if hasattr(kind, "publish_msg") else "_publish_msg"
    # Widgets of ipywidgets 7 send nothing where their comm has no kernel.
    kernel = patch.object(kind, "kernel", _Deaf(), create=True)
    with kernel, patch.object(kind, name, note(getattr(kind, name))):
        yield


class _Deaf:
    """A kernel that takes everything, and keeps nothing."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **keys: Any) -> Any:
        return self
