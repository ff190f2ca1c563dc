"""What is seen live: the explorer, its controls, their life and death.

May import all other wings, and alone knows ipywidgets. Begin with `explorer.py`.
"""
