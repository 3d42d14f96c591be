"""Commands on a broker, and what goes wrong there: the same on Apache Kafka's as on ours."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from odradek.columnar.record_schema import SCHEMA
from odradek.errors import InvalidProducerEpochError, UnknownTopicOrPartitionError
from odradek.places.opening import open_place
from odradek.storage.names import TopicPartition
from odradek.transfer.opening import open_target
from peers.command import rows, told
from peers.kafka import KafkaBroker
from peers.kafka_fixture import KafkaFixture
from peers.process import wait_for

OF_A_FOLDER = ("__cluster_metadata", "__consumer_offsets", "__transaction_state", "truncated-head")
"""Kafka's own topics, and one whose files hold records below the log start offset: `grep` finds these in a folder."""


@contextlib.contextmanager
def following(*arguments: str) -> Iterator[tuple[list[dict[str, Any]], list[str]]]:
    """Run `odradek tail -f`; what it has printed so far, on stdout and on stderr."""
    shown: list[dict[str, Any]] = []
    said: list[str] = []
    command = [sys.executable, "-m", "odradek", "tail", "-f", "--format", "jsonl", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        readers = [
            threading.Thread(target=lambda out: shown.extend(map(json.loads, out)), args=(process.stdout,)),
            threading.Thread(target=lambda err: said.extend(err), args=(process.stderr,)),
        ]
        for reader in readers:
            reader.start()
        try:
            yield shown, said
        finally:
            process.terminate()
            for reader in readers:
                reader.join()


@pytest.fixture
def address(fixture_broker: KafkaBroker) -> str:
    """Of one broker for all tests: each has topics of its own."""
    return f"kafka://{fixture_broker.bootstrap_servers}"


@pytest.mark.laboratory  # unit/cli has each fault
def test_tail_and_grep(address: str, fixture_4_3_1: KafkaFixture) -> None:
    for flags, consumed in (((), fixture_4_3_1.consumed), (("--read-committed",), fixture_4_3_1.consumed_committed)):
        found: dict[str, list[int]] = {}
        for row in rows("tail", address, "-n", "7", *flags):
            found.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
        expected = {name: [record["offset"] for record in part["records"]][-7:] for name, part in consumed.items()}
        assert found == {name: offsets for name, offsets in expected.items() if offsets}
    for pattern in ("leader", "k1[0-9]$", "日志"):
        of_broker, of_folder = (
            sorted(json.dumps(row) for row in rows("grep", pattern, source) if row["topic"] not in OF_A_FOLDER)
            for source in (address, fixture_4_3_1.log_dir)
        )
        assert of_broker
        assert of_broker == of_folder
    told("topics", "create", address, "new")
    with following(address, "-n", "0", "--topic", "new*") as (shown, said):

        def follows() -> bool:
            told("produce", address, "new", given=b"0\n")
            return bool(shown)

        def values(topic: str) -> list[str]:
            return [row["value"] for row in shown if row["topic"] == topic]

        wait_for(follows, 60, "the first record")
        for topic in ("new-a", "new-b"):
            told("topics", "create", address, topic)
            told("produce", address, topic, given=b"1\n2\n")
        wait_for(lambda: values("new-a") == values("new-b") == ["1", "2"], 60, "both topics' records")
        told("topics", "delete", address, "new-a")
        wait_for(lambda: said == ["odradek: new-a-0 was deleted\n"], 60, "the deletion")
        told("produce", address, "new-b", given=b"3\n")
        wait_for(lambda: values("new-b") == ["1", "2", "3"], 60, "one more record")


def test_a_topic_that_is_deleted_while_it_is_read_or_written(address: str) -> None:
    name = TopicPartition("events", 0)
    # Without an end of its own a wait would last for ever.
    with open_place(address, {"default.api.timeout.ms": "999999999"}) as source:
        told("topics", "create", address, "events")
        for _ in range(4):
            told("produce", address, "events", given=b"x" * 60_000)
        some = source.slices(name, slice_bytes=1)
        next(some)
        told("topics", "delete", address, "events")
        with pytest.raises(UnknownTopicOrPartitionError):
            list(some)
    command = [sys.executable, "-m", "odradek", "produce", f"{address}?default.api.timeout.ms=999999999", "events"]
    told("topics", "create", address, "events")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write("a\n")
        process.stdin.flush()
        with open_place(address) as source:
            wait_for(lambda: source.bounds(name).end_offset == 1, 60, "the first line")
        told("topics", "delete", address, "events")
        process.stdin.write("b\n")
        _, said = process.communicate(timeout=60)
    assert process.returncode == 3
    unknown = "it is not known whether line 2 of the input is"
    assert said.splitlines()[0] == f"odradek: 1 record appended for sure; {unknown}"
    assert said.splitlines()[1].endswith("writing to events-0: there is no events-0")


def test_refused_lines_are_named(address: str) -> None:
    config = ("--config", "max.message.bytes=1000", "--config", "cleanup.policy=compact")
    told("topics", "create", address, "strict", *config)
    lines = [{"key": f"k{number}", "value": "v" * 100} for number in range(40)]
    lines[6] = {"value": "no key"}
    lines[7] = {"key": "k", "value": "x" * 2000}
    given = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    said = told("produce", address, "strict", "--format", "jsonl", given=given, code=3).splitlines()
    assert said[0].startswith("odradek: stdin, line 7: INVALID_RECORD (87): ")
    assert said[1].startswith("odradek: stdin, line 8: MESSAGE_TOO_LARGE (10): ")
    assert said[2:] == ["odradek: 38 records appended, 2 refused; go on with line 41 of the input"]
    found = rows("tail", address, "-n", "100", "--topic", "strict")
    assert [row["key"] for row in found] == [line["key"] for line in lines[:6] + lines[8:]]


@pytest.mark.parametrize("is_between", [False, True], ids=["in a transaction", "between two"])
def test_a_replay_that_another_takes_over_says_so(address: str, is_between: bool) -> None:
    topic = f"replayed-{is_between}"
    told("topics", "create", address, topic)
    common = {"timestamp": 1_600_000_000_000, "headers": []}
    at = pa.RecordBatch.from_pylist([{"offset": number, **common} for number in range(2)], SCHEMA)
    with open_target(address) as target:
        first, second = (target.writer(TopicPartition(topic, 0), "mine") for _ in range(2))
        with contextlib.closing(first), contextlib.closing(second):
            assert first.position() is None
            first.write(at[:1])
            if is_between:
                first.commit()
            assert second.position() == (1 if is_between else None)
            second.write(at[1 if is_between else 0 :])
            second.commit()
            with pytest.raises(InvalidProducerEpochError, match=rf"another program .* as mine-{topic}-0, or this one"):
                first.write(at[1:], 2)
    assert len(rows("tail", address, "--read-committed", "--topic", topic)) == 2
