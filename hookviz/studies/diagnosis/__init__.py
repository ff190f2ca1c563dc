"""A doctor: the faults of a model, their layer, their cause and the fix.

Begin with `diagnose.py`. `examination.py` runs the model and records it, `guard.py` stands around
the user's own step, and each file in `checks/` is about one kind of fault; `all_checks.py` lists
them.
"""
