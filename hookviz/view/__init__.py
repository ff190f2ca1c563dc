"""Settings and a run become a `Frame`: everything that is shown, in numbers and words.

May import `studies` and the rooms below it. Begin with `frame.py`, then `view.py`.
"""
