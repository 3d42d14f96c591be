"""Spark: the data source `odradek`, batch and streaming, and pipelines that keep their place in an offset store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.spark.pipeline import Job, Pipeline

__all__ = ["Job", "Pipeline"]


def __getattr__(name: str) -> Any:
    # Spark imports this package in every planning process, which has no use for pipelines.
    if name in __all__:
        from odradek.spark import pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
