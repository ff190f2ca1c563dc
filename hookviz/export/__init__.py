"""Exports: a matplotlib figure, a page, and plain PyTorch source.

May import `view` and the rooms below it. Begin with `figure.py`.
"""
