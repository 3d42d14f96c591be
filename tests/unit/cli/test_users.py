"""`odradek users`."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

import odradek
from odradek.coordination.scram.credentials import MECHANISMS
from odradek.coordination.scram.exchange import ScramExchange
from odradek.storage.metadata.metadata_log import load_metadata
from peers import command
from peers.scram import ScramLogin

BOTH = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def rows(folder: Path) -> list[tuple[str, str, int]]:
    return [(row["user"], row["mechanism"], row["iterations"]) for row in command.rows("users", folder)]


def logs_in(folder: Path, mechanism: str, name: str, password: str) -> bool:
    found = MECHANISMS[mechanism]
    known = load_metadata(folder).image.scram_credentials.get(found.type, {})
    server, client = ScramExchange(found, lambda: known), ScramLogin(mechanism, name, password)
    first, _ = server.evaluate(client.first())
    try:
        return server.evaluate(client.final(first))[1] == name
    except odradek.OdradekError:
        return False


@pytest.mark.parametrize("given", [b"s3cret", b"s3cret\n", b"s3cret\r\n"])
def test_a_user_is_added_with_a_password_of_stdin(tmp_path: Path, given: bytes) -> None:
    shown = command.run("users", "add", tmp_path, "alice", "--password-file", "-", given=given, code=0)
    assert shown.output == ""
    assert rows(tmp_path) == [("alice", one, 4096) for one in BOTH]
    assert all(logs_in(tmp_path, one, "alice", "s3cret") for one in BOTH)
    assert not any(b"s3cret" in path.read_bytes() for path in tmp_path.iterdir() if path.is_file())


def test_a_password_of_a_file_replaces_the_one_before(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "password"
    data.mkdir()
    for number, password in enumerate(("first", "second")):
        file.write_text(f"{password}\n")
        iterations = str(5000 + number)
        command.run("users", "add", data, "alice", "--password-file", file, "--iterations", iterations, code=0)
    assert rows(data) == [("alice", one, 5001) for one in BOTH]
    assert logs_in(data, BOTH[0], "alice", "second")
    assert not logs_in(data, BOTH[0], "alice", "first")


def test_a_user_of_one_mechanism_is_added_and_removed(tmp_path: Path) -> None:
    for name in ("bob", "alice"):
        command.run("users", "add", tmp_path, name, "--password-file", "-", given=b"s3cret", code=0)
    command.run("users", "remove", tmp_path, "alice", "--mechanism", BOTH[0], code=0)
    assert rows(tmp_path) == [("alice", BOTH[1], 4096), *(("bob", one, 4096) for one in BOTH)]
    told = command.told("users", "remove", tmp_path, "alice", "--mechanism", BOTH[0], code=3)
    assert told == f"odradek: {tmp_path}: there is no user alice of SCRAM-SHA-256\n"
    command.run("users", "remove", tmp_path, "alice", code=0)
    assert rows(tmp_path) == [("bob", one, 4096) for one in BOTH]
    assert command.told("users", tmp_path).split() == ["USER", "MECHANISM", "ITERATIONS"] + [
        word for one in BOTH for word in ("bob", one, "4096")
    ]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (b"", "the password is empty"),
        (b"\n", "the password is empty"),
        (b"s3cret\a", "SASLprep"),
        (b"\xff", "UTF-8"),
        (b"a" * ((1 << 16) + 2), "65536 characters"),
    ],
)
def test_what_is_no_password_is_told_without_it(tmp_path: Path, given: bytes, told: str) -> None:
    shown = command.told("users", "add", tmp_path, "alice", "--password-file", "-", given=given, code=2)
    assert told in shown
    assert "s3cret" not in shown
    assert list(tmp_path.iterdir()) == []


def test_without_a_terminal_the_password_has_to_be_somewhere(tmp_path: Path) -> None:
    assert "--password-file" in command.told("users", "add", tmp_path, "alice", given=b"s3cret", code=2)


def test_a_terminal_is_asked_for_the_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def prompt(text: str, **how: object) -> str:
        asked.append(how["hide_input"] is True and how["confirmation_prompt"] is True)
        return "s3cret"

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("odradek.cli.passwords.stdin", Terminal)
    monkeypatch.setattr(click, "prompt", prompt)
    command.run("users", "add", tmp_path, "alice", code=0)
    assert asked == [True]
    assert logs_in(tmp_path, BOTH[1], "alice", "s3cret")


def test_a_password_that_is_typed_and_is_not_utf8_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prompt(text: str, **how: object) -> str:
        return b"s3cret\xff".decode()

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("odradek.cli.passwords.stdin", Terminal)
    monkeypatch.setattr(click, "prompt", prompt)
    told = command.told("users", "add", tmp_path, "alice", code=2)
    assert told == "odradek: the password is not UTF-8\n"


@pytest.mark.slow
def test_a_folder_in_use_is_not_changed(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data"):
        told = command.told("users", "add", tmp_path / "data", "alice", "--password-file", "-", given=b"a", code=3)
    assert str(tmp_path / "data") in told
    assert rows(tmp_path / "data") == []
