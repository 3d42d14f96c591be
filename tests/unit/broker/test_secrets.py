"""Passwords and keys, planted in every setting that has one: no log, error, answer or page shows them."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.config import BrokerConfig, is_secret
from odradek.broker.running import BrokerThread
from odradek.coordination.scram.credentials import MECHANISMS, credential_of_password
from odradek.errors import OdradekError
from odradek.storage.directory.broker_config import BROKER_CONFIGS
from peers.broker_thread import connect, start
from peers.certificates import make_certificate
from peers.http import get
from peers.requests import ask

PLANTED = "pl4nted-s3cret"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRETS = sorted(name for name, known in BROKER_CONFIGS.items() if known.type == "PASSWORD")
BROKER = 4
LISTENERS = "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0"


class Planted:
    """A broker with secrets in all settings, and texts that nothing may show."""

    def __init__(self, folder: Path) -> None:
        server, other = make_certificate("server"), make_certificate("other")
        stores = {name: folder / f"{name}.p12" for name in ("keystore", "truststore")}
        for path in stores.values():
            path.write_bytes(server.pkcs12(PLANTED))
        (folder / "other.crt").write_text(other.certificate_pem)
        self.secrets = [PLANTED, other.key_pem().splitlines()[1]]
        self.config: dict[str, Any] = {
            **dict.fromkeys(SECRETS, PLANTED),
            "listeners": LISTENERS,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": other.key_pem(),
            "ssl.keystore.certificate.chain": other.certificate_pem,
            "ssl.truststore.certificates": other.certificate_pem,
            "listener.name.sasl_ssl.ssl.keystore.type": "PKCS12",
            "listener.name.sasl_ssl.ssl.keystore.location": str(stores["keystore"]),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "sasl.jaas.config": f'{MODULE} required user_alice="{PLANTED}" password="{PLANTED}";',
            "connection.failed.authentication.delay.ms": 0,
        }
        for name in ("ssl.keystore.key", "ssl.keystore.certificate.chain"):
            self.config[f"listener.name.ssl.{name}"] = self.config.pop(name)

    def are_in(self, text: str) -> bool:
        """Whether a text has one of them."""
        return any(secret in text for secret in self.secrets)


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return Planted(tmp_path)


@pytest.fixture
def running(tmp_path: Path, planted: Planted, caplog: pytest.LogCaptureFixture) -> Iterator[BrokerThread]:
    caplog.set_level(logging.DEBUG)
    with start(tmp_path / "data", **planted.config) as running:
        credential = credential_of_password("bob", MECHANISMS["SCRAM-SHA-256"], PLANTED)
        running.broker.logs.metadata.alter_scram_credentials([credential])
        yield running


def test_kafka_s_passwords_are_secrets() -> None:
    assert {"ssl.key.password", "ssl.keystore.password", "ssl.keystore.key", "sasl.jaas.config"} <= set(SECRETS)
    for name in SECRETS:
        assert is_secret(name)
        assert is_secret(f"listener.name.x.{name}")
    assert is_secret("listener.name.x.plain.sasl.jaas.config")
    assert is_secret("plain.sasl.jaas.config")
    assert not is_secret("num.partitions")


@pytest.mark.slow
def test_nothing_that_a_running_broker_tells_has_a_secret(
    running: BrokerThread, planted: Planted, base: str, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(running) as client:
        resources = [{"resource_type": BROKER, "resource_name": name, "configuration_keys": None} for name in ("", "1")]
        options = {"include_synonyms": True, "include_documentation": True}
        described = [ask(client, "DescribeConfigs", 4, resources=[one], **options) for one in resources]
        assert any(found.configs for answer in described for found in answer.results)
        told = [repr(one) for one in described]
        for name in SECRETS:
            for value in (PLANTED, f"{PLANTED}\n", f"${{file:{PLANTED}"):
                change = {"name": name, "config_operation": 0, "value": value}
                asked = {"resource_type": BROKER, "resource_name": "", "configs": [change]}
                told.append(repr(ask(client, "IncrementalAlterConfigs", 1, resources=[asked], validate_only=False)))
                change["name"] = f"listener.name.sasl_ssl.{name}"
                asked["resource_name"] = "1"
                told.append(repr(ask(client, "IncrementalAlterConfigs", 1, resources=[asked], validate_only=False)))
        told.append(repr(ask(client, "DescribeConfigs", 4, resources=resources[:1], **options)))
        told.append(repr(ask(client, "DescribeUserScramCredentials", 0, users=None)))
    with connect(running, "SASL_SSL") as client:
        client.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        client.socket.recv(100)
    told += [get(f"{base}/{page}")[1] for page in ("metrics", "healthz")]
    told += [caplog.text, repr(running.broker.config), repr(running.server)]
    for text in told:
        assert not planted.are_in(text)


@pytest.mark.parametrize("name", [*SECRETS, "listener.name.sasl_ssl.plain.sasl.jaas.config"])
@pytest.mark.parametrize(
    "value", [PLANTED, f"{MODULE} required user_alice={PLANTED}", f"${{file:{PLANTED}}}", f"a\0{PLANTED}"]
)
def test_no_error_of_the_start_has_a_secret(
    tmp_path: Path, planted: Planted, name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    config = {**planted.config, name: value}
    if name.startswith("ssl."):
        config[f"listener.name.sasl_ssl.{name}"] = value
        if name == "ssl.keystore.certificate.chain":
            config["listener.name.ssl.ssl.keystore.certificate.chain"] = value
    try:
        start(tmp_path / "data", **config).stop()
    except OdradekError as error:
        # Its causes are printed with it.
        shown = "".join(traceback.format_exception(error, limit=0))
        assert not planted.are_in(shown)
    assert not planted.are_in(caplog.text)


def test_a_wrong_password_of_a_store_is_not_shown(tmp_path: Path, planted: Planted) -> None:
    wrong = {**planted.config, "ssl.keystore.password": f"{PLANTED}-wrong"}
    with pytest.raises(OdradekError) as refused:
        start(tmp_path / "data", **wrong)
    assert not planted.are_in("".join(traceback.format_exception(refused.value, limit=0)))
    with pytest.raises(OdradekError) as refused:
        BrokerConfig({**planted.config, "ssl.client.auth": "maybe"})
    assert not planted.are_in(str(refused.value))
