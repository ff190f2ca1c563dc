"""Which hook fires when: one forward and one backward, event by event.

Begin with `trace.py`; `recorder.py` registers the hooks, `events.py` describes what each received.
"""
