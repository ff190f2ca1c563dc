"""One forward and one backward of a user's model, which is afterwards as it was, to the bit.

May import `hooking`. Begin with `session.py`.
"""
