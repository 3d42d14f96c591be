"""`odradek conformance`: the table, JSON, exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from odradek.cli.app import main
from odradek.testing import Broker
from peers.process import free_port


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def odradek(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["conformance", *arguments])


def test_a_table(broker: Broker) -> None:
    result = odradek(broker.bootstrap_servers, "--check", "metadata.unknown_topic*")
    assert result.exit_code == 0
    assert [line.split()[0::3] for line in result.stdout.splitlines()] == [
        ["ok", "metadata.unknown_topic"],
        ["ok", "metadata.unknown_topic_id"],
    ]
    assert result.stderr == "2 ok, 0 failed, 0 skipped\n"


def test_json_and_the_exit_code_of_a_failure(broker: Broker) -> None:
    with broker.fault("Metadata", error="LEADER_NOT_AVAILABLE"):
        result = odradek(broker.bootstrap_servers, "--check", "metadata.unknown_topic", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["name"], found["outcome"]) == ("metadata.unknown_topic", "failed")
    assert found["reason"] == "error: 'LEADER_NOT_AVAILABLE', not 'UNKNOWN_TOPIC_OR_PARTITION'"
    assert found["time_ms"] > 0


def test_a_broker_that_is_away_is_named() -> None:
    port = free_port()
    result = odradek(f"127.0.0.1:{port}")
    assert (result.exit_code, result.stderr) == (3, f"odradek: 127.0.0.1:{port}: Connection refused\n")


def test_only_failures(broker: Broker) -> None:
    assert odradek(broker.bootstrap_servers, "--check", "metadata.unknown_topic", "--failed").stdout == ""


def test_a_list(broker: Broker) -> None:
    result = odradek(broker.bootstrap_servers, "--list", "--check", "produce.acks_0_has_no_answer")
    assert result.stdout.startswith("produce.acks_0_has_no_answer  With `acks=0` there is no answer")
    assert not broker.requests("Produce")


@pytest.mark.parametrize("arguments", [("localhost",), ("localhost:x",), (":1",), ("localhost:99999",)])
def test_an_address_that_is_none(arguments: tuple[str, ...]) -> None:
    assert odradek(*arguments).exit_code == 2


def test_no_such_check(broker: Broker) -> None:
    assert odradek(broker.bootstrap_servers, "--check", "nothing.*").exit_code == 2


def test_nobody_listens() -> None:
    result = odradek("127.0.0.1:1")
    assert result.exit_code == 3
    assert result.stderr.startswith("odradek: ")
