"""Heatmaps: where in a layer, or in the input, a score comes from, and how good such a map is.

May import `draw` and the rooms below it. Begin with `cam.py`.
"""
