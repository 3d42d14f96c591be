"""Messages of the formats v0 and v1, and the sets that wrapper messages carry.

    v0   offset 8 | size 4 | crc 4 | magic 1 | attributes 1 |               key length 4, key | value length 4, value
    v1   offset 8 | size 4 | crc 4 | magic 1 | attributes 1 | timestamp 8 | key length 4, key | value length 4, value

A *wrapper* has a codec in its attributes, no key, and as its value the compressed concatenation of inner messages. Its
offset is that of the last of them; inner offsets are absolute in v0, counted from 0 in v1.

Source in Kafka: `LegacyRecord`, `AbstractLegacyRecordBatch`.
"""

from __future__ import annotations

from typing import NoReturn

from odradek.buffers import Buffer
from odradek.errors import CorruptRecordError, TruncatedBatchError
from odradek.records.header import LOG_APPEND_TIME_FLAG, NO_TIMESTAMP, BatchHeader
from odradek.records.kernels.objects import Record, unchecked_record
from odradek.records.payload import message_payload
from odradek.records.scan import Status, damage_at, scan_batches

MAX_OFFSET = (1 << 63) - 1


def _timestamp(header: BatchHeader) -> int | None:
    return None if header.max_timestamp == NO_TIMESTAMP else header.max_timestamp


def read_message(data: Buffer, header: BatchHeader) -> Record:
    """Read one uncompressed message.

    Raises:
        CorruptRecordError: A length contradicts the message's size.
    """
    try:
        key, value = message_payload(data, header)
    except CorruptRecordError as error:
        raise error.at(position=header.position) from None
    return unchecked_record(key, value, (), _timestamp(header), header.last_offset, header.timestamp_type)


class MessageSet:
    """The messages of a wrapper, whose content may come in parts of whole messages.

    Args:
        wrapper: The wrapper's header.
        check_crc: Whether the inner checksums are verified.

    Attributes:
        count: How many messages were scanned.
    """

    def __init__(self, wrapper: BatchHeader, *, check_crc: bool) -> None:
        self.count = 0
        self._wrapper = wrapper
        self._check_crc = check_crc
        self._last = self._greatest = -1
        self._is_foreign = False

    def _refuse(self, reason: str) -> NoReturn:
        raise CorruptRecordError(reason, position=self._wrapper.position)

    def scan(self, payload: Buffer, beyond: int = 0) -> list[BatchHeader]:
        """Return the headers of the next messages.

        Args:
            payload: The decompressed bytes.
            beyond: How many more bytes the last message could have had.

        Raises:
            CorruptRecordError: A message is incomplete, or its checksum is wrong.
        """
        scan = scan_batches(payload, check_crc=self._check_crc)
        inner = list(scan)
        damage = scan.damage
        if isinstance(damage, TruncatedBatchError) and beyond:
            end = memoryview(payload).nbytes + beyond
            damage = damage_at(Status.TRUNCATED, payload, scan.position, end)
        self.count += len(inner)
        if damage is not None:
            self._refuse(f"inner message {self.count}: {damage.reason}")
        if inner:
            wrapper = self._wrapper
            self._is_foreign |= any(header.magic != wrapper.magic or header.codec for header in inner)
            self._last = inner[-1].last_offset
            self._greatest = max(self._greatest, max(header.last_offset for header in inner))
        return inner

    def pass_over(self, count: int, last: int, greatest: int) -> None:
        """Take the next messages as scanned: what `check_messages` returned for them."""
        self.count += count
        self._last = last
        self._greatest = max(self._greatest, greatest)

    def base(self) -> int:
        """Return what is added to the inner offsets, when all messages were scanned.

        Raises:
            CorruptRecordError: The set is empty, of another format, or compressed itself, or its offsets do not fit the
                wrapper's.
        """
        if not self.count:
            self._refuse("a wrapper message with nothing in it")
        if self._is_foreign:
            self._refuse("an inner message of another format than its wrapper")
        base = 0
        # Old clients wrote 0 into wrappers whose inner offsets start at 0.
        if self._wrapper.magic == 1 and self._wrapper.last_offset != 0:
            base = self._wrapper.last_offset - self._last
            if base < 0:
                self._refuse("inner offsets past the offset of their wrapper")
        if base + self._greatest > MAX_OFFSET:
            self._refuse("inner offsets past the greatest there is")
        return base

    def records(self, payload: Buffer, inner: list[BatchHeader], base: int, first: int = 0) -> list[Record]:
        """Read messages.

        Args:
            payload: What `scan` was given.
            inner: What it returned.
            base: What is added to their offsets.
            first: The number of the first of them.

        Raises:
            CorruptRecordError: A length contradicts a message's size.
        """
        wrapper = self._wrapper
        append_time = wrapper.attributes & LOG_APPEND_TIME_FLAG and wrapper.magic == 1
        records = []
        for number, header in enumerate(inner, first):
            try:
                key, value = message_payload(payload, header)
            except CorruptRecordError as error:
                self._refuse(f"inner message {number}: {error.reason}")
            timestamp = _timestamp(wrapper if append_time else header)
            offset = base + header.last_offset
            records.append(unchecked_record(key, value, (), timestamp, offset, wrapper.timestamp_type))
        return records


def read_inner_messages(payload: Buffer, wrapper: BatchHeader, *, check_crc: bool) -> list[Record]:
    """Read the messages of a wrapper.

    Args:
        payload: The decompressed value of the wrapper.
        wrapper: The wrapper's header.
        check_crc: Whether the inner checksums are verified.

    Raises:
        CorruptRecordError: As `MessageSet` raises it.
    """
    messages = MessageSet(wrapper, check_crc=check_crc)
    inner = messages.scan(payload)
    return messages.records(payload, inner, messages.base())
