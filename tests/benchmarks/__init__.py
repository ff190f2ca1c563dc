"""What hookviz costs, raced in one run against the tools of today: ``make bench``."""
