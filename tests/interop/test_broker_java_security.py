"""Kafka's own tools against listeners of ours with TLS and passwords, by key stores that keytool made."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from odradek.broker.distinguished_names import distinguished_name
from odradek.broker.running import BrokerThread
from peers.java_properties import write_properties
from peers.kafka_tools import KafkaTools
from peers.subjects import (
    BMP,
    EMAIL,
    GENERAL,
    IA5,
    NUMERIC,
    PRINTABLE,
    T61,
    UNIVERSAL,
    UTF8,
    VISIBLE,
    certificate,
    subject,
)
from peers.subjects import attribute as attribute_of

pytestmark = pytest.mark.needs("keytool")
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD = "changeit"
COUNT = 200
SUBJECTS = 3000


def keytool(*arguments: str | Path) -> None:
    command = ["keytool", *map(str, arguments), "-storepass", PASSWORD, "-noprompt"]
    subprocess.run(command, check=True, capture_output=True)


class Stores(NamedTuple):
    """The key of a certificate that signs itself, and the certificate for those that are to trust it."""

    key: Path
    trust: Path


def make_stores(folder: Path, name: str) -> Stores:
    key, trust, certificate = (folder / f"{name}.{kind}" for kind in ("p12", "trust.p12", "crt"))
    made = ("-alias", name, "-keyalg", "RSA", "-dname", f"CN={name}", "-ext", "SAN=IP:127.0.0.1")
    keytool("-genkeypair", "-keystore", key, *made)
    keytool("-exportcert", "-keystore", key, "-alias", name, "-file", certificate)
    keytool("-importcert", "-keystore", trust, "-alias", name, "-file", certificate)
    return Stores(key, trust)


class Secured(NamedTuple):
    """A broker, and the settings of a client by the listener."""

    running: BrokerThread
    settings: dict[str, dict[str, str]]

    def servers(self, listener: str) -> str:
        endpoint = self.running.endpoint(listener)
        return f"{endpoint.host}:{endpoint.port}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    server, client = make_stores(folder, "server"), make_stores(folder, "client")
    config: dict[str, str | int | float | bool] = {
        "listeners": "SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(server.key),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(client.trust),
        "ssl.truststore.password": PASSWORD,
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f'{MODULE} required user_alice="secret";',
        "connections.max.reauth.ms": 2000,
        "group.initial.rebalance.delay.ms": 0,
    }
    trust = {"ssl.truststore.location": str(server.trust), "ssl.truststore.password": PASSWORD}
    key = {"ssl.keystore.location": str(client.key), "ssl.keystore.password": PASSWORD, "ssl.key.password": PASSWORD}
    login = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f'{MODULE} required username="alice" password="secret";'}
    settings = {"SASL_SSL": trust | login, "SSL": trust | key, "SASL_PLAINTEXT": login}
    with BrokerThread(folder / "data", config, sync="off") as running:
        yield Secured(running, {name: {"security.protocol": name, **more} for name, more in settings.items()})


@pytest.mark.parametrize("listener", ["SASL_SSL", "SSL", "SASL_PLAINTEXT"])
def test_tools_of_kafka(secured: Secured, kafka_tools: KafkaTools, tmp_path: Path, listener: str) -> None:
    servers, settings, topic = secured.servers(listener), secured.settings[listener], f"of-{listener}"
    config = write_properties(tmp_path / "client.properties", settings)
    flags = ("--create", "--topic", topic, "--partitions", "2", "--command-config", str(config))
    kafka_tools.topics(servers, *flags).check()
    kafka_tools.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(COUNT), "--record-size", "5000", "--throughput", "-1"),
        *("--bootstrap-server", servers, "--command-config", config),
    ).check()
    found = kafka_tools.consume(servers, topic, config=settings)
    assert [len(base64.b64decode(row["value"])) for one in found.values() for row in one["records"]] == [5000] * COUNT


def test_a_wrong_password_is_told(secured: Secured, kafka_tools: KafkaTools, tmp_path: Path) -> None:
    settings = secured.settings["SASL_SSL"]
    wrong = {**settings, "sasl.jaas.config": settings["sasl.jaas.config"].replace("secret", "wrong")}
    config = write_properties(tmp_path / "client.properties", wrong)
    told = kafka_tools.topics(secured.servers("SASL_SSL"), "--list", "--command-config", str(config))
    assert told.code == 1
    assert "SaslAuthenticationException" in told.stdout + told.stderr


def test_who_has_no_certificate_is_told(secured: Secured, kafka_tools: KafkaTools, tmp_path: Path) -> None:
    settings = {name: one for name, one in secured.settings["SSL"].items() if "key" not in name}
    config = write_properties(tmp_path / "client.properties", settings)
    told = kafka_tools.topics(secured.servers("SSL"), "--list", "--command-config", str(config))
    assert told.code == 1
    assert "SslAuthenticationException" in told.stdout + told.stderr


def test_certificates_are_called_as_kafka_calls_them(kafka_tools: KafkaTools) -> None:
    random = Random(1)
    subjects = [_random_subject(random) for _ in range(SUBJECTS)]
    asked = "".join(f"{one.hex()}\n" for one in subjects)
    command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", kafka_tools.classpath, "SubjectNames"]
    answers = subprocess.run(command, input=asked, text=True, check=True, capture_output=True).stdout.splitlines()
    theirs = [bytes.fromhex(answer).decode() for answer in answers]
    assert [distinguished_name(certificate(one)) for one in subjects] == theirs
    assert sum("\\=" in name for name in theirs) > SUBJECTS // 20


def _random_subject(random: Random) -> bytes:
    user_id, domain = "0.9.2342.19200300.100.1.1", "0.9.2342.19200300.100.1.25"
    kinds = [*(f"2.5.4.{last}" for last in range(3, 55)), user_id, domain, EMAIL]
    tags = [UTF8, PRINTABLE, IA5, BMP, T61, GENERAL, NUMERIC, VISIBLE, UNIVERSAL]
    characters = "aZ0 \r\n\t\0,=+<>#;\"\\'()/:?-.ü€\U0001f600\N{NO-BREAK SPACE}"

    def attribute() -> bytes:
        text = "".join(random.choices(characters, k=random.randrange(8)))
        return attribute_of(random.choice(kinds[:9] if random.random() < 0.7 else kinds), text, random.choice(tags))

    def part() -> list[bytes]:
        return [attribute() for _ in range(random.choice([1, 1, 1, 2, 3]))]

    return subject(*(part() for _ in range(random.randrange(1, 6))))
