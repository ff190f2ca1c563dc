"""Edits of the zoo's classifiers, against the same written into the models' own code."""
