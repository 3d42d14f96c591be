"""The errors that Odradek raises: one root, a handful of families.

A family says what the caller can do about it: `FormatError` (bytes are not what they should be, and where), `LogError`
(the log cannot do what was asked), `ProtocolError` (a peer breaks the protocol), `BrokerError` (an error that Kafka has
a code for), `OffsetStoreError`, `OptionError` (an argument or a setting makes no sense) and `PipelineError` (a job that
cannot be done). Attributes come first; the text is built from them. All of them can be imported from `odradek`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

# The years 2001 to 2099.
_LIKELY_MS = range(10**12, 4_102_444_800_000)


class OdradekError(Exception):
    """The root of every error that Odradek raises on purpose; it can be pickled, as worker processes do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[OdradekError], args: tuple[Any, ...], attributes: dict[str, Any]) -> OdradekError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class FormatError(OdradekError):
    """Bytes that do not follow Kafka's format.

    Attributes:
        reason: What is wrong, in words.
        path: The file that the bytes came from; None if they came from none.
        position: Where the wrong batch or entry starts, in bytes from the start of the file (or buffer).
    """

    def __init__(self, reason: str, *, path: str | os.PathLike[str] | None = None, position: int | None = None) -> None:
        self.reason = reason
        self.path = None if path is None else os.fspath(path)
        self.position = position
        super().__init__(reason, path, position)

    def __str__(self) -> str:
        where = []
        if self.path is not None:
            where.append(self.path)
        if self.position is not None:
            where.append(f"position {self.position}")
        return f"{', '.join(where)}: {self.reason}" if where else self.reason

    def at(self, path: str | os.PathLike[str] | None = None, position: int | None = None) -> FormatError:
        """Fill in the path and the position if they are still unknown, and return this error."""
        if self.path is None and path is not None:
            self.path = os.fspath(path)
        if self.position is None:
            self.position = position
        return self


class CorruptRecordError(FormatError):
    """A batch or record whose checksum, lengths or counts contradict its bytes (Kafka: CORRUPT_MESSAGE)."""


class TruncatedBatchError(CorruptRecordError):
    """A batch that claims more bytes than there are: a torn write, or a read that stopped too early."""


class MissingRecordsError(FormatError):
    """Offsets that are missing from a log that was never compacted: a segment is gone, or an offset is damaged.

    The records before them were given. To read on, start at `end_offset`.

    Attributes:
        start_offset: The first missing offset.
        end_offset: The next offset that exists.
    """

    def __init__(
        self,
        start_offset: int,
        end_offset: int,
        *,
        path: str | os.PathLike[str] | None = None,
        position: int | None = None,
    ) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        reason = f"offsets {start_offset} to {end_offset - 1} are missing, and the log was never compacted"
        super().__init__(reason, path=path, position=position)


class UnsupportedMagicError(FormatError):
    """A message format that Kafka does not have (its magic is 0, 1 or 2)."""


class CompressionError(CorruptRecordError):
    """A compressed block that its codec rejects, or that decompresses to more than the limit."""


class DecompressedSizeError(CompressionError):
    """A compressed block that decompresses to more than the limit."""


class CorruptIndexError(FormatError):
    """An index file whose entries contradict each other or their segment."""


class CheckpointError(FormatError):
    """A checkpoint or properties file that cannot be parsed; Kafka takes the log directory offline for it."""


class LogError(OdradekError):
    """A log, or a log directory, that cannot do what was asked of it."""


class ForeignDirectoryError(LogError):
    """A folder that was to become a log directory, but holds something else. Nothing was written to it.

    Attributes:
        path: The folder.
        found: The names of what is in it.
    """

    def __init__(self, path: str | os.PathLike[str], found: Sequence[str], reason: str) -> None:
        self.path = os.fspath(path)
        self.found = tuple(found)
        self.reason = reason
        super().__init__(path, found, reason)

    def __str__(self) -> str:
        return f"{self.path} {self.reason}"


class ReadOnlyError(LogError, AttributeError):
    """A call of a method that changes something, on a log or log directory that is open for reading only.

    Attributes:
        path: The log, or the log directory.
        name: The method.
    """

    def __init__(self, path: str | os.PathLike[str], name: str) -> None:
        self.path = os.fspath(path)
        super().__init__(path, name)
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        # The name is the interpreter's own field, and not among the attributes.
        return type(self), (self.path, self.name)

    def __str__(self) -> str:
        return f'{self.path} is open for reading (mode="r"), so it has no {self.name}: open it without mode="r"'


class LogDirectoryLockedError(LogError):
    """A log directory that is open for writing already, in another program or in this one.

    Attributes:
        path: The directory.
        is_own: Whether this program has it open.
        holder: The other program, such as `process 4711 (java)`; None if it is not known.
    """

    def __init__(self, path: str | os.PathLike[str], *, is_own: bool = False, holder: str | None = None) -> None:
        self.path = os.fspath(path)
        self.is_own = is_own
        self.holder = holder
        super().__init__(path)

    def __str__(self) -> str:
        if self.is_own:
            return f"{self.path} is locked: this program has it open already"
        return f"{self.path} is locked: {self.holder or 'another program'} has it open for writing"


class LogOfflineError(LogError):
    """A log whose disk failed: nothing more is written to it, and what was not acknowledged may be lost.

    To bring the log back, open the log directory again: that recovers what is on the disk.
    """

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        self.path = os.fspath(path)
        self.reason = reason
        super().__init__(path, reason)

    def __str__(self) -> str:
        return f"{self.path} is offline: {self.reason}"


class UnknownTopicOrPartitionError(LogError):
    """A topic or partition that the log directory does not hold."""

    def __init__(self, topic: str, partition: int | None = None, *, path: str | os.PathLike[str] | None = None) -> None:
        self.topic = topic
        self.partition = partition
        self.path = None if path is None else os.fspath(path)
        super().__init__(topic, partition, path)

    def __str__(self) -> str:
        name = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return f"{name} is not in {self.path}" if self.path is not None else f"{name} does not exist"


class OffsetOutOfRangeError(LogError):
    """An offset outside of the log: below its log start offset or above its log end offset."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int, *, log: str = "the log") -> None:
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.log = log
        super().__init__(offset, log_start_offset, log_end_offset)

    def __str__(self) -> str:
        held = f"[{self.log_start_offset}, {self.log_end_offset})"
        return f"offset {self.offset} is outside of {self.log}, which holds {held}"


class TimestampOutOfRangeError(LogError):
    """A timestamp outside of the years 1 to 9999, where records are read as a table."""

    def __init__(self, topic: str, partition: int, offset: int, timestamp: int, *, option: str) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.option = option
        super().__init__(topic, partition, offset, timestamp)

    @property
    def record(self) -> str:
        """The record and its timestamp, as text."""
        return f"{self.topic}-{self.partition}, offset {self.offset}: {self.timestamp}{self._guess}"

    @property
    def _guess(self) -> str:
        for unit, factor in (("microseconds", 10**3), ("nanoseconds", 10**6)):
            if self.timestamp // factor in _LIKELY_MS:
                return f" (are these {unit}?)"
        return ""

    def __str__(self) -> str:
        return f"{self.record} ms is outside of the years 1 to 9999; with {self.option} null, such a timestamp is null"


class ProtocolError(OdradekError):
    """A peer that sends what the protocol does not allow."""


class BrokerError(OdradekError):
    """An error that Kafka has a code for.

    Attributes:
        error_code: Kafka's number, as in its protocol.
        error_name: Kafka's name for it, such as `INVALID_RECORD`.
    """

    error_code = -1
    error_name = "UNKNOWN_SERVER_ERROR"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return f"{self.error_name} ({self.error_code}): {self.reason}"


class BrokerUnavailableError(BrokerError):
    """A broker that did not do what it was asked to in time, or that refused.

    If it answered with an error, `error_code` and `error_name` are those of its last answer.
    """

    error_code = 8
    error_name = "BROKER_NOT_AVAILABLE"


class CorruptMessageError(BrokerError):
    """A batch to be appended whose checksum or size does not match its bytes."""

    error_code = 2
    error_name = "CORRUPT_MESSAGE"


class RecordTooLargeError(BrokerError):
    """A batch that is larger than the topic's `max.message.bytes`."""

    error_code = 10
    error_name = "MESSAGE_TOO_LARGE"


class RecordListTooLargeError(BrokerError):
    """Batches that together are longer than a segment may be."""

    error_code = 18
    error_name = "RECORD_LIST_TOO_LARGE"


class RecordRefusedError(BrokerError):
    """Records that a topic does not accept; nothing of their batch was appended.

    Attributes:
        record_errors: The index in the batch of each wrong record, from 0, and the reason; at most the first hundred.
    """

    def __init__(self, reason: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(reason)
        self.record_errors = tuple(record_errors)


class InvalidTimestampError(RecordRefusedError):
    """A timestamp too far from the broker's clock, or of a type that only a broker may set."""

    error_code = 32
    error_name = "INVALID_TIMESTAMP"


class InvalidRecordError(RecordRefusedError):
    """A record, or a batch, that contradicts itself or that its topic does not accept."""

    error_code = 87
    error_name = "INVALID_RECORD"


class OutOfOrderSequenceNumberError(BrokerError):
    """A batch whose sequence number does not follow the producer's last one."""

    error_code = 45
    error_name = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumberError(BrokerError):
    """A batch that was appended before."""

    error_code = 46
    error_name = "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpochError(BrokerError):
    """A producer, or a marker of its transaction, that a newer epoch has fenced."""

    error_code = 47
    error_name = "INVALID_PRODUCER_EPOCH"


class InvalidTransactionStateError(BrokerError):
    """A batch that does not fit the state of its producer's transaction."""

    error_code = 48
    error_name = "INVALID_TXN_STATE"


class TransactionCoordinatorFencedError(BrokerError):
    """A marker from a transaction coordinator that another has replaced."""

    error_code = 52
    error_name = "TRANSACTION_COORDINATOR_FENCED"


class InvalidTopicError(BrokerError):
    """A topic's name that Kafka does not accept."""

    error_code = 17
    error_name = "INVALID_TOPIC_EXCEPTION"


class TopicExistsError(BrokerError):
    """A topic that exists already."""

    error_code = 36
    error_name = "TOPIC_ALREADY_EXISTS"


class InvalidPartitionsError(BrokerError):
    """A number of partitions that a topic cannot have."""

    error_code = 37
    error_name = "INVALID_PARTITIONS"


class InvalidConfigError(BrokerError):
    """A setting that does not exist, or a value that is not valid.

    Attributes:
        config_name: The setting.
    """

    error_code = 40
    error_name = "INVALID_CONFIG"

    def __init__(self, config_name: str, reason: str) -> None:
        self.config_name = config_name
        super().__init__(f"{config_name}: {reason}")


class PolicyViolationError(BrokerError):
    """A change that is larger than Kafka allows at a time."""

    error_code = 44
    error_name = "POLICY_VIOLATION"


class OffsetStoreError(OdradekError):
    """An offset store that cannot be reached, or that refuses a commit."""


class OffsetStoreUnavailableError(OffsetStoreError):
    """An offset store that does not answer within its `timeout_ms`. Trying again later may help."""


class CommitConflictError(OffsetStoreError):
    """A commit whose expected positions are no longer those of the store: somebody else has committed since.

    Nothing was stored. Another reader has taken over the work from this one (a zombie), or uses the same group. Load
    the positions again before doing anything else; never repeat the same commit.

    Attributes:
        address: The store, without secrets.
        expected: The version that the committer had loaded, or None for "nothing stored yet".
        found: The version that the store holds; None if it holds nothing, or cannot tell.
    """

    def __init__(self, address: str, expected: str | None, found: str | None) -> None:
        self.address = address
        self.expected = expected
        self.found = found
        super().__init__(address, expected, found)

    def __str__(self) -> str:
        expected = "no positions" if self.expected is None else f"version {self.expected}"
        found = "no such version" if self.found is None else f"version {self.found}"
        return f"{self.address}: {expected} expected, {found} found: another reader of this group has committed since"


class NoOffsetForPartitionError(OffsetStoreError):
    """A reader that has no valid place to start from in a partition, and whose reset policy is `none`.

    Attributes:
        topic_partition: The partition, as `topic-partition`.
        reason: Why there is no place, in words.
    """

    def __init__(self, topic_partition: str, reason: str) -> None:
        self.topic_partition = topic_partition
        self.reason = reason
        super().__init__(topic_partition, reason)

    def __str__(self) -> str:
        return f"{self.topic_partition}: {self.reason}, and auto_offset_reset is none"


class OptionError(OdradekError, ValueError):
    """An argument, an option or a setting that is unknown, missing or wrong; the text names it."""


class TimestampWarning(UserWarning):
    """A timestamp that seems to be in seconds, although Kafka counts milliseconds, or those that are given as null."""


class PipelineError(OdradekError):
    """A pipeline that cannot do its work."""


class JobError(PipelineError):
    """A job that cannot be done as it is written; the text names the key.

    Attributes:
        reason: What is wrong.
        key: The key of the file that is wrong, such as `sink[0].path`; None if no key is to blame, or it is not known.
    """

    def __init__(self, reason: str, key: str | None = None) -> None:
        self.reason = reason
        self.key = key
        super().__init__(f"{key}: {reason}" if key else reason)


class SinkError(PipelineError):
    """A sink that cannot take a batch, or that does not hold what it should."""
