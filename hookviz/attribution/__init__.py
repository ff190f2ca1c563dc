"""Heatmaps: where in a layer, or in the input, a score comes from, and how good such a map is.

May import `draw` and the rooms below it. Begin with `cam.py`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
