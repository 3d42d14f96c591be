"""What takes records out of a log again: the cleaner (compaction) and retention."""
