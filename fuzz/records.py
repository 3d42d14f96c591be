"""Damages batches and message sets at random and holds three decoders to one answer.

    python fuzz/records.py --seconds 60 --seed 1 --finds finds

Every case is a batch of some format and codec whose bytes were changed before or behind its checksum, which is then
mended, so that the damage gets past it. The reader of objects, the reader of columns (plain and views) and the leader's
check must take or refuse the same bytes, never raise anything but our own errors, and stay within the memory that is
given to the process. A case that does not is written to the folder of finds, with its seed.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import resource
import struct
import sys
import time
import traceback
import zlib
from pathlib import Path

import pyarrow as pa

from odradek.columnar import decode_slices, select
from odradek.errors import BrokerError, FormatError
from odradek.records import Record, read_records, scan_batches
from odradek.records.builder import build_batch, build_control_batch
from odradek.records.compression import Codec, Decompressor, compress
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.records.conversion import down_convert
from odradek.records.kernels.encode import seal
from odradek.records.message_builder import build_message_set
from odradek.storage.validator import AppendOrigin, AppendRules, validate_append

LIMIT = 1 << 20
MEMORY_BYTES = 2 << 30
SLOW_S = 5.0
RULES = AppendRules(timestamp_type="LogAppendTime", max_message_bytes=1 << 30)
PLAIN, VIEWS = select(), select(views=True)

RECORDS = [
    Record(b"key", b"value", [("name", b"1"), ("none", None)], 1_600_000_000_000),
    Record(None, b"", (), 1_600_000_000_005),
    Record(b"", None, (), None),
    Record(b"k" * 20, b"text " * 40, [("é", b"")], 1_599_999_999_000),
]
BARE = [Record(record.key, record.value, (), record.timestamp) for record in RECORDS]
INTERESTING = [
    b"\xff" * 10 + b"\x01",
    b"\xfe\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\xa8\xd6\xb9\x07",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x00" * 8,
    b"\x01",
]


class Slice:
    """A segment in memory."""

    path = Path("fuzz.log")
    position = 0

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.end_position = len(data)


def damage(data: bytes, choice: random.Random) -> bytes:
    """Return other bytes."""
    changed = bytearray(data)
    for _ in range(choice.choice((1, 1, 1, 2, 4))):
        at = choice.randrange(len(changed) + 1)
        kind = choice.randrange(6)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << choice.randrange(8)
        elif kind == 1 and at < len(changed):
            changed[at] = choice.randrange(256)
        elif kind == 2:
            changed[at:at] = choice.choice(INTERESTING)
        elif kind == 3:
            word = choice.choice(INTERESTING)
            changed[at : at + len(word)] = word
        elif kind == 4:
            del changed[at : at + choice.randrange(1, 9)]
        else:
            start = choice.randrange(len(changed) + 1)
            changed[at:at] = changed[start : start + choice.randrange(1, 40)]
    return bytes(changed)


def mended(message: bytes) -> bytes:
    """Return a message with its size and checksum right."""
    if len(message) < 16:
        return message
    changed = bytearray(message)
    struct.pack_into(">iI", changed, 8, len(changed) - 12, zlib.crc32(changed[16:]))
    return bytes(changed)


def wrapper(content: bytes, magic: int, codec: Codec, *, is_damaged: bool, choice: random.Random) -> bytes:
    """Return a wrapper of any content."""
    block = compress(codec, content, magic=magic)
    message = bytearray(build_message_set([Record(None, damage(block, choice) if is_damaged else block)], magic=magic))
    message[17] = codec
    message[7] = choice.choice((0, 3, 200))
    return mended(bytes(message))


def a_case(choice: random.Random) -> bytes:
    """Return the bytes of one case."""
    kind = choice.randrange(7)
    codec = choice.choice(list(Codec))
    if kind == 0:  # the records, mended
        section = damage(build_batch(RECORDS)[61:], choice)
        header = bytearray(build_batch(RECORDS, codec=codec)[:61])
        if choice.random() < 0.3:
            struct.pack_into(">i", header, 57, choice.choice((0, 1, 3, 5, 2**31 - 1)))
        return seal(bytes(header), compress(codec, section))
    if kind == 1:  # the compressed block, mended
        batch = build_batch(RECORDS, codec=codec)
        return seal(batch[:61], damage(batch[61:], choice))
    if kind == 2:  # the header, mended
        batch = build_batch(RECORDS, codec=codec)
        header = damage(batch[21:61], choice)[:40].ljust(40, b"\0")
        return seal(batch[:21] + header, batch[61:])
    if kind == 3:  # a message, mended
        return mended(damage(build_message_set(BARE[:1], magic=choice.randrange(2)), choice))
    if kind == 4:  # inside a wrapper
        magic = choice.randrange(2)
        content = damage(build_message_set(BARE, magic=magic), choice)
        if choice.random() < 0.5:
            content = b"".join(mended(damage(build_message_set([record], magic=magic), choice)) for record in BARE)
        return wrapper(content, magic, Codec(min(codec, 3) or 1), is_damaged=choice.random() < 0.2, choice=choice)
    if kind == 5:  # a marker
        marker = EndTransactionMarker(ControlRecordType.COMMIT, 3)
        batch = build_control_batch(marker, producer_id=1, producer_epoch=0, timestamp=5)
        return seal(batch[:61], damage(batch[61:], choice))
    magic = choice.randrange(2)
    whole = build_batch(RECORDS, codec=codec) + build_message_set(BARE, magic=magic, codec=min(codec, 3))
    return damage(whole, choice)


def read(data: bytes, *, check_crc: bool) -> tuple[list[Record], str | None]:
    """Read as objects."""
    records: list[Record] = []
    scan = scan_batches(data, check_crc=check_crc)
    try:
        for header in scan:
            records += read_records(data, header, check_crc=check_crc, limit=LIMIT)
    except FormatError as error:
        return records, str(error.reason)
    return records, None if scan.damage is None else scan.damage.reason


def decode(data: bytes, schema: pa.Schema, *, check_crc: bool) -> tuple[list[tuple[object, ...]], str | None]:
    """Read as columns."""
    rows: list[tuple[object, ...]] = []
    batches = decode_slices(
        [Slice(data)], schema, topic="t", partition=0, include_control=True, check_crc=check_crc, limit=LIMIT
    )
    try:
        for batch in batches:
            batch.validate(full=True)
            stamps = batch["timestamp"].cast(pa.int64())
            columns = (batch["key"], batch["value"], stamps, batch["offset"], batch["timestamp_type"])
            rows += zip(*(column.to_pylist() for column in columns), strict=True)
    except FormatError as error:
        return rows, error.reason
    return rows, None


def check(data: bytes) -> None:
    """Ask all decoders about the same bytes.

    Raises:
        AssertionError: They do not agree.
    """
    for check_crc in (True, False):
        records, reason = read(data, check_crc=check_crc)
        objects = [(r.key, r.value, r.timestamp, r.offset, r.timestamp_type) for r in records]
        for schema in (PLAIN, VIEWS):
            rows, column_reason = decode(data, schema, check_crc=check_crc)
            assert rows == objects, f"{rows} as columns, {objects} as objects"
            assert column_reason == reason, f"{column_reason!r} as columns, {reason!r} as objects"
    taken = None
    with contextlib.suppress(BrokerError):
        taken = validate_append(
            data,
            RULES,
            base_offset=7,
            partition_leader_epoch=0,
            now_ms=5,
            origin=AppendOrigin.COORDINATOR,
            decompressor=Decompressor(LIMIT),
        )
    if taken is not None:
        found = read_records(taken.data, taken.header)
        assert [record.offset for record in found] == list(range(7, 7 + taken.header.records_count))
    with contextlib.suppress(BrokerError, FormatError):
        down_convert(data, 1, limit=LIMIT)


def main() -> int:
    """Run until the time is over; the exit code is the number of finds, 100 at most."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--finds", type=Path, default=Path("finds"))
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    end = time.monotonic() + arguments.seconds
    cases = finds = 0
    while time.monotonic() < end and finds < 100:
        seed = arguments.seed * 1_000_000_000 + cases
        data = a_case(random.Random(seed))
        started = time.monotonic()
        try:
            check(data)
            took = time.monotonic() - started
            assert took < SLOW_S, f"took {took:.1f} s"
        except Exception:
            finds += 1
            folder = arguments.finds / f"seed-{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "data.bin").write_bytes(data)
            (folder / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
        cases += 1
    sys.stdout.write(f"{cases} cases, {finds} finds\n")
    return finds


if __name__ == "__main__":
    sys.exit(main())
