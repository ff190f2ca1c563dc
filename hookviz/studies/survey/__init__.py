"""One pass over a data set: what each channel of a model responds to.

Begin with `run.py`; `channels.py` reduces a batch, and the set, to numbers, `survey.py` is the
result, with its page.
"""
