"""A doctor: the faults of a model, their layer, their cause and the fix.

Begin with `diagnose.py`. `examination.py` runs the model and records it, its operations by
`operation_log.py`. `guard.py` stands around the user's own step, which `watching.py` watches and
`recorded_call.py` can repeat. Each file in `checks/` is about one kind of fault; `all_checks.py`
lists them.
"""
