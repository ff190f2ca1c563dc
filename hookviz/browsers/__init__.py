"""Widgets over more than one run: a survey's channels, a training's steps, two models.

May import all other wings; each file is one of them. Begin with `side_by_side.py`.
"""
