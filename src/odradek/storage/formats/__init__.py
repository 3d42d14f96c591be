"""The files of a log directory that are no `.log`, a module each: what is in it, read and written."""
