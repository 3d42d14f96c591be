"""A test's broker with users and ACLs: Kafka's tools connect by the settings that it gives, and change users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from odradek.testing import Broker, allow
from peers.java_properties import write_properties
from peers.kafka_tools import KafkaTools


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    config = {"super.users": "User:admin"}
    users = {"admin": 's3cret "with\\marks', "alice": "a"}
    rules = [allow("alice", "DESCRIBE", topic="events")]
    with Broker(users=users, acls=rules, listeners=["SASL_SSL", "SASL_PLAINTEXT", "SSL"], config=config) as broker:
        for topic in ("events", "secret"):
            broker.create_topic(topic)
        yield broker


def topics(tools: KafkaTools, broker: Broker, file: Path, user: str | None, **options: str) -> set[str]:
    settings = broker.client_config(user, "java", **options)
    config = write_properties(file, settings)
    told = tools.topics(settings["bootstrap.servers"], "--list", "--command-config", str(config)).check()
    return set(told.stdout.split())


def test_java_clients_connect_by_their_settings(secured: Broker, kafka_tools: KafkaTools, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    assert topics(kafka_tools, secured, file, "alice") == {"events"}
    assert topics(kafka_tools, secured, file, "admin", mechanism="PLAIN") == {"events", "secret"}
    assert topics(kafka_tools, secured, file, "admin", listener="SASL_PLAINTEXT", mechanism="SCRAM-SHA-256") >= {
        "secret"
    }
    # Without a login over TLS: nobody in particular.
    assert topics(kafka_tools, secured, file, None) == set()


def test_kafka_s_tools_add_users_and_acls(secured: Broker, kafka_tools: KafkaTools, tmp_path: Path) -> None:
    settings = secured.client_config("admin", "java")
    config = write_properties(tmp_path / "admin.properties", settings)
    secure = ("--command-config", str(config))
    user = ("--entity-type", "users", "--entity-name", "bob")
    password = ("--add-config", "SCRAM-SHA-512=[iterations=4096,password=b]")
    kafka_tools.configs(settings["bootstrap.servers"], *secure, "--alter", *user, *password).check()
    rule = ("--allow-principal", "User:bob", "--operation", "Write", "--topic", "events")
    servers = ("--bootstrap-server", settings["bootstrap.servers"])
    kafka_tools.run("org.apache.kafka.tools.AclCommand", *servers, *secure, "--add", *rule).check()
    errors = []
    bob = {**secured.client_config("alice"), "sasl.username": "bob", "sasl.password": "b"}
    producer = confluent_kafka.Producer(bob)
    producer.produce("events", b"a", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert errors == [None]
