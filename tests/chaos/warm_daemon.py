"""PySpark's daemon, which has loaded what workers need before it forks them: starting Spark takes half of the time.

Spark has several daemons, and without this each of their workers loads the same modules again.
"""

import gc
import importlib

from pyspark.daemon import manager

for _name in (
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "odradek.spark.source",
    "odradek.spark.pipeline.parquet",
    "odradek.spark.pipeline.topic",
):
    importlib.import_module(_name)
gc.freeze()

if __name__ == "__main__":
    manager()
