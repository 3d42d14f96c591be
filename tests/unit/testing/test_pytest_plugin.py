"""The pytest plugin, in runs of pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import odradek
from odradek.testing import Broker

PLUGIN = "odradek.testing.pytest_plugin"

TESTS = """
import pytest
from odradek.testing.wire import WireClient

def call(kafka, *request):
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    with WireClient(host, int(port)) as client:
        return client.call(*request)

def partitions(kafka, topic):
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    return [one.partition_index for one in call(kafka, 3, 7, asked).topics[0].partitions]

names = []

@pytest.mark.parametrize("number", ["a/b", "c"])
def test_topic(kafka, kafka_topic, number):
    assert kafka_topic.startswith("test_topic-" + number.replace("/", "-"))
    assert partitions(kafka, kafka_topic) == [0]
    names.append(kafka_topic)

@pytest.mark.kafka_topic(partitions=3)
def test_marked(kafka, kafka_topic):
    assert partitions(kafka, kafka_topic) == [0, 1, 2]

def test_topics_are_deleted(kafka):
    assert len(set(names)) == 2
    for name in names:
        assert partitions(kafka, name) == []

groups = []

def committed(kafka, group, topic):
    topics = [{"name": topic, "partition_indexes": [0, 1]}]
    found = call(kafka, 9, 7, {"group_id": group, "topics": topics, "require_stable": False}).topics[0]
    return [one.committed_offset for one in found.partitions]

@pytest.mark.kafka_topic(partitions=2)
def test_group(kafka, kafka_topic, kafka_group):
    assert committed(kafka, kafka_group, kafka_topic) == [0, 0]
    groups.append(kafka_group)

def test_groups_are_deleted(kafka):
    asked = {"groups": groups, "include_authorized_operations": False}
    assert [one.group_state for one in call(kafka, 15, 4, asked).groups] == ["Dead"]
"""

SECURED = """
import pytest
from confluent_kafka import Consumer, Producer
from odradek.testing import allow

pytestmark = pytest.mark.kafka_broker(listeners=["SASL_PLAINTEXT"], users={"alice": "a", "bob": "b"}, acls=[])

def produced(config, topic):
    told = []
    producer = Producer(config)
    producer.produce(topic, b"a", on_delivery=lambda error, _: told.append(error and error.name()))
    producer.flush(10)
    return told

def test_nobody_may(kafka_broker, kafka_topic):
    assert produced(kafka_broker.client_config("alice"), kafka_topic) == ["TOPIC_AUTHORIZATION_FAILED"]

RULES = [allow("alice", "WRITE", topic="*"), allow("bob", "READ", topic="*"), allow("bob", "READ", group="*")]

@pytest.mark.kafka_broker({"alice": "a"})
def test_positional(kafka_broker):
    pass

@pytest.mark.kafka_broker(users={"alice": "a", "bob": "b"}, acls=RULES)
@pytest.mark.kafka_topic(partitions=1)
def test_who_may(kafka_broker, kafka_topic, kafka_group):
    assert produced(kafka_broker.client_config("alice"), kafka_topic) == [None]
    assert produced(kafka_broker.client_config("bob"), kafka_topic) == ["TOPIC_AUTHORIZATION_FAILED"]
    consumer = Consumer({**kafka_broker.client_config("bob"), "group.id": kafka_group})
    consumer.subscribe([kafka_topic])
    assert consumer.poll(10).value() == b"a"
    consumer.close()

def test_the_one_for_all_is_another(kafka, kafka_topic):
    assert produced({"bootstrap.servers": kafka.bootstrap_servers}, kafka_topic) == [None]
"""

PRODUCED = """
@pytest.mark.kafka_topic(partitions=2)
def test_produced(kafka, kafka_topic):
    kafka.produce(kafka_topic, b"a", b"b", key=b"k")
    kafka.produce(kafka_topic, b"c")
    assert sorted(record.value for record in kafka.records(kafka_topic)) == [b"a", b"b", b"c"]
"""

CONFIGURED = """
import pytest

def test_session(kafka, kafka_topic):
    assert kafka.client_config()["security.protocol"] == "SSL"
    kafka.produce(kafka_topic, b"a", b"b")
    assert [record.value for record in kafka.records(kafka_topic)] == [b"a", b"b"]
    assert kafka._running.broker.config["auto.create.topics.enable"] is False

@pytest.mark.kafka_broker(config={"num.partitions": 3}, listeners=["PLAINTEXT"])
def test_marked(kafka_broker):
    assert kafka_broker.client_config()["security.protocol"] == "PLAINTEXT"
    config = kafka_broker._running.broker.config
    assert (config["auto.create.topics.enable"], config["num.partitions"]) == (False, 3)

@pytest.mark.kafka_broker(users={"alice": "a"})
def test_users(kafka_broker):
    assert kafka_broker.client_config("alice")["security.protocol"] == "SASL_SSL"
"""

FAULTS = """
def test_leaves_a_fault(kafka):
    kafka.fault("ApiVersions", error="UNKNOWN_SERVER_ERROR")
    assert call(kafka, 18, 0, {}).error_code == -1

def test_finds_none(kafka):
    assert not kafka.requests()
    assert call(kafka, 18, 0, {}).error_code == 0
"""


def run(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(tests)
    source = Path(odradek.__file__).parent.parent
    env = {**os.environ, "PYTHONPATH": str(source), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", PLUGIN, "-rs", "--strict-markers", *options]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_fixtures(tmp_path: Path) -> None:
    outcome = run(tmp_path, TESTS + FAULTS)
    assert "8 passed" in outcome.stdout, outcome.stdout + outcome.stderr


@pytest.mark.slow
def test_the_ini_file_sets_what_brokers_are_like(tmp_path: Path) -> None:
    settings = tmp_path / "pytest.ini"
    settings.write_text("[pytest]\nkafka_listeners = SSL\nkafka_config =\n    auto.create.topics.enable = false\n")
    outcome = run(tmp_path, CONFIGURED)
    assert "3 passed" in outcome.stdout, outcome.stdout + outcome.stderr
    settings.write_text("[pytest]\nkafka_config = num.partitions\n")
    assert "expected NAME=VALUE, got 'num.partitions'" in run(tmp_path, CONFIGURED).stdout


@pytest.mark.slow
def test_a_broker_with_users_is_for_one_test(tmp_path: Path) -> None:
    outcome = run(tmp_path, SECURED)
    assert "3 passed, 1 error" in outcome.stdout, outcome.stdout + outcome.stderr
    assert "the arguments of the mark kafka_broker have names" in outcome.stdout
    with Broker() as broker:
        outcome = run(tmp_path, SECURED, "--kafka-real", broker.bootstrap_servers)
    assert "1 passed, 3 skipped" in outcome.stdout, outcome.stdout + outcome.stderr


@pytest.mark.slow
def test_each_worker_has_a_broker(tmp_path: Path) -> None:
    tests = "import pathlib\n\n" + "\n".join(
        f"def test_{number}(kafka): pathlib.Path(kafka.bootstrap_servers).touch()" for number in range(8)
    )
    outcome = run(tmp_path, tests, "-p", "xdist", "-n", "2", "--dist", "each")
    assert "16 passed" in outcome.stdout, outcome.stdout + outcome.stderr
    assert len(list(tmp_path.glob("127.0.0.1:*"))) == 2


@pytest.mark.slow
def test_another_broker(tmp_path: Path) -> None:
    with Broker() as broker:
        address = broker.bootstrap_servers
        own = f"def test_address(kafka): assert kafka.bootstrap_servers == '{address}'\n"
        own += "def test_fault(kafka): kafka.fault('Fetch')\n"
        own += PRODUCED
        outcome = run(tmp_path, TESTS + own, "--kafka-real", address)
    assert "8 passed, 1 skipped" in outcome.stdout, outcome.stdout + outcome.stderr
    assert "a broker of --kafka-real has no fault" in outcome.stdout


@pytest.mark.slow
def test_who_does_not_use_it_pays_nearly_nothing() -> None:
    program = (
        f"import sys, pytest; before = set(sys.modules); import {PLUGIN}; print(*sorted(set(sys.modules) - before))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert set(printed.split()) <= {"odradek", "odradek.testing", PLUGIN, "secrets", "hmac", "_hashlib", "random"}
