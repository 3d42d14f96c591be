"""What controllers write: the records of `__cluster_metadata`, and its control records."""
