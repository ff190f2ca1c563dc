"""The classes of all results: what each function of hookviz returns."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("hookviz", __file__)
