"""Sinks that are Spark's own: tables of a database (JDBC), of Delta Lake and of Iceberg. Rows are appended.

They do not know which offsets they hold. So a batch that was interrupted after its rows were written, and before the
offset store took its end, is appended again.
"""

from __future__ import annotations

from odradek.spark.pipeline.batch import Batch
from odradek.spark.pipeline.packages import PACKAGES, require_package
from odradek.spark.pipeline.sink import Sink
from odradek.spark.pipeline.sink_specs import SparkSinkSpec


class SparkSink(Sink):
    """Appends a view to a table.

    Args:
        spec: The table, and what goes there.
        key: The sink's key in the job's file, for errors.
    """

    def __init__(self, spec: SparkSinkSpec, key: str) -> None:
        self._spec = spec
        self._key = key
        self.description = f"{spec.format} {spec.table or spec.path}"

    def write(self, batch: Batch) -> None:
        """Append the view of a batch."""
        spec = self._spec
        if spec.format in PACKAGES:
            require_package(batch.spark, spec.format, f"{self._key}.type")
        writer = batch.spark.table(spec.view).write.format(spec.format).mode("append").options(**spec.options)
        if spec.format == "jdbc":
            writer.option("dbtable", spec.table).save()
        elif spec.table is not None:
            writer.saveAsTable(spec.table)
        else:
            writer.save(spec.path)
