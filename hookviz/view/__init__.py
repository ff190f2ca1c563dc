"""Settings and a run become a `Frame`: all that is to be seen, in numbers and words.

May import `analysis` and what is below it. Begin with `frame.py`, then `view.py`.
"""
