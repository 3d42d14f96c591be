"""`odradek sql`: queries over the topics of a log directory, through DuckDB."""

from __future__ import annotations
