"""The layer that opens log files: a segment, a log of segments, a log directory of logs."""
