"""The map of a run, layer to layer, and the reason for one value.

Begin with `graph.py`; `provenance.py` records what ran and which layers each number was made of;
`contributions.py` takes one value of a layer apart.
"""
