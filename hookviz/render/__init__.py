"""Arrays become colours, mosaics, PNG and HTML; the only wing that fixes what a value looks like.

May import `run` and `hooking`. Begin with `colours.py`.
"""
