"""The engine and the lesson: hooks on, hooks off, and their records.

Imports torch, and of hookviz only the formatting of tables.
Begin with `capture.py`, then `handles.py`.
"""
