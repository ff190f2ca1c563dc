"""Questions to a whole data set: what each channel of a model answers to.

May import `fields` and what is below it. Begin with `survey_run.py`, which is one pass; `rows.py`
is what is kept of a batch, `channels.py` of the set, and `patches.py` has its pictures.
"""
