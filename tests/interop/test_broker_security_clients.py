"""Real clients against listeners of ours that ask for TLS, certificates and passwords."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer

from odradek.broker.running import BrokerThread
from peers.certificates import make_certificate
from peers.login_clients import ERRORS, Address, by_aiokafka, by_kafka_python, by_librdkafka, by_odradek

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")]
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[BrokerThread]:
    server, client = make_certificate("server"), make_certificate("client")
    store, _ = server.write(tmp_path)
    client.write(tmp_path)
    config: dict[str, str | int | float | bool] = {
        "listeners": "SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "listener.name.ssl.ssl.truststore.location": str(tmp_path / "client.crt"),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f'{MODULE} required user_alice="secret";',
        # Clients authenticate again all the time.
        "connections.max.reauth.ms": 2000,
        "group.initial.rebalance.delay.ms": 0,
    }
    with BrokerThread(tmp_path / "data", config, sync="off", background=False) as running:
        yield running


def servers(running: BrokerThread, listener: str) -> str:
    endpoint = running.endpoint(listener)
    return f"{endpoint.host}:{endpoint.port}"


@pytest.mark.parametrize("listener", ["SASL_SSL", "SSL", "SASL_PLAINTEXT"])
def test_librdkafka(secured: BrokerThread, tmp_path: Path, listener: str) -> None:
    config: dict[str, Any] = {
        "bootstrap.servers": servers(secured, listener),
        "security.protocol": listener,
        "ssl.ca.location": str(tmp_path / "server.crt"),
        "ssl.certificate.location": str(tmp_path / "client.crt"),
        "ssl.key.location": str(tmp_path / "client.pem"),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
    if listener == "SASL_SSL":
        del config["ssl.certificate.location"], config["ssl.key.location"]
    producer = Producer(config)
    values = [bytes([number % 256]) * 5000 for number in range(1000)]
    for value in values:
        producer.produce("events", value)
    assert producer.flush(60) == 0
    consumer = Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["events"])
        messages: list[Any] = []
        while len(messages) < len(values):
            messages += consumer.consume(100, 30)
        assert [message.value() for message in messages] == values
    finally:
        consumer.close()


def test_librdkafka_with_a_wrong_password(secured: BrokerThread, tmp_path: Path) -> None:
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": servers(secured, "SASL_SSL"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(tmp_path / "server.crt"),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "wrong",
            "error_cb": errors.append,
        }
    )
    while not any(error.code() == KafkaError._AUTHENTICATION for error in errors):
        producer.poll(0.1)


def test_kafka_python(secured: BrokerThread, tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "bootstrap_servers": servers(secured, "SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(tmp_path / "server.crt"),
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "secret",
    }
    producer = KafkaProducer(**config)
    for number in range(100):
        producer.send("events", b"%d" % number)
    producer.flush(60)
    producer.close()
    consumer = KafkaConsumer("events", **config, auto_offset_reset="earliest", consumer_timeout_ms=30_000)
    found = []
    for message in consumer:
        found.append(message.value)
        if len(found) == 100:
            break
    consumer.close()
    assert found == [b"%d" % number for number in range(100)]


CLIENTS: dict[str, Callable[[Address, Any], set[str]]] = {
    "librdkafka": by_librdkafka,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "odradek": by_odradek,
}


@pytest.mark.usefixtures("collected")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("name", CLIENTS)
def test_a_certificate_lets_a_client_in_and_another_does_not(
    secured: BrokerThread, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    secured.broker.logs.create_topic("events")
    address = Address(servers(secured, "SSL"), "SSL", tmp_path / "server.crt", tmp_path / "client.pem")
    assert "events" in CLIENTS[name](address, {})
    (tmp_path / "foreign").mkdir()
    for kind, days in ("foreign", 2), ("expired", -1):
        store, _ = make_certificate(kind, days=days).write(tmp_path / "foreign")
        caplog.clear()
        with pytest.raises(ERRORS[name]) as refused:
            CLIENTS[name](address._replace(key=store), {})
        # aiokafka learns only that the connection was closed.
        reason = "closed" if name == "aiokafka" else "(?i)unknown.ca|certificate"
        assert re.search(reason, f"{refused.value} {caplog.text}")
