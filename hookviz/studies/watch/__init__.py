"""Layers while a model learns, step by step.

Begin with `watch.py`; `measured.py` measures a step, `log.py` keeps all steps.
"""
