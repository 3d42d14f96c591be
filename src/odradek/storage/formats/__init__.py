"""The files of a log directory besides `.log`: a module for each format, which reads and writes it."""
