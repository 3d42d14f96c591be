"""Explains one record: where it lies, what its bytes mean, and who is given it."""
