"""What a log is like: gathered from the headers of its batches, and from its records if asked to.

    headers     bytes, records, batches, their sizes, codecs, rates over time, times out of order, gaps
    records     how well they are compressed, the largest of them, how many different keys

With headers alone, one page is read for each batch. A log is given as slices of whole batches, from files or from a
broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek.buffers import Buffer
from odradek.errors import FormatError
from odradek.inspection.finding import Finding
from odradek.inspection.statistics.distinct_keys import estimate, united
from odradek.inspection.statistics.timeline import Timeline
from odradek.records import BatchHeader
from odradek.records.batch import each_record
from odradek.records.compression import MAX_DECOMPRESSED_BYTES, Codec, Decompressor
from odradek.records.header import LOG_APPEND_TIME_FLAG, V2_HEADER_BYTES
from odradek.records.kernels.batches import BatchTable
from odradek.records.kernels.tally import BatchTally, RecordTally
from odradek.records.payload import records_section
from odradek.storage.names import TopicPartition

_LARGEST = 10


@dataclass(slots=True)
class CodecUse:
    """The batches of one codec.

    Attributes:
        batches: How many they are.
        size_bytes: Their bytes, headers included.
        stored_bytes: The bytes of their records as they are stored; 0 if records were not read.
        record_bytes: The bytes of their records when they are not compressed; 0 if records were not read.
    """

    batches: int = 0
    size_bytes: int = 0
    stored_bytes: int = 0
    record_bytes: int = 0

    @property
    def ratio(self) -> float | None:
        """How many times as large the records are when they are not compressed; None if they were not read."""
        return self.record_bytes / self.stored_bytes if self.stored_bytes else None


@dataclass(frozen=True, slots=True)
class LargeRecord:
    """A record, and how large it is in the log, before compression."""

    size_bytes: int
    topic_partition: TopicPartition
    offset: int


_RECORD_COUNTS = ("records", "null_keys", "null_values", "key_bytes", "value_bytes", "late_records")
_BATCH_COUNTS = ("batches", "control_batches", "records", "size_bytes", "late_batches", "gaps", "missing_offsets")


def _add(found: object, other: object, names: Iterable[str]) -> None:
    for name in names:
        setattr(found, name, getattr(found, name) + getattr(other, name))


@dataclass(slots=True)
class RecordStatistics:
    """What the records of a log are like, control records left out.

    Attributes:
        records: How many there are.
        null_keys: How many have no key.
        null_values: How many have no value.
        key_bytes: The bytes of all keys.
        value_bytes: The bytes of all values.
        late_records: How many have a timestamp below that of a record before them.
        latest_ms: By how much at most.
        largest: The largest ones, at most ten.
        registers: The sketch of their keys.
    """

    records: int = 0
    null_keys: int = 0
    null_values: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    late_records: int = 0
    latest_ms: int = 0
    largest: list[LargeRecord] = field(default_factory=list)
    registers: bytes = field(default=b"", repr=False)

    @property
    def distinct_keys(self) -> int:
        """About how many different keys there are, null not counted: 0.8 % more or less."""
        return estimate(self.registers)

    def merge(self, other: RecordStatistics) -> None:
        """Add those of another log."""
        _add(self, other, _RECORD_COUNTS)
        self.latest_ms = max(self.latest_ms, other.latest_ms)
        largest = sorted([*self.largest, *other.largest], key=lambda record: -record.size_bytes)
        self.largest = largest[:_LARGEST]
        self.registers = united(self.registers, other.registers)


@dataclass(slots=True)
class LogStatistics:
    """What a log, or all logs of a topic, are like.

    Attributes:
        topic: The topic.
        partition: The partition; None for all of the topic.
        partitions: How many logs it is about.
        start_offset: Where the first segment begins, or the first offset that a broker gives; None for a topic, and
            if no segment can be read.
        end_offset: The offset after the last batch; likewise.
        segments: The number of segments; 0 if they are not known.
        batches: The number of batches.
        control_batches: How many of them hold control records.
        records: The number of records, control records left out. For compressed messages of v0 and v1 it is told from
            the offsets.
        size_bytes: The bytes of the batches.
        codecs: The codecs that occur, by name.
        sizes: How many batches there are by the class of their sizes (`BatchTally.size_classes`).
        largest_batch: The largest batch, with its base offset.
        least_timestamp: The least timestamp of a batch, in ms; None if none has one.
        greatest_timestamp: The greatest one.
        late_batches: How many have a timestamp below that of a batch before them.
        latest_ms: By how much at most.
        gaps: How often offsets are missing between two batches.
        missing_offsets: How many offsets no record has, within batches too: what compaction has removed, or a loss.
        timeline: Bytes and records by time.
        content: What the records are like; None if they were not read.
        findings: What is damaged.
    """

    topic: str
    partition: int | None
    partitions: int = 1
    start_offset: int | None = None
    end_offset: int | None = None
    segments: int = 0
    batches: int = 0
    control_batches: int = 0
    records: int = 0
    size_bytes: int = 0
    codecs: dict[str, CodecUse] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    largest_batch: LargeRecord | None = None
    least_timestamp: int | None = None
    greatest_timestamp: int | None = None
    late_batches: int = 0
    latest_ms: int = 0
    gaps: int = 0
    missing_offsets: int = 0
    timeline: Timeline = field(default_factory=Timeline)
    content: RecordStatistics | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def duration_s(self) -> float:
        """How much time lies between the least timestamp and the greatest."""
        if self.least_timestamp is None or self.greatest_timestamp is None:
            return 0
        return (self.greatest_timestamp - self.least_timestamp) / 1000

    def size_quantile(self, share: float) -> int:
        """Return about up to how large a share of the batches is, in bytes: a quarter of a power of two more or less.

        Args:
            share: Such as 0.99.
        """
        left = share * self.batches
        for number in sorted(self.sizes):
            left -= self.sizes[number]
            if left <= 0:
                bound = class_start(number + 1) - 1
                return bound if self.largest_batch is None else min(bound, self.largest_batch.size_bytes)
        return 0

    def merge(self, other: LogStatistics) -> None:
        """Add those of another log."""
        _add(self, other, ("partitions", "segments", *_BATCH_COUNTS))
        for name, use in other.codecs.items():
            own = self.codecs.setdefault(name, CodecUse())
            _add(own, use, CodecUse.__slots__)
        for number, count in other.sizes.items():
            self.sizes[number] = self.sizes.get(number, 0) + count
        large = [one for one in (self.largest_batch, other.largest_batch) if one is not None]
        self.largest_batch = max(large, key=lambda one: one.size_bytes, default=None)
        bounds = [one for one in (self.least_timestamp, other.least_timestamp) if one is not None]
        self.least_timestamp = min(bounds, default=None)
        bounds = [one for one in (self.greatest_timestamp, other.greatest_timestamp) if one is not None]
        self.greatest_timestamp = max(bounds, default=None)
        self.latest_ms = max(self.latest_ms, other.latest_ms)
        self.timeline.merge(other.timeline)
        if other.content is not None:
            self.content = self.content or RecordStatistics()
            self.content.merge(other.content)
        self.findings += other.findings


def class_start(number: int) -> int:
    """Return the least size of a class of sizes."""
    return number if number < 8 else (4 + number % 4) << (number // 4 - 2)


class LogTally:
    """Gathers the statistics of one log: is given its batches in order, then asked for the result.

    Args:
        topic_partition: The log.
        reads_records: Whether to read the records too, not only the headers of the batches.
    """

    def __init__(self, topic_partition: TopicPartition, *, reads_records: bool) -> None:
        self._topic_partition = topic_partition
        self._batches = BatchTally()
        self._records = RecordTally() if reads_records else None
        self._timeline = Timeline()
        self._decompressor = Decompressor(MAX_DECOMPRESSED_BYTES)
        self._content_bytes: dict[int, list[int]] = {}
        self.segments = 0
        self.findings: list[Finding] = []

    def begin(self, offset: int) -> None:
        """Note where the log begins, before its first batch."""
        self._batches.begin(offset)

    def add(self, table: BatchTable, data: Buffer, origin: int = 0) -> list[tuple[BatchHeader, str]]:
        """Add batches, and return those whose records cannot be read, with the reason.

        Args:
            table: Their headers.
            data: The bytes that hold them.
            origin: The position that `data` starts at.
        """
        self._timeline.add(self._batches.add(table, self._timeline.width_ms))
        unreadable: list[tuple[BatchHeader, str]] = []
        if self._records is None:
            return unreadable
        for header in table.headers():
            if header.is_control:
                continue
            try:
                self._add_records(self._records, header._replace(position=header.position - origin), data)
            except FormatError as error:
                unreadable.append((header, error.reason))
        return unreadable

    def _add_records(self, tally: RecordTally, header: BatchHeader, data: Buffer) -> None:
        stored_bytes = header.size_bytes
        if header.magic == 2:
            section: Buffer = data
            position, end = header.position + V2_HEADER_BYTES, header.end_position
            stored_bytes = end - position
            if header.codec:
                section = records_section(data, header, self._decompressor)
                position, end = 0, memoryview(section).nbytes
            record_bytes = end - position
            reason = tally.add(
                section,
                position,
                end,
                header.records_count,
                header.base_offset,
                header.base_timestamp,
                header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else -1,
            )
            if reason is not None:
                raise FormatError(reason)
        else:
            record_bytes = 0
            for record in each_record(data, header):
                # The size of the message if it were not inside a wrapper.
                size = (26 if header.magic == 0 else 34) + len(record.key or b"") + len(record.value or b"")
                record_bytes += size
                tally.add_message(
                    record.key,
                    -1 if record.value is None else len(record.value),
                    size,
                    record.offset or 0,
                    -1 if record.timestamp is None else record.timestamp,
                )
        sums = self._content_bytes.setdefault(header.codec, [0, 0])
        sums[0] += stored_bytes
        sums[1] += record_bytes

    def result(self) -> LogStatistics:
        """Return what was gathered."""
        tally, owner = self._batches, self._topic_partition
        found = LogStatistics(owner.topic, owner.partition, timeline=self._timeline, findings=self.findings)
        found.segments = self.segments
        for name in (*_BATCH_COUNTS, "latest_ms"):
            setattr(found, name, getattr(tally, name))
        if tally.start_offset >= 0:
            found.start_offset, found.end_offset = tally.start_offset, tally.next_offset
        if tally.batches:
            found.largest_batch = LargeRecord(tally.largest_bytes, owner, tally.largest_offset)
        if tally.greatest_timestamp >= 0:
            found.least_timestamp, found.greatest_timestamp = tally.least_timestamp, tally.greatest_timestamp
        found.sizes = {number: count for number, count in enumerate(tally.size_classes) if count}
        for codec, (batches, size_bytes) in enumerate(zip(tally.codec_batches, tally.codec_bytes, strict=True)):
            if batches:
                stored = self._content_bytes.get(codec, [0, 0])
                found.codecs[Codec(codec).name.lower()] = CodecUse(batches, size_bytes, *stored)
        if self._records is not None:
            found.content = self._content(self._records)
            found.records = found.content.records
        return found

    def _content(self, tally: RecordTally) -> RecordStatistics:
        content = RecordStatistics(
            largest=[LargeRecord(size, self._topic_partition, offset) for size, offset in tally.largest],
            registers=tally.registers,
        )
        for name in (*_RECORD_COUNTS, "latest_ms"):
            setattr(content, name, getattr(tally, name))
        return content
