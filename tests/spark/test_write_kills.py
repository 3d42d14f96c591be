"""`df.write.format("odradek")` whose tasks fail, die and are killed after a part of their rows was sent.

With transactions each row is there once, whatever was tried again; without them at least once. `ODRADEK_CHAOS_KILLS`
is that of `tests/chaos/__init__.py`.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import odradek
from chaos.records import CODECS
from chaos.spark_writes import ROWS, value_of
from peers.fixtures import BROKERS, broker_of
from peers.kafka_tools import KafkaTools
from peers.librdkafka import read_to_end
from peers.process import PATIENCE

pytestmark = [pytest.mark.interop, pytest.mark.laboratory]

WRITES = int(os.environ.get("ODRADEK_CHAOS_KILLS", "50"))
FAILURES = ("raise", "die", "writer", "random", "random", "any")
PARTITIONS = 3
TASKS = 3
TESTS = Path(__file__).parents[1]


@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("kind", [*BROKERS, "folder"])
def test_what_is_tried_again_is_written_once_with_transactions(
    kind: str, kafka_tools: KafkaTools, tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(seed)
    log_dir = tmp_path / "data"
    if kind == "folder":
        with odradek.open(log_dir) as logs:
            logs.create_topic("t", partitions=PARTITIONS)
        writes = planned({"path": str(log_dir)}, chance)
        results = run(writes, seed, tmp_path)
        with odradek.open(log_dir, "r") as logs:
            read = [logs["t", number].read(isolation="read_committed") for number in range(PARTITIONS)]
            found = [record.value or b"" for records in read for record in records]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "output.txt"]
    else:
        with broker_of(kind, kafka_tools, log_dir) as broker:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
            for made in admin.create_topics([NewTopic("t", PARTITIONS)]).values():
                made.result(60 * PATIENCE)
            writes = planned({"kafka.bootstrap.servers": broker.bootstrap_servers}, chance)
            results = run(writes, seed, tmp_path)
            # A transaction that was left open would hold this back until it times out.
            asked = [("t", number) for number in range(PARTITIONS)]
            found = [message.value() or b"" for message in read_to_end(broker.bootstrap_servers, asked)]
    told = check(writes, results, found)
    with capsys.disabled():
        print(f"\n{kind}, seed {seed}: {told}")


def planned(target: dict[str, str], chance: random.Random) -> list[dict[str, Any]]:
    return [
        {
            "options": {
                **target,
                "topic": "t",
                # Each failure with and without.
                "transactional": str((number + number // len(FAILURES)) % 3 != 0).lower(),
                "kafka.compression.type": chance.choice(CODECS),
            },
            "number": number,
            "tasks": TASKS,
            "failure": FAILURES[number % len(FAILURES)],
        }
        for number in range(WRITES)
    ]


def run(writes: list[dict[str, Any]], seed: int, folder: Path) -> list[dict[str, Any]]:
    work = {"master": "local[2,4]", "seed": seed, "writes": writes}
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    with (folder / "output.txt").open("wb") as output:
        ended = subprocess.run(
            [sys.executable, "-m", "chaos.spark_writes", json.dumps(work)],
            stdout=subprocess.PIPE,
            stderr=output,
            env={**os.environ, "PYTHONPATH": paths},
            check=False,
        )
    assert ended.returncode == 0, (folder / "output.txt").read_text(errors="replace")[-6000:]
    return [json.loads(line) for line in ended.stdout.splitlines()]


def check(writes: list[dict[str, Any]], results: list[dict[str, Any]], found: list[bytes]) -> str:
    counts = Counter(found)
    known: set[bytes] = set()
    told: Counter[str] = Counter()
    for write, result in zip(writes, results, strict=True):
        rows = [value_of(write["number"], task, row) for task in range(TASKS) for row in range(ROWS)]
        known.update(rows)
        times = Counter(counts[row] for row in rows)
        is_transactional = write["options"]["transactional"] == "true"
        name = f"{write['failure']}, {'transactional' if is_transactional else 'default'}"
        what = f"write {write['number']} ({name}): rows by how often they are there: {dict(times)}, {result}"
        if result["error"] is not None:
            assert write["failure"] == "any", what
            assert not is_transactional or set(times) <= {0, 1}, what
            told[f"{name}, failed"] += 1
            continue
        assert set(times) == {1} if is_transactional else 0 not in times, what
        told[name + (", some twice" if max(times) > 1 else "")] += 1
    assert not set(found) - known
    return f"{len(writes)} writes, {len(found)} rows: {dict(sorted(told.items()))}"
