"""The engine and the lesson: hooks on, hooks off, and what they recorded.

Knows torch and nothing else of hookviz. Begin with `capture.py`, then `handles.py`.
"""
