"""See every feature map of any PyTorch network, exactly, in one line, in any notebook."""

from functools import partial

import lazy_loader

from .studies.showing import WIDGETS

# Each name is imported on first use: `hookviz.capture` needs torch alone. `__init__.pyi` says
# where the names live, to this line as to editors and type checkers.
_SHOWN = "browse", "explore", "LiveTraining", "play", "SideBySide"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def _live(name: str) -> type:
    from . import widgets

    return getattr(widgets, name)


# A result's `show()` makes a widget, which lives above every study: here, above all, they meet.
WIDGETS.update({name: partial(_live, name) for name in _SHOWN})

__version__ = "1.0.0"
