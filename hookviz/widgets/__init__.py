"""What is seen live: the explorer, its controls, and the other widgets.

May import all other rooms, and alone knows ipywidgets. Begin with `explorer.py`.
"""
