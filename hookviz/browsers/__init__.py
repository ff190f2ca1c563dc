"""Widgets that are not the explorer: for a trace, a survey, a training, two models.

May import all other wings; each file is one of them. Begin with `side_by_side.py`.
"""
