"""The checks: each file is about one kind of fault."""
