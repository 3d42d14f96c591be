"""The names of a log directory's folders and of a log's files.

    orders-0/                                    topic "orders", partition 0
    orders-0.<32 hex>-delete/                    deleted, to be removed        (also -stray, -future)
    orders-0/00000000000000000042.log            a segment whose base offset is 42, and its .index .timeindex .txnindex
    orders-0/00000000000000000042.snapshot       the producers' state at offset 42
    orders-0/00000000000000000042.log.deleted    to be unlinked                (.cleaned and .swap: during a compaction)

Source in Kafka: `LogFileUtils`, `LocalLog.parseTopicPartitionName`, `org.apache.kafka.common.internals.Topic`.
"""

from __future__ import annotations

import fnmatch
import re
from typing import NamedTuple, TypeGuard
from uuid import UUID

from odradek.arguments import given_text
from odradek.messages.topics import CONSUMER_OFFSETS_TOPIC as CONSUMER_OFFSETS_TOPIC
from odradek.messages.topics import SHARE_GROUP_STATE_TOPIC as SHARE_GROUP_STATE_TOPIC
from odradek.messages.topics import TRANSACTION_STATE_TOPIC as TRANSACTION_STATE_TOPIC
from odradek.messages.topics import TopicPartition as TopicPartition

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
CHECKPOINT_SUFFIX = ".checkpoint"

SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
"""The files of a segment, in the order in which Kafka renames them."""

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
"""Exists in a log directory if all of its logs were closed in order."""

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
"""Holds the metadata that a controller first writes into an empty log."""

DELETE_DIRECTORY_SUFFIX = "-delete"
STRAY_DIRECTORY_SUFFIX = "-stray"
FUTURE_DIRECTORY_SUFFIX = "-future"

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
COMPACTED_INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})
"""The internal topics that are compacted, whatever the broker's default is."""

INTERNAL_TOPICS = COMPACTED_INTERNAL_TOPICS | {SHARE_GROUP_STATE_TOPIC, CLUSTER_METADATA_TOPIC}
"""Kafka's own topics."""

MAX_TOPIC_NAME_LENGTH = 249
MAX_DIRECTORY_NAME_LENGTH = 255

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_PARTITION_DIRECTORY = re.compile(r"(?P<topic>\S+)-(?P<partition>0|[1-9][0-9]{0,9})", re.ASCII)
_MARKED_DIRECTORY = re.compile(r"(?P<name>\S+)\.(?P<unique>[^\s.]+)(?P<suffix>-delete|-stray|-future)", re.ASCII)
_SEGMENT_FILE = re.compile(r"(?P<offset>[0-9]{20})(?P<suffix>\.[a-z]+(?:\.(?:deleted|cleaned|swap))?)", re.ASCII)
_RAFT_SNAPSHOT = re.compile(r"(?P<offset>[0-9]{20})-(?P<epoch>[0-9]{10})\.checkpoint", re.ASCII)


def checked_topic_partition(key: object) -> TopicPartition:
    """Return the topic-partition that a caller names.

    Raises:
        TypeError: It is not a pair of a topic and a number.
    """
    match key:
        case (str(topic), int(number)) if isinstance(key, tuple) and not isinstance(number, bool):
            return TopicPartition(topic, number)
    raise TypeError(f"a log is looked up by topic and partition, such as ('topic', 0), not by {given_text(key)}")


class SegmentFile(NamedTuple):
    """What the name of a segment's file says."""

    base_offset: int
    suffix: str


class RaftSnapshotFile(NamedTuple):
    """What the name of a snapshot of the metadata log says."""

    end_offset: int
    epoch: int


class PartitionDirectory(NamedTuple):
    """What the name of a partition's folder says.

    Attributes:
        topic_partition: The partition that it belongs to. The topic may be cut short if `suffix` is not empty.
        suffix: Empty, or one of `-delete`, `-stray`, `-future`.
    """

    topic_partition: TopicPartition
    suffix: str = ""


def is_internal(topic: str) -> bool:
    """Return whether a topic is one of Kafka's own: those of `Topic.isInternal`, and the metadata log."""
    return topic in INTERNAL_TOPICS


def is_topic_name(wanted: str | re.Pattern[str]) -> TypeGuard[str]:
    """Return whether a topic that a caller wants goes by its name: one cannot contain wildcards."""
    return isinstance(wanted, str) and not any(character in wanted for character in "*?[")


def matches_topic(wanted: str | re.Pattern[str], topic: str) -> bool:
    """Return whether a topic is wanted.

    Args:
        wanted: A name, or a pattern of whole names: with wildcards (`events-*`), or a compiled regular expression. As
            in Kafka (`exclude.internal.topics`), no pattern matches an internal topic.
        topic: The topic's name.
    """
    if is_topic_name(wanted):
        return topic == wanted
    if is_internal(topic):
        return False
    return fnmatch.fnmatchcase(topic, wanted) if isinstance(wanted, str) else wanted.fullmatch(topic) is not None


def invalid_topic_name_reason(topic: str) -> str | None:
    """Return what is wrong with a topic's name, or `None` if Kafka accepts it."""
    if not topic:
        return "a topic's name cannot be empty"
    if topic in {".", ".."}:
        return f"a topic cannot be named {topic!r}"
    if len(topic) > MAX_TOPIC_NAME_LENGTH:
        return f"a topic's name has at most {MAX_TOPIC_NAME_LENGTH} characters, this one has {len(topic)}"
    if _TOPIC_NAME.fullmatch(topic) is None:
        return f"a topic's name consists of ASCII letters, digits, '.', '_' and '-', unlike {topic!r}"
    return None


def partition_directory_name(topic_partition: TopicPartition) -> str:
    """Return the name of a partition's folder."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def marked_directory_name(topic_partition: TopicPartition, unique: UUID, suffix: str) -> str:
    """Return the folder name of a partition that is to be deleted (`-delete`), stray or being moved (`-future`).

    The topic is cut short if the name would be too long for a file system, except for `-future`.
    """
    tail = f"-{topic_partition.partition}.{unique.hex}{suffix}"
    topic = topic_partition.topic
    if suffix != FUTURE_DIRECTORY_SUFFIX:
        topic = topic[: MAX_DIRECTORY_NAME_LENGTH - len(tail)]
    return topic + tail


def parse_partition_directory(name: str) -> PartitionDirectory | None:
    """Parse a folder's name; `None` if it is not a partition's."""
    suffix = ""
    marked = _MARKED_DIRECTORY.fullmatch(name)
    if marked is not None:
        name, suffix = marked["name"], marked["suffix"]
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or int(match["partition"]) > 0x7FFFFFFF:
        return None
    return PartitionDirectory(TopicPartition(match["topic"], int(match["partition"])), suffix)


def segment_file_name(base_offset: int, suffix: str) -> str:
    """Return the name of a segment's file: the offset in 20 digits, then the suffix."""
    return f"{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> SegmentFile | None:
    """Parse the name of a segment's file; `None` if it is not one. The suffix may be double: `.log.deleted`."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or int(match["offset"]) > 0x7FFFFFFFFFFFFFFF:
        return None
    return SegmentFile(int(match["offset"]), match["suffix"])


def raft_snapshot_file_name(end_offset: int, epoch: int) -> str:
    """Return the name of a snapshot of the metadata log."""
    return f"{end_offset:020d}-{epoch:010d}{CHECKPOINT_SUFFIX}"


def parse_raft_snapshot_file(name: str) -> RaftSnapshotFile | None:
    """Parse the name of a snapshot of the metadata log; `None` if it is not one."""
    match = _RAFT_SNAPSHOT.fullmatch(name)
    return None if match is None else RaftSnapshotFile(int(match["offset"]), int(match["epoch"]))
