"""`odradek conformance`: the table, JSON, exit codes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from odradek.cli.app import main
from odradek.testing import Broker
from odradek.testing.wire import WireClient
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


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"error": "LEADER_NOT_AVAILABLE"}, "error: 'LEADER_NOT_AVAILABLE', not 'UNKNOWN_TOPIC_OR_PARTITION'"),
        ({"disconnect": True}, "ProtocolError: {broker} closed the connection"),
    ],
)
def test_json_and_the_exit_code_of_a_failure(broker: Broker, fault: dict[str, Any], reason: str) -> None:
    with broker.fault("Metadata", **fault):
        result = odradek(broker.bootstrap_servers, "--check", "metadata.unknown_topic", "--format=jsonl")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["name"], found["outcome"]) == ("metadata.unknown_topic", "failed")
    assert found["reason"] == reason.replace("{broker}", broker.bootstrap_servers)
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


def test_no_such_check(broker: Broker) -> None:
    assert odradek(broker.bootstrap_servers, "--check", "nothing.*").exit_code == 2


@pytest.mark.parametrize("answer", [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x02\0\0", b"\0\0\0\x04\0\0\0\x01", b""])
def test_what_answers_is_no_broker(answer: bytes) -> None:
    def serve() -> None:
        with suppress(OSError):
            while True:
                with listener.accept()[0] as sock:
                    sock.recv(100)
                    sock.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        result = odradek(f"127.0.0.1:{listener.getsockname()[1]}")
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    assert (result.exit_code, type(result.exception)) == (3, SystemExit)


def test_a_silent_broker_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with WireClient("127.0.0.1", port, timeout_s=0.01) as client, pytest.raises(TimeoutError, match=f":{port} has"):
            client.call(18, 0, {})


@pytest.mark.slow
def test_the_time_is_moved_by_the_control(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker, broker.control_server() as control:
        arguments = [broker.bootstrap_servers, "--check", "timers.a_silent_member_is_removed"]
        assert "needs --control" in odradek(*arguments).stdout
        arguments += ["--control", "{}:{}".format(*control.address)]
        refused = odradek(*arguments)
        assert (refused.exit_code, "answers 401" in refused.stdout) == (1, True)
        monkeypatch.setenv("ODRADEK_CONTROL_TOKEN", control.token)
        assert odradek(*arguments).stdout.startswith("ok ")


def test_the_broker_is_restarted_by_a_command(tmp_path: Path) -> None:
    with Broker() as broker:
        arguments = [broker.bootstrap_servers, "--check", "restarts.committed_offsets_stay", "--restart"]
        assert odradek(*arguments, f"touch {tmp_path}/done").stdout.startswith("ok ")
        assert (tmp_path / "done").exists()
        failed = odradek(*arguments, "exit 3")
        assert (failed.exit_code, "the command of --restart ended with 3" in failed.stdout) == (1, True)
