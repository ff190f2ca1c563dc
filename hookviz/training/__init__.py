"""What every layer does while a model learns, step by step, at a cost nobody notices.

May import `dataset` and what is below it. Begin with `watch.py`: a block, which hangs the hooks of
`recorder.py` around some steps; `measured.py` is what is known of a tensor, `log.py` of all steps.
"""
