"""Compare today's hookviz with 0.3, on the models of the zoo.

`measure` runs in two environments and writes down what hookviz computes; `compare` says what
differs; ``known.toml`` lists the intended differences.
"""
