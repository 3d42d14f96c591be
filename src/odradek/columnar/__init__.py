"""Records as Arrow: the schema, the decoder of segment slices, and `scan`, which reads a whole log directory."""

from odradek.columnar.decode import decode_slices
from odradek.columnar.record_schema import COLUMNS, SCHEMA, select

__all__ = ["COLUMNS", "SCHEMA", "decode_slices", "select"]
