"""Forwarding into a log directory, without Spark: what tasks staged is appended once, whatever comes between."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import odradek
from odradek.coordination.state_log import state_batch
from odradek.errors import SinkError
from odradek.inspection.groups import load_groups
from odradek.messages.coordinators.group_records import OffsetCommitKey, OffsetCommitValue, encode_offset_commit
from odradek.offsets.store import Position
from odradek.places.folder_transaction import FolderTransaction
from odradek.places.group_log import append_group_records, group_partition, state_partition
from odradek.records.append.validator import AppendOrigin
from odradek.spark.pipeline import folder_topic
from odradek.spark.pipeline.folder_topic import FolderTopicSink, _parsed, _StageTask
from odradek.spark.pipeline.sink_specs import TopicSinkSpec
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TRANSACTION_STATE_TOPIC, TopicPartition

SOURCE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


class Forwarder:
    """A sink, and what Spark would do for it."""

    def __init__(self, folder: Path, *, owner: Any = ("job", "copy"), **changes: Any) -> None:
        self.folder = folder
        spec = {"topic": "copy", "kafka": {}, "path": folder, **changes}
        self.spec = TopicSinkSpec(**spec)
        self.sink = FolderTopicSink(self.spec, owner)

    def write(self, *ranges: OffsetRange, values: dict[int, bytes] | None = None, **columns: Any) -> None:
        sink = self.sink
        task = _StageTask(self.spec, self.folder, sink._staging)
        staged = []
        for (topic, partition), start, end in ranges:
            offsets = list(range(start, end))
            made = [(values or {}).get(offset, b"%s-%d %d" % (topic.encode(), partition, offset)) for offset in offsets]
            rows = {
                "topic": [topic] * len(made),
                "partition": [partition] * len(made),
                "offset": offsets,
                "value": made,
            }
            rows |= {name: [make(offset) for offset in offsets] for name, make in columns.items()}
            for result in task(iter([pa.record_batch(rows)])):
                (row,) = result.to_pylist()
                staged.append((Path(row["path"]), [_parsed(part) for part in json.loads(row["parts"])]))
        batch: Any = SimpleNamespace(ranges=ranges, topic_ids={}, stored_offsets={})
        try:
            with odradek.open(self.folder) as logs:
                sink._forward(logs, staged, batch)
        finally:
            sink.close()

    def values(self, topic: str = "copy") -> dict[int, list[bytes | None]]:
        with odradek.open(self.folder, mode="r") as logs:
            return {
                name.partition: [record.value for record in logs[name].read(isolation="read_committed")]
                for name in logs.topic_partitions(topic)
            }


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with odradek.open(tmp_path / "internal", sync="off") as logs:
        logs.create_topic("copy", partitions=2)
        logs.create_topic("other")
    yield tmp_path / "internal"
    assert [path.name for path in tmp_path.iterdir()] == ["internal"]


def numbers(*offsets: int, partition: int = 0) -> list[bytes]:
    return [b"orders-%d %d" % (partition, offset) for offset in offsets]


@pytest.mark.slow
def test_each_record_is_forwarded_once(folder: Path) -> None:
    forwarder = Forwarder(folder)
    forwarder.write(OffsetRange(SOURCE, 0, 5), OffsetRange(OTHER, 0, 2))
    # Batches that the sink holds already, as a whole or in part.
    forwarder.write(OffsetRange(SOURCE, 0, 5), OffsetRange(OTHER, 0, 2))
    forwarder.write(OffsetRange(SOURCE, 3, 8), OffsetRange(OTHER, 0, 2))
    assert forwarder.values() == {0: numbers(*range(8)), 1: numbers(0, 1, partition=1)}
    assert forwarder.sink.held([SOURCE, OTHER, TopicPartition("new", 0)]) == {SOURCE: Position(8), OTHER: Position(2)}


@pytest.mark.slow
def test_a_crash_at_each_step_loses_nothing_and_repeats_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class CrashError(BaseException):
        pass

    def crash(*_: Any, **__: Any) -> None:
        raise CrashError

    def crash_after(*given: Any, **named: Any) -> None:
        end(*given, **named)
        raise CrashError

    end = FolderTransaction.end
    crashes: list[dict[str, Any]] = [
        # Nothing was decided: a program that was killed aborts nothing either.
        {"_keep": crash, "end": crash},
        {"end": crash},
        # It was decided, and nobody knows yet.
        {"_finish": crash},
        {"_mark": crash},
        {"end": crash_after},
    ]
    for number, patches in enumerate(crashes):
        wanted = OffsetRange(SOURCE, number * 10, number * 10 + 10)
        with monkeypatch.context() as patched:
            for name, instead in patches.items():
                patched.setattr(FolderTopicSink if name == "_keep" else FolderTransaction, name, instead)
            with pytest.raises(CrashError):
                Forwarder(folder).write(wanted)
        Forwarder(folder).write(wanted)
        assert Forwarder(folder).values()[0] == numbers(*range(wanted.end_offset)), list(patches)


def test_a_record_of_a_later_kafka_does_not_end_a_transaction_of_a_folder(folder: Path) -> None:
    with odradek.open(folder) as logs:
        log = logs[state_partition(logs, TRANSACTION_STATE_TOPIC, "t")]
        first = FolderTransaction(logs, "t").producer
        FolderTransaction(logs, "t").begin([TopicPartition("copy", 0)])
        log.append_batches(state_batch([(b"\0\x7f", b"later")], 0), origin=AppendOrigin.COORDINATOR)
        assert FolderTransaction(logs, "t").producer > first


@pytest.mark.slow
def test_columns_say_where_records_go(folder: Path) -> None:
    forwarder = Forwarder(folder, topic=None, topic_column="target", partition_column="to", on_invalid="skip")
    targets = ["copy", "other", "copy", "nowhere", None, "other"]
    forwarder.write(
        OffsetRange(SOURCE, 0, 6),
        target=lambda offset: targets[offset],
        to=lambda offset: {0: 1, 5: 7}.get(offset),
    )
    assert forwarder.values() == {0: numbers(2), 1: numbers(0)}
    assert forwarder.values("other") == {0: numbers(1)}
    assert forwarder.sink.refused_records == 3
    assert forwarder.sink.held([SOURCE]) == {SOURCE: Position(6)}


def test_numbers_and_keys_of_any_width_say_where_records_go(folder: Path) -> None:
    forwarder = Forwarder(folder, partition_by="key", partition_column="to", on_invalid="skip")
    # No partition has so large a number; four rows go by their key, which is text.
    forwarder.write(OffsetRange(SOURCE, 0, 6), to=lambda offset: {0: 1 << 40, 1: 1}.get(offset), key=lambda _: "k")
    assert forwarder.values() == {0: numbers(2, 3, 4, 5), 1: numbers(1)}
    assert forwarder.sink.refused_records == 1


def impossible_rows() -> dict[str, Any]:
    """Columns of five rows, of which no record can hold those at the offsets 2 and 3."""
    return {
        "timestamp": lambda offset: -5000 if offset == 2 else offset,
        "headers": lambda offset: [None] if offset == 3 else [{"key": "a", "value": b"b"}],
    }


@pytest.mark.slow
def test_a_row_that_no_record_can_hold_is_named(folder: Path) -> None:
    forwarder = Forwarder(folder)
    for _ in range(2):
        with pytest.raises(SinkError, match=r"record at offset 2 of orders-0: its timestamp is negative, .*on_invalid"):
            forwarder.write(OffsetRange(SOURCE, 0, 5), **impossible_rows())
    assert forwarder.values()[0] == numbers(0, 1)


@pytest.mark.slow
def test_rows_that_no_record_can_hold_are_passed_over_or_put_aside(folder: Path) -> None:
    skipping = Forwarder(folder, owner=("job", "skip"), on_invalid="skip")
    skipping.write(OffsetRange(SOURCE, 0, 5), **impossible_rows())
    assert skipping.values()[0] == numbers(0, 1, 4)
    letters = {"on_invalid": "dead-letter", "dead_letter_topic": "other"}
    aside = Forwarder(folder, owner=("job", "aside"), **letters)
    aside.write(OffsetRange(SOURCE, 0, 5), **impossible_rows())
    # Of a map, headers are pairs.
    headers = pa.array([[("a", b"b")]] * 4, pa.map_(pa.string(), pa.binary()))
    aside.write(OffsetRange(SOURCE, 5, 9), timestamp=lambda offset: 6 - offset, headers=lambda n: headers[n - 5])
    assert aside.values()[0] == numbers(0, 1, 4) * 2 + numbers(5, 6, 7)
    assert [sink.refused_records for sink in (skipping.sink, aside.sink)] == [2, 3]
    with odradek.open(folder, mode="r") as logs:
        found = list(logs["other", 0].read(isolation="read_committed"))
    assert [record.value for record in found] == numbers(2, 3, 8)
    assert [record.timestamp for record in found] == [None, 3, None]
    assert [record.headers[:-4] for record in found] == [(("a", b"b"),), (), (("a", b"b"),)]
    assert found[0].headers[-1] == (
        "__odradek.errors.message",
        b"its timestamp is negative, and no record of Kafka's is from before 1970",
    )


@pytest.mark.sampled
@pytest.mark.parametrize("on_invalid", ["error", "skip", "dead-letter"])
def test_what_the_topic_does_not_take(folder: Path, on_invalid: str) -> None:
    with odradek.open(folder, sync="off") as logs:
        logs.alter_topic_config("copy", {"max.message.bytes": "1000"})
        logs.create_topic("letters")
    letters = {"dead_letter_topic": "letters"} if on_invalid == "dead-letter" else {}
    forwarder = Forwarder(folder, on_invalid=on_invalid, **letters)
    written = [OffsetRange(SOURCE, 0, 9), OffsetRange(OTHER, 0, 3)]
    if on_invalid == "error":
        for _ in range(2):
            with pytest.raises(
                SinkError, match=r"does not take the record at offset 4 of orders-0: .*What was before it"
            ):
                forwarder.write(*written, values={4: bytes(2000)})
        assert forwarder.values() == {0: numbers(*range(4)), 1: numbers(0, 1, 2, partition=1)}
        return
    forwarder.write(*written, values={4: bytes(2000)})
    assert forwarder.values() == {0: numbers(0, 1, 2, 3, 5, 6, 7, 8), 1: numbers(0, 1, 2, partition=1)}
    assert forwarder.sink.refused_records == 1
    if letters:
        assert forwarder.values("letters") == {0: [bytes(2000)]}


@pytest.mark.slow
def test_two_jobs_whose_transactional_ids_are_the_same(folder: Path) -> None:
    first = Forwarder(folder, owner=("job-new", "copy"), topic="copy")
    second = Forwarder(folder, owner=("job", "new-copy"), topic="other")
    first.write(OffsetRange(SOURCE, 0, 5))
    # It would pass over what the other one has forwarded.
    with pytest.raises(SinkError, match="job-new-copy belong to the job job-new with the topic copy"):
        second.write(OffsetRange(SOURCE, 0, 5))
    with pytest.raises(SinkError, match="give this sink another transactional_id"):
        second.sink.held([SOURCE])
    first.write(OffsetRange(SOURCE, 5, 7))
    assert first.values()[0] == numbers(*range(7))
    assert second.values("other") == {0: []}


@pytest.mark.slow
def test_positions_can_be_set_back(folder: Path) -> None:
    forwarder = Forwarder(folder, on_held="replay")
    forwarder.write(OffsetRange(SOURCE, 0, 3))
    forwarder.sink.replay({SOURCE: Position(1)})
    forwarder.write(OffsetRange(SOURCE, 1, 3))
    assert forwarder.values()[0] == numbers(0, 1, 2, 1, 2)


@pytest.mark.slow
def test_the_positions_of_thousands_of_partitions_are_kept(folder: Path) -> None:
    forwarder = Forwarder(folder, on_held="replay")
    forwarder.write(OffsetRange(SOURCE, 0, 3))
    topic_id = str(uuid.uuid4())
    many = {TopicPartition("wide", number): Position(number, topic_id=topic_id) for number in range(2_000)}
    forwarder.sink.replay(many)
    forwarder.write(OffsetRange(SOURCE, 3, 4))
    assert forwarder.sink.held([SOURCE, *many]) == {**forwarder.sink.held([SOURCE]), **many}
    # Where there are fewer parts, none of the old ones holds what is not true any more.
    again = {name: Position(1) for name in many}
    forwarder.sink.replay(again)
    assert forwarder.sink.held(again) == again
    with odradek.open(folder, mode="r") as logs:
        stored = load_groups(logs, ["job-copy"]).committed("job-copy")
    assert (len(stored), max(len(one.metadata) for one in stored.values()) < 1 << 15) == (4, True)
    assert forwarder.values()[0] == numbers(0, 1, 2, 3)


def set_part(folder: Path, number: int, metadata: str | None) -> None:
    """Sets the text beside an offset of the sink's group; None removes the offset."""
    value = None if metadata is None else OffsetCommitValue(1, metadata, 0)
    with odradek.open(folder) as logs:
        record = encode_offset_commit(OffsetCommitKey("job-copy", "copy", number), value)
        append_group_records(logs, "job-copy", [record])


@pytest.fixture
def in_parts(folder: Path) -> Forwarder:
    """A sink that has kept its positions in four parts."""
    forwarder = Forwarder(folder, on_held="replay")
    topic_id = str(uuid.uuid4())
    forwarder.sink.replay(
        {TopicPartition("wide", number): Position(number, topic_id=topic_id) for number in range(2_000)}
    )
    return forwarder


@pytest.mark.slow
def test_positions_move_with_the_topic_of_a_job(folder: Path) -> None:
    first = Forwarder(folder, topic="other", on_held="replay")
    first.write(OffsetRange(SOURCE, 0, 3))
    # Beside `copy`, which comes before `other` in each order.
    forwarder = Forwarder(folder, on_held="replay")
    for start in (3, 4):
        forwarder.write(OffsetRange(SOURCE, start, start + 1))
    assert (forwarder.values()[0], forwarder.values("other")[0]) == (numbers(3, 4), numbers(0, 1, 2))
    forwarder.sink.replay({SOURCE: Position(1)})
    assert forwarder.sink.held([SOURCE]) == {SOURCE: Position(1)}
    # The version before takes them together.
    with odradek.open(folder, mode="r") as logs:
        stored = load_groups(logs, ["job-copy"]).committed("job-copy")
    assert [list(json.loads(one.metadata)["positions"]) for one in stored.values()] == [["orders"], []]


@pytest.mark.slow
@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("topic", ["copy", "other"])
def test_positions_that_are_aborted_count_for_nothing(folder: Path, topic: str, is_committed: bool) -> None:
    """Also those of another topic, and parts that are left over."""
    topic_id = str(uuid.uuid4())
    before = {TopicPartition("wide", number): Position(number, topic_id=topic_id) for number in range(2_000)}
    forwarder = Forwarder(folder, topic="other", on_held="replay")
    forwarder.sink.replay(before)
    after = Forwarder(folder, topic=topic, on_held="replay").sink
    new = {TopicPartition("wide", number): Position(1) for number in range(2)}
    with odradek.open(folder) as logs:
        held = after._held(logs)
        transaction = FolderTransaction(logs, "job-copy")
        transaction.begin([group_partition(logs, "job-copy")])
        after._keep(logs, new, transaction.producer)
        transaction.end(committed=is_committed)
    assert held == before
    with odradek.open(folder, mode="r") as logs:
        assert Forwarder(folder, topic=topic).sink._held(logs) == (new if is_committed else before)


@pytest.mark.slow
def test_the_newest_of_the_positions_that_earlier_versions_kept_beside_several_topics_count(folder: Path) -> None:
    with odradek.open(folder) as logs:
        for topic, offset, at_ms in (("other", 3, 2), ("copy", 5, 1)):
            kept = json.dumps({"owner": ["job", "copy"], "positions": {"orders": {"0": [offset, None]}}})
            value = OffsetCommitValue(1, kept, at_ms)
            record = encode_offset_commit(OffsetCommitKey("job-copy", topic, 0), value)
            append_group_records(logs, "job-copy", [record])
    forwarder = Forwarder(folder, on_held="replay")
    assert forwarder.sink.held([SOURCE]) == {SOURCE: Position(5)}


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_part_of_the_positions_that_is_gone_is_an_error(folder: Path, in_parts: Forwarder, number: int) -> None:
    set_part(folder, number, None)
    with pytest.raises(SinkError, match="offsets of the group job-copy are gone"):
        in_parts.sink.held([SOURCE])


@pytest.mark.slow
def test_positions_that_an_older_version_kept_since_count(folder: Path, in_parts: Forwarder) -> None:
    # It puts all of them beside one offset, and knows nothing of the others.
    wide = [TopicPartition("wide", number) for number in range(2_000)]
    kept = {str(number): [7, None] for number in range(2_000)}
    set_part(folder, 0, json.dumps({"owner": ["job", "copy"], "positions": {"wide": kept}}, separators=(",", ":")))
    assert in_parts.sink.held(wide) == dict.fromkeys(wide, Position(7))
    in_parts.write(OffsetRange(wide[0], 7, 9))
    assert in_parts.sink.held(wide) == {**dict.fromkeys(wide, Position(7)), wide[0]: Position(9)}


@pytest.mark.slow
def test_a_folder_that_another_program_has_open_is_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_topic, "_LOCK_WAIT_S", 0.1)
    forwarder = Forwarder(folder)
    with odradek.open(folder, sync="off"):
        with pytest.raises(odradek.LogDirectoryLockedError):
            forwarder.write(OffsetRange(SOURCE, 0, 3))
    forwarder.write(OffsetRange(SOURCE, 0, 3))
    assert forwarder.values()[0] == numbers(0, 1, 2)


def test_a_topic_or_a_folder_that_is_not_there(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(SinkError, match=r"topic nothing of .*internal: there is no topic nothing"):
        Forwarder(folder, topic="nothing")
    with pytest.raises(odradek.LogError, match="elsewhere"):
        Forwarder(tmp_path / "elsewhere")
