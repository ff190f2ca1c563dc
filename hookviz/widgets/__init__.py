"""Live widgets: the explorer, its controls, and the others.

May import all other rooms, and alone knows ipywidgets. Begin with `explorer.py`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "channels": ["ChannelBrowser", "Player", "browse"],
        "explorer": ["Explorer", "explore"],
        "linked": ["Link"],
        "live_training": ["LiveTraining"],
        "side_by_side": ["SideBySide", "beside", "link"],
    },
)
