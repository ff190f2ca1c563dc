"""Live widgets: the explorer, its controls, and the others.

May import all other rooms, and alone knows ipywidgets. Begin with `explorer.py`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
