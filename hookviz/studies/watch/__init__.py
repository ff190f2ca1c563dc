"""Layers while a model learns, step by step.

Begin with `watch.py`; `recorder.py` measures a step, `log.py` keeps all steps.
"""
