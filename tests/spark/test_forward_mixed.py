"""Views that bring the rows of several source partitions into one task, forwarded to a broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import odradek
import odradek.testing
from odradek.spark.pipeline import Job, Pipeline
from peers.ledger import require_same

JOB = """
name = "mixed"
[source]
path = "data"
subscribe = "s"
[offsets]
store = "file:offsets.json"
[[transform]]
view = "mixed"
sql = "{query}"
[[sink]]
type = "topic"
view = "mixed"
topic = "t"
kafka.bootstrap.servers = "{servers}"
"""


@pytest.mark.parametrize(
    "query",
    [
        "SELECT /*+ COALESCE(1) */ * FROM records SORT BY value",
        "SELECT * FROM records ORDER BY value LIMIT 1000",
    ],
)
def test_no_row_is_lost_where_a_task_has_rows_of_several_partitions(
    spark: SparkSession, tmp_path: Path, query: str
) -> None:
    values = [[b"%03d-%d" % (number, partition) for number in range(50)] for partition in (0, 1)]
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("s", partitions=2)
        for partition in (0, 1):
            logs["s", partition].append([odradek.Record(value=value) for value in values[partition]])
    with odradek.testing.Broker() as broker:
        broker.create_topic("t", 2)
        Pipeline(Job.parse(JOB.format(query=query, servers=broker.bootstrap_servers), tmp_path), spark).run()
        for partition in (0, 1):
            log = broker.logs["t", partition]
            found = [record.value for record in log.read(isolation="read_committed")]
            require_same(found, values[partition], f"partition {partition}")
