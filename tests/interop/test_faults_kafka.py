"""Commands on a broker, and what goes wrong there: the same on Apache Kafka's as on ours."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from odradek.columnar.record_schema import SCHEMA
from odradek.errors import InvalidProducerEpochError, UnknownTopicOrPartitionError
from odradek.sources.source import open_source
from odradek.storage.names import TopicPartition
from odradek.transfer.target import open_target
from peers.fixtures import BrokerFactory
from peers.kafka_fixture import KafkaFixture
from peers.process import PATIENCE

OF_A_FOLDER = ("__cluster_metadata", "__consumer_offsets", "__transaction_state", "truncated-head")
"""Kafka's own topics, and one whose files hold records below the log start offset: `grep` finds these in a folder."""


def run(*arguments: str | Path, code: int = 0, given: bytes = b"") -> str:
    """Run the command in a process of its own, as users do."""
    command = [sys.executable, "-m", "odradek", *map(str, arguments)]
    ended = subprocess.run(command, input=given, capture_output=True, timeout=120 * PATIENCE)
    assert ended.returncode == code, ended.stderr.decode()
    return (ended.stderr if code else ended.stdout).decode()


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--format", "jsonl").splitlines()]


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60 * PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextlib.contextmanager
def following(*arguments: str) -> Iterator[tuple[list[dict[str, Any]], list[str]]]:
    """Run `odradek tail -f`; what it has printed so far, on stdout and on stderr."""
    shown: list[dict[str, Any]] = []
    told: list[str] = []
    command = [sys.executable, "-m", "odradek", "tail", "-f", "--format", "jsonl", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        readers = [
            threading.Thread(target=lambda out: shown.extend(map(json.loads, out)), args=(process.stdout,)),
            threading.Thread(target=lambda err: told.extend(err), args=(process.stderr,)),
        ]
        for reader in readers:
            reader.start()
        try:
            yield shown, told
        finally:
            process.terminate()
            for reader in readers:
                reader.join()


def test_tail_and_grep(any_broker: BrokerFactory, writable_log_dir: Path, fixture_4_3_1: KafkaFixture) -> None:
    address = f"kafka://{any_broker(writable_log_dir).bootstrap_servers}"
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
    with following(address, "-n", "0", "--topic", "new-*") as (shown, told):
        for topic in ("new-a", "new-b"):
            run("topics", "create", address, topic)
            run("produce", address, topic, given=b"1\n2\n")
        wait_until(lambda: len(shown) == 4)
        run("topics", "delete", address, "new-a")
        wait_until(lambda: told == ["odradek: new-a-0 was deleted\n"])
        run("produce", address, "new-b", given=b"3\n")
        wait_until(lambda: len(shown) == 5)
    assert [(row["topic"], row["value"]) for row in shown if row["topic"] == "new-b"] == [
        ("new-b", "1"),
        ("new-b", "2"),
        ("new-b", "3"),
    ]


def test_a_topic_that_is_deleted_while_it_is_read_or_written(any_broker: BrokerFactory) -> None:
    address = f"kafka://{any_broker().bootstrap_servers}"
    name = TopicPartition("events", 0)
    # Without an end of its own a wait would last for ever.
    with open_source(address, {"default.api.timeout.ms": "999999999"}) as source:
        run("topics", "create", address, "events")
        for _ in range(4):
            run("produce", address, "events", given=b"x" * 60_000)
        some = source.slices(name, slice_bytes=1)
        next(some)
        run("topics", "delete", address, "events")
        with pytest.raises(UnknownTopicOrPartitionError):
            list(some)
    command = [sys.executable, "-m", "odradek", "produce", f"{address}?default.api.timeout.ms=999999999", "events"]
    run("topics", "create", address, "events")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write("a\n")
        process.stdin.flush()
        with open_source(address) as source:
            wait_until(lambda: source.bounds(name).end_offset == 1)
        run("topics", "delete", address, "events")
        process.stdin.write("b\n")
        _, told = process.communicate(timeout=60 * PATIENCE)
    assert process.returncode == 3
    unknown = "it is not known whether line 2 of the input is"
    assert told.splitlines()[0] == f"odradek: 1 record appended for sure; {unknown}"
    assert told.splitlines()[1].endswith("writing to events-0: there is no events-0")


def test_refused_lines_are_named(any_broker: BrokerFactory) -> None:
    address = f"kafka://{any_broker().bootstrap_servers}"
    config = ("--config", "max.message.bytes=1000", "--config", "cleanup.policy=compact")
    run("topics", "create", address, "events", *config)
    lines = [{"key": f"k{number}", "value": "v" * 100} for number in range(40)]
    lines[6] = {"value": "no key"}
    lines[7] = {"key": "k", "value": "x" * 2000}
    given = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    said = run("produce", address, "events", "--format", "jsonl", given=given, code=3).splitlines()
    assert said[0].startswith("odradek: stdin, line 7: INVALID_RECORD (87): ")
    assert said[1].startswith("odradek: stdin, line 8: MESSAGE_TOO_LARGE (10): ")
    assert said[2:] == ["odradek: 38 records appended, 2 refused; go on with line 41 of the input"]
    assert [row["key"] for row in rows("tail", address, "-n", "100")] == [line["key"] for line in lines[:6] + lines[8:]]


@pytest.mark.parametrize("is_between", [False, True], ids=["in a transaction", "between two"])
def test_a_replay_that_another_takes_over_says_so(any_broker: BrokerFactory, is_between: bool) -> None:
    address = f"kafka://{any_broker().bootstrap_servers}"
    run("topics", "create", address, "events")
    common = {"timestamp": 1_600_000_000_000, "headers": []}
    at = pa.RecordBatch.from_pylist([{"offset": number, **common} for number in range(2)], SCHEMA)
    with open_target(address) as target:
        first, second = (target.writer(TopicPartition("events", 0), "mine") for _ in range(2))
        with contextlib.closing(first), contextlib.closing(second):
            assert first.position() is None
            first.write(at[:1])
            if is_between:
                first.commit()
            assert second.position() == (1 if is_between else None)
            second.write(at[1 if is_between else 0 :])
            second.commit()
            with pytest.raises(InvalidProducerEpochError, match=r"another program .* as mine-events-0, or this one"):
                first.write(at[1:], 2)
    assert len(rows("tail", address, "--read-committed")) == 2
