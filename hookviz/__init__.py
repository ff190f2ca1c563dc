"""See every feature map of any PyTorch convnet, exactly, in one line, in any notebook."""

import lazy_loader

# Each name is imported on first use: `hookviz.capture` needs torch alone. `__init__.pyi` says
# where the names live, to this line as to editors and type checkers.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.2.0"
