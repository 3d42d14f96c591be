"""The folders of `log.dirs` as a whole: locked, their partitions found, opened, maintained."""
