# Where the names live; `__init__.py` reads this file.
from .channels import Page, browse, play
from .explorer import Explorer, explore
from .live_training import LiveTraining
from .side_by_side import SideBySide, beside

__all__ = [
    "Explorer",
    "LiveTraining",
    "Page",
    "SideBySide",
    "beside",
    "browse",
    "explore",
    "play",
]
