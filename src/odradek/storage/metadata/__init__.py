"""A cluster's topics and settings, kept where KRaft keeps them: in `__cluster_metadata-0` and `bootstrap.checkpoint`.

`metadata_image` is the result of all records, `metadata_log` reads and writes the log, `cluster` changes topics and
settings, and `formatting` makes a new log directory. The records are in `messages.metadata`, the formats of the files
in `storage.formats`.
"""
