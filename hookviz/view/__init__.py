"""Settings and a run become a `Frame`: everything that is shown, in numbers and words.

May import `studies` and the rooms below it. Begin with `settings.py` and `view.py`: all else is a
function of a `View`.
"""
