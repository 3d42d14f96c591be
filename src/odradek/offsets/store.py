"""Where a reader keeps its place, outside of what it reads: positions, and the protocol of a store of them.

A store holds the positions of one group: for each topic-partition the next offset to read, as Kafka's own
`__consumer_offsets` does (`OffsetAndMetadata`), under a *version* that every commit changes:

    load()                        -> Positions {events-0: 17, events-1: 4}     version a1
    commit({events-0: 20}, expected=those)  -> {events-0: 20, events-1: 4}     version b7
    commit({events-0: 18}, expected=those)  -> CommitConflictError             (a zombie: b7 is not a1)

So a commit is a compare-and-set over the whole group. A driver that was thought dead and continues can neither rewind
nor overwrite the group, and of several drivers that start from the same positions exactly one can commit.
"""

from __future__ import annotations

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from odradek.arguments import (
    address_options,
    checked_int,
    checked_mapping,
    checked_text,
    given_text,
    split_address,
    split_login,
)
from odradek.closing import Closing
from odradek.errors import CommitConflictError, OffsetStoreError, OptionError
from odradek.extras import missing_package
from odradek.printable import is_utf8
from odradek.storage.names import TopicPartition, checked_topic_partition

MAX_OFFSET = 2**63 - 1
MAX_PARTITION = 2**31 - 1
DEFAULT_TIMEOUT_MS = 10_000
_CLAIM_ATTEMPTS = 20
NUMBER = r"(?:0|[1-9][0-9]{0,18})"
"""An offset or a partition in a text, as programs write one: without a sign, a gap or zeros before it."""
_NUMBER = re.compile(NUMBER)
_DECIMAL = re.compile(NUMBER.encode())
_MOST_DIGITS = 15
"""The longest timeout in ms: 30,000 years, and no operating system's clock overflows."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a reader has come in one partition.

    Attributes:
        offset: The next offset to read: one past the last record that is done.
        leader_epoch: The leader epoch of the last record that is done; shows whether the log was truncated since.
        topic_id: The topic's id as Kafka prints it; shows whether the topic was deleted and created again since.
        batch: A token of the batch of work that ended here, by which a restarted reader recognises its own commit.
        note: What the reader wants to tell of its work, such as its last batch and its last error.
    """

    offset: int
    leader_epoch: int | None = None
    topic_id: str | None = None
    batch: str | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        checked_int("the offset of a position", self.offset, 0, MAX_OFFSET)
        if self.leader_epoch is not None:
            checked_int("the leader epoch of a position", self.leader_epoch, 0, 2**31 - 1)
        for name, text in (("topic_id", self.topic_id), ("batch", self.batch), ("note", self.note)):
            # JSON can hold half of a character, which no store can.
            if text is not None and not is_utf8(checked_text(name, text)):
                raise ValueError(f"the {name} of a position must be text in UTF-8, not {text!r:.100}")

    def metadata(self) -> dict[str, str | int]:
        """Return the fields beside the offset that are not None."""
        known = {
            "leader_epoch": self.leader_epoch,
            "topic_id": self.topic_id,
            "batch": self.batch,
            "note": self.note,
        }
        return {name: value for name, value in known.items() if value is not None}

    @classmethod
    def parse(cls, offset: object, metadata: object, *, where: str) -> Position:
        """Build a position from what a store returned.

        Raises:
            OffsetStoreError: What is stored there is not a position; `where` names the place.
        """
        if not isinstance(metadata, Mapping):
            raise OffsetStoreError(f"{where}: the metadata of a position must be an object, not {metadata!r:.100}")
        leader_epoch = metadata.get("leader_epoch")
        texts = [metadata.get(name) for name in ("topic_id", "batch", "note")]
        if type(offset) is not int or not (leader_epoch is None or type(leader_epoch) is int):
            raise OffsetStoreError(f"{where}: offsets and leader epochs must be integers, not {offset!r:.100}")
        if not all(text is None or isinstance(text, str) for text in texts):
            raise OffsetStoreError(f"{where}: the topic id, the batch and the note of a position must be strings")
        try:
            return cls(offset, leader_epoch, *texts)
        except ValueError as error:
            raise OffsetStoreError(f"{where}: {error}") from error


def unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of an object; as `object_pairs_hook` of JSON it refuses one that comes twice.

    Raises:
        ValueError: One does.
    """
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a field is there twice")
    return fields


def number_of(text: str) -> int | None:
    """Return the number that a text is, as programs write one; None if it is none."""
    return int(text) if _NUMBER.fullmatch(text) else None


def partition_of(text: str) -> int | None:
    """Return the number of a partition, as it is written everywhere; None if a text is none."""
    number = number_of(text)
    return None if number is None or number > MAX_PARTITION else number


def kept_partition(topic: str, number: str, where: str) -> TopicPartition:
    """Return the partition that a store has under a topic and a number.

    Raises:
        OffsetStoreError: There can be none of that name; `where` names the place.
    """
    partition = partition_of(number)
    if partition is None or not _is_topic(topic):
        raise OffsetStoreError(f"{where}: there can be no partition {number!r:.30} of a topic {topic!r:.100}")
    return TopicPartition(topic, partition)


def _is_topic(name: str) -> bool:
    """Whether every store can keep positions of a topic of a name: more than Kafka's, but they are nodes and fields."""
    return name not in {"", ".", ".."} and "/" not in name and is_utf8(name)


def decimal_offset(data: bytes) -> int | bytes:
    """Return an offset that is kept as plain decimal; what is none stays as it is, for `Position.parse` to refuse."""
    return int(data) if _DECIMAL.fullmatch(data) else data


def is_same_topic(topic_id: str | None, other_id: str | None) -> bool:
    """Whether two topics with one name may be the same topic, by their ids; None is an unknown id."""
    return topic_id is None or other_id is None or topic_id == other_id


def checked_positions(positions: object) -> dict[TopicPartition, Position]:
    """Return the positions that a caller gives.

    Raises:
        TypeError: It is no mapping from topic-partitions to positions.
        OptionError: There can be no such partition.
    """
    if not isinstance(positions, Mapping):
        raise TypeError(f"positions must be a mapping from TopicPartition to Position, not {given_text(positions)}")
    for name, position in positions.items():
        topic, partition = checked_topic_partition(name)
        if not (0 <= partition <= MAX_PARTITION and _is_topic(topic)):
            raise OptionError(f"there can be no position of a partition {partition} of a topic {topic!r:.100}")
        if not isinstance(position, Position):
            raise TypeError(f"the position of {name} must be a Position, not {given_text(position)}")
    return dict(positions)


class Positions(Mapping[TopicPartition, Position]):
    """The positions of a group at one moment, and the version that the group must still have at the next commit.

    Attributes:
        version: An opaque token, different for each commit; None if nothing was ever stored.
    """

    __slots__ = ("_positions", "version")

    def __init__(self, positions: Mapping[TopicPartition, Position] | None = None, version: str | None = None) -> None:
        self._positions = checked_positions(positions or {})
        self.version = version

    def __getitem__(self, topic_partition: TopicPartition) -> Position:
        return self._positions[topic_partition]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def __repr__(self) -> str:
        places = ", ".join(f"{name}: {position.offset}" for name, position in sorted(self._positions.items()))
        return f"Positions({{{places}}}, version={self.version!r})"

    def offset(self, topic_partition: TopicPartition) -> int | None:
        """Return the next offset to read of one partition, or None if there is no position."""
        position = self._positions.get(topic_partition)
        return None if position is None else position.offset

    def merged(self, positions: Mapping[TopicPartition, Position], version: str | None) -> Positions:
        """Return these positions, updated with others, under another version."""
        return Positions({**self._positions, **checked_positions(positions)}, version)

    def without(self, partitions: Collection[TopicPartition], version: str | None) -> Positions:
        """Return these positions but for some partitions', under another version."""
        return Positions({name: place for name, place in self._positions.items() if name not in partitions}, version)


class OffsetStore(Closing, ABC):
    """The positions of one group, somewhere that outlives its reader.

    A store object belongs to one thread at a time; any number of stores, in any number of processes, may be open on the
    same group. Every call ends within about the store's timeout. `odradek.testing.offset_store_suite` tests what an
    implementation must do.

    Attributes:
        address: What the store was opened by, without secrets.
        is_of_older_programs: Whether it keeps positions where other programs have kept theirs, so that one without any
            may be one whose address is wrong.
    """

    address: str
    is_of_older_programs = False

    @abstractmethod
    def load(self) -> Positions:
        """Return the positions of the group; none, with version None, if nothing was ever committed.

        Raises:
            OffsetStoreError: The store cannot be reached in time, or does not hold positions.
        """

    @abstractmethod
    def commit(self, positions: Mapping[TopicPartition, Position], *, expected: Positions) -> Positions:
        """Store positions, all of them or none, if the group still has the version that `expected` was loaded with.

        Partitions that `positions` does not name keep theirs. The version changes even when no position does.

        Args:
            positions: The new positions.
            expected: What `load` or the last `commit` returned.

        Returns:
            All positions of the group as they are now, to be expected by the next commit.

        Raises:
            CommitConflictError: Somebody else has committed since; nothing was stored.
            OffsetStoreError: The store cannot be reached in time, or refuses. It may have stored the positions (the
                answer was lost): load again and compare.
        """

    @abstractmethod
    def delete(self, partitions: Collection[TopicPartition], *, expected: Positions) -> Positions:
        """Remove the positions of partitions, all of them or none, if the group still has the version of `expected`.

        A reader then starts in these partitions as if it had never read them. Partitions without a position are passed
        over.

        Args:
            partitions: The partitions.
            expected: What `load` or the last `commit` returned.

        Returns:
            The positions that are left, to be expected by the next commit.

        Raises:
            CommitConflictError: Somebody else has committed since; nothing was removed.
            OffsetStoreError: The store cannot be reached in time, or refuses. It may have removed the positions.
        """

    @abstractmethod
    def close(self) -> None:
        """Close what the store holds open. May be called twice."""

    def unknown(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those partitions of which no position can be stored: a broker or a log directory has to have them.

        Raises:
            OffsetStoreError: The store cannot be reached in time.
        """
        return set()

    def claim(self) -> Positions:
        """Load the positions and claim the group: from now on every commit that expects an earlier load fails.

        A driver does this when it starts, so that the driver it replaces cannot commit between its load and its first
        commit.
        """
        for _ in range(_CLAIM_ATTEMPTS):
            loaded = self.load()
            try:
                return self.commit({}, expected=loaded)
            except CommitConflictError as conflict:
                last = conflict
        raise OffsetStoreError(
            f"{self.address}: {_CLAIM_ATTEMPTS} others committed while the group was claimed"
        ) from last

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"


def new_version() -> str:
    """Return a version that no commit has had before.

    It is random, not counted: a store that lost its data must not give an old version again.
    """
    return secrets.token_hex(8)


@dataclass(frozen=True)
class StoreAddress:
    """The parts of an address `scheme://[user:password@]host:port[,host:port]/name?option=value`.

    Attributes:
        text: The whole, without its password and without the values of its options.
        options: The options of the address, and those given beside it, which take precedence.
    """

    scheme: str
    hosts: str
    path: str
    user: str | None
    password: str | None
    options: dict[str, str]
    text: str

    def take(self, name: str) -> str | None:
        """Remove an option and return it, or None."""
        return self.options.pop(name, None)

    def take_timeout_ms(self) -> int:
        """Remove the option `timeout_ms`, how long a call may take, and return it."""
        text = self.options.pop("timeout_ms", str(DEFAULT_TIMEOUT_MS))
        if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS or not int(text):
            raise OffsetStoreError(f"{self.text}: timeout_ms must be a number of milliseconds, not {text!r}")
        return int(text)

    def refuse_the_rest(self) -> None:
        """Fail if an option is left that nobody took."""
        if self.options:
            raise OffsetStoreError(f"{self.text}: unknown option {', '.join(sorted(self.options))}")


_SCHEMES = {
    "file": "file.FileOffsetStore",
    "folder": "folder.FolderOffsetStore",
    "kafka": "kafka.KafkaOffsetStore",
    "redis": "redis.RedisOffsetStore",
    "rediss": "redis.RedisOffsetStore",
    "zookeeper": "zookeeper.ZooKeeperOffsetStore",
}
"""The module and the class of each kind of store. Most need a client library, so they are imported when one is used."""

_LAYOUTS = {
    "redis.RedisOffsetStore": {"list": "redis_ranges.RedisRangesStore", "hash": "redis_hash.RedisHashStore"},
    "zookeeper.ZooKeeperOffsetStore": {"node": "zookeeper_nodes.ZooKeeperNodesStore"},
}
"""What keeps positions as older programs did, by the option of an address that says where."""

OF_OLDER_PROGRAMS = ("list", "hash", "node")
NAMES = ("group", *OF_OLDER_PROGRAMS)
"""The options of an address that say what the positions are kept under."""


def open_store(address: str, options: Mapping[str, Any] | None = None) -> OffsetStore:
    """Open the offset store at an address. Connects at the first call, not now.

        file:///var/lib/job/offsets.json
        folder:///var/lib/kafka/data?group=g                (the __consumer_offsets of a log directory)
        kafka://[user:password@]host:port[,host:port]/group
        zookeeper://[user:password@]host:port[,host:port]/group
        redis://[user:password@]host:port/db?group=g        (rediss:// over TLS)
        redis://[user:password@]host:port/db?list=KEY       (ranges of offsets, as older programs kept them)
        redis://[user:password@]host:port/db?hash=KEY&topic=TOPIC
        zookeeper://[user:password@]host:port[,host:port]/?node=PATH&topic=TOPIC

    Args:
        address: Where the positions of one group are kept.
        options: More options, by the names that the address knows after its `?`; secrets belong here. Every store has
            `timeout_ms`, how long a call may take.

    Raises:
        OffsetStoreError: The address is not one of these, or its client library is not installed.
        OptionError: Kafka can have no group of that name.
    """
    parsed = parse_address(address, options)
    if parsed.scheme not in _SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in sorted(_SCHEMES))
        # What comes before an @ may be a password that only looks like something else.
        named = f"{parsed.scheme}://..." if "@" in address else parsed.text
        raise OffsetStoreError(f"{named}: the address of an offset store must start with one of {known}")
    place = _SCHEMES[parsed.scheme]
    for option, elsewhere in _LAYOUTS.get(place, {}).items():
        if option in parsed.options:
            place = elsewhere
    module, _, name = place.partition(".")
    try:
        store: OffsetStore = getattr(import_module(f"odradek.offsets.{module}"), name).from_address(parsed)
    except ModuleNotFoundError as error:
        raise OffsetStoreError(f"{parsed.text}: {missing_package(error)}") from error
    return store


def is_store_address(text: str) -> bool:
    """Whether a text is the address of an offset store; the name of a group is none."""
    return text.partition(":")[0] in _SCHEMES and ":" in text


def source_of(address: str) -> str | None:
    """Return where the topics are whose positions are at an address, as `open_place` takes it.

    Returns:
        The log directory or the broker of a store in it; None for a store that is elsewhere.
    """
    parts = urlsplit(address)
    if parts.scheme == "folder":
        return unquote(parts.path)
    if parts.scheme == "kafka":
        options = [(name, value) for name, value in parse_qsl(parts.query) if name != "timeout_ms"]
        return urlunsplit(parts._replace(path="", query=urlencode(options)))
    return None


def group_of(address: str) -> str | None:
    """Return the group whose positions are at an address; None where that is not a group of a name."""
    parsed = parse_address(address)
    return (parsed.path.strip("/") if parsed.scheme == "kafka" else parsed.options.get("group")) or None


def parse_address(address: str, options: Mapping[str, Any] | None = None) -> StoreAddress:
    """Take an address apart, without opening anything."""
    try:
        parts = split_address(checked_text("the address of an offset store", address))
        merged = address_options(parts.query)
    except ValueError as error:
        raise OffsetStoreError(f"the address of an offset store cannot be read: {error}") from error
    merged.update({name: str(value) for name, value in checked_mapping("options", options).items()})
    user, password, hosts = split_login(parts.netloc)
    return StoreAddress(
        scheme=parts.scheme,
        hosts=hosts,
        path=unquote(parts.path),
        user=user,
        password=password,
        options=merged,
        text=_without_secrets(parts, user, hosts, merged),
    )


def _without_secrets(parts: SplitResult, user: str | None, hosts: str, options: Mapping[str, str]) -> str:
    named = next((f"?{name}={options[name]}" for name in NAMES if name in options), "")
    scheme = f"{parts.scheme}://" if parts.scheme else ""
    return f"{scheme}{f'{user}@' if user else ''}{hosts}{parts.path}{named}"
