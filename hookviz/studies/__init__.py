"""Questions about a model that one picture cannot answer, a folder each.

`hook_table.py` lists a model's hooks.

May import `attribution` and the rooms below it. Begin with `trace/`.
"""
