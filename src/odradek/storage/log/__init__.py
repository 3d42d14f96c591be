"""One log, a partition's folder of segments: read, appended to, recovered, brought to the disk."""
