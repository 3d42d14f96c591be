"""What `pipeline check` finds about folders, ports, brokers and buckets that a job writes to."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import errors

from jobs.bad_jobs import SOUND
from odradek.errors import OffsetStoreUnavailableError
from odradek.offsets.kafka import KafkaOffsetStore
from odradek.spark.pipeline.check import check_job
from odradek.testing import Broker

pytestmark = pytest.mark.needs("java")  # Spark's parser


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def findings(job: Path, text: str) -> list[str]:
    job.write_text(text, encoding="utf-8")
    return [str(found).partition("job.toml: ")[2] for found in check_job(job)]


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_to(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # For root every folder can be.
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    told = findings(job, SOUND)
    assert [line.partition(": /")[0] for line in told] == ["line 8: offsets.store", "line 22: sink[0].path"]
    assert all("this folder cannot be written to: change its rights, or give another path" in line for line in told)


def test_a_port_that_is_taken(job: Path, taken_port: int) -> None:
    (told,) = findings(job, SOUND + f'\n[metrics]\nlisten = "127.0.0.1:{taken_port}"\n')
    assert told == f"line 30: metrics.listen: 127.0.0.1:{taken_port}: Address already in use"


@pytest.mark.slow
def test_a_bucket_that_does_not_answer(job: Path, taken_port: int) -> None:
    uri = f"s3://key:secret@bucket/orders?endpoint_override=127.0.0.1:{taken_port}&scheme=http&region=x"
    (told,) = findings(job, SOUND.replace('path = "orders"', f'path = "{uri}"'))
    assert told.startswith("line 22: sink[0].path: s3://")
    assert "secret" not in told


def test_a_new_broker_that_has_no_topic_of_offsets_yet(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(store: KafkaOffsetStore) -> None:
        cause = errors.CoordinatorNotAvailableError()
        raise OffsetStoreUnavailableError(str(cause)) from cause

    monkeypatch.setattr(KafkaOffsetStore, "load", load)
    monkeypatch.setattr(KafkaOffsetStore, "unknown", lambda *_: set())
    assert findings(job, SOUND.replace("file:offsets.json", "kafka://127.0.0.1:1/orders")) == []


@pytest.mark.slow
def test_a_transaction_that_the_broker_would_not_let_be_open_for_so_long(job: Path) -> None:
    with Broker() as broker:
        broker.create_topic("target")
        sink = '\n[[sink]]\ntype = "topic"\nview = "orders"\ntopic = "target"\n'
        sink += f'kafka.bootstrap.servers = "{broker.bootstrap_servers}"\nkafka.transaction.timeout.ms = '
        assert findings(job, f"{SOUND}{sink}900000\n") == []
        (told,) = findings(job, f"{SOUND}{sink}900001\n")
        hint = "the broker allows at most 900000 ms (transaction.max.timeout.ms), not 900001"
        assert told == f"line 34: sink[2].kafka.transaction.timeout.ms: {hint}"
