"""Judges records that are about to be appended: those of a v2 batch, without making an object of any, and `Record`s.

    what a topic asks -> a key where it is compacted; a timestamp within bounds, or one that the leader sets

Source in Kafka: `LogValidator`, `DefaultRecord`.
"""

import cython
from cython.cimports.libc.stdint import INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from cython.cimports.odradek.records.kernels import wire
from cython.cimports.odradek.records.kernels.batches import BatchTable
from cython.cimports.odradek.records.kernels.checksums import crc32_of, crc32c_of
from cython.cimports.odradek.records.kernels.objects import Record
from cython.cimports.odradek.records.kernels.record import (
    RawHeader,
    RawRecord,
    read_deltas,
    read_header_count,
    read_header_pair,
    read_key_and_value,
    read_message,
)

Bytes = cython.typedef(cython.pointer(cython.const[uint8_t]))


# What is wrong with a record; `records.append.validator` has the words.
_NO_KEY = cython.declare(cython.int, 1)
_TIMESTAMP_OUT_OF_RANGE = cython.declare(cython.int, 2)
_TIMESTAMP_TYPE = cython.declare(cython.int, 3)

# How many of the records that are refused are named.
_MOST_REFUSED = cython.declare(cython.int, 100)


@cython.final
@cython.cclass
class RefusedRecord:
    """A record that its topic does not take.

    Attributes:
        index: Which of the batch, from 0.
        kind: 1 no key, 2 timestamp out of range, 3 a producer's batch that says LogAppendTime.
        timestamp: Its timestamp.
    """

    index = cython.declare(int64_t, visibility="readonly")
    kind = cython.declare(cython.int, visibility="readonly")
    timestamp = cython.declare(object, visibility="readonly")


@cython.cfunc
def _refused(index: int64_t, kind: cython.int, timestamp) -> RefusedRecord:
    refused: RefusedRecord = RefusedRecord.__new__(RefusedRecord)
    refused.index = index
    refused.kind = kind
    refused.timestamp = timestamp
    return refused


@cython.final
@cython.cclass
class CheckedRecords:
    """What the records of a batch are.

    Attributes:
        max_timestamp: The largest timestamp.
        is_sequential: Whether the offset deltas are 0, 1, 2 ...
        is_plain: Whether all record attributes are 0 and the first timestamp is the base.
        refused_count: How many the topic does not take.
        refused: The first hundred of those.
        is_timestamp_refused: Whether one of all those is refused for its timestamp.
        largest_bytes: The size of the largest one, without the length before it.
    """

    max_timestamp = cython.declare(int64_t, visibility="readonly")
    is_sequential = cython.declare(cython.bint, visibility="readonly")
    is_plain = cython.declare(cython.bint, visibility="readonly")
    refused_count = cython.declare(int64_t, visibility="readonly")
    refused = cython.declare(list, visibility="readonly")
    is_timestamp_refused = cython.declare(cython.bint, visibility="readonly")
    largest_bytes = cython.declare(int64_t, visibility="readonly")


@cython.final
@cython.cclass
class BrokenRecords:
    """Where the bytes of a batch are no records.

    Attributes:
        index: How many records before it are good.
        position: Where it starts, from the first record on.
        reason: What is wrong.
    """

    index = cython.declare(int64_t, visibility="readonly")
    position = cython.declare(int64_t, visibility="readonly")
    reason = cython.declare(str, visibility="readonly")


RecordError = cython.struct(index=int64_t, kind=cython.int, timestamp=int64_t)

Rules = cython.struct(
    append_time=cython.bint,  # the batch is already LogAppendTime
    append_timestamp=int64_t,
    stamp=cython.bint,  # the topic is LogAppendTime
    lowest=int64_t,
    highest=int64_t,
    key_required=cython.bint,
)

Findings = cython.struct(
    max_timestamp=int64_t,
    sequential=cython.bint,
    plain=cython.bint,
    errors=int64_t,
    bad_timestamp=cython.bint,
    largest=int64_t,
    bad_record=int64_t,
    bad_position=int64_t,
    reason=cython.p_const_char,
)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _judge(
    rules: cython.pointer(Rules), has_timestamp: cython.bint, timestamp: int64_t, has_key: cython.bint
) -> cython.int:
    """Return what is wrong with a record, or 0: the one place that knows what topics ask of a record."""
    if rules.key_required and not has_key:
        return _NO_KEY
    if not rules.stamp and has_timestamp:
        if timestamp < rules.lowest or timestamp > rules.highest:
            return _TIMESTAMP_OUT_OF_RANGE
        return 0
    return _TIMESTAMP_TYPE if rules.append_time else 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read(p: Bytes, stop: Bytes, record: cython.pointer(RawRecord)) -> cython.p_const_char:
    """Read a record to its end; what is wrong with it, or NULL."""
    header: RawHeader
    reason: cython.p_const_char = read_deltas(p, stop, record)
    if reason == cython.NULL:
        reason = read_key_and_value(record)
    if reason == cython.NULL:
        reason = read_header_count(record)
    if reason != cython.NULL:
        return reason
    p = record.headers
    for _ in range(record.header_count):
        if read_header_pair(cython.address(p), record.end, cython.address(header)) != cython.NULL:
            return b"a header past the end of its record"
    if p != record.end:
        return b"bytes left over at the end of a record"
    return cython.NULL


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _check(
    start: Bytes,
    stop: Bytes,
    count: int64_t,
    base_timestamp: int64_t,
    rules: cython.pointer(Rules),
    findings: cython.pointer(Findings),
    errors: cython.pointer(RecordError),
) -> cython.bint:
    """Return whether the bytes hold `count` records; `findings` has what they are, or what is wrong."""
    p: Bytes = start
    record: RawRecord
    reason: cython.p_const_char
    index: int64_t
    timestamp: int64_t
    kind: cython.int
    if count * 7 > stop - start:
        findings.bad_position = 0
        findings.reason = b"more records than its bytes can hold"
        return False
    for index in range(count):
        reason = _read(p, stop, cython.address(record))
        if reason != cython.NULL:
            findings.bad_record = index
            findings.bad_position = p - start
            findings.reason = reason
            return False
        p = record.end
        findings.largest = max(findings.largest, record.end - record.body)
        if not record.is_plain or (index == 0 and record.timestamp_delta != 0):
            findings.plain = False
        timestamp = rules.append_timestamp if rules.append_time else base_timestamp + record.timestamp_delta
        if timestamp > findings.max_timestamp:
            findings.max_timestamp = timestamp
        if record.offset_delta != index:
            findings.sequential = False
        kind = _judge(rules, timestamp != -1, timestamp, record.key_size >= 0)
        if kind:
            if findings.errors < _MOST_REFUSED:
                errors[findings.errors].index = index
                errors[findings.errors].kind = kind
                errors[findings.errors].timestamp = timestamp
            findings.errors += 1
            if kind != _NO_KEY:
                findings.bad_timestamp = True
    if p != stop:
        findings.bad_record = count
        findings.bad_position = p - start
        findings.reason = b"bytes left over after the last record"
        return False
    return True


def check_records(
    data: cython.const[cython.uchar][::1],
    position: int64_t,
    end: int64_t,
    records_count: int32_t,
    base_timestamp: int64_t,
    append_timestamp,
    stamp: cython.bint,
    lowest: int64_t,
    highest: int64_t,
    key_required: cython.bint,
):
    """Check the uncompressed records of a batch against what its topic asks.

    Args:
        data: The bytes that hold them.
        position: Where they start.
        end: Where they end.
        records_count: As the header says.
        base_timestamp: As the header says.
        append_timestamp: The header's max_timestamp where the batch is LogAppendTime, else None.
        stamp: Whether the topic is LogAppendTime, so that timestamps do not matter.
        lowest: The smallest timestamp that the topic takes, in ms.
        highest: The largest.
        key_required: Whether a record without a key is refused.

    Returns:
        `CheckedRecords`, or `BrokenRecords` where the bytes are no such records.
    """
    rules: Rules
    findings: Findings
    errors: RecordError[100]
    good: cython.bint
    nothing: uint8_t = 0
    start: Bytes = cython.address(nothing)
    index: int64_t
    if end > data.shape[0] or position < 0 or position > end:
        raise ValueError(f"position {position} and end {end} are not within {data.shape[0]} bytes")
    if data.shape[0] > 0:
        start = cython.cast(Bytes, cython.address(data[0])) + position
    rules.append_time = append_timestamp is not None
    rules.append_timestamp = append_timestamp if append_timestamp is not None else -1
    rules.stamp = stamp
    rules.lowest = lowest
    rules.highest = highest
    rules.key_required = key_required
    findings.max_timestamp = -1
    findings.sequential = True
    findings.plain = True
    findings.errors = 0
    findings.bad_timestamp = False
    findings.largest = 0
    findings.bad_record = 0
    findings.bad_position = 0
    findings.reason = b""
    with cython.nogil:
        good = _check(
            start,
            start + (end - position),
            records_count,
            base_timestamp,
            cython.address(rules),
            cython.address(findings),
            errors,
        )
    if not good:
        broken: BrokenRecords = BrokenRecords.__new__(BrokenRecords)
        broken.index = findings.bad_record
        broken.position = findings.bad_position
        broken.reason = cython.cast(bytes, findings.reason).decode()
        return broken
    checked: CheckedRecords = CheckedRecords.__new__(CheckedRecords)
    checked.max_timestamp = findings.max_timestamp
    checked.is_sequential = findings.sequential
    checked.is_plain = findings.plain
    checked.refused_count = findings.errors
    checked.is_timestamp_refused = findings.bad_timestamp
    checked.largest_bytes = findings.largest
    checked.refused = []
    for index in range(min(findings.errors, _MOST_REFUSED)):
        checked.refused.append(_refused(errors[index].index, errors[index].kind, errors[index].timestamp))
    return checked


def check_messages(data: cython.const[cython.uchar][::1], magic: cython.int, check_crc: cython.bint):
    """Check whole messages of a v0 or v1 wrapper.

    Args:
        data: The messages, decompressed.
        magic: The wrapper's.
        check_crc: Whether their checksums are verified.

    Returns:
        Their number, the offset of the last one and the greatest offset; None if one of them is no such message.
    """
    info: wire.BatchInfo
    record: RawRecord
    position: int64_t = 0
    count: int64_t = 0
    last: int64_t = -1
    greatest: int64_t = -1
    good: cython.bint = True
    size: int64_t = data.shape[0]
    if size == 0:
        return (0, -1, -1)
    start: Bytes = cython.cast(Bytes, cython.address(data[0]))
    crc32: wire.checksum_function = cython.NULL
    if check_crc:
        crc32 = crc32_of
    with cython.nogil:
        while good and position < size:
            good = (
                wire.read_header(start + position, size - position, cython.address(info), cython.NULL, crc32) == wire.OK
                and info.magic == magic
                and info.attributes & wire.CODEC_MASK == 0
                and read_message(start + position, cython.address(info), cython.address(record)) == cython.NULL
            )
            if good:
                last = info.base_offset
                greatest = max(greatest, last)
                count += 1
                position += info.size_bytes
    return (count, last, greatest) if good else None


def accept_batch(
    data: cython.uchar[::1],
    max_bytes: int64_t,
    lowest: int64_t,
    highest: int64_t,
    key_required: cython.bint,
    base_offset: int64_t,
    leader_epoch: int32_t,
):
    """Check the batch of a producer, and number it in place, if nothing else of it has to change.

    That is one v2 batch and no other bytes, not compressed, numbered from 0 on, whose header and checksum are right and
    whose records the topic takes as they are.

    Args:
        data: The batch.
        max_bytes: How many bytes it may have.
        lowest: The smallest timestamp that the topic takes, in ms.
        highest: The largest.
        key_required: Whether a record without a key is refused.
        base_offset: The offset that its first record gets.
        leader_epoch: The leader epoch that it is written in.

    Returns:
        A `BatchTable` with its header as it is now; None for any other batch, of which nothing was changed.
    """
    size: int64_t = data.shape[0]
    refused: cython.int = wire.CODEC_MASK | wire.LOG_APPEND_TIME_FLAG | wire.CONTROL_FLAG
    if size > max_bytes or size == 0 or not wire.is_one_v2_batch(cython.address(data[0]), size, refused):
        return None
    table: BatchTable = BatchTable()
    info: wire.BatchInfo
    rules: Rules
    findings: Findings
    errors: RecordError[100]
    good: cython.bint = False
    p: cython.pointer(uint8_t) = cython.address(data[0])
    rules.append_time = False
    rules.append_timestamp = -1
    rules.stamp = False
    rules.lowest = lowest
    rules.highest = highest
    rules.key_required = key_required
    findings.max_timestamp = -1
    findings.sequential = True
    findings.errors = 0
    with cython.nogil:
        if wire.read_header(p, size, cython.address(info), crc32c_of, cython.NULL) == wire.OK:
            good = (
                info.base_offset == 0
                and info.records_count > 0
                and info.records_count == cython.cast(int64_t, info.last_offset_delta) + 1
                and (info.producer_id < 0 or info.base_sequence >= 0)
                and _check(
                    p + wire.V2_HEADER,
                    p + size,
                    info.records_count,
                    info.base_timestamp,
                    cython.address(rules),
                    cython.address(findings),
                    errors,
                )
                and findings.errors == 0
                and findings.sequential
                and findings.max_timestamp == info.max_timestamp
            )
        if good:
            info.position = 0
            info.base_offset = base_offset
            info.last_offset = base_offset + info.last_offset_delta
            info.partition_leader_epoch = leader_epoch
            good = table._add(cython.address(info))
        if good:
            wire.store_i64(p, base_offset)
            wire.store_i32(p + wire.LEADER_EPOCH_AT, leader_epoch)
    return table if good else None


def judge_records(
    records: list,
    is_append_time: cython.bint,
    stamp: cython.bint,
    lowest: int64_t,
    highest: int64_t,
    key_required: cython.bint,
):
    """Judge records that are objects, by what their topic asks.

    Args:
        records: `Record` objects.
        is_append_time: Whether they come from a batch that is LogAppendTime already.
        stamp: As for `check_records`, like all that follow.
        lowest: The smallest timestamp.
        highest: The largest timestamp.
        key_required: Whether a record without a key is refused.

    Returns:
        How many are refused, the first hundred of those, and whether one of all those is refused for its timestamp.

    Raises:
        TypeError: Something is no `Record`, or its timestamp is no number.
    """
    rules: Rules
    record: Record
    index: int64_t
    timestamp: int64_t
    kind: cython.int
    count: int64_t = 0
    bad_timestamp: cython.bint = False
    refused: list = []
    rules.append_time = is_append_time
    rules.append_timestamp = -1
    rules.stamp = stamp
    rules.lowest = lowest
    rules.highest = highest
    rules.key_required = key_required
    for index in range(len(records)):
        item = records[index]
        if type(item) is not Record:
            raise TypeError(f"a Record is wanted, not {type(item).__name__}")
        record = item
        timestamp = -1
        if record.timestamp is not None:
            try:
                timestamp = record.timestamp
            except OverflowError:
                timestamp = INT64_MAX if record.timestamp > 0 else INT64_MIN
        kind = _judge(cython.address(rules), record.timestamp is not None, timestamp, record.key is not None)
        if kind:
            count += 1
            if kind != _NO_KEY:
                bad_timestamp = True
            if count <= _MOST_REFUSED:
                refused.append(_refused(index, kind, record.timestamp))
    return (count, refused, bad_timestamp)
