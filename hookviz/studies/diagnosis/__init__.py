"""A doctor: what is wrong with a model, in which layer, why, and what to do.

Begin with `diagnose.py`; each check is a plain function over an `Observation`,
listed in `checks.py`.
"""
