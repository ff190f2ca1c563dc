"""Questions to a model that are not pictures: which hooks are on it, which fires when.

May import `attribution` and what is below it. Begin with `trace.py`.
"""
