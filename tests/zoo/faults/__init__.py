"""Faults planted in real models: does `hookviz.diagnose` name them, do other tools?"""
