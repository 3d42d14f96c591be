"""Colours: on a terminal that takes them, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import click.testing
import pytest
from click.testing import CliRunner

import odradek
from odradek.cli.app import main
from odradek.records import Record
from peers.files import create_log

RED, BOLD, END = "\x1b[31m\x1b[1m", "\x1b[1m", "\x1b[0m"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("keys")
        logs["keys", 0].append([Record(b"key", b'{"user": "anna \\u001b"}', timestamp=5)])
        logs["keys", 0].append([Record(None, "\x1b[2Janna é\n".encode(), [("h", b"anna")], timestamp=6)])
    return tmp_path / "data"


def shown(monkeypatch: pytest.MonkeyPatch, *arguments: object, terminal: bool = True) -> str:
    with monkeypatch.context() as patch:
        # The runner's own streams, as a terminal would have them.
        patch.setattr(click.testing._NamedTextIOWrapper, "isatty", lambda stream: terminal)
        result = CliRunner().invoke(main, [str(argument) for argument in arguments], color=terminal)
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_what_matches_is_red(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = shown(monkeypatch, "grep", "anna", data, terminal=False)
    assert plain.splitlines() == [
        r'keys-0 offset=0 CreateTime=5 key="key" value={"user":"anna \u001b"}',
        r'keys-0 offset=1 CreateTime=6 key=null value="\u001b[2Janna é\n" headers={"h": "anna"}',
    ]
    for options in ([], ["-C", "1"], ["--bytes", "auto"]):
        assert shown(monkeypatch, "grep", "anna", data, *options) == plain.replace("anna", f"{RED}anna{END}")
    # What is before the record is no match, and neither is nothing.
    assert shown(monkeypatch, "grep", "key|x*", data).count(RED) == 1
    assert RED not in shown(monkeypatch, "grep", "bob", data, "--invert")


def test_no_further_match_is_looked_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_log(
        tmp_path / "data", "keys", [Record(None, b"xxy" + b"x" * 100, timestamp=5), Record(None, "xxyé".encode())]
    )
    for pattern in ("(x+x+)+y", "(x+?x+?)+?y"):
        first, second = shown(monkeypatch, "grep", pattern, tmp_path / "data").splitlines()
        assert first.endswith(f'value="{RED}xxy{END}{"x" * 100}"')
        assert second.endswith(f'value="{RED}xxy{END}é"')
    # `.` matches more than one `e` of "value", but as few as it may.
    assert shown(monkeypatch, "grep", "x.*?x", tmp_path / "data", "--limit", "1").count(f"{RED}xx{END}") == 51


def test_headings_are_bold(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = shown(monkeypatch, "topics", data).splitlines()
    assert first.startswith(BOLD)
    assert "\x1b" not in "".join(others)


@pytest.mark.parametrize(
    ("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), (None, "--format=jsonl"), (None, "--count")]
)
def test_no_colour_where_none_is_wanted(
    data: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, value: str
) -> None:
    if variable is not None:
        monkeypatch.setenv(variable, value)
    options = [] if variable is not None else [value]
    assert "\x1b" not in shown(monkeypatch, "grep", "anna", data, *options)
    if variable is not None:
        assert "\x1b" not in shown(monkeypatch, "topics", data)
