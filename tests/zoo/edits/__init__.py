"""Compare edits of the zoo's classifiers with the same changes in the models' code."""
