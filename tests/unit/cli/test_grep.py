"""`odradek grep` beside `odradek dump`: what it prints are lines of the dump."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import odradek
from odradek.records import Record
from odradek.testing import Broker
from peers import command
from peers.files import create_log
from peers.kafka_fixture import KafkaFixture

run = partial(command.run, code=0)


def lines(*arguments: str | Path, code: int = 0) -> list[str]:
    return run(*arguments, code=code).stdout_bytes.decode().splitlines()


def dumped(path: Path, *options: str) -> list[str]:
    # The records of Kafka's own topics as bytes.
    return lines("dump", path, "--raw", *options)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_what_matches_are_lines_of_the_dump(fixture_4_3_1: KafkaFixture, form: str) -> None:
    folder = fixture_4_3_1.log_dir
    records = [json.loads(line) for line in dumped(folder, "--format", "jsonl")]
    expected = [
        line
        for line, record in zip(dumped(folder, "--format", form), records, strict=True)
        if isinstance(record["value"], str) and "topic leader" in record["value"]
    ]
    assert len(expected) > 10
    assert lines("grep", "topic leader", folder, "--in", "value", "--format", form) == expected
    assert lines("grep", "TOPIC[ ]LEADER", "-i", folder, "--in", "value", "--format", form) == expected
    assert lines("grep", "-F", "topic leader", folder, "--format", form, "--limit", "3") == expected[:3]
    assert lines("grep", "", folder, "--invert", "--in", "key", "--format", form) == [
        line for line, record in zip(dumped(folder, "--format", form), records, strict=True) if record["key"] is None
    ]


def test_ranges_go_through_the_indexes(fixture_4_3_1: KafkaFixture) -> None:
    folder = fixture_4_3_1.log_dir / "v2-zstd-0"
    for options in (["--offsets", "500:600"], ["--since", "1600000700000", "--until", "1600000800000"]):
        assert lines("grep", "", folder, "--in", "value", *options) == [
            line for line in dumped(folder, *options) if " value=null" not in line
        ]


def test_context_is_of_the_same_partition(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", partitions=2)
        for partition in range(2):
            for number in range(10):
                logs["t", partition].append([Record(None, b"v%d" % number)])
                if number in (2, 5):
                    logs["t", partition].roll()

    def found(*options: str) -> list[str]:
        return [
            line if line == "--" else f"{line[2]}{line.rpartition('=')[2]}"
            for line in lines("grep", *options, tmp_path)
        ]

    assert found("v3", "-C", "2") == [f'{p}"v{n}"' if p != "-" else "--" for p, n in _of((0, 1, 5), (1, 1, 5))]
    of_each = ['"v3"', '"v4"', "--", '"v6"', '"v7"']
    assert found("v[36]", "-A", "1", "--partition", "0") == [one if one == "--" else f"0{one}" for one in of_each]
    assert found("v[01]", "-B", "5", "--partition", "1") == ['1"v0"', '1"v1"']
    assert found("v", "-A", "2", "-m", "1") == ['0"v0"', '0"v1"', '0"v2"']
    assert found("v9", "-A", "2", "-m", "1") == ['0"v9"']


def _of(*spans: tuple[int, int, int]) -> list[tuple[int | str, int]]:
    found: list[tuple[int | str, int]] = []
    for partition, first, last in spans:
        found += [("-", 0)] if found else []
        found += [(partition, number) for number in range(first, last + 1)]
    return found


@pytest.mark.slow
def test_counts(fixture_4_3_1: KafkaFixture) -> None:
    folder = fixture_4_3_1.log_dir
    counts = dict(line.split() for line in lines("grep", "-c", "leader", folder, "--topic", "v2-*"))
    assert counts["v2-none-0"] == str(len(lines("grep", "leader", folder / "v2-none-0")))
    assert set(counts) == {f"v2-{kind}-0" for kind in ("none", "gzip", "snappy", "lz4", "zstd", "append-time")}
    assert lines("grep", "-c", "nothing of the kind", folder / "v2-none-0") == ["v2-none-0 0"]
    assert lines("grep", "-c", "leader", "-m", "2", folder / "v2-none-0", "--format", "jsonl") == [
        '{"topic":"v2-none","partition":0,"count":2}'
    ]


def test_read_committed(fixture_4_3_1: KafkaFixture) -> None:
    found = lines(
        "grep", "", fixture_4_3_1.log_dir, "--read-committed", "--format", "jsonl", "--topic", "transactional"
    )
    offsets = [json.loads(line)["offset"] for line in found]
    assert offsets == [record.offset for record in fixture_4_3_1.records("transactional-0", "read_committed")]


@pytest.mark.slow
def test_a_condition_in_sql(fixture_4_3_1: KafkaFixture) -> None:
    folder = fixture_4_3_1.log_dir
    found = lines("grep", "--sql", "key = 'k38' AND length(value) > 20 -- so", folder, "--topic", "keyed")
    assert found == lines("grep", "^k38$", "--in", "key", folder, "--topic", "keyed")
    assert "SELECT" not in run("grep", "--sql", "nonsense(", folder, code=3).stderr


@pytest.mark.slow
def test_a_broker_gives_what_its_folder_holds(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(fixture_4_3_1.log_dir, tmp_path / "data"))
    options = ["leader", "--topic", "keyed", "--topic", "v2-zstd", "-C", "1"]
    expected = lines("grep", *options, folder)
    since = ["leader", "--topic", "keyed", "--since", "1600000700000", "-m", "4", "--read-committed"]
    expected_since = lines("grep", *since, folder)
    with Broker(folder) as broker:
        address = f"kafka://{broker.bootstrap_servers}"
        assert lines("grep", *options, address) == expected
        assert lines("grep", *since, address) == expected_since
        assert "nothing" in run("grep", "x", f"{address}/nothing", code=3).stderr


def test_damage_is_reported_and_the_search_goes_on(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(fixture_4_3_1.log_dir / "v2-none-0", tmp_path / "v2-none-0"))
    path = folder / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    result = run("grep", "leader", folder, code=1)
    dump = run("dump", folder, code=1)
    assert result.stderr == dump.stderr
    assert set(result.stdout.splitlines()) <= set(dump.stdout.splitlines())
    assert len(result.stdout.splitlines()) > 100


@pytest.mark.slow
@pytest.mark.parametrize("part_bytes", [700, 20_000, 4 << 20])
def test_after_damage_no_batch_steps_back(
    fixture_4_3_1: KafkaFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    monkeypatch.setattr("odradek.inspection.searching.file_search._PART_BYTES", part_bytes)
    folder = Path(shutil.copytree(fixture_4_3_1.log_dir / "v2-none-0", tmp_path / "v2-none-0"))
    path = folder / f"{0:020d}.log"
    data = path.read_bytes()
    # Batches that were there before come again in the middle of another one.
    middle = len(data) // 2
    path.write_bytes(data[:middle] + data[middle - 6000 : middle] + data[middle + 2000 :])
    dump = run("dump", folder, code=1)
    result = run("grep", "-Fv", "no record has this", folder, code=1)
    assert (result.stdout, result.stderr) == (dump.stdout, dump.stderr)
    around = run("grep", "-C1", "leader", folder, "--format", "jsonl", code=1)
    offsets = [json.loads(line)["offset"] for line in around.stdout.splitlines()]
    assert offsets == sorted(set(offsets))


def test_a_file_that_may_not_be_read_is_no_mistake_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t")
        logs["t", 0].append(value=b"found")
    monkeypatch.setattr("os.access", lambda *_, **__: False)  # tests may run as root, whom it never refuses
    assert lines("grep", "found", tmp_path / "data", "--count") == ["t-0 1"]


def test_terminal_escapes_stay_escapes(tmp_path: Path) -> None:
    create_log(tmp_path, "t", [Record(b"\x1b[2J", b"a\nb\x9b\xe2\x80\xae", [("\x1b", b"\x07")])])
    (line,) = lines("grep", "a", tmp_path)
    assert line.isprintable()
    assert lines("grep", r"\x1b\[", tmp_path) == [line]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["("], "give a pattern and a source"),
        (["(", "data"], "'(' is not a regular expression"),
        (["x", "data", "--in", "values"], "'values' is none of key, value, headers"),
        (["--sql", "true", "data", "-i"], "--sql has its own ways"),
        (["--sql", "true", "data", "-C", "1"], "do not go with --sql"),
        (["x", "kafka://"], "kafka://host:port"),
    ],
)
def test_usage(arguments: list[str], message: str) -> None:
    assert message in run("grep", *arguments, code=2).stderr


def test_what_is_no_source(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    assert "No such file" in run("grep", "x", tmp_path / "nothing", code=3).stderr
    index = next((fixture_4_3_1.log_dir / "v2-none-0").glob("*.index"))
    assert "not a file of records" in run("grep", "x", index, code=3).stderr
    assert "u" in run("grep", "x", fixture_4_3_1.log_dir, "--topic", "u", code=3).stderr


INTERRUPTED = """
import signal
from odradek.cli.__main__ import run
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
signal.setitimer(signal.ITIMER_REAL, 1)
run()
"""


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a+)+b"], ids=["of any record", "of those with a text"])
def test_ctrl_c_ends_a_pattern_that_takes_for_ever(tmp_path: Path, pattern: str) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("events")
        log = logs["events", 0]
        # So many that other threads search the last one.
        for _ in range(12):
            log.append([Record(value=b"c" * 900_000)])
        log.append([Record(value=b"a" * 1000 + b"!b")])
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "grep", pattern, tmp_path], capture_output=True, timeout=60
    )
    assert ended.returncode == 130
    assert ended.stderr.decode() == "odradek: interrupted\n"
