"""What leaves the notebook: a matplotlib figure, and plain PyTorch source.

May import `view` and what is below it. Begin with `figure.py`.
"""
