"""Checks the files of a log against themselves and against each other."""
