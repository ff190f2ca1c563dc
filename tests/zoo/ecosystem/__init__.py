"""Models of other people's libraries: is hookviz exact on them, and does it show them?"""
