"""Whether the files of a log can be believed: held against themselves, and against each other."""
