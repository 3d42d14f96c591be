"""`__cluster_metadata-0`: the log of the metadata records, and what it adds up to together with its snapshots.

    00000000000000000000-0000000000.checkpoint     a snapshot: end offset, epoch
    00000000000000000000.log                       batches of metadata records, and the controllers' control records
    bootstrap.checkpoint                           one level up: holds while the log says no metadata.version

The log is read from the newest snapshot on. Kafka always loads it as after a crash, so a torn tail is cut, the indexes
need no care, and one more batch at its end is one more change. In a batch every record has the same timestamp: Kafka
does not start otherwise.

Source in Kafka: `KafkaRaftLog`, `RecordsBatchReader`, `ActivationRecordsGenerator`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from odradek.errors import FormatError, LogError
from odradek.records import Record, read_records, scan_batches
from odradek.records.builder import build_batch
from odradek.storage.checkpoints import LEADER_EPOCH_CHECKPOINT, read_leader_epochs
from odradek.storage.directory.partition_metadata import PARTITION_METADATA, read_partition_metadata
from odradek.storage.files import FILES, FileSystem
from odradek.storage.metadata.control import KRaftVoters, LeaderChange, decode_control_record
from odradek.storage.metadata.image import METADATA_VERSION, MetadataImage, PartitionImage, TopicImage
from odradek.storage.metadata.records import decode_metadata_record
from odradek.storage.metadata.snapshot import BOOTSTRAP_CHECKPOINT, MAX_BATCH_RECORDS, read_snapshot
from odradek.storage.names import (
    CHECKPOINT_SUFFIX,
    CLUSTER_METADATA_TOPIC,
    LOG_SUFFIX,
    TopicPartition,
    parse_partition_directory,
    parse_raft_snapshot_file,
    parse_segment_file,
    partition_directory_name,
    raft_snapshot_file_name,
    segment_file_name,
)

METADATA_DIRECTORY = partition_directory_name(TopicPartition(CLUSTER_METADATA_TOPIC, 0))


@dataclass(frozen=True, slots=True)
class MetadataTail:
    """Where the metadata log ends.

    Attributes:
        path: Its last segment.
        position: Where the next batch goes in it.
        next_offset: The offset of the next record.
        epoch: The leader epoch of the last batch.
        voters: The controllers that vote, by the last election; empty where none is recorded.
        damage: Why the bytes behind `position` are no batch; None where there are none.
    """

    path: Path
    position: int
    next_offset: int
    epoch: int
    voters: frozenset[int] = frozenset()
    damage: FormatError | None = None


@dataclass(slots=True)
class LoadedMetadata:
    """What a log directory says of its cluster.

    Attributes:
        image: The topics, settings and features.
        tail: Where the metadata log ends; None where there is no metadata log, or nothing in it.
        bootstrap: The records of `bootstrap.checkpoint`, where it is they that count.
    """

    image: MetadataImage = field(default_factory=MetadataImage)
    tail: MetadataTail | None = None
    bootstrap: tuple[bytes | None, ...] | None = None


def load_metadata(directory: Path) -> LoadedMetadata:
    """Read what a log directory says of its cluster.

    That is the metadata log with its newest snapshot; where it is still empty, `bootstrap.checkpoint`; and in a folder
    from before KRaft, or one that lost both, what the names of its folders say.

    Raises:
        FormatError: A snapshot is damaged, or a record contradicts those before it.
    """
    loaded = _load_log(directory / METADATA_DIRECTORY)
    if METADATA_VERSION in loaded.image.features or loaded.image.topics:
        return loaded
    # The controller of an empty log takes the records of bootstrap.checkpoint, and aborts what was begun before.
    try:
        values = read_snapshot(directory / BOOTSTRAP_CHECKPOINT).values
    except FileNotFoundError:
        return LoadedMetadata(image=image_of_folders(directory), tail=loaded.tail)
    image = MetadataImage()
    _apply(image, values, directory / BOOTSTRAP_CHECKPOINT)
    return LoadedMetadata(image, loaded.tail, values)


def holds_topics(directory: Path) -> bool:
    """Whether a log directory has metadata records: a metadata log, or topics in `bootstrap.checkpoint`.

    Raises:
        FormatError: A snapshot is damaged, or a record contradicts those before it.
    """
    loaded = load_metadata(directory)
    return loaded.tail is not None or (loaded.bootstrap is not None and bool(loaded.image.topics))


def _apply(image: MetadataImage, values: Sequence[bytes | None], path: Path, position: int | None = None) -> None:
    for value in values:
        try:
            image.apply(decode_metadata_record(value))
        except FormatError as error:
            # The place within the record is of no use to who looks at the file.
            raise FormatError(error.reason, path=path, position=position) from error


def _load_log(folder: Path) -> LoadedMetadata:
    if not folder.is_dir():
        return LoadedMetadata()
    names = sorted(path.name for path in folder.iterdir())
    snapshots = [snapshot for snapshot in map(parse_raft_snapshot_file, names) if snapshot is not None]
    segments = [file for file in map(parse_segment_file, names) if file is not None and file.suffix == LOG_SUFFIX]
    loaded = LoadedMetadata()
    start_offset = epoch = 0
    if snapshots:
        start_offset, epoch = max(snapshots)
        path = folder / raft_snapshot_file_name(start_offset, epoch)
        content = read_snapshot(path)
        _apply(loaded.image, content.values, path)
        voters = frozenset(voter.voter_id for voter in content.voters)
    else:
        voters = frozenset()
    if not segments:
        return loaded
    epochs = read_leader_epochs(folder / LEADER_EPOCH_CHECKPOINT)
    tail = MetadataTail(folder, 0, start_offset, max([epoch, *(entry.epoch for entry in epochs)]), voters)
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= start_offset:
            continue
        path = folder / segment_file_name(segment.base_offset, LOG_SUFFIX)
        tail = _load_segment(path, start_offset, replace(tail, path=path, position=0), loaded.image)
        if tail.damage is not None:
            break
    loaded.tail = tail
    return loaded


def _load_segment(path: Path, start_offset: int, tail: MetadataTail, image: MetadataImage) -> MetadataTail:
    data = path.read_bytes()
    scan = scan_batches(data, path=path)
    next_offset, epoch, voters = tail.next_offset, tail.epoch, tail.voters
    for header in scan:
        if header.next_offset > start_offset:
            records = [record for record in read_records(data, header) if (record.offset or 0) >= start_offset]
            if header.is_control:
                for control in map(decode_control_record, records):
                    if isinstance(control, LeaderChange | KRaftVoters):
                        voters = frozenset(voter.voter_id for voter in control.voters)
            else:
                _apply(image, [record.value for record in records], path, header.position)
        next_offset, epoch = max(next_offset, header.next_offset), header.partition_leader_epoch
    return MetadataTail(path, scan.position, next_offset, epoch, voters, scan.damage)


def metadata_file_sizes(directory: Path) -> dict[str, int]:
    """Return the sizes of the segments and snapshots of the metadata log: others when somebody has written to it."""
    folder = directory / METADATA_DIRECTORY
    if not folder.is_dir():
        return {}
    return {
        path.name: path.stat().st_size
        for path in folder.iterdir()
        if path.name.endswith((LOG_SUFFIX, CHECKPOINT_SUFFIX))
    }


def image_of_folders(directory: Path) -> MetadataImage:
    """Make up the metadata from the names of partition folders, their `partition.metadata` and their leader epochs."""
    image = MetadataImage()
    if not directory.is_dir():
        return image
    for folder in sorted(directory.iterdir()):
        parsed = parse_partition_directory(folder.name)
        if parsed is None or parsed.suffix or not folder.is_dir():
            continue
        topic, partition = parsed.topic_partition
        if topic == CLUSTER_METADATA_TOPIC:
            continue
        epochs = read_leader_epochs(folder / LEADER_EPOCH_CHECKPOINT)
        if topic not in image.topics:
            image.add_topic(TopicImage(topic, read_partition_metadata(folder / PARTITION_METADATA)))
        image.topics[topic].partitions[partition] = PartitionImage(leader_epoch=epochs[-1].epoch if epochs else 0)
    return image


def append_metadata(
    tail: MetadataTail, values: Sequence[bytes], *, timestamp_ms: int | None = None, files: FileSystem = FILES
) -> MetadataTail:
    """Append metadata records to the metadata log, and return when they are on the disk.

    Args:
        tail: Where the log ends; a torn batch behind it is cut.
        values: The records.
        timestamp_ms: When the change was made; now if None.
        files: The disk.

    Returns:
        Where the log ends now.

    Raises:
        LogError: More than one controller has this log: a change to one copy of it would not be the quorum's. Or bytes
            follow that are lost only in a segment that is not the last.
    """
    if len(tail.voters) > 1:
        raise LogError(
            f"{tail.path.parent} is the metadata log of {len(tail.voters)} controllers: only they can change it"
        )
    if tail.damage is not None and tail.path.name != max(path.name for path in tail.path.parent.glob(f"*{LOG_SUFFIX}")):
        raise LogError(f"the metadata log is damaged before its last segment: {tail.damage}")
    now = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
    next_offset = tail.next_offset
    blocks = []
    for start in range(0, len(values), MAX_BATCH_RECORDS):
        records = [Record(None, value, timestamp=now) for value in values[start : start + MAX_BATCH_RECORDS]]
        blocks.append(build_batch(records, base_offset=next_offset, partition_leader_epoch=tail.epoch))
        next_offset += len(records)
    file = files.open(tail.path)
    try:
        if file.size > tail.position:
            file.truncate(tail.position)
        file.write(b"".join(blocks))
        file.sync()
        return replace(tail, position=file.size, next_offset=next_offset, damage=None)
    finally:
        file.close()
