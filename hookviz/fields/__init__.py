"""The receptive field: which pixels of the input a place of a layer's map sees.

Knows `run` and what is below it. Begin with `field.py`; `shadow.py` says what each number of a run
was made of, `rules.py` what goes into what; `shown.py` hands a field on to pictures and pages.
"""
