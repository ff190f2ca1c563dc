"""The receptive field of a layer: which pixels of the input a place of its map sees."""
