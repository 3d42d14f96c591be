"""A cluster's topics and settings, kept where KRaft keeps them: in `__cluster_metadata-0` and `bootstrap.checkpoint`.

`records` and `control` are the records, `image` is what they add up to, `log` and `snapshot` are the files, `cluster`
changes topics and settings, and `formatting` makes a new log directory.
"""
