"""Exports: a matplotlib figure, a page, and plain PyTorch source.

May import `view` and the rooms below it. Begin with `figure.py`.
"""

from typing import Any


def write_network_page(view: Any, **options: Any) -> str:
    """Write an explorer's view as a page that runs its network: the only way into `network`."""
    from .network.page import write_network_page as write

    return write(view, **options)
