"""`__cluster_metadata-0`: the log of the metadata records, and the metadata that it and its snapshots give.

    00000000000000000000-0000000000.checkpoint     a snapshot: end offset, epoch
    00000000000000000000.log                       batches of metadata records, and the controllers' control records
    bootstrap.checkpoint                           one level up: counts while the log has no metadata.version

Since Apache Kafka 4.4 a new log directory has no `bootstrap.checkpoint`: its records are in the first snapshot.

The log is read from the newest snapshot on, but all of it must be valid: Kafka loads it as after a crash and cuts it at
the first invalid batch, so later batches are lost. So nothing is cut here but the torn end that a crash leaves, and the
caller says whether there was a crash. The indexes need no update, and a change is one more batch at the end. All
records of a batch have the same timestamp: otherwise Kafka does not start.

Source in Kafka: `KafkaRaftLog`, `RecordsBatchReader`, `ActivationRecordsGenerator`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from odradek.errors import CheckpointError, FormatError, LogError, PolicyViolationError
from odradek.messages.metadata.control_records import KRaftVoters, LeaderChange, Voter, control_records
from odradek.messages.metadata.metadata_records import decode_metadata_record
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.records.timestamps import now_ms
from odradek.storage.files import FILES, FileSystem
from odradek.storage.formats.checkpoints import LEADER_EPOCH_CHECKPOINT, EpochEntry, read_leader_epochs
from odradek.storage.formats.metadata_batches import MAX_BATCH_BYTES, BatchFile
from odradek.storage.formats.metadata_snapshot import Snapshot, read_snapshot
from odradek.storage.formats.quorum_state import QUORUM_STATE
from odradek.storage.metadata.folders import image_of_folders, unknown_partitions
from odradek.storage.metadata.metadata_image import METADATA_VERSION, MetadataImage
from odradek.storage.names import (
    BOOTSTRAP_CHECKPOINT,
    CHECKPOINT_SUFFIX,
    CLUSTER_METADATA_TOPIC,
    LOG_SUFFIX,
    RaftSnapshotFile,
    TopicPartition,
    parse_raft_snapshot_file,
    parse_segment_file,
    partition_directory_name,
    raft_snapshot_file_name,
    segment_file_name,
)
from odradek.storage.system_errors import suppress_system_errors, unreadable

METADATA_DIRECTORY = partition_directory_name(TopicPartition(CLUSTER_METADATA_TOPIC, 0))


class MetadataTail(NamedTuple):
    """Where the metadata log ends.

    Attributes:
        path: Its last segment.
        position: Where the next batch goes in it.
        next_offset: The offset of the next record.
        epoch: The leader epoch of the next batch.
        voters: The controllers that vote, by the last election; empty if none is recorded.
        damage: Why the bytes from `position` to the end are not a batch, as a crash leaves them; None if there are no
            such bytes.
    """

    path: Path
    position: int
    next_offset: int
    epoch: int
    voters: frozenset[int] = frozenset()
    damage: FormatError | None = None


class BootstrapFile(NamedTuple):
    """The file with the metadata of a log directory whose metadata log is empty.

    Attributes:
        path: `bootstrap.checkpoint`, or the first snapshot of the log.
        values: The metadata records, as bytes.
        voters: The voters that it names.
        logged_ms: The time in its header.
    """

    path: Path
    values: tuple[bytes | None, ...]
    voters: tuple[Voter, ...] = ()
    logged_ms: int = 0


@dataclass(slots=True)
class LoadedMetadata:
    """The metadata of a log directory.

    Attributes:
        image: The topics, settings and features.
        tail: Where the metadata log ends; None if there is no metadata log.
        bootstrap: The file that has them while the log is empty.
        is_recorded: Whether topics are recorded at all; otherwise the image was made up from the names of folders.
        was_led: Whether a controller has been the leader, so that the log cannot still be empty.
    """

    image: MetadataImage = field(default_factory=MetadataImage)
    tail: MetadataTail | None = None
    bootstrap: BootstrapFile | None = None
    is_recorded: bool = True
    was_led: bool = False


def load_metadata(directory: Path) -> LoadedMetadata:
    """Read the metadata of a log directory.

    They come from the metadata log with its newest snapshot; while that is empty, from `bootstrap.checkpoint`; and in a
    folder from before KRaft, or one that lost both, from the names of its folders.

    Returns:
        The metadata. What a crash left at the end of the log is skipped: see `MetadataTail.damage`.

    Raises:
        FormatError: The log or a snapshot is damaged in a way that no crash causes; a record contradicts earlier ones;
            or the log is empty although it was written to and there are partitions.
        OSError: The disk failed.
    """
    loaded = _load_log(directory / METADATA_DIRECTORY)
    image, file = loaded.image, loaded.bootstrap
    is_known = METADATA_VERSION in image.features or bool(image.topics)
    if is_known and file is None:
        return loaded
    if not is_known:
        # The controller of an empty log copies the records of bootstrap.checkpoint, and aborts a transaction that began
        # before.
        image, file, path = MetadataImage(), None, directory / BOOTSTRAP_CHECKPOINT
        with suppress(FileNotFoundError):
            file = BootstrapFile(path, _apply_snapshot(image, path).values)
    unknown = unknown_partitions(directory, image) if loaded.was_led else []
    if unknown:
        raise FormatError(
            f"it knows nothing of {len(unknown)} partitions that are here, {unknown[0].name} among them, although a "
            "controller has written to it",
            path=loaded.tail.path if loaded.tail is not None else directory / METADATA_DIRECTORY,
            position=0,
        )
    if file is None:
        # The log, if there is one, does not even have its version.
        return LoadedMetadata(image_of_folders(directory), loaded.tail, is_recorded=False)
    return LoadedMetadata(image, loaded.tail, file)


def load_bootstrap(path: Path) -> MetadataImage:
    """Return the metadata in `bootstrap.checkpoint`, whether they count or not.

    Raises:
        FormatError: It is damaged.
        FileNotFoundError: It does not exist.
    """
    image = MetadataImage()
    _apply_snapshot(image, path)
    return image


def holds_topics(directory: Path) -> bool:
    """Whether a log directory has metadata records: a metadata log, or topics in `bootstrap.checkpoint`.

    Raises:
        FormatError: As `load_metadata`.
    """
    loaded = load_metadata(directory)
    return loaded.tail is not None or (loaded.is_recorded and bool(loaded.image.topics))


def _apply(image: MetadataImage, values: Iterable[bytes | None], path: Path, position: int) -> None:
    for value in values:
        try:
            image.apply(decode_metadata_record(value))
        except FormatError as error:
            # A position within the record is of no use to a reader of the file.
            raise FormatError(error.reason, path=path, position=position) from error


def _apply_snapshot(image: MetadataImage, path: Path) -> Snapshot:
    content = read_snapshot(path)
    for position, values in content.batches:
        _apply(image, values, path, position)
    return content


def _load_log(folder: Path) -> LoadedMetadata:
    try:
        names = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return LoadedMetadata()
    except OSError as error:
        if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
            raise unreadable(error, folder) from error
        raise FormatError(f"this is not a folder: {error.strerror}", path=folder) from error
    snapshots = [snapshot for snapshot in map(parse_raft_snapshot_file, names) if snapshot is not None]
    segments = [file for file in map(parse_segment_file, names) if file is not None and file.suffix == LOG_SUFFIX]
    snapshot = max(snapshots, default=RaftSnapshotFile(0, 0))
    load = _Load(folder, snapshot, _read_epochs(folder))
    if snapshots:
        load.read_snapshot()
    if not segments and snapshot.end_offset > 0:
        raise FormatError(
            f"the records from offset {snapshot.end_offset} on are missing: no segment is here", path=folder
        )
    for segment in segments:
        load.read_segment(segment.base_offset, is_last=segment is segments[-1])
    tail = load.tail
    if tail is not None and tail.next_offset < snapshot.end_offset:
        reason = f"the log ends with offset {tail.next_offset}, before the snapshot at {snapshot.end_offset}"
        raise FormatError(reason, path=tail.path, position=tail.position)
    if tail is not None:
        begun = [entry.epoch for entry in load.epochs if entry.start_offset <= tail.next_offset]
        tail = tail._replace(epoch=max([tail.epoch, snapshot.epoch, *begun]))
    first = load.first if tail is None or tail.next_offset == 0 else None
    # Kafka records the epoch before it writes the first record of it.
    return LoadedMetadata(load.image, tail, first, was_led=bool(load.epochs) or QUORUM_STATE in names)


def _read_epochs(folder: Path) -> list[EpochEntry]:
    path = folder / LEADER_EPOCH_CHECKPOINT
    entries = read_leader_epochs(path)
    for before, entry in pairwise(entries):
        if entry.epoch <= before.epoch or entry.start_offset < before.start_offset:
            reason = (
                f"epoch {entry.epoch} from {entry.start_offset} on follows {before.epoch} from {before.start_offset} on"
            )
            raise CheckpointError(reason, path=path)
    return entries


class _Load:
    """The metadata log as it is read, segment by segment.

    Attributes:
        image: The metadata so far.
        tail: Where the log ends so far.
        epochs: What `leader-epoch-checkpoint` says.
        first: The snapshot of the empty log, if it has metadata records.
    """

    def __init__(self, folder: Path, snapshot: RaftSnapshotFile, epochs: list[EpochEntry]) -> None:
        self.image = MetadataImage()
        self.tail: MetadataTail | None = None
        self.epochs = epochs
        self.first: BootstrapFile | None = None
        self._folder = folder
        self._snapshot = snapshot
        self._voters: frozenset[int] = frozenset()
        self._snapshot_has_voters = False

    def read_snapshot(self) -> None:
        """Begin with the newest snapshot."""
        path = self._folder / raft_snapshot_file_name(*self._snapshot)
        content = _apply_snapshot(self.image, path)
        self._snapshot_has_voters = bool(content.voters)
        self._voters = frozenset(voter.voter_id for voter in content.voters)
        if self._snapshot.end_offset == 0 and content.batches:
            logged_ms = content.header.last_contained_log_timestamp
            self.first = BootstrapFile(path, content.values, content.voters, logged_ms)

    def read_segment(self, base_offset: int, *, is_last: bool) -> None:
        """Go on with a segment."""
        path = self._folder / segment_file_name(base_offset, LOG_SUFFIX)
        next_offset = base_offset if self.tail is None else self.tail.next_offset
        if base_offset != next_offset:
            raise FormatError(
                f"it begins at offset {base_offset}, the previous segment ends at {next_offset}", path=path, position=0
            )
        if self.tail is None and base_offset > self._snapshot.end_offset:
            reason = f"the records below offset {base_offset} are missing, and no snapshot replaces them"
            raise FormatError(reason, path=path, position=0)
        epoch = 0 if self.tail is None else self.tail.epoch
        with BatchFile(path, next_offset=base_offset, epoch=epoch, epochs=self.epochs) as file:
            for position, header, records in file:
                if header.is_control:
                    self._read_control(records, path, position)
                elif header.next_offset > self._snapshot.end_offset:
                    values = (record.value for record in records if (record.offset or 0) >= self._snapshot.end_offset)
                    _apply(self.image, values, path, position)
            if file.damage is not None:
                self._check_torn(file, file.damage, is_last=is_last)
            self.tail = MetadataTail(path, file.position, file.next_offset, file.epoch, self._voters, file.damage)

    def _read_control(self, records: list[Record], path: Path, position: int) -> None:
        for record, control in control_records(records, path, position):
            # A snapshot may leave the voters to earlier records.
            counts = (record.offset or 0) >= self._snapshot.end_offset or not self._snapshot_has_voters
            if counts and isinstance(control, LeaderChange | KRaftVoters):
                self._voters = frozenset(voter.voter_id for voter in control.voters)

    def _check_torn(self, file: BatchFile, damage: FormatError, *, is_last: bool) -> None:
        """Raise unless a crash may have left this: the damage reaches the log's end, and no valid batch follows."""
        if not file.may_be_torn:
            raise damage
        if not is_last:
            raise FormatError(f"{damage.reason}; more segments follow", path=damage.path, position=damage.position)
        more = file.find_more()
        if more is not None:
            reason = f"{damage.reason}; a whole batch follows at position {more}"
            raise FormatError(reason, path=damage.path, position=damage.position)


def metadata_stamps(directory: Path) -> dict[str, tuple[int, ...]]:
    """Return the size, times and inode of each metadata file, by name: they change when it is written to."""
    folder = directory / METADATA_DIRECTORY
    stamps: dict[str, tuple[int, ...]] = {}
    paths = [directory / BOOTSTRAP_CHECKPOINT]
    with suppress_system_errors():
        paths += [path for path in folder.iterdir() if path.name.endswith((LOG_SUFFIX, CHECKPOINT_SUFFIX))]
    for path in paths:
        with suppress_system_errors():
            status = path.stat()
            stamps[path.name] = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return stamps


def cut_tail(tail: MetadataTail, files: FileSystem = FILES) -> MetadataTail:
    """Cut what a crash left after the last batch; return when the cut is on the disk.

    Returns:
        Where the log ends now: at the same position, but without damage.
    """
    with files.open(tail.path) as file:
        file.truncate(tail.position)
        file.sync()
    return tail._replace(damage=None)


def write_again(tail: MetadataTail, files: FileSystem = FILES) -> None:
    """Return when what follows an earlier end of the log is on the disk; a failed sync may have left it in memory."""
    with files.open(tail.path) as file:
        file.write_at(tail.position, tail.path.read_bytes()[tail.position :])
        file.sync()


def append_metadata(
    tail: MetadataTail, values: Sequence[bytes], *, timestamp_ms: int | None = None, files: FileSystem = FILES
) -> MetadataTail:
    """Append metadata records to the metadata log, as one batch, and return when it is on the disk.

    If this ends early, also by an interrupt, what was written is taken back.

    Args:
        tail: Where the log ends.
        values: The records.
        timestamp_ms: When the change was made; now if None.
        files: The file system to write through.

    Returns:
        Where the log ends now.

    Raises:
        LogError: More than one controller has this log, and a change to one copy would not be the quorum's; or another
            program has written to it.
        FormatError: The log ends with damage.
        PolicyViolationError: The change is larger than a batch may be.
    """
    if len(tail.voters) > 1:
        raise LogError(
            f"{tail.path.parent} is the metadata log of {len(tail.voters)} controllers: only they can change it"
        )
    if tail.damage is not None:
        raise tail.damage
    now = now_ms() if timestamp_ms is None else timestamp_ms
    records = [Record(None, value, timestamp=now) for value in values]
    # Half of a change must not count: so it is one batch, whose checksum says whether it is complete.
    batch = build_batch(records, base_offset=tail.next_offset, partition_leader_epoch=tail.epoch)
    if len(batch) > MAX_BATCH_BYTES:
        raise PolicyViolationError(
            f"{len(records)} records take {len(batch)} bytes, a batch has {MAX_BATCH_BYTES} at most"
        )
    with files.open(tail.path) as file:
        if file.size != tail.position:
            raise LogError(f"{tail.path} has {file.size} bytes, not {tail.position}: somebody else has written to it")
        try:
            file.write(batch)
            file.sync()
        except BaseException:
            # If it cannot be taken back now, that is done when the log is next read.
            with suppress(OSError):
                file.truncate(tail.position)
                file.sync()
            raise
        return tail._replace(position=tail.position + len(batch), next_offset=tail.next_offset + len(records))
