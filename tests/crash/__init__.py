"""The crash laboratory: logs are written at random, cut off anywhere, opened again, and compared with a model."""
