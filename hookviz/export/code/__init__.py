"""A view as plain PyTorch: the shortest program that computes and draws it.

Begin with `source.py`; `context.py` collects the facts that it is written from.
"""
