"""Searches the records of a log: by patterns over keys, values and headers."""
