"""Plant faults in real models, and test whether `hookviz.diagnose` and other tools name them."""
