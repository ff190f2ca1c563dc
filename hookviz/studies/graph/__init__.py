"""The map of a run, layer to layer, and the reason for one value.

Begin with `graph.py`; `provenance.py` tracks which layers each number was made of, and
`contributions.py` takes one value of a layer apart.
"""
