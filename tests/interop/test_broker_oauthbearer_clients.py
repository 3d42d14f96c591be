"""Every client logs in to our broker by OAUTHBEARER, with and without TLS, and tells of a refused token."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka.abc
import kafka.net.sasl.oauth
import pytest

from odradek.broker.oauth_settings import OAUTHBEARER_MODULE
from odradek.broker.running import BrokerThread
from odradek.testing.tokens import TokenProvider
from peers.java_properties import write_properties
from peers.kafka_tools import KafkaTools
from peers.login_clients import (
    ERRORS,
    LISTENERS,
    LOGIN_MARKS,
    TOPIC,
    Address,
    address_of,
    by_aiokafka,
    by_kafka_python,
    by_librdkafka,
    by_odradek,
    run_other,
    serving,
)

pytestmark = LOGIN_MARKS
PROVIDER = TokenProvider("RS256")
REFUSAL = '{"status":"invalid_token"}'
REFUSED: dict[str, Callable[[], str]] = {
    "expired": lambda: PROVIDER.token("alice", expires_in_s=-60),
    "of a stranger": lambda: TokenProvider("RS256").token("alice"),
    "for others": lambda: PROVIDER.token("alice", aud="others"),
}


class Login(NamedTuple):
    """How a client logs in."""

    address: Address
    folder: Path

    @property
    def token_file(self) -> Path:
        """The file with the token that clients read from one."""
        return self.folder / "token"

    def java(self, token: str) -> dict[str, str]:
        """Returns it as Kafka's settings; the token is put into the file."""
        self.token_file.write_text(token)
        package = "org.apache.kafka.common.security.oauthbearer"
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
            "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": self.token_file.as_uri(),
        }


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    folder = tmp_path_factory.mktemp("oauth")
    config: dict[str, str | int | float | bool] = {}
    jwks = PROVIDER.write_jwks(folder / "jwks.json")
    for listener in LISTENERS:
        config |= PROVIDER.broker_settings(jwks, listener)
    with serving(folder, config) as running:
        yield running


@pytest.fixture(params=["SASL_PLAINTEXT", "SASL_SSL"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def login(running: BrokerThread, protocol: str, tmp_path: Path) -> Login:
    return Login(address_of(running, protocol), tmp_path)


class _Token(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def token(self) -> str:
        return self._text

    def extensions(self) -> dict[str, str]:
        return {"traceId": "7"}


class _LaterToken(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, text: str) -> None:
        self._text = text

    async def token(self) -> str:
        return self._text


def librdkafka(login: Login, token: str) -> dict[str, Any]:
    return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (token, time.time() + 600)}


def kafka_python(login: Login, token: str) -> dict[str, Any]:
    return {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": _Token(token)}


def of_aiokafka(login: Login, token: str) -> dict[str, Any]:
    return {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": _LaterToken(token)}


CLIENTS: dict[str, tuple[Callable[[Address, Any], set[str]], Callable[[Login, str], Any]]] = {
    "librdkafka": (by_librdkafka, librdkafka),
    "kafka-python": (by_kafka_python, kafka_python),
    "aiokafka": (by_aiokafka, of_aiokafka),
    "odradek": (by_odradek, Login.java),
}
"""What asks for the topics, and what it needs to know."""


def ask(name: str, login: Login, token: str) -> set[str]:
    by, settings = CLIENTS[name]
    return by(login.address, settings(login, token))


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_of_python_logs_in(login: Login, name: str) -> None:
    assert TOPIC in ask(name, login, PROVIDER.token("alice"))


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_of_python_tells_of_a_refused_token(
    login: Login, name: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    token = REFUSED[kind]()
    with pytest.raises(ERRORS[name]) as refused:
        ask(name, login, token)
    told = f"{refused.value} {caplog.text}"
    # aiokafka ends the connection at the first answer, and tells nothing of it. Two tell the reason in their log only.
    assert ("Unable to bootstrap" if name == "aiokafka" else REFUSAL) in told
    assert token not in told


@pytest.mark.parametrize("name", ["franz-go", "kafkajs"])
def test_other_clients_log_in(login: Login, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = f"of-{name}-{login.address.protocol}"

    def run(token: str) -> str:
        return run_other(name, login.address, ("OAUTHBEARER", "", token), topic, monkeypatch)

    assert run(PROVIDER.token("alice")).split() == ["3", "60000"]
    # kafkajs does not look into the answer, and is told only when its next request is not answered.
    told = "Closed connection" if name == "kafkajs" else "invalid_token"
    for make in REFUSED.values():
        with pytest.raises(RuntimeError, match=told):
            run(make())


def test_the_client_of_java_logs_in(login: Login, tmp_path: Path) -> None:
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={login.token_file.as_uri()}"
    address = login.address
    with KafkaTools(allowed) as tools:

        def told(token: str) -> str:
            config = write_properties(tmp_path / "client.properties", address.java(login.java(token)))
            found = tools.topics(address.servers, "--list", "--command-config", str(config))
            return found.stdout + found.stderr

        assert TOPIC in told(PROVIDER.token("alice")).split()
        # An expired one it does not even send.
        for make in (REFUSED["of a stranger"], REFUSED["for others"]):
            token = make()
            text = told(token)
            assert f"SaslAuthenticationException: {REFUSAL}" in text
            assert token not in text


@pytest.mark.parametrize("protocol", ["AGAIN"], indirect=True)
def test_a_client_stays_through_many_logins(login: Login, tmp_path: Path) -> None:
    """It has to authenticate again every two seconds, and writes for six."""
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={login.token_file.as_uri()}"
    settings = login.address.java(login.java(PROVIDER.token("alice")))
    config = write_properties(tmp_path / "client.properties", settings)
    with KafkaTools(allowed) as tools:
        tools.run(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", TOPIC, "--num-records", "600", "--record-size", "100", "--throughput", "100"),
            *("--bootstrap-server", login.address.servers, "--command-config", config),
        ).check()
