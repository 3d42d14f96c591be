"""Templates of `--format`, and which records `tail` and `grep` show, by time and key, with decoded values."""

from __future__ import annotations

from pathlib import Path

import pytest

import odradek
from odradek.records import Record
from odradek.testing import Broker
from peers import command


def run(*arguments: str | Path, code: int = 0) -> bytes:
    return command.run(*arguments, code=code).stdout_bytes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", 2)
        values = [b'{"a": 0}', b"\xff\n", None, b'{"a": 3}']
        logs["t", 0].append(
            [Record(b"k%d" % at, value, [("h", b"1"), ("n", None)], at + 1) for at, value in enumerate(values)]
        )
        logs["t", 1].append([Record(None, b"", timestamp=9)])
    return tmp_path


def test_a_template_writes_bytes_as_they_are(folder: Path) -> None:
    template = r"%t/%p/%o %T %k %K %s|%v %S %h %%\x21\t\\\n"
    last = b't/0/3 4 k3 2 {"a": 3}|{"a": 3} 8 h=1,n= %!\t\\\n'
    empty = b"t/1/0 9  -1 | 0  %!\t\\\n"
    assert run("tail", folder, "-n", "1", "--format", template) == last + empty
    assert run("dump", folder, "--offsets", "3:", "--format", template) == last
    assert run("grep", "3", folder, "--in", "value", "--format", template) == last
    assert run("dump", folder, "--offsets", "1", "--format", "%R%s%S") == b"\0\0\0\2\xff\n2"
    assert run("dump", folder, "--offsets", "2", "--format", "%R%s%S") == b"\xff\xff\xff\xff-1"
    assert run("dump", folder, "--offsets", "1", "--bytes", "base64", "--format", "%s") == b"/wo="


def test_the_name_of_a_header_is_written_as_its_bytes(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        logs["t", 0].append([Record(None, b"", [("a\udcff", b"1")])])
    assert run("dump", tmp_path, "--format", "%h") == b"a\xff=1"


def test_a_template_leaves_out_what_is_redacted(folder: Path) -> None:
    assert run("dump", folder, "--limit", "1", "--redact", "value", "--redact", "headers", "--format", "%k%s%h") == (
        b"k0[redacted]h=[redacted],n="
    )
    assert run("dump", folder, "--limit", "1", "--redact", "value.a", "--format", "%s") == b'{"a":"[redacted]"}'


@pytest.mark.parametrize("template", ["%q", "%", r"%s\q", "%s\\", r"%s\x1"])
def test_a_template_that_is_not_one(folder: Path, template: str) -> None:
    assert run("tail", folder, "--format", template, code=2) == b""


def test_a_tail_from_a_time_on(folder: Path) -> None:
    assert run("tail", folder, "--since", "3", "--format", "%p:%o ") == b"0:2 0:3 1:0 "
    assert run("tail", folder, "--since", "2", "--key", "k?", "--format", "%o ") == b"1 2 3 "
    assert run("tail", folder, "--since", "3", "-n", "1", code=2) == b""


@pytest.mark.slow
def test_a_tail_of_a_broker_from_a_time_on() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        broker.produce("t", *(Record(b"k%d" % at, b"v", timestamp=at + 1) for at in (0, 1, 4, 2)))
        address = f"kafka://{broker.bootstrap_servers}"
        assert run("tail", address, "--since", "2", "--format", "%o ") == b"1 2 3 "
        # The last one is older than the time, though it comes after it.
        assert run("tail", address, "--since", "4", "--format", "%o ") == b"2 "
        assert run("tail", address, "--since", "9", "--format", "%o ") == b""


def test_a_search_among_the_records_of_a_key(folder: Path) -> None:
    assert run("grep", "a", folder, "--key", "k3", "--format", "%o ") == b"3 "
    assert run("grep", "a", folder, "--key", "k3", "--count") == b"t-0 1\nt-1 0\n"
    assert run("grep", "a", folder, "--key", "k3", "-B", "1", "--format", "%o ") == b"2 3 "


def test_values_are_decoded(folder: Path) -> None:
    assert b'"value":{"a":3}' in run("tail", folder, "--key", "k3", "--values", "json", "--format", "jsonl")
    assert b'"value":{"a":3}' in run("grep", "3", folder, "--in", "value", "--values", "json", "--format", "jsonl")
    assert run("tail", folder, "--key", "k1", "--values", "json", "--format", "%s", code=1) == b"\xff\n"
