"""Consumers of the embedded log, with their place in an offset store."""
