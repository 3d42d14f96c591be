"""`odradek ui`: whom it lets in, what it passes on, and how it ends."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from odradek.cli.app import UI_PASSWORD_VARIABLE, main
from odradek.console import server
from odradek.console.options import ConsoleOptions
from peers.kafka_fixture import KafkaFixture


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[ConsoleOptions, str, int]]:
    found: list[tuple[ConsoleOptions, str, int]] = []
    monkeypatch.setattr(server, "serve", lambda *given: found.append(given[:3]))
    monkeypatch.delenv(UI_PASSWORD_VARIABLE, raising=False)
    return found


def run(*words: object, **options: Any) -> Result:
    return CliRunner().invoke(main, ["ui", *map(str, words)], prog_name="odradek", **options)


def test_this_machine_alone_is_let_in_without_a_password(
    served: list[tuple[ConsoleOptions, str, int]], tmp_path: Path
) -> None:
    for words in ((), ("--host", "::1"), ("--host", "localhost"), ("--host", "127.3.2.1")):
        assert run(tmp_path, *words).exit_code == 0
    assert [(options.password, host, port) for options, host, port in served] == [
        (None, host, 8080) for host in ("127.0.0.1", "::1", "localhost", "127.3.2.1")
    ]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "box.lan"])
def test_other_addresses_need_one(served: list[tuple[ConsoleOptions, str, int]], tmp_path: Path, host: str) -> None:
    refused = run(tmp_path, "--host", host, input="")
    assert (refused.exit_code, served) == (2, [])
    assert "--password-file" in refused.stderr
    assert run(tmp_path, "--host", host, env={UI_PASSWORD_VARIABLE: ""}).exit_code == 2
    (tmp_path / "password").write_text("correct horse\n")
    assert run(tmp_path, "--host", host, "--password-file", tmp_path / "password").exit_code == 0
    assert run(tmp_path, "--host", host, env={UI_PASSWORD_VARIABLE: "other"}).exit_code == 0
    assert [options.password for options, _, _ in served] == ["correct horse", "other"]
    assert served[0][0].hosts == {host}


def test_no_option_takes_a_password(tmp_path: Path) -> None:
    command = main.get_command(None, "ui")  # type: ignore[arg-type]
    assert command is not None
    assert [name for one in command.params for name in one.opts if "password" in name] == ["--password-file"]


def test_what_is_left_out_and_decoded_is_passed_on(
    served: list[tuple[ConsoleOptions, str, int]], tmp_path: Path
) -> None:
    words = ("--redact", "key", "--redact", "value.card", "--values", "json", "--port", 0, "--allow-host", "a.lan")
    assert run(tmp_path, *words).exit_code == 0
    ((options, _, port),) = served
    redaction = options.redaction()
    assert (redaction.whole, redaction.paths, port) == (frozenset({"key"}), ("value.card",), 0)
    assert redaction.hides("value")
    assert not redaction.hides("headers")
    assert options.values is not None
    assert "a.lan" in options.hosts
    assert run(tmp_path, "--redact", "headers.a").exit_code == 2


def test_jobs_are_looked_at_only_when_a_page_shows_them(
    served: list[tuple[ConsoleOptions, str, int]], tmp_path: Path
) -> None:
    (tmp_path / "job.toml").write_text("name = ")
    (tmp_path / "data").mkdir()
    words = ("--pipeline", tmp_path / "job.toml", "--history", tmp_path / "history")
    assert run(tmp_path / "data", *words).exit_code == 0
    ((options, _, _),) = served
    assert options.history == tmp_path / "history"
    (look,) = options.pipelines
    assert "job.toml" in look()[0]["failure"]
    assert run(tmp_path / "data", "--pipeline", tmp_path / "missing.toml").exit_code == 3


def test_a_history_within_the_log_directory_is_refused(fixture_4_3_1: KafkaFixture) -> None:
    ended = run(fixture_4_3_1.log_dir, "--port", 0, "--history", fixture_4_3_1.log_dir / "history")
    assert (ended.exit_code, ended.stdout) == (3, "")
    assert "is within a log directory: keep the history elsewhere" in ended.stderr
    assert not (fixture_4_3_1.log_dir / "history").exists()


def test_a_port_that_is_taken_is_named(fixture_4_3_1: KafkaFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run(fixture_4_3_1.log_dir, "--port", taken.getsockname()[1])
    assert (ended.exit_code, ended.stdout) == (3, "")
    assert "cannot listen at 127.0.0.1:" in ended.stderr
