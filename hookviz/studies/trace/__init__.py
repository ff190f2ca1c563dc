"""The order in which hooks fire: one forward and one backward, event by event.

Begin with `trace.py`; `events.py` registers the hooks and describes their calls.
"""
