"""What ran and from where to where, and why a value is what it is: map and reason.

Begin with `graph.py`; `provenance.py` tracks which layers each number was made of, and
`contributions.py` takes one value of a layer apart.
"""
