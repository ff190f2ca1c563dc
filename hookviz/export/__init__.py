"""Exports: a matplotlib figure, a page, and plain PyTorch source in `code.py`.

May import `view` and the rooms below it. Begin with `figure.py`.
"""
