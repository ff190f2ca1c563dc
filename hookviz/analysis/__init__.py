"""Questions to a model that are not pictures: which hook fires when, and with what.

May import `attribution` and what is below it. Begin with `trace.py`.
"""
