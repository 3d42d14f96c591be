"""librdkafka reads a folder of an old Kafka from our broker: records of formats v0 and v1 reach it whole."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path

from odradek.broker.running import BrokerThread
from peers.kafka_fixture import KafkaFixture
from peers.ledger import require
from peers.librdkafka import read_to_end


def test_records_of_all_formats_reach_librdkafka(fixture_2_8_2: KafkaFixture, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(fixture_2_8_2.log_dir, tmp_path / "data"))
    with BrokerThread(folder, {"listeners": "PLAINTEXT://127.0.0.1:0"}, sync="off", background=False) as running:
        endpoint = running.endpoint()
        expected = {
            (log.topic_partition.topic, log.topic_partition.partition): [
                (record.offset, record.key, record.value) for record in log.read(isolation="read_committed")
            ]
            for log in running.broker.logs
            if not log.topic_partition.topic.startswith("__")
        }
        found: dict[tuple[str, int], list[tuple[int | None, bytes | None, bytes | None]]] = defaultdict(list)
        for message in read_to_end(f"{endpoint.host}:{endpoint.port}", expected):
            place = message.topic() or "", message.partition() or 0
            found[place].append((message.offset(), message.key(), message.value()))
    require({place: records for place, records in expected.items() if records} == found, "other records")
