from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import odradek
from odradek.errors import OptionError
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.spark.options import SourceOptions
from odradek.spark.ranges import OffsetRange, plan_batch
from odradek.spark.source_topics import open_topics
from odradek.spark.spark_schema import arrow_schema, source_schema
from odradek.spark.stream import StreamReader
from odradek.storage.names import TopicPartition
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


def test_a_time_in_an_open_transaction(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        log = logs["t", 0]
        log.append([Record(None, b"decided", timestamp=1000)])
        undecided = [Record(None, b"undecided", timestamp=2000)] * 2
        log.append_batches(
            bytearray(build_batch(undecided, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
        )

    def options(streaming: bool = False, **more: str) -> SourceOptions:
        given = {"path": str(tmp_path), "subscribe": "t", "isolation.level": "read_committed"}
        return SourceOptions.parse({**given, **more}, streaming=streaming)

    batch = options(startingTimestamp="1000", endingTimestamp="2000")
    assert plan_batch(open_topics(batch), batch) == [OffsetRange(TopicPartition("t", 0), 0, 1)]

    inside = options(startingTimestamp="2000")
    with pytest.raises(OptionError, match="no record at or after the time 2000"):
        plan_batch(open_topics(inside), inside)

    stream = StreamReader(
        options(streaming=True, startingTimestamp="2000", startingOffsetsByTimestampStrategy="latest"),
        arrow_schema(source_schema(include_headers=False)),
    )
    start = stream.initialOffset()
    assert start == {"t": {"0": 1}}
    assert stream.latestOffset(start, stream.getDefaultReadLimit()) == start
    stream.stop()
