"""One forward and one backward of a user's model, which is restored to the bit afterwards.

May import `hooking`. Begin with `session.py`.
"""
