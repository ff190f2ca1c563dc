"""The map of a run, layer to layer, and the reasons for its values.

Begin with `graph.py`; `listener.py` records what ran and from which layers each tensor comes.
`contributions.py` takes one value of a layer apart, by the arithmetic in `terms.py`. `cut.py` runs
the model so that every value can be: `origins.py` traces its inputs back to earlier layers, and
`onward.py` follows it to the next one. `kernels.py` shows the weights of a layer, `stages.py`
finds the normalization and the activation behind it.
"""
