"""A log as a caller meets it: iterated over, its tail, its ranges, appends of one record, and after it was closed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek import InvalidRecordError, LogError, OffsetOutOfRangeError, OptionError, ReadOnlyError, Record, WritableLog
from peers.kafka_fixture import KafkaFixture

T0 = 1_700_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log of 30 records in 10 batches, the first three deleted."""
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", config={"retention.ms": -1})
        for first in range(0, 30, 3):
            logs["t", 0].append(Record(b"k", b"%d" % n, timestamp=T0 + n) for n in range(first, first + 3))
        logs["t", 0].delete_records(3)
    return tmp_path / "data"


def test_a_log_is_iterated_over(data: Path) -> None:
    with odradek.open(data, mode="r") as logs:
        log = logs["t", 0]
        assert [record.offset for record in log] == list(range(3, 30))
        assert bool(log)
        with pytest.raises(TypeError):
            len(log)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_tail_of_what_kafka_wrote(kafka_fixture: KafkaFixture, isolation: Any) -> None:
    # Compacted ones, transactions, and heads that were deleted are among them.
    with odradek.open(kafka_fixture.log_dir, mode="r") as logs:
        for log in logs:
            everything = list(log.read(isolation=isolation))
            for count in (0, 1, 7, len(everything), len(everything) + 5):
                assert log.tail(count, isolation=isolation) == everything[max(0, len(everything) - count) :]
        with pytest.raises(OptionError, match="negative"):
            log.tail(-1)


def test_the_tail_reads_only_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t")
        log = logs["t", 0]
        for number in range(2000):
            log.append(value=b"x" * 200, timestamp=T0 + number)
        read: list[int] = []
        slices = log.slices

        def counted(*arguments: Any, **named: Any) -> Any:
            for part in slices(*arguments, **named):
                read.append(part.end_position - part.position)
                yield part

        monkeypatch.setattr(log, "slices", counted)
        assert [record.offset for record in log.tail(5)] == list(range(1995, 2000))
        # The index has an entry every 4096 bytes.
        assert sum(read) < 3 * 4096 < log.size_bytes / 10


RANGES: list[dict[str, Any]] = [
    {},
    {"start_offset": 3, "end_offset": 4},
    {"start_offset": 5, "end_offset": 29},
    {"start_offset": 5, "end_offset": 10**9},
    {"start_offset": 30},
    {"start_offset": 10, "end_offset": 10},
    {"start_offset": 10, "end_offset": 5},
    {"end_offset": 1},
    {"since": T0 + 7, "until": T0 + 9},
    {"since": datetime.fromtimestamp(T0 / 1000 + 1, UTC)},
    {"until": datetime.fromtimestamp((T0 + 7) / 1000, UTC)},
    {"since": "2023-11-14", "until": "2023-11-15"},
    {"since": "2023-11-15"},
    {"start_offset": 8, "since": T0 + 5, "end_offset": 12},
    {"start_offset": 0},
    {"start_offset": 2, "end_offset": 10},
    {"start_offset": -1},
    {"start_offset": 31},
    {"start_offset": 1.0},
    {"end_offset": "9"},
    {"since": datetime(2023, 11, 14)},
    {"until": "2023-11-14T12:00"},
    {"since": 1.5},
    {"isolation": "committed"},
]


def outcome(read: Callable[[], Any]) -> Any:
    """What a call gives, or the kind of its error and the text."""
    try:
        return read()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("arguments", RANGES, ids=str)
def test_read_and_scan_agree_on_ranges(data: Path, arguments: dict[str, Any]) -> None:
    def by_scan() -> list[int]:
        found: list[int] = odradek.scan(data, "t", columns=["offset"], **arguments).read_all()["offset"].to_pylist()
        return found

    with odradek.open(data, mode="r") as logs:
        log = logs["t", 0]
        read = outcome(lambda: [record.offset or 0 for record in log.read(**arguments)])
    assert read == outcome(by_scan)


def test_ranges_are_half_open_and_within_the_log(data: Path) -> None:
    with odradek.open(data, mode="r") as logs:
        log = logs["t", 0]
        assert [record.offset for record in log.read(4, 6)] == [4, 5]
        assert list(log.read(30)) == []
        for start_offset in (0, 2, 31):
            with pytest.raises(OffsetOutOfRangeError, match=r"holds \[3, 30\)"):
                list(log.read(start_offset))
        assert [record.offset for record in log.read(since=T0 + 7, until=T0 + 9)] == [7, 8]
        assert log.offset_for_time(datetime.fromtimestamp((T0 + 7) / 1000, UTC)) == 7
        with pytest.raises(OptionError, match="no time zone"):
            log.offset_for_time(datetime(2023, 11, 14))
        with pytest.warns(odradek.TimestampWarning):
            log.offset_for_time(T0 // 1000)


@pytest.mark.slow
def test_read_and_scan_agree_on_times_where_there_are_none(fixture_2_8_2: KafkaFixture) -> None:
    with odradek.open(fixture_2_8_2.log_dir, mode="r") as logs:
        for log in logs:
            topic, partition = log.topic_partition
            times: list[dict[str, Any]] = [{"until": T0}, {"since": 0}, {"since": -1}]
            for arguments in times:
                scanned = odradek.scan(logs.path, topic, partitions=partition, columns=["offset"], **arguments)
                read = [record.offset for record in log.read(**arguments)]
                assert read == scanned.read_all()["offset"].to_pylist(), (topic, arguments)


def test_one_record_is_appended_as_it_is_or_by_its_parts(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", config={"message.timestamp.after.max.ms": 10**15})
        log = logs["t", 0]
        time = datetime(2026, 11, 1, tzinfo=UTC)
        assert log.append(Record(b"a", b"1")) == 0
        assert log.append(key=b"b", value=b"2", headers=[("h", b"3")], timestamp=time, durable=True) == 1
        assert log.append(key=b"b", value=None) == 2
        assert log.append([Record(b"c")]) == 3
        assert log.append(Record(b"d") for _ in range(2)) == 4
        assert [record.key for record in log] == [b"a", b"b", b"b", b"c", b"d", b"d"]
        [second] = log.read(1, 2)
        assert second == Record(b"b", b"2", [("h", b"3")], int(time.timestamp() * 1000), 1, "CreateTime")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("arguments", "named", "reason"),
    [
        ((b"bytes",), {}, r"append takes odradek.Record objects, not b'bytes' \(bytes\)"),
        (("text",), {}, r"not 'text' \(str\)"),
        (([Record(), b"bytes"],), {}, r"not b'bytes' \(bytes\)"),
        (([(b"key", b"value")],), {}, r"\(tuple\)"),
        ((), {}, "append takes records, or the key="),
        ((Record(),), {"key": b"k"}, "not both"),
        ((5,), {}, r"append takes odradek.Record objects, not 5 \(int\)"),
        ((), {"headers": []}, "or the key= or value= of one"),
        ((), {"headers": [("h", b"v")]}, "or the key= or value= of one"),
        ((), {"timestamp": T0}, "or the key= or value= of one"),
        ((), {"value": None}, "or the key= or value= of one"),
        ((), {"value": "text"}, "a record's value is bytes or None"),
    ],
)
def test_what_cannot_be_appended(tmp_path: Path, arguments: Any, named: Any, reason: str) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t")
        with pytest.raises(TypeError, match=reason):
            logs["t", 0].append(*arguments, **named)
        with pytest.raises(TypeError, match=reason):
            logs.topic("t").append(*arguments, **named)
        with pytest.raises(InvalidRecordError, match="there is no record"):
            logs["t", 0].append([])
        assert logs["t", 0].log_end_offset == 0
        # Who means it gives a record.
        assert logs["t", 0].append(Record()) == 0


def test_a_reader_says_that_it_is_one(data: Path) -> None:
    with odradek.open(data, mode="r") as logs:
        for name in ("append", "append_batches", "flush", "roll", "delete_records", "end_transaction"):
            assert callable(getattr(WritableLog, name))
            assert not hasattr(logs["t", 0], name)
        with pytest.raises(ReadOnlyError, match=r't-0 is open for reading \(mode="r"\), so it has no append'):
            logs["t", 0].append([Record()])  # type: ignore[attr-defined]
        with pytest.raises(ReadOnlyError, match=r"data is open for reading .*has no append"):
            logs.topic("t").append(value=b"")  # type: ignore[attr-defined]
        with pytest.raises(LogError, match="create_topic"):
            logs.create_topic("u")  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match="has no attribute 'appendix'"):
            logs["t", 0].appendix  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("mode", ["r", "a"])
def test_nothing_is_read_of_a_log_that_is_closed(data: Path, mode: Any) -> None:
    with odradek.open(data, mode=mode) as logs:
        log = logs["t", 0]
        records, of_log, slices = log.read(), iter(log), log.slices(slice_bytes=200)
        first = next(records)
        next(of_log)
        next(slices)
    calls: list[Callable[[], Any]] = [
        lambda: next(records),
        lambda: next(of_log),
        lambda: list(log.read()),
        lambda: iter(log),
        log.tail,
        lambda: list(log.slices()),
        lambda: log.offset_for_time(T0),
        lambda: log.find_timestamp(T0),
        log.find_max_timestamp,
        log.end_offset,
        lambda: log.aborted_transactions(0, 10),
        lambda: log.segments,
        lambda: log.leader_epochs,
        lambda: log.log_start_offset,
        lambda: log.log_end_offset,
        lambda: log.last_stable_offset,
        log.refresh,
        lambda: log.size_bytes,
        lambda: log.damage,
        logs.topics,
        logs.topic_partitions,
        lambda: logs.topic("t"),
        lambda: logs.topic_config("t"),
        logs.refresh,
        lambda: logs["t", 0],
        lambda: ("t", 0) in logs,
        lambda: len(logs),
        lambda: list(logs),
        lambda: logs.problems,
        lambda: logs.meta_properties,
    ]
    if mode == "a":
        calls += [
            lambda: log.append(value=b""),
            log.flush,
            log.roll,
            log.delete_records,
            log.upkeep.delete_old_segments,
        ]
        calls += [lambda: log.recovery_point, lambda: log.high_watermark]
        calls += [lambda: logs.create_topic("u"), logs.flush, logs.maintain, lambda: logs.delete_topic("t")]
    for number, call in enumerate(calls):
        found = outcome(call)
        assert isinstance(found, tuple), f"call {number} works"
        assert issubclass(found[0], LogError), f"call {number}: {found}"
        assert "is closed" in found[1], f"call {number}: {found}"
    assert first.value == b"3", "what was handed out stays"
    assert repr(log).endswith(", closed>")
    assert repr(logs).endswith(", closed>")
    assert "closed" in log._repr_html_() + logs._repr_html_()
    log.close()
    logs.close()
    assert odradek.LogDirectory(data).topics() == ["t"]


@pytest.mark.parametrize("slice_bytes", [0, -1])
def test_slices_have_bytes(data: Path, slice_bytes: int) -> None:
    with odradek.open(data, mode="r") as logs, pytest.raises(OptionError, match=f"slice_bytes.* not {slice_bytes}"):
        next(logs["t", 0].slices(slice_bytes=slice_bytes))


SECONDS = T0 // 1000
IN_JANUARY_1970 = datetime.fromtimestamp(SECONDS / 1000, UTC)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("since", "warnings"), [(SECONDS, 1), (IN_JANUARY_1970, 0), (1000, 0), (0, 0)])
@pytest.mark.parametrize("way", ["log", "topic", "scan", "consume", "offset_for_time"])
@pytest.mark.filterwarnings("always::odradek.TimestampWarning")
def test_a_time_in_seconds_is_told_of_once(
    tmp_path: Path, way: str, since: Any, warnings: int, recwarn: pytest.WarningsRecorder
) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", partitions=3)
        for partition in range(3):
            logs["t", partition].append(value=b"v", timestamp=T0)
    with odradek.open(tmp_path / "data", mode="r") as logs:
        ways: dict[str, Callable[[], Any]] = {
            "log": lambda: list(logs["t", 0].read(since=since)),
            "topic": lambda: list(logs.topic("t").read(since=since)),
            "scan": lambda: odradek.scan(tmp_path / "data", since=since).read_all(),
            "consume": lambda: list(odradek.consume(tmp_path / "data", "t", auto_offset_reset=since, follow=False)),
            "offset_for_time": lambda: logs["t", 0].offset_for_time(since),
        }
        recwarn.clear()
        ways[way]()
    assert [found.category for found in recwarn] == [odradek.TimestampWarning] * warnings
    assert all(found.filename == __file__ for found in recwarn)


def test_logs_go_on_after_their_directory_is_looked_at_again(data: Path) -> None:
    with odradek.open(data, mode="r") as logs:
        log = logs["t", 0]
        records = log.read()
        next(records)
        logs.refresh()
        assert len(list(records)) == 26
        assert log.log_end_offset == 30


def test_how_logs_are_shown(data: Path) -> None:
    with odradek.open(data, mode="r") as logs:
        assert repr(logs) == f"<LogDirectory {data}, mode 'r'>"
        assert repr(logs["t", 0]) == f"<ReadOnlyLog {data / 't-0'}>"
        assert repr(logs.topic("t")) == "<Topic t>"
        assert "<tr><td>t</td><td>1</td><td>900</td></tr>" in logs._repr_html_()
        shown = logs["t", 0]._repr_html_()
        for row in (("log_start_offset", "3"), ("log_end_offset", "30"), ("newest", "2023-11-14T22:13:20.029+00:00")):
            assert "<tr><td>{}</td><td>{}</td></tr>".format(*row) in shown
    with odradek.open(data) as logs:
        assert repr(logs) == f"<WritableLogDirectory {data}, mode 'a'>"
        assert repr(logs["t", 0]) == f"<WritableLog {data / 't-0'}>"


def test_what_is_deleted_before_it_is_read_is_passed_over_where_only_a_time_was_asked_for(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", config={"internal.segment.bytes": 2000, "retention.ms": -1})
        log = logs["t", 0]
        for number in range(60):
            log.append([Record(value=b"x" * 100, timestamp=T0 + number)] * 5)
        records = log.read(since=T0)
        assert next(records).offset == 0
        log.delete_records(200)
        log.upkeep.delete_old_segments()
        offsets = [record.offset or 0 for record in records]
        assert offsets[-1] == 299
        assert offsets == sorted(set(offsets))


def test_a_tail_longer_than_any_log_is_all_of_it(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t")
        logs["t", 0].append([Record(value=b"x")] * 3)
        assert len(logs["t", 0].tail(1 << 70)) == 3


def test_a_timestamp_beyond_64_bits_is_refused(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", config={"message.timestamp.type": "LogAppendTime"})
        for timestamp in (1 << 70, -(1 << 70)):
            with pytest.raises(odradek.InvalidTimestampError):
                logs["t", 0].append([Record(value=b"x", timestamp=timestamp)])
        assert logs["t", 0].log_end_offset == 0


def test_the_refusal_of_a_change_survives_pickling() -> None:
    error = ReadOnlyError("t-0", "append")
    assert str(pickle.loads(pickle.dumps(error))) == str(copy.copy(error)) == str(error)
