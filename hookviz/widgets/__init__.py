"""What is seen live: the explorer and the player, their controls, their life and death.

May import all other wings, and alone knows ipywidgets. Begin with `explorer.py`.
"""
