"""Record the size in bytes of every message from the kernel to the browser."""

from __future__ import annotations

import json
from contextlib import contextmanager
from unittest.mock import patch

import ipywidgets as widgets


@contextmanager
def sent_by():
    """Yield a list that receives the bytes of each message that widgets send within the block."""
    sizes: list[int] = []

    def note(publish):
        def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
            text = json.dumps([data, metadata, keys], default=str)
            sizes.append(len(text.encode()) + sum(memoryview(b).nbytes for b in buffers or ()))
            return publish(self, msg_type, data, metadata, buffers, **keys)

        return publish_msg

    with _patched(note):
        yield sizes


@contextmanager
def _patched(note):
    """Patch the method that sends all messages, of the comm class in use."""
    layout = widgets.Layout()
    kind = type(layout.comm)
    layout.close()
    name = "publish_msg" if hasattr(kind, "publish_msg") else "_publish_msg"
    # Widgets of ipywidgets 7 send nothing without a kernel.
    kernel = patch.object(kind, "kernel", _Deaf(), create=True)
    with kernel, patch.object(kind, name, note(getattr(kind, name))):
        yield


class _Deaf:
    """A kernel that accepts all messages and stores none."""

    def __getattr__(self, name):
        return self

    def __call__(self, *args, **keys):
        return self
