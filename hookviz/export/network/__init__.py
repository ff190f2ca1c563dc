"""The network itself in a page: an ONNX graph of forward and backward, and the runtime beside it.

Begin with `onnx_graph.py`.
"""
