"""The receptive field: which pixels of the input a position of a layer's map depends on.

Begin with `field.py`; `dependency.py` tracks the dependencies, `rules.py` says how
operations spread them.
"""
