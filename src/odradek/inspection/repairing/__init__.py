"""Makes files of a log again that follow from its batches or from the metadata."""
