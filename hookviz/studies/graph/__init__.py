"""The map of a run, layer to layer, and the reason for one value.

Begin with `graph.py`; `listener.py` records what ran and from which layers each tensor comes;
`contributions.py` takes one value of a layer apart.
"""
