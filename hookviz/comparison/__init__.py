"""Two runs beside each other: which layer is the first that differs, and how alike layers are.

May import `analysis` and what is below it. Begin with `two_runs.py`; `pairs.py` says which layer is
compared with which, `difference.py` how far two tensors are apart.
"""
