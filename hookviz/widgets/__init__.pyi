# Where the names live; `__init__.py` reads this file.
from .channels import ChannelBrowser, Player, browse
from .explorer import Explorer, explore
from .linked import Link
from .live_training import LiveTraining
from .side_by_side import SideBySide, beside, link

__all__ = [
    "ChannelBrowser",
    "Explorer",
    "Link",
    "LiveTraining",
    "Player",
    "SideBySide",
    "beside",
    "browse",
    "explore",
    "link",
]
