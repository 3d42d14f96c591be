"""From options to offset ranges: what a batch query or a micro-batch reads from each partition.

    startingOffsets {"t": {"0": -2, "1": 20}}          t-0: [log start offset, end)
    endingOffsets   latest                        ->   t-1: [20, end)

A folder and a broker answer the same few questions (`Place`); the rules are here, once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from odradek.closing import Closing
from odradek.columnar.decode import MAX_TIMESTAMP, MIN_TIMESTAMP
from odradek.errors import LogError, OffsetOutOfRangeError, OptionError
from odradek.kafka.topics import Bounds
from odradek.offsets.store import Position, is_same_topic
from odradek.records.header import BatchHeader
from odradek.records.isolation import Isolation
from odradek.records.scan import scan_batches
from odradek.records.timestamps import OnFarTimestamps, bound_ms
from odradek.spark.open_transactions import OpenTransaction
from odradek.spark.options import EARLIEST, LATEST, OffsetSpec, SourceOptions
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from odradek.places.place import Place


class OffsetRange(NamedTuple):
    """Offsets of one partition, the end exclusive."""

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int


def position_at(held: Bounds, offset: int) -> Position:
    """Return an offset up to the end as a reader's position, with what shows later whether it is still valid."""
    return Position(offset, held.leader_epoch, held.topic_id)


class LossCause(Enum):
    """Why records that should be read are not there.

    Offsets without a record within a log are no loss: compaction removes records, and transaction markers have offsets
    of their own. Readers skip them.
    """

    RETENTION = "deleted by retention, or by a request to delete records"
    TRUNCATION = "truncated"
    NEW_TOPIC = "created again under the same name"
    MISSING = "deleted with its topic"
    DAMAGE = "the log was closed at the end of these, and is damaged or was cut since"


class DataLossError(LogError):
    """Records that should be read do not exist any more.

    Attributes:
        cause: Why they do not exist any more.
        wanted: The range that should be read.
        held: What the partition has; None if it does not exist.
        topic_id: The id that the topic had when its position was stored; None if it is not known.
        cut_offset: The offset that the log was cut to, if it has grown past `wanted` since; else None.
    """

    def __init__(
        self,
        cause: LossCause,
        wanted: OffsetRange,
        held: Bounds | None,
        topic_id: str | None = None,
        cut_offset: int | None = None,
    ) -> None:
        self.cause = cause
        self.wanted = wanted
        self.held = held
        self.topic_id = topic_id
        self.cut_offset = cut_offset
        super().__init__(cause, wanted, held, topic_id, cut_offset)

    def __str__(self) -> str:
        name, start, end = self.wanted
        held = "it is gone" if self.held is None else f"it holds [{self.held.start_offset}, {self.held.end_offset})"
        reason, advice = self.cause.value, "failOnDataLoss=false continues with the rest"
        if self.cut_offset is not None:
            reason += f" to {self.cut_offset} and grown since: other records have the offsets from there on"
        elif self.cause is LossCause.TRUNCATION and self.topic_id is None:
            # Only a topic id distinguishes these two.
            reason += f", or {LossCause.NEW_TOPIC.value}"
        if self.cause is LossCause.NEW_TOPIC:
            advice = (
                f"other records have these offsets now: `odradek pipeline start-over FILE {name.topic}` lets a job "
                "begin with them, a new checkpoint a stream"
            )
        return f"{name}: offsets [{start}, {end}) are wanted, but {held}: {reason} ({advice})"


def find_loss(
    wanted: OffsetRange, held: Bounds | None, topic_id: str | None = None, epoch_end: int | None = None
) -> DataLossError | None:
    """Return why a range cannot be read, or None if it can.

    Args:
        wanted: The range.
        held: What the partition has; None if it does not exist.
        topic_id: The id that the topic had when its position was stored.
        epoch_end: Where the records of the position's leader epoch end now (KIP-320), if that is known.
    """
    if held is None:
        return DataLossError(LossCause.MISSING, wanted, held, topic_id)
    if not is_same_topic(topic_id, held.topic_id):
        return DataLossError(LossCause.NEW_TOPIC, wanted, held, topic_id)
    if wanted.start_offset < held.start_offset and wanted.start_offset < wanted.end_offset:
        return DataLossError(LossCause.RETENTION, wanted, held, topic_id)
    if wanted.end_offset > held.end_offset:
        return DataLossError(LossCause.TRUNCATION, wanted, held, topic_id)
    if epoch_end is not None and epoch_end < wanted.start_offset:
        return DataLossError(LossCause.TRUNCATION, wanted, held, topic_id, epoch_end)
    return None


class Split(InputPartition):
    """What one Spark task reads. Small and picklable: it holds positions, never data.

    Attributes:
        start_timestamp: The first timestamp wanted, in ms.
        end_timestamp: The timestamp after the last one wanted, in ms.
        far_timestamps: What is done about timestamps outside of the years 1 to 9999.
    """

    start_timestamp = MIN_TIMESTAMP
    end_timestamp = MAX_TIMESTAMP
    far_timestamps: OnFarTimestamps = "error"

    @property
    def size_bytes(self) -> int:
        """About how many bytes are read."""
        raise NotImplementedError

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Decode the records of the split into batches of a schema."""
        raise NotImplementedError


class Topics(Closing):
    """The topics of a folder or of a broker, as the planner asks for them.

    Args:
        place: The log directory or the broker, which is closed with this.
        isolation: Whether a partition ends at its high watermark or at its last stable offset.
        splits: Returns the tasks that read ranges.
        fail_on_data_loss: Whether a log that has lost its end, because it was damaged, is an error.

    Attributes:
        place: The log directory or the broker.
    """

    def __init__(
        self,
        place: Place,
        isolation: Isolation,
        splits: Callable[[Sequence[OffsetRange], SourceOptions], list[Split]],
        *,
        fail_on_data_loss: bool,
    ) -> None:
        self.place = place
        self._splits = splits
        self._isolation = isolation
        self._fail_on_data_loss = fail_on_data_loss

    def splits(self, ranges: Sequence[OffsetRange], options: SourceOptions) -> list[Split]:
        """Return the tasks that read ranges, as the options say."""
        splits = self._splits(ranges, options)
        for split in splits:
            split.far_timestamps = options.far_timestamps
        return splits

    def partitions(self, wanted: Callable[[str], bool]) -> list[TopicPartition]:
        """Return the partitions of the topics that are wanted, in order."""
        return [name for name in self.place.partitions() if wanted(name.topic)]

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Return the first offset and the end of each partition; partitions that do not exist are left out.

        Raises:
            DataLossError: A log ends before the offset at which it was closed, and that is an error.
        """
        found = self.place.identified(self.place.all_bounds(partitions, self._isolation))
        for name, held in found.items() if self._fail_on_data_loss else ():
            lost = self.place.lost_end(name)
            if lost is not None:
                # Otherwise a reader would mistake the remaining records for the whole log.
                raise DataLossError(LossCause.DAMAGE, OffsetRange(name, *lost), held)
        return found

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where partitions end now, at less cost than by `bounds`; an error if one does not exist any more."""
        return self.place.ends(partitions, self._isolation)

    def open_transactions(self, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
        """Return the transactions at which readers of committed records wait, for the partitions that have one."""
        stable = self.place.all_bounds(partitions, "read_committed")
        found = []
        for name, held in self.place.all_bounds(stable, "read_uncommitted").items():
            offset = stable[name].end_offset
            header = self.first_header(name, offset) if offset < held.end_offset else None
            if header is not None:
                found.append(OpenTransaction.of(name, offset, header, held.end_offset))
        return found

    def first_header(self, name: TopicPartition, offset: int) -> BatchHeader | None:
        """Return the header of the batch at an offset; None if it is not there."""
        with suppress(OffsetOutOfRangeError):
            for part in self.place.slices(name, offset, offset + 1):
                for header in scan_batches(part.batches, check_crc=False, path=part.path):
                    if header.last_offset >= offset:
                        return header
        return None

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first offset whose timestamp is at or after a time; None if there is no such record."""
        # A time that looks like seconds gives a warning.
        asked = {name: bound_ms(time) for name, time in times.items()}
        return self.place.offsets_for_times(asked, self._isolation)

    def refresh(self) -> None:
        """Read the state again before the next question: what is known may be old."""
        self.place.refresh()

    def close(self) -> None:
        """Close what is held open."""
        self.place.close()


def check_places(
    topics: Topics,
    bounds: Mapping[TopicPartition, Bounds],
    places: Mapping[TopicPartition, Position],
    *,
    fail_on_data_loss: bool,
) -> None:
    """Check that partitions still hold what a reader has read, and what comes after it.

    Args:
        topics: The folder or the broker.
        bounds: What the partitions have now; those that do not exist are left out.
        places: How far the reader is.
        fail_on_data_loss: Whether a loss is an error. A topic that was created again always is: readers and sinks know
            records by their offsets, and other records have these offsets now.

    Raises:
        DataLossError: They do not.
    """
    # While the leader is the same one, it has cut nothing.
    epochs = {
        name: place.leader_epoch
        for name, place in places.items()
        if place.leader_epoch is not None
        and name in bounds
        and bounds[name].leader_epoch not in (None, place.leader_epoch)
    }
    ends = topics.place.epoch_ends(epochs) if epochs else {}
    for name, place in places.items():
        at = OffsetRange(name, place.offset, place.offset)
        loss = find_loss(at, bounds.get(name), place.topic_id, ends.get(name))
        if loss is not None and (fail_on_data_loss or loss.cause is LossCause.NEW_TOPIC):
            raise loss


def cut_places(
    topics: Topics, bounds: Mapping[TopicPartition, Bounds], places: Mapping[TopicPartition, Position]
) -> dict[TopicPartition, Position]:
    """Return where to go on in logs that were cut below a reader's places, and where a loss is no error: at their ends.

    That may be beyond the last stable offset: what is not committed yet was read before.
    """
    beyond = [name for name, place in places.items() if name in bounds and place.offset > bounds[name].end_offset]
    ends = topics.place.ends(beyond) if beyond else {}
    return {name: position_at(bounds[name], end) for name, end in ends.items() if places[name].offset > end}


def find_partitions(
    topics: Topics, options: SourceOptions, started: Collection[TopicPartition] = ()
) -> list[TopicPartition]:
    """Return the partitions that the options ask for.

    Args:
        topics: The folder or the broker.
        options: The options.
        started: Partitions that were read before. If they no longer exist, that is a loss, not a mistake in the
            options: those that the options ask for are returned too.

    Raises:
        OptionError: A topic or partition that was named does not exist.
    """
    there = topics.partitions(options.wants)
    found = sorted({*there, *(name for name in started if options.wants(name.topic))})
    if options.partitions is not None:
        missing = [str(name) for name in options.partitions if name not in set(found)]
        if missing:
            raise OptionError(f"assign: {', '.join(missing)} does not exist")
        return list(options.partitions)
    if options.pattern is None:
        known = {name.topic for name in found}
        missing = [topic for topic in options.topics if topic not in known]
        if missing:
            raise OptionError(f"subscribe: topic {', '.join(missing)} does not exist")
    return found


def resolve(
    spec: OffsetSpec,
    name: str,
    topics: Topics,
    bounds: Mapping[TopicPartition, Bounds],
    *,
    end_for_later_times: bool,
) -> dict[TopicPartition, int]:
    """Turn a rule into an offset for each partition. Offsets that are given as numbers stay as they are.

    Args:
        spec: The rule.
        name: `starting` or `ending`, for the errors.
        topics: The folder or the broker, which looks up times.
        bounds: The partitions, and what they have.
        end_for_later_times: Whether a time after the last record means the end of the log, not an error.

    Raises:
        OptionError: The rule does not name exactly the partitions that are read, or a time has no offset.
    """
    times = dict(spec.timestamps)
    if spec.timestamp is not None:
        times = dict.fromkeys(bounds, spec.timestamp)
    if times:
        _require_same(f"{name}OffsetsByTimestamp", times, bounds)
        offsets = {}
        for partition, offset in topics.offsets_for_times(times).items():
            if offset is None and not end_for_later_times:
                raise OptionError(
                    f"{name}: {partition} has no record at or after the time {times[partition]} "
                    "(startingOffsetsByTimestampStrategy=latest starts at its end)"
                )
            offsets[partition] = bounds[partition].end_offset if offset is None else offset
        return offsets
    if spec.default is not None:
        return {partition: _edge(spec.default, held) for partition, held in bounds.items()}
    known = {partition.topic for partition in bounds}
    if unknown := sorted(spec.topics.keys() - known):
        raise OptionError(f"{name}Offsets names topics that are not read: {', '.join(unknown)}")
    of_topics = {partition: spec.topics[partition.topic] for partition in bounds if partition.topic in spec.topics}
    offsets = {**of_topics, **spec.offsets}
    # The other one is refused in a batch query, which would read nothing.
    hint = " (-2 is earliest)" if name == "starting" else " (-1 is latest)"
    _require_same(f"{name}Offsets", offsets, bounds, hint)
    return {
        partition: offset if offset >= 0 else _edge(offset, bounds[partition]) for partition, offset in offsets.items()
    }


def _edge(which: int, held: Bounds) -> int:
    assert which in (EARLIEST, LATEST)
    return held.start_offset if which == EARLIEST else held.end_offset


def _require_same(
    option: str, named: Collection[TopicPartition], subscribed: Collection[TopicPartition], hint: str = ""
) -> None:
    missing = sorted(set(subscribed) - set(named))
    unknown = sorted(set(named) - set(subscribed))
    if missing:
        raise OptionError(
            f"{option} must name every partition that is read; missing: {', '.join(map(str, missing))}{hint}"
        )
    if unknown:
        raise OptionError(f"{option} names partitions that are not read: {', '.join(map(str, unknown))}")


def plan_batch(topics: Topics, options: SourceOptions) -> list[OffsetRange]:
    """Return the ranges that a batch query reads, without empty ones.

    Raises:
        OptionError: The options do not fit the topics.
        DataLossError: Records that were asked for do not exist any more, and `failOnDataLoss` is true.
    """
    bounds = topics.bounds(find_partitions(topics, options))
    starting = resolve(options.starting, "starting", topics, bounds, end_for_later_times=options.start_after_end)
    ending = resolve(options.ending, "ending", topics, bounds, end_for_later_times=True)
    asked = [OffsetRange(partition, starting[partition], ending[partition]) for partition in sorted(bounds)]
    for partition, start, end in asked:
        if start > end:
            raise OptionError(f"{partition}: the starting offset {start} is after the ending offset {end}")
    return within(asked, bounds, fail_on_data_loss=options.fail_on_data_loss)


def within(
    ranges: Sequence[OffsetRange], bounds: Mapping[TopicPartition, Bounds], *, fail_on_data_loss: bool
) -> list[OffsetRange]:
    """Cut ranges to the offsets that the partitions hold.

    Raises:
        DataLossError: Some of them do not exist any more, and `fail_on_data_loss` is true.
    """
    kept = []
    for part in ranges:
        held = bounds.get(part.topic_partition)
        loss = find_loss(part, held)
        if loss is not None and fail_on_data_loss:
            raise loss
        if held is None:
            continue
        start, end = max(part.start_offset, held.start_offset), min(part.end_offset, held.end_offset)
        if start < end:
            kept.append(OffsetRange(part.topic_partition, start, end))
    return kept


def limited(ranges: Sequence[OffsetRange], limit: int | None) -> list[OffsetRange]:
    """Cut ranges to `limit` offsets in total, each partition in proportion to what it has."""
    total = sum(part.end_offset - part.start_offset for part in ranges)
    if limit is None or total <= limit:
        return list(ranges)
    cut_down = []
    for name, start, end in ranges:
        # At least one offset, so that a small partition beside large ones makes progress.
        share = min(end - start, max(1, (end - start) * limit // total))
        total -= end - start
        limit = max(0, limit - share)
        cut_down.append(OffsetRange(name, start, start + share))
    return cut_down


def pieces(ranges: Sequence[OffsetRange], max_split_records: int | None) -> list[OffsetRange]:
    """Cut ranges into pieces of about the same length, none of which spans too many offsets."""
    cut_up: list[OffsetRange] = []
    for name, start, end in ranges:
        span = end - start
        count = 1 if max_split_records is None else max(1, -(-span // max_split_records))
        borders = [start + span * number // count for number in range(count + 1)]
        cut_up.extend(OffsetRange(name, *ends) for ends in itertools.pairwise(borders) if ends[0] < ends[1])
    return cut_up
