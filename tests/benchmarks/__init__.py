"""The speed and memory of hookviz compared with other tools in one run: ``make bench``."""
