"""Layers while a model learns, step by step.

Begin with `watch.py`; `recorder.py` records a step, `log.py` stores all steps.
"""
