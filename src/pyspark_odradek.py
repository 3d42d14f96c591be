"""Where Spark finds the data source `odradek`: it looks for `DefaultSource` in top-level modules named `pyspark_*`.

The workers look, so Odradek must be installed for their Python: see `odradek.spark.session`.
"""

from odradek.spark.source import OdradekDataSource as DefaultSource

__all__ = ["DefaultSource"]
