"""Exports the records of a source into files. An export can be ended at any moment, and the next run continues it.

    partition -> rows -> | file [0, 1200) | file [1200, 2400) | ...       each partition by one thread at a time

The name of a file has its partition, its first offset and the offset after its last one.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from odradek import system
from odradek.columnar.far_timestamps import FarTimestamps
from odradek.columnar.header_names import EXACT_SCHEMA
from odradek.columnar.row_files import RowWriter
from odradek.errors import FormatError, LogError, OffsetOutOfRangeError, OptionError
from odradek.inspection.ahead import ahead
from odradek.kafka.stopping import StoppedError
from odradek.places.path import PathPlace
from odradek.places.place import Place
from odradek.records.isolation import Isolation
from odradek.records.timestamps import OnFarTimestamps, TimeRange
from odradek.sources.arrow import record_batches
from odradek.storage.directory.surrounding import check_outside
from odradek.storage.file_lock import FileLock
from odradek.storage.files import hidden_temporary, replaceable
from odradek.storage.names import TopicPartition
from odradek.transfer.export_folder import ExportFolder, Progress
from odradek.transfer.record_files import STREAMS, row_writer
from odradek.transfer.threads import in_threads

FILE_BYTES = 128 << 20
"""About how large a file of an export becomes: the most of a partition that is repeated after an interruption."""

PARTITION_BY = ("partition", "topic", "date")

_MOST_DATES = 32
"""How many files of one partition are open at a time at most."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records are exported.

    Attributes:
        start_offset: The first offset, in each partition; None is the first that there is.
        end_offset: The offset after the last one.
        since_ms: The first time.
        until_ms: The time after the last one.
        isolation: `read_committed` leaves out aborted and undecided transactions.
    """

    start_offset: int | None = None
    end_offset: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    isolation: Isolation = "read_uncommitted"


class Lost(NamedTuple):
    """Offsets that were deleted in the source before they were exported."""

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int


@dataclass
class ExportReport:
    """What an export did.

    Attributes:
        records: How many records it wrote.
        files: How many files.
        offsets: How many offsets it has passed.
        lost: What was deleted before it was exported.
        damaged: What could not be read: the partition is exported up to there.
    """

    records: int = 0
    files: int = 0
    offsets: int = 0
    lost: list[Lost] = field(default_factory=list)
    damaged: list[FormatError] = field(default_factory=list)


class Export:
    """An export of partitions of a source.

    Args:
        source: The source.
        partitions: The partitions.
        selection: Which of their records.
        far_timestamps: What is done about timestamps outside of the years 1 to 9999.

    Attributes:
        report: What was done so far; read by any thread.
        far_timestamps: How many timestamps are null because they are outside of those years.
    """

    def __init__(
        self,
        source: Place,
        partitions: Iterable[TopicPartition],
        selection: Selection,
        far_timestamps: OnFarTimestamps = "error",
    ) -> None:
        self.report = ExportReport()
        self._source = source
        self._partitions = list(partitions)
        self._selection = selection
        self.far_timestamps = FarTimestamps(far_timestamps)
        self._stop = threading.Event()
        self._lock = threading.Lock()

    def total_offsets(self) -> int:
        """Return about how many offsets there are."""
        bounds = self._source.all_bounds(self._partitions, self._selection.isolation)
        return sum(held.end_offset - held.start_offset for held in bounds.values())

    def to_folder(
        self,
        directory: str | os.PathLike[str],
        form: str = "parquet",
        *,
        partition_by: str = "partition",
        file_bytes: int = FILE_BYTES,
        threads: int | None = None,
    ) -> ExportReport:
        """Export into a folder, on from where an earlier run ended.

        Args:
            directory: The folder; created if it is missing.
            form: The format, of `record_files.FORMATS`.
            partition_by: How files are laid out, of `PARTITION_BY`; `date` is that of the timestamp, in UTC.
            file_bytes: About how large a file becomes.
            threads: How many partitions are exported at a time; as many as there are cores if None.

        Raises:
            LogError: The folder holds something else, is within a log directory, or was started with other options; a
                topic was created again.
            OSError: The disk failed.
        """
        how: dict[str, Any] = {"format": form, "partition_by": partition_by, **asdict(self._selection)}
        source = Path(self._source.address) if isinstance(self._source, PathPlace) else None
        check_outside(Path(directory), source)
        with ExportFolder(Path(directory), how) as folder:
            topics = self._source.topics()
            wanted = sorted({name.topic for name in self._partitions})
            folder.note_topics(
                {
                    topic: {
                        "partitions": max(topics[topic].partitions) + 1,
                        "config": _config(self._source.topic_config(topic)),
                    }
                    for topic in wanted
                }
            )
            layout = _Layout(folder, form, partition_by, file_bytes)

            def export(name: TopicPartition) -> None:
                self._partition(name, topics[name.topic].topic_id, layout)

            in_threads(
                export,
                self._partitions,
                threads or system.processors(),
                name="odradek-export",
                stop=self._stop,
            )
        return self.report

    def _partition(self, name: TopicPartition, topic_id: str | None, layout: _Layout) -> None:
        while not self._part(name, topic_id, layout):
            # The next records were deleted meanwhile: continue after them.
            pass

    def _part(self, name: TopicPartition, topic_id: str | None, layout: _Layout) -> bool:
        """Export a partition up to its end, or to what was deleted meanwhile; return whether it is done."""
        done = layout.folder.progress(name)
        start, end = self._range(name, done, topic_id)
        # Offsets that were deleted before they were exported belong to the next file, so that files leave no gap.
        first = start if done is None else done.files_end
        selection = self._selection
        if done is None and selection.since_ms is not None and start < end:
            found = self._source.find_timestamp(name, selection.since_ms, selection.isolation)
            first = start = end if found is None else max(start, found)
        if start >= end:
            return True
        part = _Part(name, layout, first, topic_id)
        try:
            for rows in self._rows(name, start, end):
                left = rows
                while left.num_rows:
                    if self._stop.is_set():
                        raise StoppedError
                    left = part.write(left)
                    if part.is_full or left.num_rows:
                        self._publish(part, part.next_offset)
        except FormatError as error:
            # The rows before the damage are right.
            self._publish(part, part.next_offset)
            with self._lock:
                self.report.damaged.append(error)
        except OffsetOutOfRangeError:
            if self._source.bounds(name).start_offset <= part.next_offset:
                raise
            self._publish(part, part.next_offset)
            return False
        except StoppedError:
            pass
        else:
            self._publish(part, end)
        finally:
            part.drop()
        return True

    def _range(self, name: TopicPartition, done: Progress | None, topic_id: str | None) -> tuple[int, int]:
        held = self._source.bounds(name, self._selection.isolation)
        first = self._selection.start_offset
        start = held.start_offset if first is None else max(first, held.start_offset)
        end = (
            held.end_offset if self._selection.end_offset is None else min(self._selection.end_offset, held.end_offset)
        )
        if done is None:
            return start, end
        if None not in (topic_id, done.topic_id) and topic_id != done.topic_id:
            raise LogError(f"{name}: the topic was deleted and created again: export it into another folder")
        if done.next_offset > held.end_offset:
            raise LogError(
                f"{name} is exported up to {done.next_offset}, and ends at {held.end_offset} now: it was truncated"
            )
        if done.next_offset < held.start_offset:
            with self._lock:
                self.report.lost.append(Lost(name, done.next_offset, held.start_offset))
        return max(start, done.next_offset), end

    def _rows(self, name: TopicPartition, start: int, end: int) -> Iterable[pa.RecordBatch]:
        times = TimeRange(self._selection.since_ms, self._selection.until_ms)
        rows = record_batches(
            self._source,
            name,
            start,
            end,
            schema=EXACT_SCHEMA,
            times=times,
            isolation=self._selection.isolation,
            far_timestamps=self.far_timestamps,
        )
        # One thread decodes while another writes. A broker is waited for in this thread, in which `stop` ends the wait.
        return ahead(rows) if isinstance(self._source, PathPlace) else rows

    def _publish(self, part: _Part, next_offset: int) -> None:
        with self._lock:
            self.report.offsets += max(0, next_offset - part.start)
            self.report.records += part.records
            self.report.files += part.publish(next_offset)

    def to_stream(self, out: BinaryIO, form: str) -> ExportReport:
        """Export into one open file.

        Raises:
            FormatError: A batch is damaged; what is before it was written.
        """
        writer = row_writer(form, out)
        try:
            for name in self._partitions:
                start, end = self._range(name, None, None)
                if self._selection.since_ms is not None and start < end:
                    found = self._source.find_timestamp(name, self._selection.since_ms, self._selection.isolation)
                    start = end if found is None else max(start, found)
                while start < end:
                    try:
                        for rows in self._rows(name, start, end):
                            writer.write(rows)
                            self.report.records += rows.num_rows
                            self.report.offsets += rows.num_rows
                            if rows.num_rows:
                                start = rows.column("offset")[-1].as_py() + 1
                        break
                    except OffsetOutOfRangeError:
                        # The next records were deleted meanwhile: continue after them.
                        first = min(self._source.bounds(name).start_offset, end)
                        if first <= start:
                            raise
                        self.report.lost.append(Lost(name, start, first))
                        start = first
            writer.finish()
        finally:
            writer.drop()
        return self.report

    def to_file(self, path: str | os.PathLike[str], form: str) -> ExportReport:
        """Export into one file, which appears under its name when it is whole.

        A link stays, and the file that it leads to is replaced. A pipe or a device is not replaced: it is written to.

        Raises:
            FormatError: A batch is damaged; there is no file.
            OptionError: A pipe cannot hold this format.
            OSError: The disk failed.
        """
        target = Path(path)
        place = replaceable(target)
        if place is None:
            if form not in STREAMS:
                raise OptionError(f"{target} is a pipe or a device, which takes {' and '.join(STREAMS)}, not {form}")
            with target.open("wb") as pipe:
                self.to_stream(pipe, form)
            self.report.files = 1
            return self.report
        temporary = hidden_temporary(place)
        lock = FileLock(temporary)
        if not lock.acquire():
            raise LogError(f"{target}: another program is exporting into it")
        try:
            # `out` is closed only after the rename: POSIX ends the lock when any descriptor of the file is closed.
            out = temporary.open("wb")
            try:
                self.to_stream(out, form)
                out.flush()
                if place.exists():
                    os.fchmod(out.fileno(), stat.S_IMODE(place.stat().st_mode))
                system.sync(out.fileno())
                temporary.replace(place)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            finally:
                out.close()
        finally:
            lock.release()
        self.report.files = 1
        return self.report


def _config(config: dict[str, str]) -> dict[str, str]:
    """Return the settings that a broker takes: without those for Kafka's own tests."""
    return {name: value for name, value in config.items() if not name.startswith("internal.")}


@dataclass(frozen=True, slots=True)
class _Layout:
    folder: ExportFolder
    form: str
    partition_by: str
    file_bytes: int


class _Part:
    """Consecutive offsets of one partition on their way into files: one, or one for each date."""

    def __init__(self, name: TopicPartition, layout: _Layout, start: int, topic_id: str | None) -> None:
        self.start = self.next_offset = start
        self.records = 0
        self._name = name
        self._layout = layout
        self._topic_id = topic_id
        self._open: dict[str, tuple[Path, BinaryIO, RowWriter]] = {}

    @property
    def is_full(self) -> bool:
        """Whether the files are large enough."""
        size = sum(writer.size_bytes for _, _, writer in self._open.values())
        return size >= self._layout.file_bytes

    def write(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Write rows, which follow those before; return those for which the files must be published first."""
        left = rows[rows.num_rows :]
        if self._layout.partition_by == "date":
            dates = pc.fill_null(pc.strftime(rows.column("timestamp"), format="%Y-%m-%d"), "none")
            new = [date for date in pc.unique(dates).to_pylist() if f"date={date}" not in self._open]
            room = _MOST_DATES - len(self._open)
            if len(new) > room:
                cut = pc.index(dates, new[room]).as_py()
                rows, left, dates = rows[:cut], rows[cut:], dates[:cut]
            for date in pc.unique(dates).to_pylist():
                self._writer(f"date={date}").write(rows.filter(pc.equal(dates, date)))
        elif self._layout.partition_by == "partition":
            self._writer(f"partition={self._name.partition}").write(rows)
        else:
            self._writer("").write(rows)
        if rows.num_rows:
            self.records += rows.num_rows
            self.next_offset = rows.column("offset")[-1].as_py() + 1
        return left

    def _writer(self, folder: str) -> RowWriter:
        if folder not in self._open:
            path = self._layout.folder.temporary(self._name, str(len(self._open)))
            out = path.open("wb")
            self._open[folder] = path, out, row_writer(self._layout.form, out)
        return self._open[folder][2]

    def publish(self, next_offset: int) -> int:
        """Publish the files, which hold everything below an offset; return how many, and begin the next ones."""
        files = {}
        for folder, (path, out, writer) in self._open.items():
            writer.finish()
            out.close()
            files[path] = folder
        files_end = next_offset if files else self.start
        progress = Progress(next_offset, files_end, self._topic_id)
        self._layout.folder.publish(self._name, files, self.start, progress, self._layout.form)
        self.start, self.next_offset = files_end, next_offset
        self.records = 0
        self._open = {}
        return len(files)

    def drop(self) -> None:
        """Close the files; the folder removes them."""
        for _, out, writer in self._open.values():
            writer.drop()
            out.close()
        self._open = {}
