"""What every layer does while a model learns, step by step, at a cost nobody notices.

Begin with `watch.py`.
"""
