"""A doctor: what is wrong with a model, in which layer, why, and what to do.

May import `analysis` and what is below it. Begin with `doctor.py`; each check is a plain function
over an `Examination`, listed in `checks.py`.
"""
