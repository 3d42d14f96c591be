"""`odradek.dataset` against a full scan, and against what engines ask of it: what is read is counted."""

from __future__ import annotations

import pickle
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pytest

import odradek
from odradek.columnar import decode
from odradek.columnar.dataset.pruning import Pruning, Verdict, offsets_in, place
from odradek.columnar.record_schema import COLUMNS, SCHEMA
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.records.isolation import Isolation
from odradek.records.scan import scan_batches
from odradek.storage.directory.log_directory import LogDirectory
from peers.kafka_fixture import KafkaFixture

SEGMENTS, PER_SEGMENT = 20, 10
BASE_MS = 1_700_000_000_000


def moment(timestamp_ms: int, unit: str = "ms") -> pa.Scalar:
    return pa.scalar(timestamp_ms * {"ms": 1, "us": 1000}[unit], pa.timestamp(unit, "UTC"))


OFFSET, PARTITION, TIMESTAMP = pc.field("offset"), pc.field("partition"), pc.field("timestamp")


# -- the same rows as a scan


def random_filter(random: random.Random, rows: pa.Table, depth: int = 2) -> Any:
    if depth and random.random() < 0.6:
        one, other = (random_filter(random, rows, depth - 1) for _ in range(2))
        return random.choice([one & other, one | other, ~one])
    name = random.choice([name for name in COLUMNS if name != "headers"])
    field = pc.field(name)
    some = [rows[name][random.randrange(len(rows))] for _ in range(random.randrange(1, 4))]
    if name == "offset" and random.random() < 0.3:
        some = [pa.scalar(random.choice([-1, 10**12, (1 << 63) - 1]), pa.int64())]
    if name == "timestamp" and some[0].is_valid and random.random() < 0.5:
        some = [pa.scalar(some[0].as_py(), pa.timestamp("us", "UTC"))]
    kind = random.randrange(9)
    if kind == 0:
        return field.is_null()
    if kind == 1:
        return field.is_valid()
    if kind == 2:
        return field.isin(pa.array([value.as_py() for value in some], some[0].type))
    return [field == some[0], field != some[0], field < some[0], field <= some[0], field > some[0], field >= some[0]][
        kind - 3
    ]


@pytest.fixture(scope="module", params=["4.3.1", "2.8.2"])
def folder(request: pytest.FixtureRequest) -> Path:
    """Logs of every format and codec: transactions, compaction, a deleted head, many segments."""
    fixture: KafkaFixture = request.getfixturevalue(f"fixture_{request.param.replace('.', '_')}")
    return fixture.log_dir


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_it_holds_what_a_scan_gives(folder: Path, isolation: Isolation) -> None:
    table = odradek.scan(folder, isolation=isolation).read_all()
    data = odradek.dataset(folder, isolation=isolation)
    assert data.schema == SCHEMA
    assert data.to_table() == table
    assert data.count_rows() == len(table)
    assert pa.table(data) == table
    for topic_partition in LogDirectory(folder).topic_partitions():
        of_one = odradek.dataset(
            folder, topic_partition.topic, partitions=topic_partition.partition, isolation=isolation
        )
        assert of_one.count_rows() == of_one.to_table(columns=["offset"]).num_rows, topic_partition


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_filters_and_columns_are_exact(folder: Path, isolation: Isolation) -> None:
    table = odradek.scan(folder, isolation=isolation).read_all()
    data = odradek.dataset(folder, isolation=isolation)
    choices = random.Random(11)
    matched = set()
    for number in range(24):
        expression = random_filter(choices, table)
        columns = choices.choices(COLUMNS, k=choices.randrange(1, 5))
        wanted = pds.InMemoryDataset(table).to_table(columns=columns, filter=expression)
        assert data.to_table(columns=columns, filter=expression) == wanted, expression
        assert data.count_rows(filter=expression) == len(wanted), expression
        if number % 8 == 0:
            parts = [part.to_table(columns=columns, filter=expression) for part in data.get_fragments(expression)]
            assert sum(map(len, parts)) == len(wanted), expression
        matched.add(0 < len(wanted) < len(table))
    assert matched == {True, False}


@pytest.mark.slow
def test_columns_may_be_expressions(folder: Path) -> None:
    table = odradek.scan(folder).read_all()
    data = odradek.dataset(folder)
    columns = {"twice": OFFSET * 2, "key": pc.field("key"), "first": pc.field(0)}
    assert data.to_table(columns=columns) == pds.InMemoryDataset(table).to_table(columns=columns)
    assert data.to_table(columns=[]).num_rows == len(table)
    assert data.head(7) == table.slice(0, 7)
    assert data.take([3, 700, 5]) == table.take([3, 700, 5])
    with pytest.raises(ValueError, match="no column 'price'"):
        data.to_table(columns=["price"])
    with pytest.raises(ValueError, match="price"):
        data.to_table(filter=pc.field("price") > 3)


# -- what is read


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics, two partitions of one of them; 20 segments of 10 records each, a record a second."""
    path = tmp_path_factory.mktemp("many") / "data"
    with odradek.open(path) as logs:
        logs.create_topic("events", partitions=2)
        logs.create_topic("other", partitions=1)
        for topic_partition in logs.topic_partitions():
            log = logs[topic_partition]
            for number in range(SEGMENTS * PER_SEGMENT):
                value = b'{"name":"n%d","size":%d}' % (number, number)
                log.append([odradek.Record(b"k%d" % (number % 3), value, timestamp=BASE_MS + 1000 * number)])
                if number % PER_SEGMENT == PER_SEGMENT - 1:
                    log.roll()
    return path


class Reads(NamedTuple):
    """What was decoded."""

    segments: set[tuple[str, int]]
    columns: set[str]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    found = Reads(set(), set())
    plain = decode.decode_slices

    def decoding(slices: Iterable[odradek.LogSlice], schema: pa.Schema, **options: Any) -> Iterator[pa.RecordBatch]:
        def noted() -> Iterator[odradek.LogSlice]:
            for part in slices:
                found.segments.add((part.path.parent.name, part.base_offset))
                found.columns.update(schema.names)
                yield part

        return plain(noted(), schema, **options)

    monkeypatch.setattr(decode, "decode_slices", decoding)
    return found


Engine = Callable[[pds.Dataset, str], list[tuple[Any, ...]]]


def by_duckdb(events: pds.Dataset, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        found: list[tuple[Any, ...]] = connection.register("events", events).sql(sql).fetchall()
        return found


def by_polars(events: pds.Dataset, sql: str) -> list[tuple[Any, ...]]:
    context = pl.SQLContext(events=pl.scan_pyarrow_dataset(events))
    return context.execute(sql, eager=True).rows()


def by_datafusion(events: pds.Dataset, sql: str) -> list[tuple[Any, ...]]:
    context = datafusion.SessionContext()
    context.register_dataset("events", events)
    return [tuple(row.values()) for row in context.sql(sql).to_pylist()]


ENGINES = [by_duckdb, by_polars, by_datafusion]


@pytest.mark.sampled
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("where", "segments", "rows"),
    [
        ('"offset" >= 35 AND "offset" < 41', {30, 40}, 6),
        ('"offset" IN (5, 77)', {0, 70}, 2),
        ('("offset" = 5 OR "offset" = 199)', {0, 190}, 2),
        ('"offset" > 187', {180, 190}, 12),
        ('"offset" > 5000', set(), 0),
    ],
)
def test_engines_read_the_segments_and_columns_that_they_name(
    many: Path, reads: Reads, engine: Engine, where: str, segments: set[int], rows: int
) -> None:
    found = engine(odradek.dataset(many, "events"), f'SELECT "offset" FROM events WHERE {where} AND partition = 1')
    assert len(found) == rows
    assert reads.segments == {("events-1", base_offset) for base_offset in segments}
    assert reads.columns <= {"offset", "partition"}


@pytest.mark.sampled
@pytest.mark.parametrize("engine", ENGINES)
def test_engines_leave_out_topics_and_times(many: Path, reads: Reads, engine: Engine) -> None:
    last = datetime.fromtimestamp(BASE_MS / 1000 + 193, UTC).isoformat()
    time = f"CAST('{last}' AS TIMESTAMPTZ)" if engine is by_duckdb else f"'{last}'"
    if engine is by_polars:
        data = odradek.dataset(many)
        frame = pl.scan_pyarrow_dataset(data)
        found = (
            frame.filter((pl.col("timestamp") >= datetime.fromisoformat(last)) & (pl.col("topic") == "other"))
            .select("key")
            .collect()
            .rows()
        )
    else:
        found = engine(odradek.dataset(many), f"SELECT key FROM events WHERE timestamp >= {time} AND topic = 'other'")
    assert sorted(found) == sorted((b"k%d" % (number % 3),) for number in range(193, 200))
    assert reads.segments == {("other-0", 190)}
    assert reads.columns <= {"topic", "timestamp", "key"}


@pytest.mark.sampled
@pytest.mark.parametrize("engine", ENGINES)
def test_engines_count_without_decoding(many: Path, reads: Reads, engine: Engine) -> None:
    assert engine(odradek.dataset(many), "SELECT COUNT(*) FROM events") == [(600,)]
    assert reads == Reads(set(), set())


def test_other_partitions_are_not_even_opened(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = set()
    plain = LogDirectory.__getitem__

    def noted(logs: LogDirectory, key: tuple[str, int]) -> odradek.Log:
        opened.add(key)
        return plain(logs, key)

    monkeypatch.setattr(LogDirectory, "__getitem__", noted)
    data = odradek.dataset(many)
    assert data.to_table(filter=(pc.field("topic") == "events") & PARTITION.isin([1, 2])).num_rows == 200
    assert opened == {("events", 1)}


def test_fragments_come_one_after_the_other(many: Path, reads: Reads) -> None:
    data = odradek.dataset(many)
    fragments = data.get_fragments(OFFSET >= 195)
    part = next(fragments)
    assert repr(part) == "<LogFragment events-0 [195, 200)>"
    assert part.count_rows() == 5
    assert part.physical_schema == SCHEMA
    assert reads.segments == set()
    assert part.head(2, columns=["offset"]).to_pydict() == {"offset": [195, 196]}
    assert part.to_table(data.schema, filter=OFFSET > 300).num_rows == 0
    assert [batch.num_rows for batch in part.to_batches(batch_size=3)] == [3, 2]
    assert part.count_rows(filter=(OFFSET > 197) & (pc.field("key") == b"k0")) == 1
    assert Pruning(part.partition_expression).verdicts([place("events", 0) & offsets_in(195, 200)]) == [Verdict.ALL]
    assert [str(later.range.log.topic_partition) for later in fragments] == ["events-1", "other-0"]
    assert len(list(data.get_fragments())) == 3 * SEGMENTS
    with pytest.raises(ValueError, match="one schema"):
        part.to_table(pa.schema([]))


def test_whole_segments_are_counted_by_their_headers(many: Path, reads: Reads) -> None:
    data = odradek.dataset(many)
    assert data.count_rows(filter=(OFFSET >= 7) & (PARTITION == 0) & (OFFSET != 100)) == 2 * 192
    assert reads.segments == {("events-0", 100), ("other-0", 100)}
    assert data.filter(OFFSET < 15).count_rows(filter=pc.field("topic").isin(["events", "none"])) == 30
    assert len(reads.segments) == 2


# -- pruning


def test_what_a_filter_says_of_offsets_and_times() -> None:
    assert Pruning(OFFSET == 77).offsets == (77, 78)
    assert Pruning(OFFSET.isin([5, 500]) & (pc.field("value") == b"")).offsets == (5, 501)
    assert Pruning(~(OFFSET < 1 << 40)).offsets == (1 << 40, (1 << 63) - 1)
    assert Pruning(OFFSET + 1 > 5).offsets == (0, (1 << 63) - 1)
    assert Pruning(pc.field("key") == b"k").offsets == (0, (1 << 63) - 1)
    assert Pruning(moment(BASE_MS) <= TIMESTAMP).since_ms == BASE_MS
    assert Pruning(moment(BASE_MS) < TIMESTAMP).since_ms == BASE_MS + 1
    assert Pruning(moment(BASE_MS, "us") < TIMESTAMP).since_ms == BASE_MS + 1
    # A record without a time is wanted, too.
    assert Pruning((moment(BASE_MS) <= TIMESTAMP) | TIMESTAMP.is_null()).since_ms is None
    assert Pruning(moment(BASE_MS) > TIMESTAMP).since_ms is None


def test_a_filter_that_is_never_true_is_not_always_true() -> None:
    somewhere = offsets_in(0, 10)
    for expression, verdict in [
        (OFFSET >= 0, Verdict.ALL),
        (OFFSET < 5, Verdict.SOME),
        (OFFSET > 10, Verdict.NONE),
        (pa.scalar(None, pa.int64()) < OFFSET, Verdict.NONE),
        (pc.field("key").is_valid(), Verdict.SOME),
    ]:
        assert Pruning(expression).verdicts([somewhere]) == [verdict], expression


@pytest.mark.sampled
@pytest.mark.parametrize("kind", [pa.int16(), pa.float32(), pa.float64()])
def test_offsets_are_compared_with_other_types(many: Path, kind: pa.DataType) -> None:
    rows = odradek.dataset(many)
    wanted = (pa.scalar(15, kind) > OFFSET) | pc.field("key").is_null()
    assert rows.count_rows(filter=wanted) == rows.to_table().filter(wanted).num_rows
    assert rows.to_table(filter=wanted).num_rows == rows.to_table().filter(wanted).num_rows


def test_the_columns_of_a_filter() -> None:
    assert Pruning((OFFSET > 5) & (pc.field("value") != b"key")).columns == {"offset", "value"}
    assert Pruning(pc.field(2) > 5).columns == set(COLUMNS)
    assert Pruning(None).columns == set()


# -- a log that changes


def test_a_dataset_is_live(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events", partitions=1)
        log = logs["events", 0]
        data = odradek.dataset(tmp_path / "data", "events")
        assert (data.count_rows(), data.to_table().num_rows) == (0, 0)
        log.append([odradek.Record(value=b"a")])
        assert (data.count_rows(), data.to_table().num_rows) == (1, 1)
        log.roll()
        log.append([odradek.Record(value=b"b"), odradek.Record(value=b"c")])
        assert data.count_rows() == 3
        assert data.to_table(filter=OFFSET == 2)["value"].to_pylist() == [b"c"]


def test_the_head_may_be_deleted_in_the_middle_of_a_batch(tmp_path: Path, reads: Reads) -> None:
    with odradek.open(tmp_path / "data") as logs:
        for codec in ("none", "zstd"):
            logs.create_topic(
                codec, partitions=1, config={"compression.type": codec if codec != "none" else "producer"}
            )
            logs[codec, 0].append([odradek.Record(value=b"v%d" % number) for number in range(100)])
            logs[codec, 0].append([odradek.Record(value=b"w%d" % number) for number in range(100)])
            logs[codec, 0].delete_records(30)
        data = odradek.dataset(tmp_path / "data")
        assert data.count_rows() == 340
        assert reads.segments == set()
        assert data.to_table()["offset"].to_pylist() == 2 * list(range(30, 200))


def test_segments_that_are_deleted_while_they_are_read(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events", partitions=1)
        log = logs["events", 0]
        for _ in range(4):
            log.append([odradek.Record(value=b"v")])
            log.roll()
        data = odradek.dataset(tmp_path / "data")
        parts = list(data.get_fragments())
        assert len(parts) == 4
        log.delete_records(3)
        logs.maintain()
        assert data.to_table()["offset"].to_pylist() == [3]
        assert parts[3].to_table()["offset"].to_pylist() == [3]
        with pytest.raises(odradek.OffsetOutOfRangeError):
            parts[0].to_table()


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_compacted_logs_are_counted_by_headers(tmp_path: Path, reads: Reads, isolation: Isolation) -> None:
    with odradek.open(tmp_path / "data") as logs:
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "min.compaction.lag.ms": "0"}
        logs.create_topic("latest", partitions=1, config=config)
        log = logs["latest", 0]
        for number in range(50):
            log.append([odradek.Record(b"k%d" % (number % 7), b"v"), odradek.Record(b"same", b"v")])
            if number % 10 == 9:
                log.roll()
        logs.maintain()
        data = odradek.dataset(tmp_path / "data", isolation=isolation)
        counted = data.count_rows()
        assert reads.segments == set()
        assert counted == data.to_table().num_rows < 100


# -- damage


def damaged(many: Path, tmp_path: Path, change: Callable[[bytearray], None]) -> Path:
    path = tmp_path / "events-0"
    path.mkdir()
    for file in (many / path.name).iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    segment = path / f"{50:020d}.log"
    data = bytearray(segment.read_bytes())
    change(data)
    segment.write_bytes(data)
    return tmp_path


@pytest.mark.slow
def test_a_corrupt_record_is_refused_where_it_is_read(many: Path, tmp_path: Path) -> None:
    def change(data: bytearray) -> None:
        data[list(scan_batches(data))[3].end_position - 1] ^= 1

    data = odradek.dataset(damaged(many, tmp_path, change), "events")
    with pytest.raises(odradek.CorruptRecordError, match="checksum"):
        data.to_table()
    with pytest.raises(odradek.CorruptRecordError, match="checksum"):
        data.to_table(filter=OFFSET == 53)
    with pytest.raises(Exception, match="checksum"):
        by_duckdb(data, 'SELECT max("offset") FROM events')
    assert data.to_table(filter=OFFSET < 50).num_rows == 50
    assert data.count_rows() == 200


@pytest.mark.parametrize("is_missing", [True, False], ids=["missing", "zeros"])
def test_what_a_scan_refuses_is_refused_by_a_count(many: Path, tmp_path: Path, is_missing: bool) -> None:
    def change(data: bytearray) -> None:
        header = list(scan_batches(data))[3]
        if is_missing:
            del data[header.position : header.end_position]
        else:
            data[header.position : header.position + 40] = bytes(40)

    path = damaged(many, tmp_path, change)
    with pytest.raises(odradek.FormatError if is_missing else odradek.CorruptRecordError) as scanned:
        odradek.scan(path, "events", columns=["offset"]).read_all()
    with pytest.raises(type(scanned.value), match=re.escape(str(scanned.value))):
        odradek.dataset(path, "events").count_rows()


# -- as pyarrow's own


def test_it_goes_to_another_process(many: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(many.parent)
    data = odradek.dataset("data", "events", partitions=[1], isolation="read_committed").filter(OFFSET < 15)
    monkeypatch.chdir(tmp_path)
    copy = pickle.loads(pickle.dumps(data))
    assert copy.to_table() == data.to_table()
    assert repr(copy) == f"<LogDataset {many}, 1 partitions, read_committed>"


@pytest.mark.slow
def test_filters_of_a_dataset_add_up(many: Path) -> None:
    data = odradek.dataset(many, "events").filter(OFFSET >= 5).filter(PARTITION == 0)
    assert data.count_rows() == 195
    assert data.to_table(filter=OFFSET < 8)["offset"].to_pylist() == [5, 6, 7]
    assert sum(part.to_table().num_rows for part in data.get_fragments()) == 195


def test_it_is_written_as_parquet(many: Path, tmp_path: Path) -> None:
    data = odradek.dataset(many)
    pds.write_dataset(data, tmp_path, format="parquet", partitioning=["topic", "partition"])
    assert pds.dataset(tmp_path, format="parquet").count_rows() == 600
    assert (tmp_path / "events" / "1").is_dir()


def test_what_pyarrow_does_with_whole_datasets(many: Path) -> None:
    data = odradek.dataset(many, "other")
    assert data.sort_by([("offset", "descending")]).head(1)["offset"].to_pylist() == [199]
    with pytest.raises(NotImplementedError, match="one schema"):
        data.replace_schema(SCHEMA)
    # Read from below, it would seem to be empty.
    with pytest.raises(FileNotFoundError, match="read by its methods"):
        pds.Scanner.from_dataset(data).to_table()


@pytest.mark.slow
def test_the_dataset_of_each_topic(many: Path) -> None:
    data = odradek.dataset(many).filter(OFFSET < 50)
    of_each = data.by_topic()
    assert list(of_each) == ["events", "other"]
    for topic, rows in of_each.items():
        for one in (rows, pickle.loads(pickle.dumps(rows))):
            assert one.to_table() == data.to_table(filter=pc.field("topic") == topic)


@pytest.mark.slow
def test_many_threads_read_one_dataset(many: Path) -> None:
    data = odradek.dataset(many)
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda number: data.to_table(filter=number == OFFSET).num_rows, range(80))
        assert list(found) == [3] * 80


def test_what_is_not_there(many: Path, tmp_path: Path) -> None:
    with pytest.raises(odradek.UnknownTopicOrPartitionError, match="absent"):
        odradek.dataset(many, "absent")
    with pytest.raises(odradek.OptionError, match="isolation"):
        odradek.dataset(many, isolation="read_twice")  # type: ignore[arg-type]
    with pytest.raises(odradek.LogError, match="none"):
        odradek.dataset(tmp_path / "none")


@pytest.mark.parametrize(
    "ask",
    [
        lambda data: data.count_rows("offset > 3"),
        lambda data: data.get_fragments(5),
        lambda data: data.filter(True),
        lambda data: data.filter(OFFSET > 3).count_rows(True),
        lambda data: data.to_table(columns={"twice": "offset * 2"}),
        lambda data: next(data.get_fragments()).count_rows("offset > 3"),
    ],
)
def test_what_is_no_expression(many: Path, ask: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"must be a pyarrow.compute.Expression, not ('offset|5|True)"):
        ask(odradek.dataset(many))


@pytest.mark.parametrize(("topics", "text"), [(5, r"not by 5 \(int\)"), (b"events", r"not by b'events' \(bytes\)")])
def test_what_is_no_topic(many: Path, topics: Any, text: str) -> None:
    with pytest.raises(TypeError, match=f"a topic goes by its name, .*{text}"):
        odradek.dataset(many, topics)


def test_topics_and_partitions_of_an_iterator(many: Path) -> None:
    data = odradek.dataset(many, iter(["events"]), partitions=iter([1]))
    assert pickle.loads(pickle.dumps(data)).count_rows() == data.count_rows() == SEGMENTS * PER_SEGMENT


# How soon a thread of pyarrow leaves is up to the system: one run in many may still abort.
@pytest.mark.laboratory
@pytest.mark.parametrize(
    "reading",
    [
        "events.head(1)",
        "next(events.to_batches())",
        "reader = events.scanner().to_reader()",
        "duckdb.sql('select value from events limit 1').fetchall()",
    ],
)
def test_a_program_may_end_while_pyarrow_reads_ahead(reading: str, tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    folder.mkdir()
    for base in range(300):
        segment = build_batch([Record(None, bytes(1000))], base_offset=base)
        (folder / f"{base:020}.log").write_bytes(segment)
    program = f"import duckdb, odradek\nevents = odradek.dataset({str(tmp_path)!r})\n{reading}"
    for _ in range(3):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True)
