"""Clients that log in to a broker of ours in their own ways, and ask for its topics.

SASL_SSL, SASL_PLAINTEXT    the listeners
AGAIN                       as SASL_SSL, but clients have to log in again every 2 s
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka.admin
import pytest
from aiokafka.errors import KafkaConnectionError

import odradek
from odradek.admin.opening import open_admin
from odradek.broker.running import BrokerThread
from odradek.errors import OdradekError
from peers.certificates import make_certificate
from peers.clients import go_client, kafkajs

TOPIC = "events"
LOGIN_MARKS = [
    # kafka-python leaves the sockets of connections that are refused to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
    pytest.mark.usefixtures("collected"),
]
"""Those of tests whose logins are refused."""

LISTENERS = ("SASL_SSL", "SASL_PLAINTEXT", "AGAIN")

ERRORS: dict[str, type[Exception]] = {
    "librdkafka": RuntimeError,
    "kafka-python": kafka.errors.KafkaError,
    "aiokafka": KafkaConnectionError,
    "odradek": OdradekError,
}
"""The clients of Python, and what they raise if they may not log in."""


class Address(NamedTuple):
    """A listener, as clients see it."""

    servers: str
    protocol: str
    certificate: Path
    key: Path | None = None
    """The client's own key and certificate."""

    @property
    def has_tls(self) -> bool:
        """Whether it has TLS."""
        return self.protocol.endswith("SSL")

    def java(self, sasl: Mapping[str, str]) -> dict[str, str]:
        """Returns it as Kafka's settings, with those of a login."""
        store = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.certificate)}
        if self.key is not None:
            store |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.key)}
        return {"security.protocol": self.protocol, **sasl, **store}


@contextmanager
def serving(folder: Path, config: Mapping[str, str | int | float | bool]) -> Iterator[BrokerThread]:
    """Serves `data` of a folder, which is made with a topic if it is not there, on the listeners."""
    store, _ = make_certificate("server").write(folder)
    listeners: dict[str, str | int | float | bool] = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,AGAIN:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "listener.name.again.connections.max.reauth.ms": 2000,
    }
    with odradek.open(folder / "data") as logs:
        if TOPIC not in logs.topics():
            logs.create_topic(TOPIC, 1)
    with BrokerThread(folder / "data", {**listeners, **config}, sync="off", background=False) as running:
        yield running


def address_of(running: BrokerThread, listener: str) -> Address:
    """Returns where a listener is."""
    certificate = running.broker.logs.path.parent / "server.crt"
    protocol = "SASL_SSL" if listener == "AGAIN" else listener
    return Address(f"127.0.0.1:{running.endpoint(listener).port}", protocol, certificate)


def by_librdkafka(address: Address, sasl: Mapping[str, Any]) -> set[str]:
    """Returns the topics, or raises what the client tells of a refusal."""
    refusals: list[str] = []

    def tell(error: confluent_kafka.KafkaError) -> None:
        if error.code() == confluent_kafka.KafkaError._AUTHENTICATION or "SSL alert" in error.str():
            refusals.append(error.str())

    settings = {
        "bootstrap.servers": address.servers,
        "security.protocol": address.protocol,
        "ssl.ca.location": str(address.certificate),
        "log_level": 0,
        **sasl,
    }
    if address.key is not None:
        settings |= {"ssl.key.location": str(address.key), "ssl.certificate.location": str(address.key)}
    admin = confluent_kafka.admin.AdminClient(settings, error_cb=tell)
    for _ in range(100):
        admin.poll(0.1)
        if refusals:
            raise RuntimeError(refusals[0])
        try:
            return set(admin.list_topics(timeout=0.5).topics)
        except confluent_kafka.KafkaException:
            continue
    raise TimeoutError


def by_kafka_python(address: Address, sasl: Mapping[str, Any]) -> set[str]:
    """Returns the topics."""
    admin = kafka.admin.KafkaAdminClient(
        bootstrap_servers=address.servers,
        security_protocol=address.protocol,
        ssl_cafile=str(address.certificate) if address.has_tls else None,
        ssl_certfile=None if address.key is None else str(address.key),
        bootstrap_timeout_ms=3000,
        **sasl,
    )
    with closing(admin):
        return set(admin.list_topics())


def by_aiokafka(address: Address, sasl: Mapping[str, Any]) -> set[str]:
    """Returns the topics."""

    async def ask() -> set[str]:
        context = ssl.create_default_context(cafile=str(address.certificate)) if address.has_tls else None
        if context is not None and address.key is not None:
            context.load_cert_chain(address.key)
        admin = aiokafka.admin.AIOKafkaAdminClient(
            bootstrap_servers=address.servers, security_protocol=address.protocol, ssl_context=context, **sasl
        )
        try:
            await admin.start()
            return set(await admin.list_topics())
        finally:
            await admin.close()

    return asyncio.run(ask())


def by_odradek(address: Address, sasl: Mapping[str, str]) -> set[str]:
    """Returns the topics."""
    with open_admin(f"kafka://{address.servers}", address.java(sasl)) as admin:
        return set(admin.topic_names())


def run_other(
    name: str, address: Address, login: tuple[str, str, str], topic: str, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Returns what a client of another language prints.

    Args:
        name: `franz-go` or `kafkajs`.
        address: The listener.
        login: The mechanism, the user, and the password or the token.
        topic: The topic that it makes.
        monkeypatch: Sets the environment.
    """
    client = kafkajs() if name == "kafkajs" else go_client(name)
    given = dict(zip(("MECHANISM", "USER", "PASSWORD"), login, strict=True))
    given["CA"] = str(address.certificate) if address.has_tls else ""
    for variable, text in given.items():
        monkeypatch.setenv(f"CLIENT_{variable}", text)
    return client.run("admin", address.servers, topic)
