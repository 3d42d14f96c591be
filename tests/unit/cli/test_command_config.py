"""`--command-config`, which keeps passwords off the command line, and how long a command waits for a broker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.broker.running import BrokerThread
from odradek.errors import BrokerUnavailableError
from odradek.kafka.settings import BrokerSettings
from odradek.places.address import BrokerAddress
from odradek.places.broker import BrokerPlace
from peers.broker_thread import start
from peers.command import run

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"

COMMANDS = {
    "dump": "dump {} --format jsonl",
    "grep": "grep value {}",
    "tail": "tail {}",
    "stat": "stat {}",
    "export": "export {} --to exported",
    "replay": "replay {} --to replayed",
    "topics": "topics {}",
    "groups": "groups {}",
    "produce": "produce {} events",
    "offsets show": "offsets show {}/words",
    "offsets set": "offsets set {}/words --to-latest --topic events",
    "offsets copy": "offsets copy file:positions.json {}/copied",
    "offsets to-starting-offsets": "offsets to-starting-offsets {}/words",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f'{LOGIN} user_ann="s3cret";',
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
    }
    with start(tmp_path_factory.mktemp("broker") / "data", **config) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "client.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={LOGIN} username="ann" password="s3cret";\n'
        "group.id=words\nclient.id=somebody\n"
    )
    (tmp_path / "positions.json").write_text('{"version":"1","positions":{"events":{"0":{"offset":0}}}}')
    return tmp_path


def address(running: BrokerThread) -> str:
    endpoint = running.endpoint()
    return f"kafka://{endpoint.host}:{endpoint.port}"


@pytest.fixture
def _topic(running: BrokerThread, folder: Path) -> None:
    words = ["topics", "create", address(running), "events", "--partitions", "1", "--if-not-exists"]
    run(*words, "--command-config", "client.properties", code=0)


@pytest.mark.sampled
@pytest.mark.usefixtures("_topic")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_login_comes_from_the_file(name: str, running: BrokerThread) -> None:
    if name in {"offsets show", "offsets to-starting-offsets"}:
        stored = ["offsets", "copy", "file:positions.json", f"{address(running)}/words"]
        run(*stored, "--command-config", "client.properties")
    words = COMMANDS[name].format(address(running)).split()
    run(*words, "--command-config", "client.properties", given=b"k\tvalue\n", code=0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_broker_that_is_down_is_one_line(name: str, folder: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        (folder / "soon.properties").write_text("default.api.timeout.ms=50\n")
        words = COMMANDS[name].format(f"kafka://127.0.0.1:{closed.getsockname()[1]}").split()
        result = run(*words, "--command-config", "soon.properties", given=b"k\tvalue\n", code=3)
    assert (result.stdout, len(result.stderr.splitlines())) == ("", 1), result.stderr
    assert not (folder / "exported").exists()


def test_the_first_answer_is_awaited_for_ten_seconds_and_later_ones_for_a_minute() -> None:
    settings = BrokerSettings.parse({"bootstrap.servers": "a:1"})
    assert (settings.first_timeout_ms, settings.timeout_ms) == (10_000, 60_000)
    settings = BrokerSettings.parse({"bootstrap.servers": "a:1", "default.api.timeout.ms": "70000"})
    assert (settings.first_timeout_ms, settings.timeout_ms) == (70_000, 70_000)


def test_a_source_waits_that_long() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with BrokerPlace(BrokerAddress.parse(f"kafka://127.0.0.1:{closed.getsockname()[1]}")) as source:
            # Whoever waits for the other limit waits for the end of this test's time.
            source.settings = replace(source.settings, first_timeout_ms=30, timeout_ms=10**9)
            with pytest.raises(BrokerUnavailableError, match="listing topics"):
                source.topics()


@pytest.mark.usefixtures("_topic")
def test_a_broker_that_has_answered_may_be_restarting(running: BrokerThread) -> None:
    config = {"sasl.mechanism": "PLAIN", "sasl.plain.username": "ann", "sasl.plain.password": "s3cret"}
    parsed = BrokerAddress.parse(address(running), {"security.protocol": "SASL_PLAINTEXT", **config})
    with BrokerPlace(parsed) as source:
        source.settings = replace(source.settings, first_timeout_ms=5_000, timeout_ms=7_000)
        with source.client() as first:
            assert first.patience_ms == 5_000
            first.topics(None)
            assert first.patience_ms == 7_000
        with source.client(), source.client() as second:
            assert second.patience_ms == 7_000
