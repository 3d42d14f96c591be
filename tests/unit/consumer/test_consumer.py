"""The consumer of the embedded log, over what real brokers wrote and over logs that grow."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.consumer.consumed_topics import FolderReader
from odradek.consumer.opening import consume
from odradek.errors import (
    CommitConflictError,
    FormatError,
    LogError,
    NoOffsetForPartitionError,
    OffsetStoreError,
    OptionError,
    TruncatedBatchError,
    UnknownTopicOrPartitionError,
)
from odradek.offsets.file import FileOffsetStore
from odradek.offsets.store import Position, Positions
from odradek.records import Record, scan_batches
from odradek.records.builder import build_batch
from odradek.storage.directory.consumed_record import ConsumedRecord
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.names import TopicPartition
from peers.kafka_fixture import KafkaFixture
from peers.placed import offset_of

SEGMENT = "00000000000000000000.log"


@pytest.fixture
def group(tmp_path: Path) -> str:
    return f"file://{tmp_path}/offsets.json"


class GrowingLog:
    """A partition that takes over the batches of a real one, one after another, as a broker would append them."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.data = (source / SEGMENT).read_bytes()
        self.batches = list(scan_batches(self.data))
        folder.mkdir(parents=True)
        for name in ("partition.metadata", "leader-epoch-checkpoint"):
            if (source / name).exists():
                shutil.copy(source / name, folder / name)
        self.path = folder / SEGMENT
        self.path.touch()
        self.written = 0

    def append(self, count: int = 1) -> int:
        """Append batches; return the new log end offset."""
        with self.path.open("ab") as file:
            for batch in self.batches[self.written : self.written + count]:
                file.write(self.data[batch.position : batch.position + batch.size_bytes])
        self.written += count
        return self.batches[self.written - 1].next_offset


@pytest.fixture
def source(fixture_4_3_1: KafkaFixture) -> Path:
    """A real partition; its first segment has 26 uncompressed batches of up to 7 records."""
    return fixture_4_3_1.log_dir / "v2-none-0"


@pytest.fixture
def growing(source: Path, tmp_path: Path) -> GrowingLog:
    return GrowingLog(source, tmp_path / "data" / "grow-0")


GROW_0 = TopicPartition("grow", 0)


def offsets(consumed: Any) -> list[int]:
    return [entry.record.offset for entry in consumed]


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_all_that_real_consumers_saw(kafka_fixture: KafkaFixture, isolation: Any, group: str) -> None:
    expected = kafka_fixture.consumed if isolation == "read_uncommitted" else kafka_fixture.consumed_committed
    names = {name.rpartition("-")[0] for name in expected}
    seen: dict[str, list[Record]] = {name: [] for name in expected}
    with consume(
        kafka_fixture.log_dir, names, group=group, auto_offset_reset="earliest", isolation=isolation, follow=False
    ) as consumer:
        for consumed in consumer:
            seen[str(consumed.topic_partition)].append(consumed.record)
    assert seen == {name: kafka_fixture.records(name, isolation) for name in expected}
    with consume(kafka_fixture.log_dir, names, group=group, auto_offset_reset="none", isolation=isolation) as again:
        assert again.poll() == []


def test_what_was_polled_is_done_with_the_next_poll(growing: GrowingLog, group: str, tmp_path: Path) -> None:
    growing.append(4)
    store = FileOffsetStore(tmp_path / "offsets.json")
    with consume(
        tmp_path / "data", "grow", group=group, auto_offset_reset="earliest", auto_commit_interval_ms=0
    ) as consumer:
        assert offsets(consumer.poll(max_records=2)) == [0, 1]
        assert (store.load().offset(GROW_0) or 0) == 0
        assert offsets(consumer.poll(max_records=2)) == [2, 3]
        assert store.load().offset(GROW_0) == 2
    assert store.load().offset(GROW_0) == 4


def test_a_truncated_log(growing: GrowingLog, group: str, tmp_path: Path) -> None:
    end_offset = growing.append(4)
    with consume(tmp_path / "data", "grow", group=group, auto_offset_reset="earliest", follow=False) as consumer:
        assert len(list(consumer)) == end_offset
    last = growing.batches[3]
    with growing.path.open("r+b") as file:
        file.truncate(last.position)
    with consume(tmp_path / "data", "grow", group=group, auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffsetForPartitionError, match="outside the log"):
            consumer.poll()
    with consume(tmp_path / "data", "grow", group=group, auto_offset_reset="latest") as consumer:
        assert consumer.poll() == []
        assert consumer.position(GROW_0) == last.base_offset


def test_corruption_hides_no_record_before_it(source: Path, group: str, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "grow-0"
    shutil.copytree(source, folder)
    shutil.copytree(source, tmp_path / "data" / "grow-1")
    segment = folder / SEGMENT
    data = bytearray(segment.read_bytes())
    broken = list(scan_batches(bytes(data)))[3]
    data[broken.position + broken.size_bytes - 1] ^= 1
    segment.write_bytes(data)
    seen: dict[int, list[int]] = {0: [], 1: []}

    def see(consumed: ConsumedRecord) -> None:
        seen[consumed.partition].append(offset_of(consumed.record))

    consumer = consume(tmp_path / "data", "grow", group=group, auto_offset_reset="earliest", follow=False)
    with pytest.raises(FormatError) as caught, consumer:
        deque(map(see, consumer), maxlen=0)
    assert caught.value.position == broken.position
    assert seen[0] == list(range(broken.base_offset))
    assert seen[1] == list(range(len(seen[1])))
    with FileOffsetStore(tmp_path / "offsets.json") as store:
        loaded = store.load()
    assert loaded.offset(GROW_0) == broken.base_offset
    assert loaded.offset(TopicPartition("grow", 1)) == len(seen[1])


class LosesAnswers(FileOffsetStore):
    """A store whose next answers get lost on the way, after or before the commit was made."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.lost: list[bool] = []

    def commit(self, positions: Any, *, expected: Positions) -> Positions:
        if self.lost and not self.lost[0]:
            self.lost.pop(0)
            raise OffsetStoreError("the request got lost")
        committed = super().commit(positions, expected=expected)
        if self.lost:
            self.lost.pop(0)
            raise OffsetStoreError("the answer got lost")
        return committed


@pytest.mark.parametrize("lost", [[True], [False], [True, False], [False, True], [False, False]])
def test_an_own_commit_whose_answer_was_lost_is_no_conflict(
    growing: GrowingLog, tmp_path: Path, lost: list[bool]
) -> None:
    growing.append(6)
    store = LosesAnswers(tmp_path / "offsets.json")
    with consume(tmp_path / "data", "grow", group=store, auto_commit=False, auto_offset_reset="earliest") as consumer:
        consumer.poll(max_records=1)
        store.lost = list(lost)
        for _ in lost:
            with pytest.raises(OffsetStoreError, match="lost"):
                consumer.commit()
            consumer.poll(max_records=1)
        consumer.commit()
        assert store.load().offset(GROW_0) == 1 + len(lost)
        store.commit({GROW_0: Position(0)}, expected=store.load())
        consumer.poll(max_records=1)
        with pytest.raises(CommitConflictError):
            consumer.commit()


def test_what_cannot_be_consumed(growing: GrowingLog, tmp_path: Path) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        consume(tmp_path / "data", ["grow", "nowhere"], auto_offset_reset="latest")
    with pytest.raises(LogError):
        consume(tmp_path / "nowhere", "grow", auto_offset_reset="latest")
    with pytest.raises(OffsetStoreError):
        consume(tmp_path / "data", "grow", group="nowhere://")
    with pytest.raises(OptionError, match="auto_offset_reset must be earliest, latest, none or a time"):
        consume(tmp_path / "data", "grow", auto_offset_reset="oldest")
    with pytest.raises(OptionError, match="not 'largest'; today it is latest"):
        consume(tmp_path / "data", "grow", auto_offset_reset="largest")
    with pytest.raises(OptionError, match="no time zone"):
        consume(tmp_path / "data", "grow", auto_offset_reset=datetime(2026, 11, 1))
    consumer = consume(tmp_path / "data", "grow", auto_offset_reset="latest")
    consumer.close()
    calls: list[Callable[[], Any]] = [
        consumer.poll,
        consumer.commit,
        lambda: next(consumer),
        lambda: consumer.position(GROW_0),
        lambda: consumer.seek(GROW_0, 0),
        consumer.seek_to_beginning,
        consumer.seek_to_end,
        consumer.pause,
        consumer.resume,
    ]
    for call in calls:
        with pytest.raises(LogError, match="closed"):
            _called(call)


def test_without_a_group_somebody_has_to_say_where_to_start(growing: GrowingLog, group: str, tmp_path: Path) -> None:
    growing.append(2)
    with pytest.raises(OptionError, match=r"where to start.*auto_offset_reset='earliest'"):
        consume(tmp_path / "data", "grow")
    with consume(tmp_path / "data", "grow", auto_offset_reset="earliest") as consumer:
        assert consumer.poll()


def test_a_consumer_that_waits_says_what_for(
    growing: GrowingLog, group: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    end_offset = growing.append(2)
    caplog.set_level("INFO", "odradek")
    # As in Kafka, a new group begins with what comes from now on.
    with consume(tmp_path / "data", "grow", group=group) as consumer:
        assert consumer.poll() == []
    assert f"grow-0: no position is stored; waits for records from offset {end_offset} on (latest)" in caplog.text


def _called(call: Callable[[], Any]) -> None:
    call()


@pytest.mark.parametrize("is_looked_at", [True, False])
@pytest.mark.parametrize("taken", [1, 45, 60])
def test_a_log_that_is_cut_and_appended_to_while_it_is_consumed(taken: int, is_looked_at: bool, tmp_path: Path) -> None:
    """No offset is left out, and none comes twice; where the file was cut under a read, the consumer is told once."""

    def batches(start: int, end: int, size: int) -> bytes:
        return b"".join(build_batch([Record(None, b"v" * size)], base_offset=at) for at in range(start, end))

    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(batches(0, 50, 1000))
    path = folder / f"{50:020}.log"
    path.write_bytes(batches(50, 200, 1000))
    with ReadOnlyLog(folder) as log:
        reader = FolderReader(log, isolation="read_uncommitted", reset="none")
        reader.seek(0)
        found = [record.offset for record in reader.take(taken)]
        os.truncate(path, len(batches(50, 180, 1000)))
        if is_looked_at:
            log.refresh()
        is_appended, errors = False, 0
        while len(found) < 230:
            try:
                records = reader.take(1)
            except TruncatedBatchError:
                errors += 1
                assert errors == 1
                continue
            assert records
            found += [record.offset for record in records]
            if found[-1] == 179 and not is_appended:
                is_appended = True
                with path.open("ab") as file:
                    file.write(batches(180, 230, 1500))
        assert found == list(range(230))
        assert reader.take(1) == []
        assert reader.position == 230


def test_what_was_read_to_its_end_may_be_deleted_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that the reader gets was deleted, so its place is not lost, and it does not go to the end."""
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        log = logs["t", 0]
        log.append(key=b"k", value=b"0")
        aborted = [Record(b"k", b"aborted", timestamp=1_700_000_000_000)] * 3
        log.append_batches(
            build_batch(aborted, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
        )
        log.end_transaction(1, 0, commit=False)
        reader = FolderReader(log, isolation="read_committed", reset="latest")
        read, deletions = log.read, iter([5])

        def reading(*arguments: Any, **options: Any) -> Iterator[Record]:
            yield from read(*arguments, **options)
            for offset in deletions:
                log.roll()
                log.append([Record(b"k", b"5"), Record(b"k", b"6")])
                log.delete_records(offset)

        monkeypatch.setattr(log, "read", reading)
        assert [record.offset for record in reader.take(10)] == [0, 5, 6]
