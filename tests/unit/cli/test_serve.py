"""`odradek serve` as a process: start, signals, settings, systemd, logs, metrics."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.broker import service
from odradek.cli.app import main
from odradek.testing.wire import WireClient
from peers.http import get, metrics
from peers.process import free_port
from peers.requests import fetch_message

READY = re.compile(r"ready after \d+ ms: (.*) serves (.*), \d+ topics")


class Served:
    """A process of `odradek serve`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def line(self, wanted: str) -> re.Match[str]:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(wanted, line):
                return found
        raise AssertionError("".join(self.lines))

    def port(self) -> int:
        found = re.search(r":(\d+)$", self.line(READY.pattern)[1])
        assert found
        return int(found[1])


@contextmanager
def serve(*words: str, **options: object) -> Iterator[Served]:
    command = [sys.executable, "-m", "odradek", "serve", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options) as process:  # type: ignore[call-overload]
        try:
            yield Served(process)
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_serves_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    data = tmp_path / "data"
    with serve(str(data), "--listeners", "PLAINTEXT://127.0.0.1:0") as served:
        with WireClient("127.0.0.1", served.port()) as client:
            assert client.call(18, 0, {}).error_code == 0
        served.process.send_signal(number)
        served.line("stopped")
        assert served.process.wait(30) == 0
    assert (data / ".kafka_cleanshutdown").exists()


@pytest.mark.slow
def test_a_server_properties_is_read_as_it_is(tmp_path: Path) -> None:
    port = free_port()
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id = 7\n# a comment\n"
        "controller.quorum.voters=7@localhost:9093\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},\\\n   CONTROLLER://:9093\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
        f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'}\n"
        "some.plugin.option=1\nnum.io.threads=8\nnum.partitions=3\n",
        encoding="utf-8",
    )
    with serve("--config", str(properties), "--set", "num.partitions=2", "--log-format", "json") as served:
        found = served.line(READY.pattern)
        assert found[1] == f"PLAINTEXT://127.0.0.1:{port}"
        assert found[2] == f"{tmp_path / 'a'}, {tmp_path / 'b'}"
        lines = [json.loads(line) for line in served.lines]
        assert {"time", "level", "logger", "message"} <= lines[0].keys()
        told = "\n".join(line["message"] for line in lines)
        assert told.count("some.plugin.option") == 1
        assert told.count("num.io.threads") == 1
        assert "num.partitions" not in told


@pytest.mark.slow
def test_settings_may_be_in_the_environment_and_in_files(tmp_path: Path) -> None:
    secrets, properties = tmp_path / "secrets.properties", tmp_path / "server.properties"
    secrets.write_text("folder=data\n")
    package = "org.apache.kafka.common.config.provider"
    properties.write_text(
        f"config.providers=env,file\nconfig.providers.env.class={package}.EnvVarConfigProvider\n"
        f"config.providers.file.class={package}.FileConfigProvider\n"
        f"listeners=PLAINTEXT://${{env:SERVED_HOST}}:0\nlog.dirs={tmp_path}/${{file:{secrets}:folder}}\n"
    )
    with serve("--config", str(properties), env={**os.environ, "SERVED_HOST": "127.0.0.1"}) as served:
        assert served.line(READY.pattern)[2] == str(tmp_path / "data")
    result = CliRunner().invoke(main, ["serve", "--config", str(properties)])
    assert result.exit_code == 3
    assert "listeners: ${env:SERVED_HOST} leads to nothing" in result.stderr


def test_a_second_signal_ends_it_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    codes: list[int] = []

    async def run() -> None:
        task = asyncio.create_task(
            service.serve([str(tmp_path / "data")], {"listeners": "PLAINTEXT://127.0.0.1:0"}, leave=codes.append)
        )
        while "ready" not in caplog.text:
            await asyncio.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        await task

    with caplog.at_level("INFO"):
        asyncio.run(run())
    assert codes in ([128 + signal.SIGINT], [128 + signal.SIGTERM])


@pytest.mark.slow
def test_systemd_is_told(tmp_path: Path) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(address))
        told.settimeout(30)
        environment = os.environ | {"NOTIFY_SOCKET": str(address)}
        with serve(str(tmp_path / "data"), "--set", "listeners=PLAINTEXT://127.0.0.1:0", env=environment) as served:
            assert told.recv(100) == b"READY=1"
            served.process.terminate()
            assert told.recv(100) == b"STOPPING=1"
            assert served.process.wait(30) == 0


@pytest.mark.slow
def test_sockets_of_systemd_are_used(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        # As systemd does: the socket as descriptor 3, and the process's own number.
        start = (
            f"import os, sys; os.dup2({listening.fileno()}, 3); os.environ['LISTEN_PID'] = str(os.getpid()); "
            "os.environ['LISTEN_FDS'] = '1'; from odradek.cli.app import main; main(sys.argv[1:])"
        )
        words = ["serve", str(tmp_path / "data"), "--listeners", "PLAINTEXT://127.0.0.1:1"]
        command = [sys.executable, "-c", start, *words]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, pass_fds=[listening.fileno()]) as process:
            try:
                assert Served(process).port() == port
                with WireClient("127.0.0.1", port) as client:
                    assert client.call(18, 0, {}).error_code == 0
            finally:
                process.kill()


@pytest.mark.slow
def test_metrics_and_health(tmp_path: Path) -> None:
    words = [str(tmp_path / "data"), "--listeners", "PLAINTEXT://127.0.0.1:0", "--metrics", "127.0.0.1:0"]
    with serve(*words) as served:
        base = served.line(r"metrics at (\S+)/metrics")[1]
        with WireClient("127.0.0.1", served.port()) as client:
            client.call(1, 12, fetch_message(topic="none"))
            client.call(18, 0, {})
            found = metrics(base)
        assert found['odradek_request_seconds_count{api="Fetch"}'] == 1
        assert found['odradek_errors_total{api="Fetch",error="UNKNOWN_TOPIC_OR_PARTITION"}'] == 1
        assert found["odradek_connections"] == 1
        assert found["odradek_received_bytes_total"] > 50
        assert get(f"{base}/healthz") == (200, "ok\n")
        assert get(f"{base}/metrics?a=b")[0] == 200
        assert get(f"{base}/other")[0] == 404


@pytest.mark.parametrize(
    ("words", "text", "code"),
    [
        ([], "name the log directory", 2),
        (["data", "--set", "listeners"], "must have the form NAME=VALUE", 2),
        (["data", "--listeners", "nonsense"], "listeners", 3),
        (["data", "--set", "num.partitions=none"], "num.partitions", 3),
        (["data", "--set", "log.retention.hour=3"], "did you mean log.retention.hours?", 3),
        (["data", "--set", "ssl.key.password=planted"], "ssl.key.password is a secret", 2),
        (["data", "--set", "listener.name.x.plain.sasl.jaas.config=planted"], "other users of this machine", 2),
        (["data", "--listeners", "SSL://127.0.0.1:0"], "listener.name.ssl.ssl.keystore.location", 3),
        (["data", "--metrics", "9090"], "is not HOST:PORT", 2),
        (["data", "--config", "missing.properties"], "missing.properties", 3),
    ],
)
def test_what_is_wrong_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], text: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["serve", *words])
    assert result.exit_code == code, result.output
    assert text in result.output
    assert result.output.count("\n") == 1
    assert "planted" not in result.output


@pytest.mark.slow
def test_the_control_is_served_for_tests_in_other_languages(tmp_path: Path) -> None:
    words = ("--listeners", "PLAINTEXT://127.0.0.1:0", "--control", "127.0.0.1:0")
    with serve(str(tmp_path / "data"), *words) as served:
        found = served.line(r"control at (http://\S+) with the token (\S+)")
        url, headers = found[1], {"Authorization": f"Bearer {found[2]}", "Content-Type": "application/json"}
        body = json.dumps({"name": "events", "partitions": 3}).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{url}/topics", body, headers)) as answer:
            assert answer.status in (200, 201)
        with WireClient("127.0.0.1", served.port()) as client:
            answer = client.call(3, 1, {"topics": [{"name": "events"}]})
        assert len(answer.topics[0].partitions) == 3


@pytest.mark.slow
def test_what_is_there_from_the_start_is_left_out_of_garbage_collections(tmp_path: Path) -> None:
    program = (
        "import atexit, gc",
        "atexit.register(lambda: print(gc.get_freeze_count()))",
        "from odradek.cli.app import main",
        f"main(['serve', {str(tmp_path / 'data')!r}, '--listeners', 'PLAINTEXT://127.0.0.1:0'])",
    )
    command = [sys.executable, "-c", "; ".join(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        Served(process).line(READY.pattern)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert int(out) > 10_000
