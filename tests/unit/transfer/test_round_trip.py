"""What is exported and imported again is what was there: from a folder that Kafka wrote, through each format."""

from __future__ import annotations

import gc
import io
import itertools
import json
import random
import shutil
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import odradek
from odradek.columnar.header_names import names_as_text
from odradek.columnar.record_schema import SCHEMA
from odradek.errors import FormatError, LogError, OptionError
from odradek.inspection import verify
from odradek.places.opening import open_place
from odradek.places.place import Place
from odradek.records import Record
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_empty_batch
from odradek.records.isolation import Isolation
from odradek.sources.arrow import record_batches
from odradek.storage.names import TopicPartition
from odradek.testing import Broker
from odradek.transfer import export as export_module
from odradek.transfer import export_folder
from odradek.transfer.export import Export, ExportReport, Lost, Selection
from odradek.transfer.importing import Gap, Import, ImportReport
from odradek.transfer.opening import open_target
from odradek.transfer.record_files import FORMATS, read_rows
from peers.kafka_fixture import KafkaFixture

TOPICS = ["compacted", "keyed", "transactional", "truncated-head", "v2-append-time"]
REPLICATION = AppendOrigin.REPLICATION
EVENTS = TopicPartition("events", 0)


def export(
    source: Path | str, to: Path, *args: Any, topics: Any = None, selection: Any = None, **more: Any
) -> ExportReport:
    with open_place(source) as opened:
        return Export(opened, opened.choose(topics), selection or Selection()).to_folder(to, *args, **more)


def import_(source: Path, to: Path | str, **options: Any) -> ImportReport:
    with open_target(to) as target:
        return Import(target, **options).from_path(source)


def rows(address: Path | str, *, topics: Any = None, isolation: Isolation = "read_uncommitted") -> list[dict[str, Any]]:
    with open_place(address) as source:
        found = [batch for name in source.choose(topics) for batch in record_batches(source, name, isolation=isolation)]
    listed: list[dict[str, Any]] = pa.Table.from_batches(found, SCHEMA).to_pylist()
    return listed


def without_places(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As another broker has them: it gives offsets, and says by itself how the times came about."""
    return [{**row, "offset": None, "timestamp_type": None} for row in found]


@pytest.fixture(scope="module")
def expected(fixture_4_3_1: KafkaFixture) -> list[dict[str, Any]]:
    return rows(fixture_4_3_1.log_dir, topics=TOPICS)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_a_folder_of_kafka(
    fixture_4_3_1: KafkaFixture, expected: list[dict[str, Any]], form: str, tmp_path: Path
) -> None:
    done = export(fixture_4_3_1.log_dir, tmp_path / "files", form, topics=TOPICS, file_bytes=30_000)
    assert (done.records, done.damaged, done.lost) == (len(expected), [], [])
    assert import_(tmp_path / "files", tmp_path / "data").records == len(expected)
    assert rows(tmp_path / "data") == expected
    assert list(verify(tmp_path / "data")) == []
    with open_place(fixture_4_3_1.log_dir) as before, open_place(tmp_path / "data") as after:
        for name in after.choose():
            config = before.topic_config(name.topic)
            del config["internal.segment.bytes"]
            assert after.topic_config(name.topic) == config
            assert len(after.topics()[name.topic].partitions) == len(before.topics()[name.topic].partitions)
            # No file holds the offsets of markers at the end.
            assert after.bounds(name).start_offset == before.bounds(name).start_offset
            assert after.bounds(name).end_offset <= before.bounds(name).end_offset
    # Again there is nothing to do.
    assert export(fixture_4_3_1.log_dir, tmp_path / "files", form, topics=TOPICS, file_bytes=30_000).files == 0
    assert import_(tmp_path / "files", tmp_path / "data").records == 0
    assert rows(tmp_path / "data") == expected


@pytest.mark.slow
@pytest.mark.parametrize("partition_by", ["topic", "date"])
def test_layouts(
    fixture_4_3_1: KafkaFixture, expected: list[dict[str, Any]], partition_by: str, tmp_path: Path
) -> None:
    export(fixture_4_3_1.log_dir, tmp_path / "files", "arrow", topics=TOPICS, partition_by=partition_by)
    import_(tmp_path / "files", tmp_path / "data")
    assert rows(tmp_path / "data") == expected


@pytest.mark.slow
def test_a_broker(fixture_4_3_1: KafkaFixture, expected: list[dict[str, Any]], tmp_path: Path) -> None:
    export(fixture_4_3_1.log_dir, tmp_path / "files", topics=TOPICS)
    with Broker() as broker:
        address = f"kafka://{broker.bootstrap_servers}"
        for _ in range(2):
            import_(tmp_path / "files", address)
            assert without_places(rows(address, isolation="read_committed")) == without_places(expected)
        export(address, tmp_path / "back", "jsonl", selection=Selection(isolation="read_committed"))
    import_(tmp_path / "back", tmp_path / "data")
    assert without_places(rows(tmp_path / "data")) == without_places(expected)


@pytest.mark.slow
def test_other_programs_read_the_folder_as_a_table(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    export(fixture_4_3_1.log_dir, tmp_path / "files", topics=["keyed", "v2-none"])
    table = pads.dataset(tmp_path / "files", format="parquet").to_table()
    assert sorted(table.column("offset").to_pylist()) == sorted(
        row["offset"] for row in rows(fixture_4_3_1.log_dir, topics=["keyed", "v2-none"])
    )


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_one_file(fixture_4_3_1: KafkaFixture, expected: list[dict[str, Any]], form: str, tmp_path: Path) -> None:
    file = tmp_path / f"all.{form}"
    with open_place(fixture_4_3_1.log_dir) as source:
        assert Export(source, source.choose(TOPICS), Selection()).to_file(file, form).records == len(expected)
    assert [row for batch in read_rows(file, form) for row in names_as_text(batch).to_pylist()] == expected
    import_(file, tmp_path / "data")
    assert rows(tmp_path / "data") == expected
    assert list(tmp_path.glob("*.tmp")) == []


NASTY = [
    None, b"", b"a", b"\xff\xfe", b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"a\nb", b"base64:", b"base64:YQ==",
    b"null", b'{"base64":"YQ=="}', b"\\N", b"NULL", b" a ", "ü\u2028\u0085\x00".encode(), b"\xed\xa0\x80", b"'",
    b"=1+1", b"x" * 70_000,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_every_byte_string_comes_back(form: str, tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events")
        logs["events", 0].append(
            [
                Record(key=key, value=value, timestamp=number, headers=[("", key), ('h\n"', value), ('h\n"', b"")])
                for number, (key, value) in enumerate(itertools.product(NASTY, NASTY))
            ]
        )
    export(tmp_path / "data", tmp_path / "files", form)
    import_(tmp_path / "files", tmp_path / "again")
    assert rows(tmp_path / "again") == rows(tmp_path / "data")


@pytest.mark.slow
def test_what_comes_later_is_exported_and_imported_later(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events")
        log = logs["events", 0]
        for number in range(6):
            log.append([Record(value=b"%d" % number, timestamp=number)])
            if number % 2:
                export(tmp_path / "data", tmp_path / "files")
                import_(tmp_path / "files", tmp_path / "again")
                for done in (tmp_path / "files").rglob("*.parquet"):
                    done.unlink()
        log.append([Record(value=b"lost", timestamp=1)] * 3)
        log.delete_records(8)
        found = export(tmp_path / "data", tmp_path / "files")
        assert found.lost == [(EVENTS, 6, 8)]
        import_(tmp_path / "files", tmp_path / "again")
    assert [row["value"] for row in rows(tmp_path / "again")] == [*(b"%d" % number for number in range(6)), b"lost"]


def test_selection(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events")
        logs["events", 0].append([Record(value=b"%d" % number, timestamp=number * 10) for number in range(10)])
    cases: list[tuple[Selection, range]] = [
        (Selection(start_offset=3, end_offset=5), range(3, 5)),
        (Selection(since_ms=41, until_ms=70), range(5, 7)),
        (Selection(since_ms=1000), range(0)),
        (Selection(end_offset=100), range(10)),
    ]
    for number, (selection, wanted) in enumerate(cases):
        export(tmp_path / "data", tmp_path / f"files{number}", "jsonl", selection=selection)
        found = [
            json.loads(line)["offset"]
            for file in (tmp_path / f"files{number}").rglob("*.jsonl")
            for line in file.read_text().splitlines()
        ]
        assert found == list(wanted)
        with pytest.raises(LogError, match="was begun with"):
            export(tmp_path / "data", tmp_path / f"files{number}", "jsonl", selection=Selection(start_offset=1))


def test_what_is_refused(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events")
        logs["events", 0].append([Record(value=b"a")] * 5)
    with pytest.raises(LogError, match="not empty"):
        export(tmp_path / "data", tmp_path)
    export(tmp_path / "data", tmp_path / "files")
    with odradek.open(tmp_path / "other") as logs:
        logs.create_topic("events")
        logs["events", 0].append([Record(value=b"b")] * 3)
    with pytest.raises(LogError, match="other records"):
        import_(tmp_path / "files", tmp_path / "other")
    assert [row["value"] for row in rows(tmp_path / "other")] == [b"b"] * 3
    with pytest.raises(LogError, match="no file"):
        import_(tmp_path / "other", tmp_path / "third")
    (tmp_path / "data.txt").touch()
    with pytest.raises(OptionError, match="no format"):
        import_(tmp_path / "data.txt", tmp_path / "third")
    with odradek.open(tmp_path / "data") as logs:
        logs.delete_topic("events")
        logs.create_topic("events")
    with pytest.raises(LogError, match="created again"):
        export(tmp_path / "data", tmp_path / "files")


def test_a_file_that_is_missing_is_told(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events")
        for number in range(3):
            logs["events", 0].append([Record(value=b"%d" % number)])
            # A file ends where the next one begins, whatever lies between their records.
            logs["events", 0].append_batches(build_empty_batch(2 * number + 1, 2 * number + 1), origin=REPLICATION)
            export(tmp_path / "data", tmp_path / "files")
    _, second, third = sorted((tmp_path / "files").rglob("*.parquet"))
    second.unlink()
    assert import_(tmp_path / "files", tmp_path / "again").gaps == [Gap(EVENTS, 2, 4)]
    shutil.copy(third, third.with_name(third.name.replace("0004-", "0003-")))
    with pytest.raises(LogError, match="below 6"):
        import_(tmp_path / "files", tmp_path / "third")


def test_damage_ends_a_partition_where_it_is(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events", 2)
        for number in range(4):
            for partition in range(2):
                logs["events", partition].append([Record(value=b"%d" % number * 50)])
                if number == 2:
                    logs["events", partition].roll()
    segment = min((tmp_path / "data" / "events-0").glob("*.log"))
    damaged = bytearray(segment.read_bytes())
    damaged[-20] ^= 1
    segment.write_bytes(damaged)
    done = export(tmp_path / "data", tmp_path / "files")
    assert (done.records, len(done.damaged)) == (2 + 4, 1)
    assert import_(tmp_path / "files", tmp_path / "again").records == 6


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_there_is_no_file_where_a_batch_is_damaged(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t")
        for _ in range(2):
            logs["t", 0].append([Record(value=b"v")])
            logs["t", 0].append([Record(value=b"v")])
            logs["t", 0].roll()
    segment = min((tmp_path / "data" / "t-0").glob("*.log"))
    damaged = bytearray(segment.read_bytes())
    damaged[-1] ^= 1
    segment.write_bytes(damaged)
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    with open_place(tmp_path / "data") as source, pytest.raises(FormatError):
        Export(source, [TopicPartition("t", 0)], Selection()).to_file(tmp_path / f"t.{form}", form)
    # A writer that is given up writes nothing into the closed file when it is collected.
    gc.collect()
    assert not complaints
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def lines(*records: Any) -> io.BytesIO:
    return io.BytesIO(b"".join(json.dumps(record).encode() + b"\n" for record in records))


def test_lines_of_other_programs(tmp_path: Path) -> None:
    with open_target(tmp_path / "data") as target:
        given = lines(
            {"value": "a"},
            {"key": "k", "value": {"n": 1}, "partition": 2, "headers": {"h": "v"}},
            {"key": "k", "value": None, "timestamp": 5, "headers": [["h", None]]},
        )
        Import(target, topic="events").from_stream(given, "jsonl", "stdin")
        Import(target, topic="orders", key_field="id").from_stream(lines({"id": 7, "total": 1.5}), "jsonl", "stdin")
    found = {row["value"]: row for row in rows(tmp_path / "data")}
    assert set(found) == {b"a", b'{"n":1}', None, b'{"id": 7, "total": 1.5}'}
    assert (found[b'{"n":1}']["partition"], found[b'{"n":1}']["headers"]) == (2, [{"key": "h", "value": b"v"}])
    assert found[b'{"id": 7, "total": 1.5}']["key"] == b"7"
    assert found[None]["timestamp"].timestamp() == 0.005
    assert found[b"a"]["timestamp"].year > 2000


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "Expecting"), (b"[]", "no JSON object"), (b'{"a":1}', "neither"), (b'{"key":1,"offset":-1}', "number"),
        (b'{"key":1,"timestamp_type":"x"}', "type"), (b'{"key":1,"headers":[[1,2]]}', "name"),
        (b'{"key":{"base64":"?"}}', "record 1"), (b'{"key":1,"topic":7}', "topic"), (b"[" * 100_000, "record 1"),
        (b'{"key":1,"partition":true}', "number"), (b'{"key":1,"partition":2147483648}', "number"),
        (b'{"key":1,"topic":"\\ud800"}', "surrogates"), (b'{"key":1,"headers":[["\\ud800",""]]}', "surrogates"),
        (b'{"key":1,"headers":["ab"]}', "a header is"),
    ],
)  # fmt: skip
def test_lines_that_are_no_records(tmp_path: Path, line: bytes, reason: str) -> None:
    with open_target(tmp_path / "data") as target, pytest.raises(FormatError, match=reason):
        Import(target, topic="events").from_stream(io.BytesIO(line + b"\n"), "jsonl", "stdin")


@pytest.mark.slow
def test_a_parquet_file_of_another_program(tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": ["a", "b"], "value": ["1", None]}), tmp_path / "a.parquet")
    import_(tmp_path / "a.parquet", tmp_path / "data", topic="events")
    assert [(row["key"], row["value"]) for row in rows(tmp_path / "data")] == [(b"a", b"1"), (b"b", None)]
    nameless = pa.array([[{"key": None, "value": b""}]], SCHEMA.field("headers").type)
    for table in (
        pa.table({"other": [1]}),
        pa.table({"value": [[1]]}),
        pa.table([["a"], ["b"]], ["value", "value"]),
        pa.table({"value": ["a"], "timestamp": [-1]}),
        pa.table({"value": ["a"], "partition": [-1]}),
        pa.table({"value": ["a"], "offset": [-1]}),
        pa.table({"value": ["a"], "headers": nameless}),
    ):
        pq.write_table(table, tmp_path / "b.parquet")
        with pytest.raises(FormatError):
            import_(tmp_path / "b.parquet", tmp_path / "data", topic="events")


def placed(*offsets: int, partition: int = 0) -> io.BytesIO:
    return lines(*({"topic": "events", "partition": partition, "offset": at, "value": str(at)} for at in offsets))


@pytest.mark.slow
@pytest.mark.parametrize("offsets", [(5, 3, 4), (1, 1), (3, 9, 1, 12)])
def test_offsets_that_do_not_increase_are_refused(tmp_path: Path, offsets: tuple[int, ...]) -> None:
    with Broker() as broker:
        for address in (tmp_path / "data", f"kafka://{broker.bootstrap_servers}"):
            with open_target(address) as target:
                Import(target, name="lines").from_stream(placed(0, 4), "jsonl", "stdin")
                for _ in range(2):
                    with pytest.raises(FormatError, match="follows"):
                        Import(target, name="lines").from_stream(placed(*offsets), "jsonl", "stdin")


def test_damaged_numbers_do_not_fill_the_disk(tmp_path: Path) -> None:
    with open_target(tmp_path / "data") as target:
        for far in ((2**63 - 1,), (1, 2**50)):
            with pytest.raises(LogError, match="too far"):
                Import(target).from_stream(placed(*far), "jsonl", "stdin")
        with pytest.raises(OptionError, match="beyond"):
            Import(target).from_stream(placed(0, partition=2**31 - 1), "jsonl", "stdin")
        assert target.partitions("events") == 1


@pytest.mark.slow
def test_two_topics_into_one(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        for topic, count in (("a", 10), ("b", 5)):
            logs.create_topic(topic)
            logs[topic, 0].append([Record(value=b"%s%d" % (topic.encode(), number)) for number in range(count)])
    export(tmp_path / "data", tmp_path / "files")
    with open_place(tmp_path / "data") as source:
        Export(source, source.choose(), Selection()).to_file(tmp_path / "file.jsonl", "jsonl")
    for files in (tmp_path / "files", tmp_path / "file.jsonl"):
        with Broker() as broker:
            address = f"kafka://{broker.bootstrap_servers}"
            assert [import_(files, address, topic="both").records for _ in range(2)] == [15, 0]
            assert len(rows(address, topics="both")) == 15
        with pytest.raises(OptionError, match="keeps offsets"):
            import_(files, tmp_path / "again", topic="both")


@pytest.mark.slow
def test_more_dates_than_files_that_may_be_open(tmp_path: Path) -> None:
    days = [*range(100), *range(50), 200]
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events")
        logs["events", 0].append([Record(value=b"", timestamp=day * 86_400_000 + 1) for day in days])
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    most = [0]

    def opened(*_: Any) -> Path:
        most[0] = max(most[0], sum(1 for _ in Path("/proc/self/fd").iterdir()))
        return real(*_)

    real = export_folder.ExportFolder.temporary
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export_folder.ExportFolder, "temporary", opened)
        assert export(tmp_path / "data", tmp_path / "files", partition_by="date").records == len(days)
    assert most[0] < before + 60
    import_(tmp_path / "files", tmp_path / "again")
    assert rows(tmp_path / "again") == rows(tmp_path / "data")


@pytest.mark.slow
def test_what_is_deleted_during_an_export_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker:
        broker.logs.create_topic("events")
        log = broker.logs["events", 0]
        for number in range(6):
            log.append([Record(value=b"%d" % number)])
        with open_place(f"kafka://{broker.bootstrap_servers}") as source:
            assert Export(source, source.choose(), Selection()).to_folder(tmp_path / "files").records == 6
            for number in range(6):
                log.append([Record(value=b"%d" % number)])
            real = source.slices

            def slices(*args: Any, **options: Any) -> Any:
                log.delete_records(9)
                return real(*args, **options)

            monkeypatch.setattr(source, "slices", slices)
            done = Export(source, source.choose(), Selection()).to_folder(tmp_path / "files")
    assert (done.records, done.lost) == (3, [Lost(EVENTS, 6, 9)])
    assert import_(tmp_path / "files", tmp_path / "again").records == 9


@pytest.mark.slow
@pytest.mark.parametrize("place", ["broker", "folder"])
def test_what_is_deleted_during_an_export_into_one_file_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    with Broker(tmp_path / "data") as broker, open_place(tmp_path / "data") as folder:
        broker.logs.create_topic("events", config={"internal.segment.bytes": "1100"})
        log = broker.logs["events", 0]
        for number in range(9):
            log.append([Record(value=b"%d" % number + b"x" * 500)])
        with open_place(f"kafka://{broker.bootstrap_servers}") as asked:
            source = asked if place == "broker" else folder
            source.refresh()

            def deleting(source: Place, name: TopicPartition, start: int, end: int, **options: Any) -> Any:
                if start:
                    yield from record_batches(source, name, start, end, **options)
                    return
                # The file of the second segment is gone before it is opened.
                yield from record_batches(source, name, start, 2, **options)
                log.delete_records(6)
                broker.logs.maintain()
                yield from record_batches(source, name, 2, end, **options)

            monkeypatch.setattr(export_module, "record_batches", deleting)
            done = Export(source, source.choose("events"), Selection()).to_file(tmp_path / "events.jsonl", "jsonl")
    assert (done.records, done.lost) == (5, [Lost(EVENTS, 2, 6)])
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["offset"] for line in lines] == [0, 1, 6, 7, 8]


def test_topics_without_records_are_created(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("empty", 3, {"retention.ms": "7"})
    export(tmp_path / "data", tmp_path / "files")
    assert import_(tmp_path / "files", tmp_path / "again").records == 0
    with odradek.open(tmp_path / "again") as logs:
        assert len(logs.topic_partitions()) == 3


def test_two_exports_into_one_file(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events")
        logs["events", 0].append([Record(value=b"a")])
    with open_place(tmp_path / "data") as source:
        first = Export(source, source.choose(), Selection())
        real = first.to_stream

        def during(out: Any, form: str) -> ExportReport:
            with pytest.raises(LogError, match="another program"):
                Export(source, source.choose(), Selection()).to_file(tmp_path / "a.jsonl", "jsonl")
            return real(out, form)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(first, "to_stream", during)
            first.to_file(tmp_path / "a.jsonl", "jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "data"]
    assert import_(tmp_path / "a.jsonl", tmp_path / "again").records == 1


class _EndedError(BaseException):
    """As a signal would: it is raised anywhere."""


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Ends what runs after so many of its steps on the disk or in Arrow."""
    from odradek.storage.files import FileSystem
    from odradek.transfer import export_folder, folder_target, record_files

    left = [1 << 60]
    lock = threading.Lock()

    def counted(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def step(*args: Any, **options: Any) -> Any:
            with lock:
                left[0] -= 1
                if left[0] < 0:
                    raise _EndedError
            return real(*args, **options)

        monkeypatch.setattr(owner, name, step)

    counted(FileSystem, "rename")
    counted(export_folder, "write_atomically")
    counted(record_files._TextWriter, "write")
    counted(folder_target.FolderWriter, "_replicate")

    def end_after(steps: int | None) -> None:
        left[0] = 1 << 60 if steps is None else steps

    return end_after


# From its end on every step fails, also those that would close the folder.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_ended_anywhere_and_begun_again(ending: Callable[[int | None], None], tmp_path: Path) -> None:
    chance = random.Random(7)
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events", 2)
        for number in range(300):
            logs["events", number % 2].append([Record(value=b"%d" % number, timestamp=number)])
    steps: list[Callable[[], object]] = []
    for partition_by in ("partition", "date"):
        files, again = (tmp_path / f"files-{partition_by}", tmp_path / f"again-{partition_by}")
        how = {"file_bytes": 900, "partition_by": partition_by, "threads": 1}
        steps += [partial(export, tmp_path / "data", files, "jsonl", **how), partial(import_, files, again)]
    for step in steps:
        ended = 0
        while True:
            ending(chance.randrange(1, 12))
            try:
                step()
                break
            except _EndedError:
                ended += 1
            finally:
                ending(None)
        assert ended > 0
    gc.collect()
    for partition_by in ("partition", "date"):
        assert rows(tmp_path / f"again-{partition_by}") == rows(tmp_path / "data")
