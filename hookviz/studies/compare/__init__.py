"""Two runs beside each other: the first layer that differs, and how similar layers are.

Begin with `compare.py`; `pairing.py` matches layers, `difference.py` measures tensors and layers.
"""
