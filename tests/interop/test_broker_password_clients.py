"""Every client logs in to our broker by SCRAM and PLAIN, with and without TLS, and tells of a wrong password itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.admin.users import add_user
from odradek.broker.running import BrokerThread
from odradek.coordination.scram.credentials import MECHANISMS, MIN_ITERATIONS
from peers.java_properties import write_properties
from peers.kafka_tools import KafkaTools
from peers.login_clients import (
    ERRORS,
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
BOTH = list(MECHANISMS)
PACKAGE = "org.apache.kafka.common.security"
USER, PASSWORD = "alice,b=c", 's3cret "with\\marks'
PLAIN_USER = "alice"
"""kafka-python, which we use too, sends a name as it is, without SCRAM's escapes."""
REFUSALS = {
    "PLAIN": "Authentication failed: Invalid username or password",
    **dict.fromkeys(
        BOTH, "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-"
    ),
}


def quoted(text: str) -> str:
    """Returns a text as a file of JAAS has it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class Login(NamedTuple):
    """How a client logs in."""

    address: Address
    mechanism: str
    user: str = USER
    password: str = PASSWORD

    def librdkafka(self) -> dict[str, str]:
        """Returns it as librdkafka's settings."""
        return {"sasl.mechanism": self.mechanism, "sasl.username": self.user, "sasl.password": self.password}

    def python(self) -> dict[str, str]:
        """Returns it as the arguments of kafka-python and aiokafka."""
        login = {"sasl_plain_username": self.user, "sasl_plain_password": self.password}
        return {"sasl_mechanism": self.mechanism, **login}

    def java(self) -> dict[str, str]:
        """Returns it as Kafka's settings."""
        module = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
        login = f"{PACKAGE}.{module} required username={quoted(self.user)} password={quoted(self.password)};"
        return {"sasl.mechanism": self.mechanism, "sasl.jaas.config": login}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    folder = tmp_path_factory.mktemp("scram")
    for user in (USER, PLAIN_USER):
        add_user(folder / "data", user, PASSWORD, BOTH, MIN_ITERATIONS)
    plain = f"{PACKAGE}.plain.PlainLoginModule required user_{PLAIN_USER}={quoted(PASSWORD)};"
    config = {"sasl.enabled.mechanisms": ",".join(REFUSALS), "plain.sasl.jaas.config": plain}
    with serving(folder, config) as running:
        yield running


@pytest.fixture(params=["SASL_PLAINTEXT", "SASL_SSL"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=REFUSALS)
def mechanism(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def login(running: BrokerThread, protocol: str, mechanism: str) -> Login:
    # A name of JAAS cannot have all that one of SCRAM can.
    return Login(address_of(running, protocol), mechanism, PLAIN_USER if mechanism == "PLAIN" else USER)


CLIENTS: dict[str, tuple[Callable[[Address, Any], set[str]], Callable[[Login], Any], str]] = {
    "librdkafka": (by_librdkafka, Login.librdkafka, USER),
    "kafka-python": (by_kafka_python, Login.python, PLAIN_USER),
    "aiokafka": (by_aiokafka, Login.python, USER),
    "odradek": (by_odradek, Login.java, PLAIN_USER),
}
"""What asks for the topics, what it needs to know, and the user that it logs in as."""


def ask(name: str, login: Login, password: str = PASSWORD) -> set[str]:
    by, settings, user = CLIENTS[name]
    user = PLAIN_USER if login.mechanism == "PLAIN" else user
    return by(login.address, settings(login._replace(user=user, password=password)))


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_of_python_logs_in(login: Login, name: str) -> None:
    assert TOPIC in ask(name, login)


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_of_python_tells_of_a_wrong_password(
    login: Login, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ERRORS[name]) as refused:
        ask(name, login, "wr0ng")
    # Two of them tell the reason in their log only.
    told = f"{refused.value} {caplog.text}"
    assert REFUSALS[login.mechanism] in told
    assert "wr0ng" not in told


@pytest.mark.parametrize("name", ["franz-go", "kafkajs"])
def test_other_clients_log_in(login: Login, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = f"of-{name}-{login.address.protocol}-{login.mechanism}"

    def run(password: str) -> str:
        return run_other(name, login.address, (login.mechanism, login.user, password), topic, monkeypatch)

    assert run(PASSWORD).split() == ["3", "60000"]
    with pytest.raises(RuntimeError, match=REFUSALS[login.mechanism]):
        run("wr0ng")


def test_the_client_of_java_logs_in(login: Login, kafka_tools: KafkaTools, tmp_path: Path) -> None:
    address = login.address
    config = write_properties(tmp_path / "client.properties", address.java(login.java()))
    listed = kafka_tools.topics(address.servers, "--list", "--command-config", str(config)).check()
    assert TOPIC in listed.stdout.split()
    other = login._replace(password="wr0ng")
    wrong = write_properties(tmp_path / "wrong.properties", address.java(other.java()))
    told = kafka_tools.topics(address.servers, "--list", "--command-config", str(wrong))
    assert f"SaslAuthenticationException: {REFUSALS[login.mechanism]}" in told.stdout + told.stderr
    assert "wr0ng" not in told.stdout + told.stderr


@pytest.mark.parametrize("protocol", ["AGAIN"], indirect=True)
def test_a_client_stays_through_many_logins(login: Login, kafka_tools: KafkaTools, tmp_path: Path) -> None:
    """It has to authenticate again every two seconds, and writes for six."""
    config = write_properties(tmp_path / "client.properties", login.address.java(login.java()))
    kafka_tools.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", TOPIC, "--num-records", "600", "--record-size", "100", "--throughput", "100"),
        *("--bootstrap-server", login.address.servers, "--command-config", config),
    ).check()
