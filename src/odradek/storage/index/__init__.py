"""The index files beside a segment: offset, time and transaction index."""
