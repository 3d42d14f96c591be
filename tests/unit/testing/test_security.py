"""A test's broker with logins, access control lists and quotas, by real clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import aiokafka
import confluent_kafka
import kafka as kafka_python
import pytest
from kafka.errors import TopicAuthorizationFailedError

import odradek
from odradek.coordination.authorization.acls import Acl, Operation, PatternType, PermissionType, ResourceType
from odradek.errors import OptionError
from odradek.testing import Broker, allow, deny

PASSWORD = 's3cret "with\\marks'
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def produced(config: dict[str, Any], topic: str = "events") -> str | None:
    """Produce a record; return the name of the error."""
    told: list[str | None] = []
    errors: list[str] = []
    producer = confluent_kafka.Producer({**config, "error_cb": lambda error: errors.append(error.name())})
    producer.produce(topic, b"a", on_delivery=lambda error, _: told.append(error.name() if error else None))
    while not told and "_AUTHENTICATION" not in errors:
        producer.poll(0.01)
    return told[0] if told else "_AUTHENTICATION"


@pytest.fixture(scope="module")
def broker() -> Any:
    with Broker(users={"alice": PASSWORD}, listeners=["SASL_SSL", "SASL_PLAINTEXT", "PLAINTEXT", "SSL"]) as broker:
        broker.create_topic("events")
        yield broker


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_clients_log_in(broker: Broker, listener: str, mechanism: str) -> None:
    assert produced(broker.client_config("alice", listener=listener, mechanism=mechanism)) is None
    python = broker.client_config("alice", "kafka-python", listener=listener, mechanism=mechanism)
    producer = kafka_python.KafkaProducer(**python)
    assert producer.send("events", b"b").get(10).topic == "events"
    producer.close()

    async def send() -> None:
        async with aiokafka.AIOKafkaProducer(
            **broker.client_config("alice", "aiokafka", listener=listener, mechanism=mechanism)
        ) as producer:
            await producer.send_and_wait("events", b"c")

    asyncio.run(send())
    java = broker.client_config("alice", "java", listener=listener, mechanism=mechanism)
    address = f"kafka://{java.pop('bootstrap.servers')}?{urlencode(java)}"
    with odradek.consume(address, "events", auto_offset_reset="earliest") as consumer:
        assert next(iter(consumer)).record.value == b"a"


@pytest.mark.parametrize("listener", ["SSL", "PLAINTEXT"])
def test_clients_without_a_login(broker: Broker, listener: str) -> None:
    assert produced(broker.client_config(listener=listener)) is None
    assert (
        broker.client_config()["bootstrap.servers"] == broker.client_config(listener="PLAINTEXT")["bootstrap.servers"]
    )


@pytest.mark.slow
def test_a_wrong_password_is_refused(broker: Broker) -> None:
    assert produced({**broker.client_config("alice"), "sasl.password": "wrong"}) == "_AUTHENTICATION"


@pytest.mark.slow
def test_users_come_and_go() -> None:
    with Broker(users={"alice": "secret"}) as broker:
        broker.create_topic("events")
        old = broker.client_config("alice")
        broker.alter_users({"alice": "other", "bob": "b", "nobody": None})
        assert produced(old) == "_AUTHENTICATION"
        assert produced(broker.client_config("alice")) is None
        assert produced(broker.client_config("bob")) is None
        bob = broker.client_config("bob")
        broker.alter_users({"bob": None})
        assert produced(bob) == "_AUTHENTICATION"
        with pytest.raises(OptionError, match="no user 'bob'"):
            broker.client_config("bob")


@pytest.mark.slow
def test_acls_say_who_may_do_what() -> None:
    users = {"alice": "a", "bob": "b"}
    rules = [allow("alice", "WRITE", topic="ev", prefixed=True), deny("*", "WRITE", topic="evil")]
    with Broker(users=users, acls=rules) as broker:
        for topic in ("events", "evil"):
            broker.create_topic(topic)
        assert produced(broker.client_config("alice")) is None
        assert produced(broker.client_config("alice"), "evil") == "TOPIC_AUTHORIZATION_FAILED"
        assert produced(broker.client_config("bob")) == "TOPIC_AUTHORIZATION_FAILED"
        broker.create_acls([allow("bob", "write", topic="*")])
        assert produced(broker.client_config("bob")) is None
        broker.delete_acls(rules)
        assert produced(broker.client_config("alice")) == "TOPIC_AUTHORIZATION_FAILED"
        assert produced(broker.client_config("bob"), "evil") is None


@pytest.mark.slow
def test_no_acls_allow_nothing_and_without_them_all_is_allowed() -> None:
    with Broker(users={"alice": "a"}, listeners=["SASL_PLAINTEXT"], acls=[]) as broker:
        broker.create_topic("events")
        consumer = kafka_python.KafkaConsumer(**broker.client_config("alice", "kafka-python"))
        consumer.assign([kafka_python.TopicPartition("events", 0)])
        with pytest.raises(TopicAuthorizationFailedError):
            consumer.position(kafka_python.TopicPartition("events", 0))
        consumer.close()
    with Broker() as broker, pytest.raises(OptionError, match="acls"):
        broker.create_acls([])


def test_an_acl_reads_like_a_sentence() -> None:
    topic, literal, read = ResourceType.TOPIC, PatternType.LITERAL, Operation.READ
    assert allow("alice", "read", topic="t") == Acl(topic, "t", literal, "User:alice", "*", read, PermissionType.ALLOW)
    assert deny("User:CN=a", "All", cluster=True, host="::1") == Acl(
        *(ResourceType.CLUSTER, "kafka-cluster", literal, "User:CN=a", "::1", Operation.ALL, PermissionType.DENY)
    )
    assert allow("*", "DESCRIBE", group="g", prefixed=True)[:4] == (
        ResourceType.GROUP,
        "g",
        PatternType.PREFIXED,
        "User:*",
    )


@pytest.mark.parametrize(
    "made",
    [
        lambda: allow("alice", "READ"),
        lambda: allow("alice", "READ", topic="a", group="b"),
        lambda: allow("alice", "LOOK", topic="a"),
        lambda: allow("alice", "ANY", topic="a"),
        lambda: allow("alice", "READ", topic=""),
        lambda: Broker(config={"listeners": "PLAINTEXT://127.0.0.1:0"}, listeners=["SSL"]),
        lambda: Broker(users={"älice": "a"}),
        lambda: Broker(users={"alice": ""}),
        lambda: Broker(users=["alice"]),  # type: ignore[arg-type]
        lambda: Broker(users={"alice": 1}),  # type: ignore[dict-item]
        lambda: Broker(users={"alice": "a"}, listeners="SASL_SSL"),
        lambda: Broker(listeners=["SASL_SSL"]),
        lambda: Broker(acls=allow("alice", "READ", topic="a")),  # type: ignore[arg-type]
        lambda: Broker(acls=["alice"]),  # type: ignore[list-item]
        lambda: Broker(quotas={"clients/app": 1}),  # type: ignore[dict-item]
        lambda: allow("alice", 3, topic="a"),  # type: ignore[arg-type]
        lambda: allow("alice", "READ", topic=1),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_refused(made: Callable[[], object]) -> None:
    with pytest.raises(OptionError):
        made()


@pytest.mark.parametrize(
    "options",
    [
        {"user": "eve"},
        {"listener": "SASL_SSL"},
        {"user": "alice", "client": "sarama"},
        {"user": "alice", "mechanism": "GSSAPI"},
    ],
)
def test_there_are_no_settings_for_others(broker: Broker, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        broker.client_config(**options)


def test_settings_given_count_more() -> None:
    config = {"sasl.enabled.mechanisms": "PLAIN", "super.users": "User:alice"}
    with Broker(users={"alice": "a"}, acls=[], listeners=["SASL_PLAINTEXT"], config=config) as broker:
        broker.create_topic("events")
        assert produced(broker.client_config("alice", mechanism="PLAIN")) is None
