"""The source, and the offset store, against listeners of Apache Kafka that ask for TLS, certificates and passwords."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.errors import BrokerUnavailableError, OffsetStoreError
from odradek.offsets.store import Position, open_store
from odradek.spark.options import SourceOptions
from odradek.spark.source import SourceReader
from odradek.spark.spark_schema import arrow_schema, source_schema
from odradek.storage.names import TopicPartition
from peers.kafka import KafkaBroker
from peers.kafka_fixture import KafkaFixture
from peers.kafka_tools import KafkaTools
from peers.process import free_port

pytestmark = [
    pytest.mark.usefixtures("collected"),
    pytest.mark.interop,
    # kafka-python does not close the socket of a connection that is refused, so that the collector warns of it.
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
    pytest.mark.needs("openssl"),
]
PASSWORD = 's3cret"with\\marks'
QUOTED = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
JAAS = f'org.apache.kafka.common.security.{{kind}}LoginModule required username="alice" password="{QUOTED}";'
PLAIN = JAAS.format(kind="plain.Plain")
SCRAM = JAAS.format(kind="scram.Scram")


class Certificate(NamedTuple):
    """A self-made certificate, and a file with its key before it: Kafka's PEM key store."""

    certificate: Path
    store: Path


def make_certificate(folder: Path, name: str) -> Certificate:
    key, certificate, store = (folder / f"{name}.{kind}" for kind in ("key", "crt", "pem"))
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    request += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(request, check=True, capture_output=True)
    store.write_text(key.read_text() + certificate.read_text())
    return Certificate(certificate, store)


class Secured(NamedTuple):
    """A broker, its listeners and the certificates."""

    broker: KafkaBroker
    sasl_ssl: str
    ssl: str
    server: Certificate
    client: Certificate


@pytest.fixture(scope="module")
def secured(
    kafka_tools: KafkaTools, fixture_4_3_1: KafkaFixture, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    log_dir = Path(shutil.copytree(fixture_4_3_1.log_dir, folder / "log-dir"))
    server, client = make_certificate(folder, "server"), make_certificate(folder, "client")
    broker = KafkaBroker(kafka_tools, log_dir)
    sasl_ssl, ssl = (f"127.0.0.1:{free_port()}" for _ in range(2))
    more = f"SASL_SSL://{sasl_ssl},SSL://{ssl}"
    broker.config |= {
        "listeners": f"{broker.config['listeners']},{more}",
        "advertised.listeners": f"{broker.config['advertised.listeners']},{more}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(client.certificate),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{QUOTED}";'
        ),
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
    with broker:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            kafka_tools.configs(
                broker.bootstrap_servers,
                *("--alter", "--entity-type", "users", "--entity-name", "alice"),
                *("--add-config", f"{mechanism}=[password={PASSWORD}]"),
            ).check()
        yield Secured(broker, sasl_ssl, ssl, server, client)


def offsets(servers: str, settings: Mapping[str, str]) -> list[int]:
    """What the reader of a task gets of a topic, in small fetches."""
    options = {"kafka.bootstrap.servers": servers, "kafka.default.api.timeout.ms": "10000", "subscribe": "v2-none"}
    options |= {"kafka.max.partition.fetch.bytes": "20000"} | {f"kafka.{name}": text for name, text in settings.items()}
    reader = SourceReader(SourceOptions.parse(options), arrow_schema(source_schema(include_headers=False)))
    return [
        offset
        for split in reader.partitions()
        for batch in reader.read(split)
        for offset in batch.column("offset").to_pylist()
    ]


@pytest.mark.parametrize(("mechanism", "jaas"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)])
def test_reads_with_a_password_over_tls(secured: Secured, mechanism: str, jaas: str) -> None:
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.server.certificate),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
    }
    assert offsets(secured.sasl_ssl, settings) == list(range(1200))


def test_reads_with_a_certificate_of_its_own(secured: Secured) -> None:
    settings = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(secured.server.certificate),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(secured.client.store),
    }
    assert offsets(secured.ssl, settings) == list(range(1200))
    del settings["ssl.keystore.location"]
    with pytest.raises(BrokerUnavailableError):
        offsets(secured.ssl, settings)


@pytest.mark.parametrize("wrong", ["password", "authority"])
def test_is_refused_and_tells_no_secret(secured: Secured, wrong: str) -> None:
    trusted = secured.client if wrong == "authority" else secured.server
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(trusted.certificate),
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": PLAIN.replace("s3cret", "s3cret-no-more") if wrong == "password" else PLAIN,
    }
    with pytest.raises(BrokerUnavailableError) as refused:
        offsets(secured.sasl_ssl, settings)
    assert "s3cret" not in str(refused.value)


def test_keeps_positions_over_tls(secured: Secured) -> None:
    options = {
        "security.protocol": "SASL_SSL",
        "ssl.cafile": str(secured.server.certificate),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.plain.username": "alice",
        "sasl.plain.password": PASSWORD,
        "timeout_ms": "10000",
    }
    name = TopicPartition("v2-none", 0)
    with open_store(f"kafka://{secured.sasl_ssl}/secured", options) as store:
        store.commit({name: Position(17)}, expected=store.load())
    with open_store(f"kafka://{secured.sasl_ssl}/secured", options) as store:
        assert store.load().offset(name) == 17
    with (
        open_store(f"kafka://{secured.sasl_ssl}/secured", {**options, "sasl.plain.password": "wrong"}) as store,
        pytest.raises(OffsetStoreError),
    ):
        store.load()
