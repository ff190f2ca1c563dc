"""The wider view: what a place of a map sees, and what a channel answers to over a whole data set.

May import `analysis` and what is below it. Begin with `field.py`.
"""
