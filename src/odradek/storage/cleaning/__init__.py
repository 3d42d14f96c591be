"""The log cleaner (compaction): it removes the records that newer ones of the same key replace."""
