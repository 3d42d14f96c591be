"""A replay gives the target what the source has, exactly once, however often it is interrupted."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import resource
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import odradek
from odradek.columnar.record_schema import SCHEMA
from odradek.coordination.placement import partition_for
from odradek.errors import InvalidProducerEpochError, LogError, OptionError
from odradek.kafka.stopping import StoppedError
from odradek.messages.coordinators.group_records import OffsetCommitKey, OffsetCommitValue, encode_offset_commit
from odradek.places.broker_transaction import Transaction
from odradek.places.opening import open_place
from odradek.records import Record
from odradek.sources.arrow import record_batches
from odradek.storage.names import TopicPartition
from odradek.testing import Broker
from odradek.transfer import broker_target, pacing
from odradek.transfer import replay as replay_module
from odradek.transfer.folder_target import FolderTarget, FolderWriter
from odradek.transfer.opening import open_target
from odradek.transfer.pacing import Pace
from odradek.transfer.replay import Replay, ReplayReport
from odradek.transfer.target import PartitionWriter
from peers.batches import transactional
from peers.broker_thread import eventually
from peers.command import run
from peers.files import create_log

BEGUN_MS = 1_600_000_000_000
GROUPS = {"behind": 0, "in-the-middle": 123, "at-a-marker": 205, "at-the-end": 411, "beyond": 10_000}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """`events` has two partitions; partition 1 has a committed and an aborted transaction, and groups' positions."""
    path = tmp_path / "data"
    with odradek.open(path, sync="off") as logs:
        logs.create_topic("events", partitions=2, config={"retention.ms": "-1", "max.message.bytes": "2000000"})
        logs.create_topic("empty")
        logs.create_topic("__consumer_offsets", config={"cleanup.policy": "compact"})
        for partition in range(2):
            records = [
                Record(
                    key=None if number % 7 == 0 else b"k%d" % number,
                    value=None if number % 5 == 1 else b"v%d-" % number + b"x" * 50,
                    headers=[("n", b"%d" % number), ("null", None)] if number % 3 else [],
                    timestamp=BEGUN_MS + number * 10,
                )
                for number in range(200)
            ]
            for start in range(0, 200, 20):
                logs["events", partition].append(records[start : start + 20])
        for number, commit in [(0, True), (1, False)]:
            records = [Record(value=b"t%d" % n, timestamp=BEGUN_MS) for n in range(5)]
            logs["events", 1].append_batches(transactional(records, number))
            logs["events", 1].end_transaction(number, 0, commit=commit)
        logs["events", 1].append([Record(value=b"w%d" % n, timestamp=BEGUN_MS) for n in range(199)])
        for group, offset in GROUPS.items():
            key, value = encode_offset_commit(OffsetCommitKey(group, "events", 1), OffsetCommitValue(offset, "note", 0))
            logs["__consumer_offsets", 0].append([Record(key=key, value=value)])
    return path


def replayed(source: str | Path, target: str | Path, **options: Any) -> ReplayReport:
    with open_place(source) as opened, open_target(target) as into:
        return Replay(opened, into, opened.choose(options.pop("topics", "events")), **options).run()


def content(address: str | Path, topic: str = "events") -> dict[int, list[tuple[Any, ...]]]:
    """What a consumer gets of each partition."""
    found = {}
    with open_place(address) as source:
        for partition in source.topics()[topic].partitions:
            rows = [
                row
                for batch in record_batches(source, TopicPartition(topic, partition), isolation="read_committed")
                for row in batch.to_pylist()
            ]
            found[partition] = [(row["timestamp"], row["key"], row["value"], row["headers"]) for row in rows]
    return found


def positions(address: str | Path, topic: str = "events") -> dict[str, Any]:
    """For each group what it is given next in partition 1; None at the end."""
    found: dict[str, Any] = {}
    with open_place(address) as source:
        for group, offsets in source.group_offsets().items():
            at = offsets.get(TopicPartition(topic, 1))
            if at is not None:
                rows = (
                    record_batches(source, TopicPartition(topic, 1), at.offset, isolation="read_committed")
                    if at.offset <= source.bounds(TopicPartition(topic, 1)).end_offset
                    else []
                )
                first = next((row["value"] for batch in rows for row in batch.to_pylist()), None)
                found[group] = first, at.metadata
    return found


@pytest.mark.slow
def test_folder_to_broker_to_folder_gives_the_same(data: Path, broker: Broker, tmp_path: Path) -> None:
    address = f"kafka://{broker.bootstrap_servers}"
    report = replayed(data, address)
    assert (report.records, report.positions, report.left, report.lost) == (604, 5, [], [])
    back = tmp_path / "back"
    replayed(address, back)
    expected = content(data)
    assert [len(rows) for rows in expected.values()] == [200, 404]
    assert content(address) == content(back) == expected
    assert positions(address) == positions(back) == positions(data)
    assert positions(data)["in-the-middle"] == (b"v123-" + b"x" * 50, "note")
    for place in (address, back):
        with open_place(place) as source:
            assert source.topic_config("events") == {"retention.ms": "-1", "max.message.bytes": "2000000"}


@pytest.mark.slow
def test_a_folder_keeps_offsets(data: Path, tmp_path: Path) -> None:
    replayed(data, tmp_path / "copy")
    with odradek.open(data, mode="r") as before, odradek.open(tmp_path / "copy", mode="r") as after:
        for number in range(2):
            records = before["events", number].read(isolation="read_committed")
            assert list(after["events", number].read()) == list(records)
            assert after["events", number].log_end_offset == before["events", number].log_end_offset
    with open_place(data) as before_groups, open_place(tmp_path / "copy") as after_groups:
        held = after_groups.group_offsets()
        assert {group: at[TopicPartition("events", 1)].offset for group, at in held.items()} == GROUPS
        assert set(held) == set(before_groups.group_offsets())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "broker"])
def test_another_run_replays_what_is_new(data: Path, broker: Broker, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "copy" if kind == "folder" else f"kafka://{broker.bootstrap_servers}"
    replayed(data, target)
    assert replayed(data, target).records == 0
    with odradek.open(data, sync="off") as logs:
        logs["events", 0].append([Record(value=b"new", timestamp=BEGUN_MS)])
        key, value = encode_offset_commit(OffsetCommitKey("later", "events", 0), OffsetCommitValue(200, "", 0))
        logs["__consumer_offsets", 0].append([Record(key=key, value=value)])
    report = replayed(data, target)
    assert (report.records, report.left) == (1, [])
    assert content(target) == content(data)


@pytest.mark.slow
def test_records_of_aborted_transactions_can_go_too(data: Path, tmp_path: Path) -> None:
    replayed(data, tmp_path / "copy", isolation="read_uncommitted")
    assert len(content(tmp_path / "copy")[1]) == 409


@pytest.mark.slow
def test_topics_get_other_names(data: Path, broker: Broker) -> None:
    address = f"kafka://{broker.bootstrap_servers}"
    replayed(data, address, names={"events": "copied"})
    # In one cluster, too.
    replayed(address, address, names={"copied": "again"}, topics="copied")
    assert content(address, "again") == content(address, "copied") == content(data)
    assert positions(address, "again") == positions(data)


def test_names_that_cannot_be(data: Path, tmp_path: Path) -> None:
    for names, reason in [
        ({"evnets": "x"}, "there is no topic"),
        ({"events": "a/b"}, "consists of"),
        ({"events": "empty"}, "become one"),
    ]:
        with pytest.raises(OptionError, match=reason):
            replayed(data, tmp_path / "copy", names=names, topics=None)
    with open_place(data) as source, open_target(data) as target, pytest.raises(OptionError, match="into itself"):
        Replay(source, target, source.choose("events"))


def test_what_is_in_the_target_must_come_from_the_source(data: Path, tmp_path: Path) -> None:
    create_log(tmp_path / "other", "events", [b"mine"], partitions=2)
    with pytest.raises(LogError, match="holds other records"):
        replayed(data, tmp_path / "other")


@pytest.mark.slow
def test_a_source_that_was_cut_is_noticed(data: Path, tmp_path: Path) -> None:
    replayed(data, tmp_path / "copy")
    with odradek.open(tmp_path / "shorter", sync="off") as logs:
        logs.create_topic("events", partitions=2)
    with pytest.raises(LogError, match="or it was cut"):
        replayed(tmp_path / "shorter", tmp_path / "copy")


def test_what_was_deleted_meanwhile_is_told(data: Path, tmp_path: Path) -> None:
    replayed(data, tmp_path / "copy", groups=False)
    with odradek.open(data, sync="off") as logs:
        logs["events", 0].append([Record(value=b"%d" % n, timestamp=BEGUN_MS) for n in range(50)])
        logs["events", 0].delete_records(230)
    report = replayed(data, tmp_path / "copy", groups=False)
    assert report.lost == [(TopicPartition("events", 0), 200, 230)]
    assert report.records == 20


@pytest.fixture(params=["folder", "broker"])
def shrinking(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Callable[[int], object]]]:
    """A source of 200 records in segments of two, and what deletes those below an offset."""

    def fill(logs: Any) -> None:
        logs.create_topic("events", config={"internal.segment.bytes": "1100", "retention.ms": "-1"})
        for start in range(0, 200, 2):
            records = [Record(value=b"v%03d" % n + b"x" * 500, timestamp=BEGUN_MS) for n in (start, start + 1)]
            logs["events", 0].append(records)

    if request.param == "broker":
        with Broker() as broker:
            fill(broker.logs)
            # One answer has few records.
            address = f"kafka://{broker.bootstrap_servers}?max.partition.fetch.bytes=2000"
            log = broker.logs["events", 0]
            yield address, log.delete_records
        return
    with odradek.open(tmp_path / "data", sync="off") as logs:
        fill(logs)

        def delete_before(offset: int) -> None:
            logs["events", 0].delete_records(offset)
            logs.maintain()

        yield str(tmp_path / "data"), delete_before


@pytest.mark.slow
@pytest.mark.parametrize("pace", [None, "1000000"])
def test_what_is_deleted_during_the_run_is_told(
    shrinking: tuple[str, Callable[[int], object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pace: str | None
) -> None:
    source, delete_before = shrinking
    target = tmp_path / "copy"
    write = FolderWriter.write

    def deleting(writer: FolderWriter, rows: pa.RecordBatch, next_offset: int | None = None) -> None:
        write(writer, rows, next_offset)
        delete_before(150)

    monkeypatch.setattr(FolderWriter, "write", deleting)
    # Few rows at a time, and few open files, so that not all is held before the first is written.
    monkeypatch.setattr(resource, "getrlimit", lambda _: (0, 0))
    monkeypatch.setattr(replay_module, "record_batches", functools.partial(record_batches, rows=4))
    ended = run("replay", source, "--to", target, *(["--pace", pace] if pace else []))
    lost, done = ended.stderr.splitlines()
    assert ended.exit_code == 1
    assert lost.endswith(" to 149 were deleted before they were replayed")
    first = int(lost.split("offsets ")[1].split()[0])
    assert done.startswith(f"odradek: {first + 50} records, ")
    kept = [b"v%03d" % n for n in (*range(first), *range(150, 200))]
    with odradek.open(target, mode="r") as logs:
        assert [(record.value or b"")[:4] for record in logs["events", 0].read()] == kept
        assert logs["events", 0].log_end_offset == 200
    again = run("replay", source, "--to", target)
    assert (again.exit_code, again.stderr.partition(",")[0]) == (0, "odradek: 0 records")


@pytest.mark.slow
def test_everything_may_be_deleted_during_the_run(
    shrinking: tuple[str, Callable[[int], object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, delete_before = shrinking
    begin = FolderWriter.begin

    def deleting(writer: FolderWriter, start_offset: int) -> None:
        begin(writer, start_offset)
        delete_before(200)

    monkeypatch.setattr(FolderWriter, "begin", deleting)
    report = replayed(source, tmp_path / "copy")
    assert (report.records, report.lost) == (0, [(TopicPartition("events", 0), 0, 200)])
    assert replayed(source, tmp_path / "copy").lost == []


class _CutError(Exception):
    """The replay is over at this moment."""


class _CutWriter(PartitionWriter):
    """Fails at a random call, before or after it took effect."""

    def __init__(self, writer: PartitionWriter, random_: random.Random) -> None:
        self._writer = writer
        self._random = random_

    def _call(self, call: Callable[..., Any], *arguments: Any) -> Any:
        at = self._random.random()
        if at < 0.1:
            raise _CutError
        result = call(*arguments)
        if at < 0.2:
            raise _CutError
        return result

    def position(self) -> int | None:
        return self._writer.position()

    def last_record(self) -> Record | None:
        return self._writer.last_record()

    def begin(self, start_offset: int) -> None:
        self._call(self._writer.begin, start_offset)

    def write(self, rows: pa.RecordBatch, next_offset: int | None = None) -> None:
        self._call(self._writer.write, rows, next_offset)

    def append(self, rows: pa.RecordBatch) -> None:
        raise NotImplementedError

    def commit(self) -> None:
        self._call(self._writer.commit)

    def close(self) -> None:
        self._writer.close()


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "interruptions"),
    [("folder", 3), *(pytest.param(kind, 50, marks=pytest.mark.slow) for kind in ("folder", "broker"))],
)
def test_interrupted_replays_go_on(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, interruptions: int
) -> None:
    """Replay into one target after the other, until runs were interrupted so many times."""
    targets: Iterator[str | Path] = folders(tmp_path) if kind == "folder" else brokers()
    random_ = random.Random(interruptions)
    monkeypatch.setattr(replay_module, "COMMIT_BYTES", 500)
    interrupted = 0
    while interrupted < interruptions:
        target = next(targets)
        is_done = False
        while not is_done:
            with open_place(data) as source, open_target(target) as into:
                given = into.writer
                monkeypatch.setattr(into, "writer", lambda *names, given=given: _CutWriter(given(*names), random_))
                # A rate cuts rows into small parts.
                replay = Replay(source, into, source.choose("events"), pace=Pace(records=50_000))
                try:
                    replay.run()
                    is_done = True
                except _CutError:
                    interrupted += 1
        assert replayed(data, target).left == []
        assert content(target) == content(data)
        assert positions(target) == positions(data)


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_replay_goes_on_at_once_from_an_open_transaction(
    data: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    address = f"kafka://{broker.bootstrap_servers}?transaction.timeout.ms=900000"
    end = Transaction.end
    commits: Counter[Transaction] = Counter()

    def cut(transaction: Transaction, *, committed: bool) -> None:
        # The first one of a partition is whole. Of the second neither end reaches the broker, or only the abort does.
        commits[transaction] += committed
        if commits[transaction] == 1 or not (committed or is_killed):
            end(transaction, committed=committed)
        else:
            raise _CutError

    monkeypatch.setattr(replay_module, "COMMIT_BYTES", 500)
    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "end", cut)
        with pytest.raises(_CutError):
            # A rate cuts rows into small parts.
            replayed(data, address, topics="events", pace=Pace(records=50_000))
    # It does not wait until the broker aborts the transaction: that would take a quarter of an hour.
    assert replayed(data, address).left == []
    assert content(address) == content(data)
    assert positions(address) == positions(data)


def folders(parent: Path) -> Iterator[Path]:
    return (parent / f"copy-{number}" for number in itertools.count())


def brokers() -> Iterator[str]:
    while True:
        with Broker() as broker:
            yield f"kafka://{broker.bootstrap_servers}"


def rows_of(times: list[int]) -> pa.RecordBatch:
    records = [{"timestamp": time, "value": b"12345678", "headers": []} for time in times]
    return pa.RecordBatch.from_pylist(records, schema=SCHEMA)


def numbered(rows: pa.RecordBatch) -> pa.RecordBatch:
    offsets = pa.array(range(rows.num_rows), pa.int64())
    return rows.set_column(rows.schema.get_field_index("offset"), "offset", offsets)


@pytest.fixture
def standing_clock(monkeypatch: pytest.MonkeyPatch) -> float:
    """The time that it is for a pace, which stands still."""
    now_s = 1000.0
    monkeypatch.setattr(pacing, "time", SimpleNamespace(monotonic=lambda: now_s))
    return now_s


def test_a_rate_holds_for_all_threads_together(standing_clock: float) -> None:
    pace = Pace(records=1000)
    parts = [part for _ in range(3) for part in pace.parts(rows_of([0] * 1000))]
    assert sum(rows.num_rows for rows, _ in parts) == 3000
    assert [at_s for _, at_s in parts] == pytest.approx([standing_clock + number / 10 for number in range(30)])
    rows = rows_of([0] * 1000)
    parts = list(Pace(size_bytes=rows.nbytes).parts(rows))
    assert parts[0][1] == standing_clock
    assert parts[-1][1] == pytest.approx(standing_clock + 1 - parts[-1][0].num_rows / 1000)


def test_timestamps_set_the_pace(standing_clock: float) -> None:
    pace = Pace(speed=2.0)
    pace.begin(1000)
    parts = list(pace.parts(rows_of([1000, 1010, 3000, 2000, 3001, 7000])))
    assert [rows.num_rows for rows, _ in parts] == [2, 3, 1]
    assert [at_s - standing_clock for _, at_s in parts[1:]] == [1, 3]


def started(replay: Replay) -> tuple[threading.Thread, list[BaseException]]:
    """Run a replay in a thread; return also where its error will be."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            replay.run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, failed


def test_a_paced_replay_is_stopped_at_once(data: Path, tmp_path: Path) -> None:
    with open_place(data) as source, open_target(tmp_path / "copy") as into:
        assert isinstance(into, FolderTarget)
        # At this pace it would take hours.
        replay = Replay(source, into, source.choose("events"), pace=Pace(speed=0.0001))
        thread, failed = started(replay)
        # What is due is written in time: before the wait for the records after it.
        eventually(lambda: into.partitions("events") and into.logs["events", 0].log_end_offset)
        replay.stop()
        thread.join()
        assert failed
    assert content(tmp_path / "copy")[0]


def _write_and_commit(writer: PartitionWriter, rows: pa.RecordBatch) -> None:
    writer.write(rows)
    writer.commit()


@pytest.mark.slow
@pytest.mark.parametrize("is_written", [False, True], ids=["in a transaction", "between two"])
def test_a_replay_that_another_takes_over_says_so(broker: Broker, is_written: bool) -> None:
    broker.create_topic("events")
    with open_target(f"kafka://{broker.bootstrap_servers}") as target:
        first, second = (target.writer(TopicPartition("events", 0), "mine") for _ in range(2))
        with contextlib.closing(first), contextlib.closing(second):
            rows = numbered(rows_of([BEGUN_MS, BEGUN_MS]))
            assert first.position() is None
            first.write(rows[:1])
            if is_written:
                first.commit()
            assert second.position() == (1 if is_written else None)
            second.write(rows, 2)
            second.commit()
            with pytest.raises(InvalidProducerEpochError, match=r"another program .* as mine-events-0, or this one"):
                # A fenced producer need not be refused before it commits.
                _write_and_commit(first, rows[1:])
    assert [record.value for record in broker.logs["events", 0].read(isolation="read_committed")] == [b"12345678"] * (
        3 if is_written else 2
    )


@pytest.mark.slow
@pytest.mark.parametrize("api", ["CreateTopics", "Produce", "EndTxn", "ListOffsets"])
def test_a_replay_into_a_broker_that_hangs_is_stopped(
    data: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    monkeypatch.setattr(broker_target, "ABORT_S", 0.1)
    address = f"kafka://{broker.bootstrap_servers}?default.api.timeout.ms=999999999&request.timeout.ms=999999999"
    with open_place(data) as source, open_target(address) as into, broker.fault(api, drop=True) as fault:
        replay = Replay(source, into, source.choose("events"))
        thread, failed = started(replay)
        fault.wait()
        replay.stop()
        thread.join(60)
        assert not thread.is_alive()
        assert [type(error) for error in failed] == [StoppedError]
    assert replayed(data, address).left == []
    assert content(address) == content(data)


@pytest.mark.slow
def test_positions_are_where_their_group_is_looked_for(data: Path, tmp_path: Path) -> None:
    replayed(data, tmp_path / "copy")
    with odradek.open(tmp_path / "copy", mode="r") as logs:
        for number in range(50):
            for record in logs["__consumer_offsets", number].read():
                group = odradek_group(record)
                assert partition_for(group, 50) == number


def odradek_group(record: Record) -> str:
    from odradek.messages.coordinators.group_records import decode_group_record

    return str(decode_group_record(record.key, record.value).key.group)
