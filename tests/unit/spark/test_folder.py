from __future__ import annotations

import subprocess
import sys

import pytest

from peers.kafka_fixture import KafkaFixture

READ = """
import sys
from odradek.spark.options import SourceOptions
from odradek.spark.spark_schema import arrow_schema, source_schema
from odradek.spark.source import SourceReader

options = SourceOptions.parse({"path": sys.argv[1], "subscribe": "keyed", "includeHeaders": "true"})
reader = SourceReader(options, arrow_schema(source_schema(include_headers=True)))
print(sum(batch.num_rows for split in reader.partitions() for batch in reader.read(split)))
print("pandas" in sys.modules)
"""


@pytest.mark.slow
def test_a_worker_reads_without_pandas(fixture_4_3_1: KafkaFixture) -> None:
    """Spark's workers collect garbage after every task, and the modules of pandas are half of what there is."""
    command = [sys.executable, "-c", READ, str(fixture_4_3_1.log_dir)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    rows = sum(len(fixture_4_3_1.records(f"keyed-{number}")) for number in range(3))
    assert found == [str(rows), "False"]
