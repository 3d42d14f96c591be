"""Copies a log directory beside a program that continues to write it: Odradek, its broker, or Apache Kafka.

    data/                           read only, without any lock
    copy.incomplete/                being written
    copy/                           complete: renamed from it, when all of it is on the disk
        odradek-backup.json         says that this is a backup, and of what; Kafka ignores it
    copy.previous/                  the last backup, while the new one takes its name

First all partitions are held as they are at one moment (`held_partition`, `coherence`), which takes a second or so;
then they are copied. Segments that no program will change any more get one more name (hard links); the last ones, to
which the writer appends, are always copied. The metadata come last: so they know every topic whose positions and
records are in the copy, and no producer id is given out twice.

The copy has no clean-shutdown marker. Its recovery points are where the last segments begin, since everything before is
on the disk; so a broker that opens it recovers only these, and makes their indexes and the state of producers again.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from odradek.arguments import checked_path
from odradek.errors import FormatError, LogError, UnknownTopicOrPartitionError
from odradek.inspection.backups.coherence import RecordedState, coherent_ends, transaction_states
from odradek.inspection.backups.held_partition import ChangedError, HeldFile, HeldPartition, HeldSegment
from odradek.inspection.backups.targets import INDEX_SUFFIXES, BackupTarget, FolderTarget, TarTarget
from odradek.inspection.log_files import LogDirectoryFolder, UnknownPathError, locate, partition_directories
from odradek.storage.directory.surrounding import check_outside
from odradek.storage.files import FILES, FileSystem, make_durable_directory
from odradek.storage.formats import offset_index, time_index, transaction_index
from odradek.storage.formats.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    format_leader_epochs,
    format_offset_checkpoint,
    parse_leader_epochs,
    read_offset_checkpoint,
)
from odradek.storage.formats.meta_properties import META_PROPERTIES
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, parse_partition_metadata
from odradek.storage.formats.producer_snapshot import read_snapshot
from odradek.storage.log.root_checkpoints import RootCheckpoints
from odradek.storage.metadata.metadata_image import MetadataImage
from odradek.storage.metadata.metadata_log import load_metadata
from odradek.storage.names import (
    BOOTSTRAP_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    CONSUMER_OFFSETS_TOPIC,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
    parse_partition_directory,
    parse_segment_file,
    segment_file_name,
)
from odradek.storage.regular_files import read_file
from odradek.system import raise_descriptor_limit

MARKER = "odradek-backup.json"
INCOMPLETE_SUFFIX = ".incomplete"
PREVIOUS_SUFFIX = ".previous"

_ATTEMPTS = 20
_MAX_FILE_BYTES = 1 << 30


@dataclass(slots=True)
class BackupReport:
    """What a backup holds.

    Attributes:
        target: The backup; None for an archive.
        partitions: How many partitions it has.
        size_bytes: How many bytes their segments have.
        copied_bytes: How many bytes were copied.
        linked_bytes: How many bytes were not, because the files got one more name.
    """

    target: Path | None
    partitions: int = 0
    size_bytes: int = 0
    copied_bytes: int = 0
    linked_bytes: int = 0


def backup(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | IO[bytes],
    files: FileSystem = FILES,
    *,
    links: bool = True,
    watch: Callable[[int, BackupTarget], None] | None = None,
) -> BackupReport:
    """Copy a log directory consistently, while another program may be writing it.

    If it fails or is interrupted, a backup that was there stays as it is.

    Args:
        source: The log directory; it is only read, and not locked.
        target: The folder of the backup: it must not exist, be empty, or be an earlier backup, which is replaced, and
            whose files are used again. Or a stream, which gets a tar archive.
        files: The file system to write through.
        links: Whether segments that no program will change get one more name, instead of being copied; they are copied
            if the file system cannot do that.
        watch: Called with the number of bytes to write, and what counts them, when the files are held.

    Raises:
        UnknownPathError: The source is not a log directory.
        LogError: The target is something else than a backup, lies in the source, or is being written by another
            process; or the source changes too quickly.
        OSError: The target cannot be written.
    """
    path = checked_path("source", source)
    if not isinstance(locate(path), LogDirectoryFolder):
        raise UnknownPathError(path, "not a log directory")
    raise_descriptor_limit()
    if not isinstance(target, str | os.PathLike):
        tar = TarTarget(target)
        report = BackupReport(None)
        _copy(path, tar, report, watch)
        tar.finish()
        return report
    place = Path(os.path.realpath(checked_path("target", target)))
    work, previous = _prepare(path, place, files)
    report = BackupReport(Path(target))
    folder = FolderTarget(work, files, previous=place if previous is not None else None, links=links)
    _copy(path, folder, report, watch)
    folder.finish()
    if previous is not None:
        files.rename(place, previous)
    files.rename(work, place)
    files.sync_directory(place.parent)
    if previous is not None:
        remove_copy(previous, files)
    return report


def is_backup(path: Path) -> bool:
    """Whether a folder is a complete backup."""
    return (path / MARKER).is_file() and (path / META_PROPERTIES).is_file()


def remove_copy(folder: Path, files: FileSystem) -> None:
    """Remove what a backup or a restore left at a name, if anything; after an interruption it can be called again.

    Raises:
        LogError: It is something else.
    """
    if not folder.exists():
        return
    # The marker is made first and removed last, so only an empty folder can be without it.
    if not (folder / MARKER).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise LogError(f"{folder} is there already, and is not what an interrupted run left: remove it first")
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != MARKER:
            files.unlink(path)
    files.unlink(folder / MARKER)
    files.remove_directory(folder)


def _prepare(source: Path, target: Path, files: FileSystem) -> tuple[Path, Path | None]:
    """Make the folder that is written first; return it, and the name for the last backup if there is one."""
    if not target.name:
        raise LogError(f"{target} is the root, which cannot be renamed: name a folder in it")
    work, previous = (target.with_name(target.name + suffix) for suffix in (INCOMPLETE_SUFFIX, PREVIOUS_SUFFIX))
    real = Path(os.path.realpath(source))
    if real in (target, *target.parents) or target in real.parents:
        raise LogError(f"{target} and {source} must not lie in one another")
    check_outside(target)
    is_there = is_backup(target)
    if not is_there:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise LogError(f"{target} is neither empty nor a backup")
        if is_backup(previous):
            # An earlier run ended between its last steps.
            files.rename(previous, target)
            is_there = True
    if is_there:
        remove_copy(previous, files)
    remove_copy(work, files)
    make_durable_directory(work, files)
    return work, previous if is_there else None


def _copy(
    source: Path, target: BackupTarget, report: BackupReport, watch: Callable[[int, BackupTarget], None] | None
) -> None:
    begun = datetime.now(UTC).isoformat(timespec="seconds")
    target.add_bytes(MARKER, (json.dumps({"version": 1, "source": str(source), "begun": begun}) + "\n").encode())
    for attempt in range(_ATTEMPTS):
        with ExitStack() as stack:
            try:
                moment = _Moment(source, stack)
            except ChangedError:
                if attempt + 1 == _ATTEMPTS:
                    raise
                time.sleep(0.05 * attempt)
                continue
            if watch is not None:
                watch(sum(held.size_bytes for held in moment.held), target)
            moment.write(target)
            report.partitions = len(moment.held)
            report.size_bytes = sum(held.size_bytes for held in moment.held)
            report.copied_bytes, report.linked_bytes = target.copied_bytes, target.linked_bytes
            return


class _Moment:
    """A log directory at one moment.

    Args:
        source: The log directory.
        stack: Closes what is held.

    Attributes:
        held: The partitions.

    Raises:
        ChangedError: Segments were replaced meanwhile, so that there was no such moment.
    """

    def __init__(self, source: Path, stack: ExitStack) -> None:
        self._source = source
        self._stack = stack
        self._checkpoints = RootCheckpoints(source)
        # Before the logs: none of them says more than what is held.
        self._offsets = {
            name: _offsets(source / name)
            for name in (LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT)
        }
        offsets = self._hold_topics(lambda topic: topic == CONSUMER_OFFSETS_TOPIC)
        last = {CLUSTER_METADATA_TOPIC, TRANSACTION_STATE_TOPIC}
        data = self._hold_topics(lambda topic: topic != CONSUMER_OFFSETS_TOPIC and topic not in last)
        states = self._hold_topics(lambda topic: topic == TRANSACTION_STATE_TOPIC)
        held = self._cut([*offsets, *data], transaction_states(states, self._checkpoints))
        self.held = [*held, *states, *self._hold_topics(lambda topic: topic == CLUSTER_METADATA_TOPIC)]
        self._root_files = {}
        for name in (BOOTSTRAP_CHECKPOINT, META_PROPERTIES):
            with suppress(FileNotFoundError):
                self._root_files[name] = read_file(source / name, _MAX_FILE_BYTES)
        self._drop_unknown()

    def _drop_unknown(self) -> None:
        """Leave out the topics that were deleted, and perhaps recreated, after their partitions were held."""
        try:
            loaded = load_metadata(self._source)
        except FormatError:
            # Damaged metadata are copied as they are, with all partitions.
            return
        if loaded.is_recorded:
            self.held = [partition for partition in self.held if _is_known(partition, loaded.image)]

    def _hold_topics(self, is_wanted: Callable[[str], bool]) -> list[HeldPartition]:
        held = []
        for path in partition_directories(self._source):
            parsed = parse_partition_directory(path.name)
            if parsed is not None and is_wanted(parsed.topic_partition.topic):
                with suppress(UnknownTopicOrPartitionError):
                    held.append(self._hold(path, parsed.topic_partition))
        return held

    def _hold(self, path: Path, owner: TopicPartition, end_offset: int | None = None) -> HeldPartition:
        partition = HeldPartition(path, owner, lambda: self._checkpoints.stable_offset(owner), end_offset)
        return self._stack.enter_context(partition)

    def _cut(self, held: list[HeldPartition], states: Mapping[int, RecordedState]) -> list[HeldPartition]:
        """Hold partitions again that must go on further."""
        if not states:
            return held
        ends = coherent_ends(held, states, self._checkpoints)
        result = []
        for partition in held:
            end_offset = ends.get(partition.topic_partition)
            if end_offset is not None:
                with suppress(UnknownTopicOrPartitionError):
                    longer = self._hold(partition.path, partition.topic_partition, end_offset)
                    # Since then no segment may have been compacted: its records would be of another moment.
                    partition.check()
                    result.append(longer)
                partition.close()
            else:
                result.append(partition)
        return result

    def write(self, target: BackupTarget) -> None:
        """Write it."""
        for partition in self.held:
            _write_partition(partition, target)
        ends = {partition.topic_partition: partition.end_offset for partition in self.held}
        recovery_points = {
            partition.topic_partition: partition.segments[-1].base_offset
            for partition in self.held
            if partition.segments
        }
        for name, offsets in self._offsets.items():
            limits = recovery_points if name == CLEANER_OFFSET_CHECKPOINT else ends
            known = {owner: min(offset, limits[owner]) for owner, offset in offsets.items() if owner in limits}
            target.add_bytes(name, format_offset_checkpoint(known))
        target.add_bytes(RECOVERY_POINT_CHECKPOINT, format_offset_checkpoint(recovery_points))
        for name, data in self._root_files.items():
            target.add_bytes(name, data)


def _is_known(partition: HeldPartition, image: MetadataImage) -> bool:
    """Whether a partition's topic was not deleted meanwhile: the metadata know it, or its folder is as it was."""
    data = partition.whole_files.get(PARTITION_METADATA, b"")
    owner = partition.topic_partition
    topic = image.topics.get(owner.topic)
    with suppress(FormatError, UnicodeDecodeError):
        if topic is not None and topic.topic_id == parse_partition_metadata(data.decode()):
            return True
    # A folder that is still there is copied, whatever is wrong with it: `verify` says what.
    with suppress(FileNotFoundError):
        return read_file(partition.path / PARTITION_METADATA, _MAX_FILE_BYTES) == data
    return partition.path.exists()


def _offsets(path: Path) -> dict[TopicPartition, int]:
    """Return a checkpoint's offsets; Kafka does without one that it cannot read, and so does a copy."""
    try:
        return read_offset_checkpoint(path)
    except FormatError:
        return {}


def _write_partition(partition: HeldPartition, target: BackupTarget) -> None:
    folder = str(partition.topic_partition)
    target.add_folder(folder)
    for segment in partition.segments:
        name = f"{folder}/{segment_file_name(segment.base_offset, LOG_SUFFIX)}"
        target.add_file(name, segment.file, segment.size_bytes, is_settled=segment.is_settled)
        _write_indexes(segment, folder, partition.end_offset, target)
    for file in partition.snapshots:
        target.add_file(f"{folder}/{file.path.name}", file, file.status.st_size, is_settled=True)
    for name, data in partition.whole_files.items():
        if name == LEADER_EPOCH_CHECKPOINT:
            with suppress(FormatError, UnicodeDecodeError):
                entries = parse_leader_epochs(data.decode())
                kept = [entry for entry in entries if entry.start_offset < partition.end_offset]
                data = format_leader_epochs(kept)
        target.add_bytes(f"{folder}/{name}", data)
    for path in partition.path.glob(f"*{SNAPSHOT_SUFFIX}"):
        named = parse_segment_file(path.name)
        if named is not None and named.base_offset <= partition.end_offset:
            # One that is just being written is not complete yet.
            with suppress(FileNotFoundError, FormatError):
                data = read_file(path, _MAX_FILE_BYTES)
                read_snapshot(path)
                target.add_bytes(f"{folder}/{path.name}", data)


def _write_indexes(segment: HeldSegment, folder: str, end_offset: int, target: BackupTarget) -> None:
    """Write the indexes of a segment, unless it was replaced meanwhile: a broker makes missing ones when it starts."""
    with ExitStack() as stack:
        indexes: dict[str, HeldFile] = {}
        for suffix in INDEX_SUFFIXES:
            path = segment.file.path.with_name(segment_file_name(segment.base_offset, suffix) + segment.suffix)
            with suppress(FileNotFoundError):
                indexes[suffix] = HeldFile(path)
                stack.callback(indexes[suffix].close)
        if not segment.file.has_name():
            # The segment was replaced: the indexes may be those of the new one.
            return
        for suffix, file in indexes.items():
            name = f"{folder}/{segment_file_name(segment.base_offset, suffix)}"
            if segment.is_last:
                # A running Kafka preallocates indexes. Each batch has at least 14 bytes, and at most one entry.
                most = transaction_index.ENTRY.size * (segment.size_bytes // 14 + 1)
                data = os.pread(file.descriptor, min(most, file.status.st_size), 0)
                target.add_bytes(name, _cut_index(suffix, data, segment, end_offset))
            else:
                target.add_file(name, file, file.status.st_size, is_settled=segment.is_settled)


def _cut_index(suffix: str, data: bytes, segment: HeldSegment, end_offset: int) -> bytes:
    """Return the entries of an index that lead to what is held of its segment."""
    base_offset = segment.base_offset
    kept = 0
    if suffix == INDEX_SUFFIX:
        for relative_offset, position in offset_index.ENTRY.iter_unpack(_whole(data, offset_index.ENTRY)):
            is_within = 0 < relative_offset < end_offset - base_offset and 0 <= position < segment.size_bytes
            if not is_within:
                break
            kept += offset_index.ENTRY.size
    elif suffix == TIME_INDEX_SUFFIX:
        for timestamp, relative_offset in time_index.ENTRY.iter_unpack(_whole(data, time_index.ENTRY)):
            if (timestamp, relative_offset) == (0, 0) or base_offset + relative_offset >= end_offset:
                break
            kept += time_index.ENTRY.size
    else:
        for _, _, _, last_offset, _ in transaction_index.ENTRY.iter_unpack(_whole(data, transaction_index.ENTRY)):
            if last_offset >= end_offset:
                break
            kept += transaction_index.ENTRY.size
    return data[:kept]


def _whole(data: bytes, entry: struct.Struct) -> bytes:
    return data[: len(data) // entry.size * entry.size]
