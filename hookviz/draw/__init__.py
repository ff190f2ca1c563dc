"""Arrays become colours, mosaics, tables, HTML and pages; the lowest room that imports matplotlib.

May import `run` and `hooking`. Begin with `colours.py`.
"""
