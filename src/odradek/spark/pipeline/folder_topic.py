"""The topic sink of a log directory: forwards records exactly once, without a broker.

    task     DATA.odradek-staging/BATCH/ID.arrow      rows in order, each Arrow batch of one source and target partition
    driver   takes the folder's lock and appends them in one transaction, together with the positions in the source

One process at a time may write to a log directory, and tasks are several: so none of them opens it to write. The
positions of all source partitions are kept beside one offset of a group, so that a transaction has few partitions to
bring to the disk:

    group JOB-TOPIC, topic, partition 0     offset 5400
        metadata {"owner":["JOB","TOPIC"],"positions":{"orders":{"0":[120,"dKIu..."]}}}

Where there are more than a text of Kafka holds, the rest are beside partition 1, 2 and so on.
"""

from __future__ import annotations

import functools
import json
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from odradek.errors import SinkError
from odradek.inspection.groups import load_groups
from odradek.messages.coordinators.group_records import OffsetCommitKey, OffsetCommitValue, encode_offset_commit
from odradek.messages.uuids import ZERO_UUID
from odradek.offsets.store import Position
from odradek.places.folder_transaction import FolderTransaction
from odradek.places.group_log import append_group_records, group_partition
from odradek.records.compression import CODECS
from odradek.records.timestamps import now_ms
from odradek.spark.pipeline.batch import Batch
from odradek.spark.pipeline.forwarding import Refusals, by_partition, first_offset, forwarded, not_taken, source_runs
from odradek.spark.pipeline.sink import Sink, check_owner
from odradek.spark.pipeline.sink_specs import TopicSinkSpec
from odradek.spark.pipeline.topic_routing import SinkRouter
from odradek.spark.ranges import OffsetRange
from odradek.spark.staged_file import StagedFile, staged_rows
from odradek.spark.worker import keep_modules
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.directory.opening import open_when_unlocked
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.names import TopicPartition

_LOCK_WAIT_S = 10
"""How long another program may have the folder open before that is an error."""
_MOST_CHARACTERS = 30_000
"""Of positions in one part: a text beside an offset has at most 32,767 bytes."""
_STAGED = "path string, parts string"
_STAGED_SCHEMA = pa.schema([("path", pa.string()), ("parts", pa.string())])

_Kept: TypeAlias = dict[str, dict[str, list[int | str | None]]]


class _Part(NamedTuple):
    """Staged rows of one source partition for one target.

    Attributes:
        source: The partition that they come from.
        target: The partition that they go to; None if there is no such one.
        reason: Why not.
    """

    source: TopicPartition
    target: TopicPartition | None
    reason: str


class FolderTopicSink(Sink):
    """Forwards a view to topics of a log directory.

    Args:
        spec: Which view, and where to.
        owner: Whose the positions are (`Job.owner`); joined by dashes it is the transactional id, and the name of the
            group that keeps them.

    Raises:
        LogError: There is no such log directory.
        SinkError: It has no such topic.
    """

    wants_whole_partitions = True

    def __init__(self, spec: TopicSinkSpec, owner: Sequence[str]) -> None:
        assert spec.path is not None
        self._spec = spec
        self._path = spec.path
        self._owner = owner
        self._id = "-".join(owner)
        self.on_held = spec.on_held
        self._is_by_record = False
        self._beside: dict[TopicPartition, str] = {}
        self._staging = spec.path.with_name(f"{spec.path.name}.odradek-staging") / uuid.uuid4().hex
        self.description = f"{spec.topics} of {spec.path}"
        for topic in (spec.topic, spec.dead_letter_topic):
            if topic is not None and _count_partitions(self._path, topic) is None:
                raise SinkError(f"{self.description}: there is no topic {topic}")

    def held(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Position]:
        """Return the positions up to which this sink's transactions have forwarded partitions."""
        with LogDirectory(self._path) as logs:
            found = self._held(logs)
        return {name: found[name] for name in partitions if name in found}

    def replay(self, starts: Mapping[TopicPartition, Position]) -> None:
        """Set the positions back, by a transaction without records."""
        with open_when_unlocked(self._path, _LOCK_WAIT_S) as logs:
            transaction = FolderTransaction(logs, self._id)
            # A note in the offset store is the run's; here it would be the offsets of letters.
            places = {**self._held(logs), **{name: replace(start, note=None) for name, start in starts.items()}}
            transaction.begin([group_partition(logs, self._id)])
            self._keep(logs, places, transaction.producer)
            transaction.end(committed=True)

    def write(self, batch: Batch) -> None:
        """Forward the view of a batch."""
        frame = forwarded(batch.spark, self._spec, self.description, is_by_record=self._is_by_record)
        self._is_by_record = True
        task = _StageTask(self._spec, self._path, self._staging)
        try:
            rows = by_partition(frame).mapInArrow(task, _STAGED).collect()
            staged = [(Path(row.path), [_parsed(part) for part in json.loads(row.parts)]) for row in rows]
            with open_when_unlocked(self._path, _LOCK_WAIT_S) as logs:
                self._forward(logs, staged, batch)
        finally:
            self.close()

    def close(self) -> None:
        """Remove what was staged."""
        shutil.rmtree(self._staging, ignore_errors=True)
        if self._staging.parent.is_dir() and not any(self._staging.parent.iterdir()):
            self._staging.parent.rmdir()

    def _held(self, logs: LogDirectory) -> dict[TopicPartition, Position]:
        """Return how far each source partition is forwarded.

        Raises:
            SinkError: The positions are another job's, or another program has set the offset.
        """
        found: dict[TopicPartition, Position] = {}
        groups = load_groups(logs, [self._id])
        stored, newest = groups.committed(self._id), groups.last_committed(self._id)
        self._beside = {name: committed.metadata for name, committed in stored.items()}
        # What was kept beside another topic, before the job's settings were changed, counts no more.
        # How each part was stamped.
        known: list[tuple[int, ...] | None] = []
        for name, committed in sorted(stored.items()):
            if newest is None or name.topic != newest.topic:
                continue
            try:
                kept = json.loads(committed.metadata)
                stamp = tuple(map(int, kept["parts"])) if "parts" in kept else None
                if known and stamp != known[0]:
                    # It was kept before: a version that knows no parts has put all positions into the first one since.
                    continue
                owner = tuple(map(str, kept["owner"])) if "owner" in kept else None
                for topic, places in kept["positions"].items():
                    for partition, (offset, topic_id, *letters) in places.items():
                        note = letters[0] if letters else None
                        found[TopicPartition(topic, int(partition))] = Position(offset, topic_id=topic_id, note=note)
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
                raise SinkError(
                    f"{self.description}: another program has set the offset of the group {self._id}, so the positions "
                    "that it held are lost: delete the group to start over"
                ) from error
            check_owner(self.description, self._id, owner, self._owner)
            known.append(stamp)
        if known and known[0] is not None and known[0][-1:] != (len(known),):
            raise SinkError(
                f"{self.description}: offsets of the group {self._id} are gone, and with them positions that it held: "
                "delete the group to start over"
            )
        return found

    def _transaction(self, logs: WritableLogDirectory) -> FolderTransaction:
        return FolderTransaction(logs, self._id, CODECS[self._spec.compression])

    def _forward(self, logs: WritableLogDirectory, staged: Sequence[tuple[Path, list[_Part]]], batch: Batch) -> None:
        # It finishes what a crash left decided, and the positions of that count.
        transaction = self._transaction(logs)
        held = self._held(logs)
        wanted = []
        for part in batch.ranges:
            name, _, end = part
            stored = batch.stored_offsets.get(name)
            start = first_offset(self._spec, self.description, part, held.get(name), batch.topic_ids.get(name), stored)
            if start < end:
                wanted.append(OffsetRange(name, start, end))
        invalid = self._transact(logs, transaction, held, staged, wanted, batch)
        if not invalid:
            return
        before = [OffsetRange(name, start, invalid.get(name, (end, ""))[0]) for name, start, end in wanted]
        before = [part for part in before if part.start_offset < part.end_offset]
        self._transact(logs, self._transaction(logs), held, staged, before, batch)
        raise not_taken(self.description, invalid)

    def _transact(
        self,
        logs: WritableLogDirectory,
        transaction: FolderTransaction,
        held: Mapping[TopicPartition, Position],
        staged: Sequence[tuple[Path, list[_Part]]],
        ranges: Sequence[OffsetRange],
        batch: Batch,
    ) -> dict[TopicPartition, tuple[int, str]]:
        """Append ranges and commit their ends; or abort, and return the first record of each that is an error."""
        if not ranges:
            return {}
        wanted = {name: (start, end) for name, start, end in ranges}
        router = SinkRouter(self._spec, functools.partial(_count_partitions, self._path))
        letters = self._spec.dead_letter_topic
        targets = {part.target for _, parts in staged for part in parts if part.source in wanted and part.target}
        if letters is not None:
            targets |= {router.same_partition(letters, name.partition) for name in wanted}
        transaction.begin({*targets, group_partition(logs, self._id)})
        refusals = {
            name: Refusals(self._spec, router, name, transaction.write, held.get(name), start)
            for name, start, _ in ranges
        }
        try:
            for part, staged_rows in _read(staged, wanted):
                own = refusals[part.source]
                rows = own.unsent(staged_rows)
                if part.target is None:
                    own.refuse(rows, dict.fromkeys(range(rows.num_rows), part.reason))
                else:
                    own.refuse(rows, dict(transaction.write(part.target, rows)))
            invalid = {name: one.invalid for name, one in refusals.items() if one.invalid is not None}
            if not invalid:
                ends = {
                    name: Position(end, topic_id=batch.topic_ids.get(name), note=refusals[name].letters)
                    for name, _, end in ranges
                }
                self._keep(logs, {**held, **ends}, transaction.producer)
        except BaseException:
            transaction.end(committed=False)
            raise
        transaction.end(committed=not invalid)
        if not invalid:
            self.refused_records += sum(one.refused for one in refusals.values())
        return invalid

    def _keep(
        self, logs: WritableLogDirectory, places: Mapping[TopicPartition, Position], producer: tuple[int, int]
    ) -> None:
        """Make positions a part of a transaction."""
        topic = self._spec.topic or self._spec.position_topic
        parts = list(_parts_of_positions(places))
        # What is left over would say again what was true before. It is not removed, but emptied: that an offset is
        # removed counts at once, even if the transaction is aborted.
        beside = [name.partition for name in self._beside if name.topic == topic]
        parts += [{} for _ in range(1 + max(beside, default=-1) - len(parts))]
        nothing = _json({"owner": self._owner, "positions": {}})
        kept = {name: nothing for name, held in self._beside.items() if name.topic != topic and held != nothing}
        # So that a part that is missing, or was kept at another time, is known.
        of = {"parts": [*producer, len(parts)]} if len(parts) > 1 else {}
        # The topic that counts comes last.
        for number, part in enumerate(parts):
            kept[TopicPartition(topic, number)] = _json({"owner": self._owner, "positions": part, **of})
        records = []
        for under, metadata in kept.items():
            # So tools show no lag of the group: the marker that ends the transaction takes an offset.
            end_offset = logs[under].log_end_offset + 1 if under in logs else 0
            topic_id = logs.topic_id(under.topic) or ZERO_UUID
            value = OffsetCommitValue(end_offset, metadata, now_ms(), topic_id=topic_id)
            records.append(encode_offset_commit(OffsetCommitKey(self._id, *under), value))
        append_group_records(logs, self._id, records, producer=producer)


def _parts_of_positions(places: Mapping[TopicPartition, Position]) -> Iterator[_Kept]:
    """Yield positions in parts, each of which fits beside an offset."""
    part: _Kept = {}
    size = 0
    for (topic, partition), place in sorted(places.items()):
        letters = [] if place.note is None else [place.note]
        position = [place.offset, place.topic_id, *letters]
        more = len(_json([topic, str(partition), position]))
        if part and size + more > _MOST_CHARACTERS:
            yield part
            part, size = {}, 0
        part.setdefault(topic, {})[str(partition)] = position
        size += more
    yield part


def _json(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"))


class _StageTask:
    """The work of a Spark task: stages its rows, each Arrow batch of one source and one target partition."""

    def __init__(self, spec: TopicSinkSpec, path: Path, staging: Path) -> None:
        self._spec = spec
        self._path = path
        self._staging = staging

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        router = SinkRouter(self._spec, functools.partial(_count_partitions, self._path))
        parts: list[_Part] = []
        with StagedFile(self._staging / f"{uuid.uuid4().hex}.arrow") as file:
            for batch in batches:
                for source, rows in source_runs(batch):
                    for target, reason, staged in self._routed(router, source, rows):
                        file.write(staged)
                        parts.append(_Part(source, target, reason))
        if file.holds_rows:
            yield pa.RecordBatch.from_pydict({"path": [str(file.path)], "parts": [json.dumps(parts)]}, _STAGED_SCHEMA)
        keep_modules()

    def _routed(
        self, router: SinkRouter, source: TopicPartition, rows: pa.RecordBatch
    ) -> Iterator[tuple[TopicPartition | None, str, pa.RecordBatch]]:
        only = router.only_target(rows, source.partition)
        if only is not None:
            yield only, "", rows
            return
        for target, numbers, reason in router.route(rows, source.partition):
            yield target, reason, rows.take(numbers)


def _count_partitions(path: Path, topic: str) -> int | None:
    with LogDirectory(path) as logs:
        return len(logs.topic_partitions(topic)) if topic in logs.topics() else None


def _parsed(part: list[Any]) -> _Part:
    source, target, reason = part
    return _Part(TopicPartition(*source), None if target is None else TopicPartition(*target), reason)


def _read(
    staged: Sequence[tuple[Path, list[_Part]]], wanted: Mapping[TopicPartition, tuple[int, int]]
) -> Iterator[tuple[_Part, pa.RecordBatch]]:
    """Yield the staged rows that are within ranges."""
    for path, parts in staged:
        staged_parts = staged_rows(path, "share the folder that holds the log directory")
        for part, rows in zip(parts, staged_parts, strict=True):
            if part.source not in wanted:
                continue
            start, end = wanted[part.source]
            offsets = rows.column("offset")
            within = rows.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)))
            if within.num_rows:
                yield part, within
