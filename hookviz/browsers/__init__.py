"""Widgets over more than one run: a survey's channels, a training's steps, two explorers.

May import all other wings. Begin with `channels.py`, which leafs through a survey.
"""
