# Where the names live; `__init__.py` reads this file.
from .channels import ChannelBrowser, Player, browse
from .explorer import Explorer, explore
from .live_training import LiveTraining
from .side_by_side import SideBySide, beside

__all__ = [
    "ChannelBrowser",
    "Explorer",
    "LiveTraining",
    "Player",
    "SideBySide",
    "beside",
    "browse",
    "explore",
]
