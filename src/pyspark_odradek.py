"""Where Spark finds the data source `odradek`: it looks for `DefaultSource` in top-level modules named `pyspark_*`."""

from odradek.spark.source import OdradekDataSource as DefaultSource

__all__ = ["DefaultSource"]
