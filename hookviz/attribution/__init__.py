"""Heatmaps: where in a layer, or in the input, a score comes from, and how good such a map is.

May import `render` and what is below it. Begin with `cam.py`.
"""
