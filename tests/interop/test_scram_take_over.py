"""Users of one folder, which we and Apache Kafka serve in turn: who was added there logs in here, and so on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from kio.schema.errors import ErrorCode

from odradek.admin.users import scram_credentials
from odradek.broker.running import BrokerThread
from odradek.coordination.scram.credentials import MECHANISMS
from odradek.testing.wire import WireClient
from peers import command
from peers.java_properties import write_properties
from peers.kafka import CLUSTER_ID, KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.process import free_port
from peers.scram import ScramLogin

SHA_256, SHA_512 = MECHANISMS
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SASL = {"sasl.enabled.mechanisms": ",".join(MECHANISMS)} | {
    f"listener.name.sasl_plaintext.{one.lower()}.sasl.jaas.config": f"{MODULE} required;" for one in MECHANISMS
}

LogsIn: TypeAlias = Callable[[str, str, str], bool]


def logs_in(port: int, mechanism: str, name: str, password: str) -> bool:
    with WireClient("127.0.0.1", port) as client:
        login = ScramLogin(mechanism, name, password)
        assert client.call(17, 1, {"mechanism": mechanism}).error_code == ErrorCode.none
        answer = client.call(36, 2, {"auth_bytes": login.first()})
        if answer.error_code == ErrorCode.none:
            answer = client.call(36, 2, {"auth_bytes": login.final(answer.auth_bytes)})
        if answer.error_code == ErrorCode.none:
            assert answer.auth_bytes == login.expected
            assert client.call(3, 12, {"topics": []}).brokers
            return True
    text = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    assert (answer.error_code, answer.error_message) == (ErrorCode.sasl_authentication_failed, text)
    return False


class Turns:
    """One folder, and what serves it in turn."""

    def __init__(self, tools: KafkaTools, log_dir: Path) -> None:
        self.tools = tools
        self.log_dir = log_dir

    def by_kafka(self, do: Callable[[str, LogsIn], None]) -> None:
        """Lets Apache Kafka serve it."""
        broker, port = KafkaBroker(self.tools, self.log_dir), free_port()
        address = f"SASL_PLAINTEXT://127.0.0.1:{port}"
        for name in ("listeners", "advertised.listeners"):
            broker.config[name] += f",{address}"
        protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        broker.config |= SASL | {"listener.security.protocol.map": protocols}
        with broker:
            do(broker.bootstrap_servers, lambda *login: logs_in(port, *login))

    def by_us(self, do: Callable[[str, LogsIn], None]) -> None:
        """Serves it by our broker."""
        config = {**SASL, "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"}
        with BrokerThread(self.log_dir, config) as running:
            port = running.endpoint("SASL_PLAINTEXT").port
            do(f"127.0.0.1:{running.endpoint('PLAINTEXT').port}", lambda *login: logs_in(port, *login))

    def set_password(self, servers: str, name: str, mechanism: str, password: str) -> None:
        """Sets a password by Kafka's own tool."""
        config = ("--add-config", f"{mechanism}=[iterations=8192,password={password}]")
        self.tools.configs(servers, "--alter", "--entity-type", "users", "--entity-name", name, *config).check()

    def remove(self, servers: str, name: str, mechanism: str) -> None:
        """Removes a credential by Kafka's own tool."""
        config = ("--delete-config", mechanism)
        self.tools.configs(servers, "--alter", "--entity-type", "users", "--entity-name", name, *config).check()


@pytest.mark.laboratory  # records of the metadata, which metadata_peer takes both ways
def test_users_go_from_one_to_the_other(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    turns = Turns(kafka_tools, tmp_path / "data")
    turns.log_dir.mkdir()
    for name in ("alice", "bob"):
        command.run("users", "add", turns.log_dir, name, "--password-file", "-", given=b"first", code=0)

    def at_kafka(servers: str, logs_in: LogsIn) -> None:
        assert [logs_in(one, name, "first") for one in MECHANISMS for name in ("alice", "bob")] == [True] * 4
        assert not logs_in(SHA_256, "alice", "wrong")
        turns.set_password(servers, "alice", SHA_256, "second")
        turns.set_password(servers, "carol", SHA_512, "third")
        turns.remove(servers, "bob", SHA_512)

    def at_ours(servers: str, logs_in: LogsIn) -> None:
        assert logs_in(SHA_256, "alice", "second")
        assert not logs_in(SHA_256, "alice", "first")
        assert logs_in(SHA_512, "alice", "first")
        assert logs_in(SHA_512, "carol", "third")
        assert not logs_in(SHA_256, "carol", "third")
        assert not logs_in(SHA_512, "bob", "first")
        turns.set_password(servers, "bob", SHA_512, "fourth")
        turns.set_password(servers, "carol", SHA_512, "fifth")
        assert logs_in(SHA_512, "carol", "fifth")
        turns.remove(servers, "alice", SHA_512)
        assert not logs_in(SHA_512, "alice", "first")

    def at_kafka_again(servers: str, logs_in: LogsIn) -> None:
        assert logs_in(SHA_512, "bob", "fourth")
        assert logs_in(SHA_256, "bob", "first")
        assert logs_in(SHA_512, "carol", "fifth")
        assert logs_in(SHA_256, "alice", "second")
        assert not logs_in(SHA_512, "alice", "first")
        turns.remove(servers, "carol", SHA_512)

    turns.by_kafka(at_kafka)
    turns.by_us(at_ours)
    turns.by_kafka(at_kafka_again)
    command.run("users", "remove", turns.log_dir, "bob", "--mechanism", SHA_256, code=0)
    assert [(one.name, one.mechanism, one.iterations) for one in scram_credentials(turns.log_dir)] == [
        ("alice", 1, 8192),
        ("bob", 2, 8192),
    ]
    assert command.run("verify", turns.log_dir).exit_code == 0


def test_a_folder_that_kafkas_tool_formatted_with_users(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    turns = Turns(kafka_tools, tmp_path / "data")
    broker = KafkaBroker(kafka_tools, turns.log_dir)
    turns.log_dir.mkdir()
    properties = write_properties(tmp_path / "server.properties", broker.config)
    users = ["--add-scram", f'{SHA_256}=[name="alice",password="first"]']
    users += ["--add-scram", f'{SHA_512}=[name="bob",password="second",iterations=10000]']
    kafka_tools.format_log_dir(properties, CLUSTER_ID, *users)
    assert [(row["user"], row["mechanism"], row["iterations"]) for row in command.rows("users", turns.log_dir)] == [
        ("alice", SHA_256, 4096),
        ("bob", SHA_512, 10000),
    ]
    command.run("users", "add", turns.log_dir, "carol", "--password-file", "-", given=b"third", code=0)
    command.run("users", "remove", turns.log_dir, "alice", code=0)

    def check(servers: str, logs_in: LogsIn) -> None:
        assert logs_in(SHA_512, "bob", "second")
        assert logs_in(SHA_256, "carol", "third")
        assert not logs_in(SHA_256, "alice", "first")

    turns.by_us(check)
    turns.by_kafka(check)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_kafkas_tool_is_told_of_a_wrong_change(kafka_tools: KafkaTools, tmp_path: Path, mechanism: str) -> None:
    turns = Turns(kafka_tools, tmp_path / "data")

    def check(servers: str, logs_in: LogsIn) -> None:
        of_nobody = ("--alter", "--entity-type", "users", "--entity-name", "nobody", "--delete-config", mechanism)
        told = kafka_tools.configs(servers, *of_nobody)
        assert "Attempt to delete a user credential that does not exist" in told.stdout + told.stderr

    turns.by_us(check)
