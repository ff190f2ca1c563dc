"""A view as plain PyTorch: the shortest program that computes and draws it.

Begin with `source.py`; each other file writes one part of the program.
"""
