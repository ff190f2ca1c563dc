"""One pass over a data set: what each channel of a model responds to.

Begin with `run.py`; `batch_statistics.py` reduces a batch, `channels.py` the set,
and `patches.py` draws.
"""
