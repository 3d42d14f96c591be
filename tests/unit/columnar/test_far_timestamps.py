"""Timestamps outside of the years 1 to 9999: one rule for all that gives rows as a table."""

from __future__ import annotations

import pickle
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner, Result

import odradek
from odradek.cli.app import main
from odradek.columnar.decode import decode_slices
from odradek.columnar.far_timestamps import FarTimestamps
from odradek.columnar.read_ahead import _Partition
from odradek.records.kernels.checksums import crc32c
from odradek.records.timestamps import FIRST_MS, LAST_MS
from odradek.storage.names import TopicPartition
from odradek.storage.segment.log_slice import LogSlice

NOON = 1_700_000_000_000
NEAR = [NOON, -1, 0, LAST_MS]
FAR = [NOON * 1000, NOON * 10**6, (1 << 63) - 1, LAST_MS + 1, LAST_MS + 2]
# Retention spares them, and an append takes them, as that of an older broker does.
CONFIG = {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)}
READS: list[Callable[..., pa.Table]] = [
    lambda path, **options: odradek.scan(path, threads=1, **options).read_all(),
    lambda path, **options: odradek.scan(path, threads=2, views=True, **options).read_all(),
    lambda path, **options: odradek.dataset(path, **options).to_table(),
    lambda path, **options: pickle.loads(pickle.dumps(odradek.dataset(path, **options))).to_table(),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory: four near timestamps, five far ones among them, and two more that are near."""
    path = tmp_path_factory.mktemp("far") / "data"
    with odradek.open(path) as logs:
        logs.create_topic("t", partitions=1, config=CONFIG)
        for times in (NEAR, FAR, [NOON, NOON]):
            logs["t", 0].append([odradek.Record(b"k", b"v", timestamp=time) for time in times])
    return path


def milliseconds(table: pa.Table) -> list[Any]:
    found: list[Any] = table["timestamp"].cast(pa.int64()).to_pylist()
    return found


@pytest.mark.parametrize("read", READS)
def test_the_record_is_named(folder: Path, read: Callable[..., pa.Table]) -> None:
    with pytest.raises(odradek.TimestampOutOfRangeError) as caught:
        read(folder)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.topic, error.partition, error.offset, error.timestamp) == ("t", 0, 4, FAR[0])
    assert str(error) == (
        "t-0, offset 4: 1700000000000000 (are these microseconds?) ms is outside of the years 1 to 9999; "
        "with far_timestamps null, such a timestamp is null"
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_the_rows_before_it_come_first(folder: Path, threads: int) -> None:
    batches: list[pa.RecordBatch] = []
    with pytest.raises(odradek.TimestampOutOfRangeError):
        batches.extend(odradek.scan(folder, threads=threads, rows=3))
    assert milliseconds(pa.Table.from_batches(batches)) == [None if time == -1 else time for time in NEAR]


@pytest.mark.parametrize("read", READS)
def test_null_if_that_is_asked_for_and_counted(folder: Path, read: Callable[..., pa.Table]) -> None:
    with pytest.warns(odradek.TimestampWarning) as told:
        table = read(folder, far_timestamps="null")
    assert milliseconds(table) == [NOON, None, 0, LAST_MS, *[None] * len(FAR), NOON, NOON]
    assert table["offset"].to_pylist() == list(range(11))
    assert [str(one.message) for one in told] == [
        "5 timestamps outside of the years 1 to 9999 are null; the first: "
        "t-0, offset 4: 1700000000000000 (are these microseconds?)"
    ]


def test_who_does_not_read_them_is_not_told(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert odradek.scan(folder, columns=["offset", "value"]).read_all().num_rows == 11
        assert odradek.dataset(folder).count_rows() == 11
        assert odradek.scan(folder, end_offset=4, far_timestamps="null").read_all().num_rows == 4
        assert odradek.scan(folder, start_offset=9).read_all().num_rows == 2


def test_the_numbers_themselves_can_be_read(folder: Path) -> None:
    with odradek.open(folder, "r") as logs:
        assert [record.timestamp for record in logs["t", 0].read()] == [
            None if time == -1 else time for time in [*NEAR, *FAR, NOON, NOON]
        ]


def test_microseconds(folder: Path) -> None:
    """Spark's: what 64 bits cannot hold of them is not counted on from the other end."""
    schema = pa.schema([("timestamp", pa.timestamp("us", "UTC"))])
    action = FarTimestamps("null")
    with odradek.open(folder, "r") as logs:
        batches = decode_slices(logs["t", 0].slices(), schema, topic="t", partition=0, far_timestamps=action)
        found = milliseconds(pa.Table.from_batches(list(batches)))
    assert found == [NOON * 1000, -1000, 0, LAST_MS * 1000, *[None] * 5, NOON * 1000, NOON * 1000]
    with pytest.warns(odradek.TimestampWarning, match="^5 timestamps"):
        action.warn()


def test_the_first_of_all(tmp_path: Path) -> None:
    """Those before 1970 are in no batch that is appended here, but Kafka takes them from its clients."""
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", partitions=1, config=CONFIG)
        logs["t", 0].append([odradek.Record(b"k", b"v", timestamp=time) for time in (0, 1)])
    path = tmp_path / "t-0" / f"{0:020}.log"
    batch = bytearray(path.read_bytes())
    batch[27:43] = struct.pack(">qq", FIRST_MS - 1, FIRST_MS)
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    path.write_bytes(batch)
    with pytest.warns(odradek.TimestampWarning, match=f"t-0, offset 0: {FIRST_MS - 1}$"):
        assert milliseconds(odradek.scan(tmp_path, far_timestamps="null").read_all()) == [None, FIRST_MS]


@pytest.mark.slow
def test_threads_count_what_they_decode_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a thread gives up on is decoded again in turn: far timestamps are no such thing where they are null."""
    value = bytes(20_000)
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", partitions=1, config=CONFIG)
        for _ in range(40):
            logs["t", 0].append([odradek.Record(None, value, timestamp=FAR[0]) for _ in range(40)])
    decoded: list[bool] = []
    decode = _Partition.decode

    def counted(partition: _Partition, slices: list[LogSlice]) -> Any:
        decoded.append((made := decode(partition, slices)) is not None)
        return made

    monkeypatch.setattr(_Partition, "decode", counted)
    with pytest.warns(odradek.TimestampWarning, match="^1600 timestamps .* t-0, offset 0: ") as told:
        assert odradek.scan(tmp_path, threads=2, far_timestamps="null").read_all().num_rows == 1600
    assert len(told) == 1
    assert decoded
    assert all(decoded)

    def read_some() -> int:
        reader = odradek.scan(tmp_path, threads=2, far_timestamps="null")
        return sum(next(reader).num_rows for _ in range(2))

    # Who stops in the middle is told of what was given.
    with pytest.warns(odradek.TimestampWarning) as told:
        given = read_some()
    assert 0 < given < 1600
    assert str(told[0].message).startswith(f"{given} timestamps ")


def test_a_filter_that_is_counted_warns_once(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", partitions=3, config=CONFIG)
        for number in range(3):
            logs["t", number].append([odradek.Record(b"k", b"v", timestamp=time) for time in (NOON, FAR[0])])
    null = pc.field("timestamp").is_null()
    with pytest.warns(odradek.TimestampWarning, match="^3 timestamps") as told:
        assert odradek.dataset(tmp_path, far_timestamps="null").count_rows(filter=null) == 3
    assert len(told) == 1


def test_one_alone() -> None:
    action = FarTimestamps("null")
    assert action.met(TopicPartition("t", 1), 7, 1 << 62, 1) is None
    with pytest.warns(odradek.TimestampWarning, match=r"^1 timestamp outside .* is null; the first: t-1, offset 7"):
        action.warn()


@pytest.mark.parametrize("read", READS)
def test_another_choice_is_refused(folder: Path, read: Callable[..., pa.Table]) -> None:
    with pytest.raises(odradek.OptionError, match="far_timestamps must be error or null, not 'keep'"):
        read(folder, far_timestamps="keep")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.mark.slow
def test_sql(folder: Path) -> None:
    query = 'SELECT count(*), count("timestamp") FROM t'
    refused = run("sql", query, folder)
    assert refused.exit_code == 3
    assert refused.stderr.startswith("odradek: t-0, offset 4: 1700000000000000 (are these microseconds?) ms is outside")
    done = run("sql", "--far-timestamps", "null", "--format", "csv", query, folder)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[1] == "11,5"
    assert done.stderr.startswith("odradek: 5 timestamps outside of the years 1 to 9999 are null; the first: t-0, offs")


def test_export_by_date(folder: Path, tmp_path: Path) -> None:
    refused = run("export", folder, "--to", tmp_path / "refused", "--partition-by", "date")
    assert refused.exit_code == 3
    assert "odradek: t-0, offset 4: 1700000000000000 (are these microseconds?) ms is outside" in refused.stderr
    assert not list(tmp_path.rglob("date=*"))
    done = run("export", folder, "--to", tmp_path / "out", "--partition-by", "date", "--far-timestamps", "null")
    assert done.exit_code == 0, done.stderr
    assert sorted(path.name for path in tmp_path.rglob("date=*")) == [
        *("date=1970-01-01", "date=2023-11-14", "date=9999-12-31", "date=none")
    ]
    assert "odradek: 5 timestamps outside of the years 1 to 9999 are null" in done.stderr


def test_replay_keeps_the_numbers(folder: Path, tmp_path: Path) -> None:
    done = run("replay", folder, "--to", tmp_path / "copy")
    assert done.exit_code == 0, done.stderr
    with odradek.open(tmp_path / "copy", "r") as logs:
        assert [record.timestamp for record in logs["t", 0].read()] == [
            None if time == -1 else time for time in [*NEAR, *FAR, NOON, NOON]
        ]
