"""Questions to a whole data set: what each channel of a model answers to.

Begin with `survey_run`, which is one pass; `rows` is what is kept of a batch, `channels` of the set.
"""
