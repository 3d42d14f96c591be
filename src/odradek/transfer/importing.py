"""Imports records from files into a log directory or a broker.

    files of an export     each partition by itself, in the order of offsets; from the target's position on
    other files            row by row, in their order

Records that have an offset are written once, however often an import is interrupted and repeated: see
`odradek.transfer.target`. Records without one are appended as they come, by each import again.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from odradek.errors import FormatError, LogError, OptionError
from odradek.records import Record
from odradek.records.partitioner import partition_for_key
from odradek.records.timestamps import now_ms
from odradek.storage.names import TopicPartition
from odradek.transfer.export_folder import ExportedFile, exported_file, exported_topics
from odradek.transfer.record_files import FORMATS, STREAMS, format_of, read_rows
from odradek.transfer.target import PartitionWriter, Target
from odradek.transfer.threads import in_threads

_COMMIT_BYTES = 8 << 20
"""How much is written between two commits of a partition."""

_MOST_PARTITIONS = 10_000
"""A damaged partition number must not fill the disk. Kafka creates no more partitions at a time, either."""


class Gap(NamedTuple):
    """Offsets of a partition that are missing."""

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int


@dataclass
class ImportReport:
    """What an import did.

    Attributes:
        records: How many records it wrote.
        skipped: How many it did not write, because the target has them; without those of whole files.
        gaps: Offsets between two files of an export that no file covers: one may be missing.
    """

    records: int = 0
    skipped: int = 0
    gaps: list[Gap] = field(default_factory=list)


class _Piece(NamedTuple):
    """Files that hold a range of offsets of one partition together."""

    start_offset: int
    end_offset: int
    paths: list[Path]


class Import:
    """An import into a target.

    Args:
        target: The target.
        topic: The topic that all records go to; None for the topic that each names.
        name: What the import is called on a broker, where its position is kept under that name. None makes a name of
            the path that is imported.
        key_field: For JSON lines of other programs: the field that is the key; the whole line is the value.

    Attributes:
        report: What was done so far; read by any thread.
        expected_offsets: How many offsets the files of an export have; 0 if that is not known.
    """

    def __init__(
        self,
        target: Target,
        *,
        topic: str | None = None,
        name: str | None = None,
        key_field: str | None = None,
    ) -> None:
        self.report = ImportReport()
        self.expected_offsets = 0
        self._target = target
        self._topic = topic
        self._name = name
        self._key_field = key_field
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._origins: dict[TopicPartition, str] = {}
        self._sticky: dict[str, int] = {}

    def done_offsets(self) -> int:
        """Return how many records were written, or were there already; called by any thread."""
        return self.report.records + self.report.skipped

    def from_path(self, path: str | os.PathLike[str], form: str | None = None, *, threads: int = 1) -> ImportReport:
        """Import a file, or the files of a folder.

        Args:
            path: The file, or the folder.
            form: The format of a file; by its name if None.
            threads: How many partitions of an export are imported at a time.

        Raises:
            OptionError: The format cannot be told.
            FormatError: A file is not of its format.
            LogError: A partition of the target has other records already.
            OSError: A file cannot be read.
        """
        source = Path(path)
        stream = self._stream(str(_resolved(source)))
        if not source.is_dir():
            known = form or format_of(source)
            if known is None:
                raise OptionError(f"{source}: the name says no format: give one of {', '.join(FORMATS)}")
            file = exported_file(_resolved(source))
            if file is None:
                self._in_order(self._rows(source, known), stream)
            else:
                self._partition(
                    file.topic_partition,
                    [_Piece(file.start_offset, file.end_offset, [source])],
                    stream,
                )
            return self.report
        exported, others = _files(source)
        self.expected_offsets = sum(
            piece.end_offset - piece.start_offset for pieces in exported.values() for piece in pieces
        )
        for name, pieces in exported.items():
            for before, after in itertools.pairwise(pieces):
                if before.end_offset < after.start_offset:
                    self.report.gaps.append(Gap(name, before.end_offset, after.start_offset))
        topics = exported_topics(source)
        self._ensure(topics, exported)
        in_threads(
            lambda name: self._partition(name, exported[name], stream),
            exported,
            threads,
            name="odradek-import",
            stop=self._stop,
        )
        for other in others:
            self._in_order(
                self._rows(other, format_of(other) or ""),
                self._stream(str(_resolved(other))),
            )
        if not exported and not others and not topics:
            raise LogError(f"{source} has no file that is named as records are: *.parquet, *.arrow, *.jsonl, *.csv")
        return self.report

    def from_stream(self, file: BinaryIO, form: str, name: str) -> ImportReport:
        """Import an open file, such as stdin.

        Without a name of the import, a broker is given the records again by each run; a folder is not, as it keeps
        their offsets.
        """
        if form not in STREAMS:
            raise OptionError(f"{form} cannot be read from a pipe: name a file, or use {' or '.join(STREAMS)}")
        rows = read_rows(file, form, key_field=self._key_field, name=name)
        self._in_order(rows, self._stream(uuid.uuid4().hex))
        return self.report

    def _stream(self, source: str) -> str:
        return self._name or f"odradek-import-{hashlib.sha256(os.fsencode(source)).hexdigest()[:16]}"

    def _rows(self, path: Path, form: str) -> Iterator[pa.RecordBatch]:
        return read_rows(path, form, key_field=self._key_field)

    def _ensure(self, topics: dict[str, dict[str, Any]], exported: Iterable[TopicPartition]) -> None:
        counts: dict[str, int] = {}
        for name in exported:
            counts[name.topic] = max(counts.get(name.topic, 0), name.partition + 1)
        for topic in sorted({*topics, *counts}):
            noted = topics.get(topic, {})
            total = max(counts.get(topic, 0), int(noted.get("partitions", 0)))
            config = dict(noted.get("config", {}))
            if not self._target.keeps_offsets:
                # With LogAppendTime the broker would stamp records with the time of the import.
                config.pop("message.timestamp.type", None)
            self._ensure_topic(self._topic or topic, total, config)

    def _ensure_topic(self, topic: str, partitions: int, config: dict[str, str] | None = None) -> None:
        if partitions > _MOST_PARTITIONS:
            raise OptionError(f"{topic}: partition {partitions - 1} is beyond the {_MOST_PARTITIONS} that are created")
        self._target.ensure_topic(topic, partitions, config)

    # -- files of an export

    def _partition(self, name: TopicPartition, pieces: list[_Piece], stream: str) -> None:
        placed = name if self._topic is None else TopicPartition(self._topic, name.partition)
        self._ensure_topic(placed.topic, placed.partition + 1)
        with closing(self._writer(placed, name.topic, stream)) as writer:
            place = _Place(placed, writer, self._count)
            for piece in pieces:
                if not place.needs(piece):
                    continue
                for rows in self._piece_rows(piece):
                    if self._stop.is_set():
                        return
                    place.write(rows)
                place.reached(piece.end_offset)
            place.finish()

    def _piece_rows(self, piece: _Piece) -> Iterator[pa.RecordBatch]:
        if len(piece.paths) == 1:
            yield from self._rows(piece.paths[0], format_of(piece.paths[0]) or "")
            return
        # A file for each date.
        yield from _merged([self._rows(path, format_of(path) or "") for path in piece.paths])

    def _writer(self, placed: TopicPartition, topic: str, stream: str) -> PartitionWriter:
        """Return what writes the records of a topic into a partition."""
        with self._lock:
            origin = self._origins.setdefault(placed, topic)
        if topic != origin and self._target.keeps_offsets:
            raise OptionError(f"{placed} cannot take the records of both {origin} and {topic}: a folder keeps offsets")
        return self._target.writer(placed, stream if topic == placed.topic else f"{stream}-{topic}")

    def _count(self, written: int, skipped: int) -> None:
        with self._lock:
            self.report.records += written
            self.report.skipped += skipped

    # -- rows of any partitions

    def _in_order(self, batches: Iterator[pa.RecordBatch], stream: str) -> None:
        places: dict[tuple[str, TopicPartition], _Place] = {}
        writers: list[PartitionWriter] = []
        try:
            for batch in batches:
                for topic, name, rows in self._parted(batch):
                    if (topic, name) not in places:
                        writers.append(self._writer(name, topic, stream))
                        places[topic, name] = _Place(name, writers[-1], self._count)
                    places[topic, name].write(rows)
        except FormatError:
            # Commit the rows before the error: the report counts them.
            self._finish(places.values())
            raise
        else:
            self._finish(places.values())
        finally:
            for writer in writers:
                writer.close()

    def _finish(self, places: Iterable[_Place]) -> None:
        for place in places:
            place.finish()

    def _parted(self, batch: pa.RecordBatch) -> Iterator[tuple[str, TopicPartition, pa.RecordBatch]]:
        """Yield the rows of each partition, in their order: the topic that they name, where they go, and the rows."""
        topics = batch.column("topic").to_pylist()
        numbers = batch.column("partition").to_pylist()
        keys = batch.column("key") if None in numbers else None
        found: dict[tuple[str, TopicPartition], list[int]] = {}
        for row, (named, number) in enumerate(zip(topics, numbers, strict=True)):
            topic = self._topic or named
            if topic is None:
                raise OptionError("a record names no topic: name the topic that it goes to")
            if number is None:
                assert keys is not None
                number = self._placed(topic, keys[row].as_py())
            found.setdefault((named or topic, TopicPartition(topic, number)), []).append(row)
        for (origin, name), rows in found.items():
            if self._counts.get(name.topic, 0) <= name.partition:
                self._ensure_topic(name.topic, name.partition + 1)
                self._counts[name.topic] = self._target.partitions(name.topic)
            yield origin, name, batch if len(found) == 1 else batch.take(pa.array(rows))

    def _placed(self, topic: str, key: bytes | None) -> int:
        """Return the partition of a record that names none, as Kafka's producer chooses it."""
        if topic not in self._counts:
            self._target.ensure_topic(topic, 1)
            self._counts[topic] = self._target.partitions(topic)
        if key is None:
            return self._sticky.setdefault(topic, random.randrange(self._counts[topic]))
        return partition_for_key(key, self._counts[topic])


class _Place:
    """One partition of the target, and what was written to it."""

    def __init__(
        self,
        name: TopicPartition,
        writer: PartitionWriter,
        count: Callable[[int, int], None],
    ) -> None:
        self._name = name
        self._writer = writer
        self._count = count
        self._position = writer.position()
        self._last: Record | None = writer.last_record() if self._position is not None else None
        self._has_offsets: bool | None = None
        self._seen = -1
        self._bytes = self._rows = 0
        self._next: int | None = None
        self._start: int | None = None

    def needs(self, piece: _Piece) -> bool:
        """Whether a piece has offsets that the target lacks, or those that show what it has."""
        self._start = piece.start_offset
        if self._position is None or piece.end_offset > self._position:
            return True
        return self._last is not None and piece.start_offset <= (self._last.offset or 0) < piece.end_offset

    def write(self, rows: pa.RecordBatch) -> None:
        """Write the rows that the target lacks."""
        if not rows.num_rows:
            return
        missing = rows.column("offset").null_count
        if missing not in (0, rows.num_rows) or self._has_offsets is (missing > 0):
            raise LogError(f"{self._name}: some records have offsets, and others do not")
        self._has_offsets = missing == 0
        if not self._has_offsets:
            self._writer.append(_stamped(rows))
        else:
            rows = self._left(rows)
            if not rows.num_rows:
                return
            self._writer.write(rows)
            self._next = rows.column("offset")[-1].as_py() + 1
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._bytes >= _COMMIT_BYTES:
            self._commit()

    def _left(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        offsets = rows.column("offset")
        self._check_order(offsets)
        position = self._position
        first = offsets[0].as_py()
        if position is None and self._next is None:
            self._writer.begin(first if self._start is None else self._start)
        if position is None or first >= position:
            self._settle(first)
            return rows
        below = pc.sum(pc.less(offsets, position)).as_py()
        self._check_held(rows.slice(0, below))
        self._count(0, below)
        return rows.slice(below)

    def _check_order(self, offsets: pa.Array) -> None:
        before = pa.concat_arrays([pa.array([self._seen], offsets.type), offsets[:-1]])
        row = pc.index(pc.greater(offsets, before), False).as_py()
        if row >= 0:
            raise FormatError(f"{self._name}: offset {offsets[row]} follows offset {before[row]}")
        self._seen = offsets[-1].as_py()

    def _check_held(self, rows: pa.RecordBatch) -> None:
        """Compare the last record of the target with the one that was to be imported."""
        if self._last is None or rows.column("offset")[-1].as_py() < (self._last.offset or 0):
            return
        held, self._last = self._last, None
        (same,) = rows.filter(pc.equal(rows.column("offset"), held.offset)).to_pylist() or [None]
        headers = (
            []
            if same is None
            else [
                (header["key"].decode("utf-8", "surrogateescape"), header["value"]) for header in same["headers"] or []
            ]
        )
        if same is None or (same["key"], same["value"], headers) != (
            held.key,
            held.value,
            list(held.headers),
        ):
            raise self._other()

    def _settle(self, first: int) -> None:
        """Accept that the target's last record is not in the files, if the import continues right after it."""
        if self._last is not None and first != self._position and self._start != self._position:
            raise self._other()
        self._last = None

    def _other(self) -> LogError:
        return LogError(
            f"{self._name} has other records than those that are imported: name another folder, or another topic"
        )

    def reached(self, end_offset: int) -> None:
        """Note that everything below an offset was written."""
        if self._position is None or end_offset > self._position:
            self._settle(-1)
            self._next = end_offset
            self._writer.write(_NOTHING, end_offset)

    def _commit(self) -> None:
        self._writer.commit()
        self._count(self._rows, 0)
        self._rows = self._bytes = 0

    def finish(self) -> None:
        """Commit the remaining rows."""
        self._commit()


def _stamped(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with the time of now where they have none, as Kafka's producer sends them."""
    number = rows.schema.get_field_index("timestamp")
    now = pa.scalar(now_ms(), pa.int64()).cast(rows.schema.field(number).type)
    return rows.set_column(number, rows.schema.field(number), pc.fill_null(rows.column(number), now))


_NOTHING = pa.RecordBatch.from_arrays([pa.array([], pa.int64())], ["offset"])


def _resolved(path: Path) -> Path:
    # `Path.resolve` would raise a RuntimeError for a symbolic link to itself; opening it raises an OSError.
    return Path(os.path.realpath(path))


def _files(directory: Path) -> tuple[dict[TopicPartition, list[_Piece]], list[Path]]:
    """Return the files of an export by partition, in the order of their offsets, and the other files of records."""
    exported: dict[TopicPartition, list[ExportedFile]] = {}
    others = []
    for path in sorted(directory.rglob("*")):
        if any(part.startswith(("_", ".")) for part in path.relative_to(directory).parts) or format_of(path) is None:
            continue
        file = exported_file(_resolved(path))
        if file is None:
            others.append(path)
        else:
            exported.setdefault(file.topic_partition, []).append(file)
    return {name: list(_pieces(name, files)) for name, files in sorted(exported.items())}, others


def _merged(files: Iterable[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files in the order of their offsets, which increase in each file."""
    left = [(file, rows) for file in files for rows in itertools.islice(file, 1)]
    while left:
        # The rows that were not read yet come after this offset.
        reached = min(rows.column("offset")[-1].as_py() for _, rows in left)
        parts, rest = [], []
        for file, rows in left:
            count = pc.sum(pc.less_equal(rows.column("offset"), reached)).as_py()
            parts.append(rows[:count])
            if count < rows.num_rows:
                rest.append((file, rows[count:]))
            else:
                rest += [(file, following) for following in itertools.islice(file, 1)]
        yield from pa.Table.from_batches(parts).sort_by("offset").combine_chunks().to_batches()
        left = rest


def _pieces(name: TopicPartition, files: list[ExportedFile]) -> Iterator[_Piece]:
    reached = 0
    ordered = sorted(files, key=lambda file: (file.start_offset, file.end_offset, file.path))
    for (start, end), same in itertools.groupby(ordered, lambda file: (file.start_offset, file.end_offset)):
        paths = [file.path for file in same]
        if start < reached:
            raise LogError(
                f"{paths[0]}: its offsets begin at {start}, below {reached}, where another file of {name} ends"
            )
        yield _Piece(start, end, paths)
        reached = end
