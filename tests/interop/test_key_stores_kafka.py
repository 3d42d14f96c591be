"""A key store that `kafka-configs` sets while a broker runs: we and Apache Kafka serve one folder in turn."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from odradek.broker.running import BrokerThread
from peers.broker_thread import eventually
from peers.certificates import Certificate, make_certificate
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.process import free_port

SETTING = "listener.name.ssl.ssl.keystore.location"


@pytest.mark.compared
@pytest.mark.parametrize("first", ["kafka", "odradek"])
def test_a_key_store_is_changed_while_either_runs_and_goes_with_the_folder(
    kafka_tools: KafkaTools, tmp_path: Path, first: str
) -> None:
    certificates = [make_certificate("server") for _ in range(3)]
    stores = [tmp_path / f"{number}.pem" for number in range(3)]
    for store, one in zip(stores, certificates, strict=True):
        store.write_text(one.key_pem() + one.certificate_pem)
    given = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(stores[0])}
    log_dir = tmp_path / "data"

    def serves(port: int, certificate: Certificate) -> bool:
        return ssl.get_server_certificate(("127.0.0.1", port)).split() == certificate.certificate_pem.split()

    def change(servers: str, port: int, before: int) -> None:
        """Sets the next key store, by Kafka's tool."""
        assert serves(port, certificates[before])
        config = ("--add-config", f"{SETTING}={stores[before + 1]}")
        kafka_tools.configs(servers, "--alter", "--entity-type", "brokers", "--entity-name", "1", *config).check()
        eventually(lambda: serves(port, certificates[before + 1]))
        refused = kafka_tools.configs(
            servers, "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", f"{SETTING}=/none"
        )
        assert "InvalidRequestException" in refused.stdout + refused.stderr
        assert serves(port, certificates[before + 1])

    def by_kafka(before: int) -> None:
        broker, port = KafkaBroker(kafka_tools, log_dir), free_port()
        for name in ("listeners", "advertised.listeners"):
            broker.config[name] += f",SSL://127.0.0.1:{port}"
        broker.config |= given | {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL"}
        with broker:
            change(broker.bootstrap_servers, port, before)

    def by_us(before: int) -> None:
        with BrokerThread(log_dir, {**given, "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"}) as running:
            change(f"127.0.0.1:{running.endpoint('PLAINTEXT').port}", running.endpoint("SSL").port, before)

    for number, serve in enumerate((by_kafka, by_us) if first == "kafka" else (by_us, by_kafka)):
        serve(number)
