"""kcat, with the librdkafka of its own that Debian has (2.0), uses our broker: codecs, groups, transactions, TLS."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.running import BrokerThread
from peers.certificates import make_certificate
from peers.clients import CODECS
from peers.ledger import require_same
from peers.process import PATIENCE

pytestmark = pytest.mark.needs("kcat")
TIMEOUT_S = 60 * PATIENCE
LINES = [f"v{number}" for number in range(100)]
PASSWORDS = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    folder = tmp_path_factory.mktemp("broker")
    store, _ = make_certificate("server").write(folder)
    config: dict[str, str | int | float | bool] = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "group.initial.rebalance.delay.ms": 0,
        "num.partitions": 2,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f'{PASSWORDS} required user_alice="secret";',
    }
    with BrokerThread(folder / "data", config, sync="off") as running:
        yield running


def kcat(running: BrokerThread, *arguments: str, lines: list[str] | None = None, listener: str = "PLAINTEXT") -> str:
    """Run it; return what it printed."""
    endpoint = running.endpoint(listener)
    command = ["kcat", "-b", f"{endpoint.host}:{endpoint.port}", "-q", *arguments]
    given = "".join(f"{line}\n" for line in lines or [])
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def records(running: BrokerThread, topic: str) -> list[Any]:
    logs = [log for log in running.broker.logs if log.topic_partition.topic == topic]
    return [record for log in logs for record in log.read(isolation="read_committed")]


@pytest.mark.parametrize("codec", CODECS)
def test_it_produces_with_every_codec(running: BrokerThread, codec: str) -> None:
    topic = f"codec-{codec}"
    kcat(running, "-P", "-t", topic, "-z", codec, "-K", ":", "-H", "a=b", lines=[f"k:{line}" for line in LINES])
    found = records(running, topic)
    require_same(sorted(record.value.decode() for record in found), sorted(LINES), "the records")
    assert {(record.key, tuple(record.headers)) for record in found} == {(b"k", (("a", b"b"),))}
    read = kcat(running, "-C", "-t", topic, "-e", "-f", "%k:%s\n").splitlines()
    require_same(sorted(read), sorted(f"k:{line}" for line in LINES), "the records")


def test_a_group_goes_on_where_it_was(running: BrokerThread) -> None:
    running.call(lambda: running.broker.logs.create_topic("groups", 2))
    member = ("-G", "readers", "groups", "-c", str(len(LINES)), "-X", "auto.offset.reset=earliest", "-f", "%p:%o %s\n")
    found: list[list[str]] = []
    for _ in range(2):
        kcat(running, "-P", "-t", "groups", lines=LINES)
        found.append(kcat(running, *member).splitlines())
    require_same([sorted(row.split(" ")[1] for row in rows) for rows in found], [sorted(LINES)] * 2, "the records")
    assert not {row.split(" ")[0] for row in found[0]} & {row.split(" ")[0] for row in found[1]}


def test_it_produces_in_a_transaction(running: BrokerThread) -> None:
    running.call(lambda: running.broker.logs.create_topic("transactions", 2))
    kcat(running, "-P", "-t", "transactions", "-X", "transactional.id=kcat", lines=LINES)
    read = kcat(running, "-C", "-t", "transactions", "-e", "-X", "isolation.level=read_committed").splitlines()
    assert sorted(read) == sorted(LINES) == sorted(record.value.decode() for record in records(running, "transactions"))


def test_it_lists_topics_and_asks_for_offsets(running: BrokerThread) -> None:
    running.call(lambda: running.broker.logs.create_topic("offsets"))
    kcat(running, "-P", "-t", "offsets", lines=LINES)
    (topic,) = json.loads(kcat(running, "-L", "-J", "-t", "offsets"))["topics"]
    assert [(one["partition"], one["leader"]) for one in topic["partitions"]] == [(0, running.broker.node_id)]
    times = {-2: 0, -1: len(LINES), 0: 0}
    for time, offset in times.items():
        assert kcat(running, "-Q", "-t", f"offsets:0:{time}").split()[-1] == str(offset)


def test_it_speaks_tls_and_gives_a_password(running: BrokerThread) -> None:
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(Path(running.broker.config["ssl.keystore.location"]).with_name("server.crt")),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
    options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    kcat(running, "-P", "-t", "secured", *options, lines=LINES, listener="SASL_SSL")
    read = kcat(running, "-C", "-t", "secured", "-e", *options, listener="SASL_SSL").splitlines()
    require_same(sorted(read), sorted(LINES), "the records")
