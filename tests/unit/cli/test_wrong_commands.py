"""Wrong commands: each ends with one line that helps and the right exit code, and writes nothing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import odradek
from odradek.cli.app import main
from peers.files import create_log

USAGE, INPUT_OUTPUT = 2, 3

WRONG = {
    USAGE: """
        nope
        dmup data
        dump
        dump data --offsets x
        dump data --offsets 5:2
        dump data --since yesterday
        dump data --since 1_700_000_000_000
        dump data --since 2026-01-02 --until 2026-01-01
        export data --to out.json
        topics create localhost:9092 events
        topics create file:data events
        offsets set file:positions.json events-00=5
        dump data --format xml
        dump data --limit -1
        dump data --partition x
        dump data --redact nothing
        dump data --schema notes.txt
        dump data --values avro
        dump data --print-data-log
        dump data --batches --key k
        dump data --batches --format csv
        dump data --kafka-compat --key k
        dump data --kafka-compat --limit 1
        dump data --kafka-compat --redact value
        dump data --kafka-compat --control
        dump data --offsets=-1:4
        dump data --redact values
        dump data --redact value.
        dump data --redact headers.h
        dump data --message m
        dump --no-such-option data
        grep x
        grep ( data
        grep x data --in nowhere
        grep x data -C x
        grep x data --sql 1=1 -i
        conformance localhost
        conformance localhost:x
        conformance :1
        conformance localhost:99999
        tail data -n x
        stat data --partition -1
        explain data
        explain data/events-0 x
        verify
        verify data --dry-run
        salvage data
        export data
        export data --to x --partition-by week
        export data --to x --threads 0
        export data --to x.csv --partition-by date
        import exported.jsonl
        replay data
        replay data --to x --rate fast
        replay data --to x --rate 5 --pace 2
        replay data --to x --map events
        replay data --to data
        replay data --to data/../data
        replay data --to link
        backup data
        restore data
        restore data x --to kafka://localhost:1
        topics create data
        topics create data x --partitions many
        topics create data x --config retention.ms
        topics alter data events
        topics delete data
        groups delete data
        offsets show
        offsets set file:x events
        offsets set file:x events-0=-1
        offsets set file:x events-0=1 --to-latest
        offsets set file:x --to-earliest
        offsets delete file:x
        produce data
        produce data events --compression zip
        produce data events --header x
        sql data
        sql SELECT(1) data --format parquet
        serve data --set x
        serve notes.txt
        serve data --log-level loud
        pipeline run
        dump data --offsets 99999999999999999999:
        dump data --offsets 9223372036854775807
        dump data --limit 99999999999999999999
        grep x data -m 99999999999999999999
        grep x data -B 99999999999999999999
        sql SELECT(1) data --offsets :99999999999999999999
        explain kafka://ann:s3cret@localhost:1 0
        verify kafka://ann:s3cret@localhost:1
        verify --repair kafka://ann:s3cret@localhost:1
        grep --sql 1=1 kafka://ann:s3cret@localhost:1
        sql SELECT(1) kafka://ann:s3cret@localhost:1
        salvage kafka://ann:s3cret@localhost:1 x
        salvage data kafka://localhost:1
        backup data kafka://localhost:1
        restore data kafka://localhost:1
        restore kafka://ann:s3cret@localhost:1 x
        export data --to kafka://localhost:1
        import kafka://ann:s3cret@localhost:1 --to x
        offsets set file:x --from-file kafka://localhost:1
        offsets delete a/b-0
        offsets show ''
        offsets copy '' file:x
        offsets set file:x events-9999999999=1
        replay data --to x --pace nan
        replay data --to x --pace inf
        replay data --to x --rate 999999999999999999999999999999GB
        sql ; data
        produce data ''
        topics create data ''
        topics delete data ''
        groups describe data ''
        dump data --topic ''
        grep --sql '' data
        dump data --offsets ١:٢
        dump data --offsets 1_0:2_0
        topics create data x --config retention.ms=1 --config retention.ms=2
        topics alter data events --config retention.ms=1 --config retention.ms=2
        topics create data x --partitions 1.5
        replay data --to x --map events=a --map events=b
        replay data --to x --map events=
        replay data --to x --map nope=b
        serve data --set num.partitions=1 --set num.partitions=2
        serve data --metrics x
        serve data --control 127.0.0.1:99999
        sql SELECT(1) data -o kafka://localhost:1/x
        grep x kafka://localhost:x
        stat kafka://localhost:x
        dump kafka://localhost:x
        topics kafka://localhost:1?security.protocol=NOPE
        tail kafka://localhost:1?default.api.timeout.ms=1&default.api.timeout.ms=2
        offsets show ann:s3cret@localhost
        offsets show nope://x
        offsets show folder:data?group=a&group=b
        offsets show kafka://localhost:1/g?security.protocol=NOPE
        offsets set redis://localhost:1/0?group=g&no.such=1 events-0=1
    """,
    INPUT_OUTPUT: """
        topics delete-records data events --partition 0 --to-offset 2000
        dump missing
        dump notes.txt
        dump missing-*
        dump data missing
        grep x missing
        tail missing
        stat missing
        stat notes.txt
        explain missing 0
        explain data 0
        verify missing
        verify notes.txt
        verify --repair missing
        salvage missing x
        salvage data data
        export missing --to x
        export data --to notes.txt/x
        export data --to data
        import missing.jsonl --to x
        replay missing --to x
        replay data --to notes.txt
        backup missing x
        backup data data
        restore data x
        restore missing x
        topics missing
        topics notes.txt
        topics describe data nope
        topics create data events
        topics create data a/b
        topics create data x --partitions 0
        topics create data x --config no.such=1
        topics alter data nope --partitions 3
        topics alter data events --partitions 1
        topics delete data nope
        groups missing
        groups describe data nope
        groups delete data nope
        offsets show missing
        offsets show file:notes.txt
        offsets from-checkpoint missing file:x
        offsets delete file:typo --all
        offsets delete folder:data?group=nope --all
        offsets copy file:typo file:x
        dump data --command-config huge.properties
        dump data --command-config utf16.properties
        serve data --config huge.properties
        serve data --config fifo
        serve data --set listener.name.plaintext.ssl.client.auth=required
        produce missing events
        produce data nope
        sql SELECT(1) missing
        sql nonsense data
        serve data --set num.partitions=x
        serve data --config missing
        pipeline check missing.toml
        pipeline run missing.toml
    """,
}


def lines() -> Iterator[tuple[int, str]]:
    for code, text in WRONG.items():
        for line in text.split("\n"):
            if line.strip():
                yield code, line.strip()


def files(place: Path) -> list[Path]:
    """Return what there is, but for locks and what libraries keep."""
    return sorted(path for path in place.rglob("*") if not any(part.startswith(".") for part in path.parts))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    create_log(folder / "data", "events", [odradek.Record(b"k", b"v")], partitions=2)
    (folder / "notes.txt").write_text("notes")
    (folder / "link").symlink_to("data")
    (folder / "huge.properties").write_bytes(b"a=b\n" * 5_000_000)
    (folder / "utf16.properties").write_text("a=b\n", encoding="utf-16")
    os.mkfifo(folder / "fifo")
    return folder


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("code", "line"), list(lines()))
def test_a_wrong_command_is_one_line_and_an_exit_code(
    code: int, line: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    before = files(place)
    result = CliRunner().invoke(main, shlex.split(line), prog_name="odradek", input=b"")
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == code, result.output
    told = [one for one in result.stderr.splitlines() if "batches: not clean" not in one]
    assert len(told) == 1, result.output
    assert told[0].startswith("odradek")
    assert "missing" not in line or "missing" in told[0]
    assert "s3cret" not in result.output
    assert files(place) == before
