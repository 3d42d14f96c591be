"""One log, a partition's folder of segments: read, appended to, recovered, flushed."""
