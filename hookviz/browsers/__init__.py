"""Widgets over more than one run: a survey's channels, a training's steps, two models.

May import everything. Each file is one of them; begin with the one that is asked for.
"""
