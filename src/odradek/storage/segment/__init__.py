"""One segment of a log: its `.log` file read and appended to, split, and swapped for a compacted one."""
