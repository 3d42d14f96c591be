from __future__ import annotations

import struct
from collections.abc import Callable
from uuid import UUID

import pytest

from odradek.errors import ProtocolError
from odradek.records.kernels.frames import WireReader, new_frame, whole_frames

ID = bytes(range(16))
FIELDS = struct.Struct(">hq")
Read = Callable[[WireReader], object]

FIXED: list[tuple[bytes, Read, object]] = [
    (b"\xff\xfe", WireReader.int16, -2),
    (b"\xff\xff\xff\xfe", WireReader.int32, -2),
    (b"\x80" + bytes(7), WireReader.int64, -(1 << 63)),
    (ID, lambda reader: reader.uuid().bytes, ID),
    (FIELDS.pack(-1, 1 << 40), lambda reader: reader.unpack(FIELDS), (-1, 1 << 40)),
]
OLD: list[tuple[bytes, Read, object]] = [
    *FIXED,
    (b"\0\5caf\xc3\xa9", WireReader.text, "café"),
    (b"\xff\xff", WireReader.nullable_text, None),
    (b"\0\0\0\3abc", lambda reader: bytes(reader.records() or b""), b"abc"),
    (b"\xff\xff\xff\xff", WireReader.records, None),
    (b"\xff\xff\xff\xff", WireReader.nullable_count, -1),
    (b"\0\2ab", WireReader.skip_text, None),
    (b"\0\0\0\2ab", WireReader.skip_bytes, None),
]
FLEXIBLE: list[tuple[bytes, Read, object]] = [
    *FIXED,
    (b"\6caf\xc3\xa9", WireReader.text, "café"),
    (b"\0", WireReader.nullable_text, None),
    (b"\xc9\1" + b"x" * 200, WireReader.text, "x" * 200),
    (b"\4abc", lambda reader: bytes(reader.records() or b""), b"abc"),
    (b"\0", WireReader.nullable_count, -1),
    (b"\3ab", WireReader.skip_text, None),
    (b"\0", WireReader.tags, None),
    (b"\2\0\1a\x07\2ab", WireReader.tags, None),
]
CASES = [(False, *case) for case in OLD] + [(True, *case) for case in FLEXIBLE]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("is_flexible", "data", "read", "value"), CASES)
def test_a_field_is_read_whole_and_refused_if_it_is_cut(
    is_flexible: bool, data: bytes, read: Read, value: object
) -> None:
    reader = WireReader(bytearray(b"?" + data + b"??"), 1, is_flexible=is_flexible)
    assert read(reader) == value
    assert reader.position == 1 + len(data)
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            read(WireReader(bytearray(data[:end]), 0, is_flexible=is_flexible))


def test_a_known_tag_is_read() -> None:
    found: list[int] = []
    reader = WireReader(bytearray(b"\2\5\2\0\7\6\1x"), 0, is_flexible=True)
    reader.tags({5: lambda reader: found.append(reader.int16())})
    assert (found, reader.position) == ([7], 8)


@pytest.mark.parametrize(
    ("is_flexible", "data", "read"),
    [
        (True, b"\xff\xff\xff\xff\xff\1", WireReader.count),
        (True, b"\xff\xff\xff\xff\x7f", WireReader.records),
        (True, b"\xff\xff\xff\xff\x7f", WireReader.count),
        (True, b"\0", WireReader.count),
        (True, b"\0", WireReader.text),
        (True, b"\2\xff", WireReader.text),
        (False, b"\xff\xff\xff\xfe", WireReader.nullable_count),
        (False, b"\x7f\xff\xff\xff", WireReader.records),
    ],
)
def test_what_makes_no_sense_is_refused(is_flexible: bool, data: bytes, read: Read) -> None:
    with pytest.raises(ProtocolError):
        read(WireReader(bytearray(data), 0, is_flexible=is_flexible))


@pytest.mark.parametrize("position", [-1, 4, 1 << 40])
def test_a_position_outside_of_the_frame_is_refused(position: int) -> None:
    with pytest.raises(ProtocolError):
        WireReader(bytearray(3), position, is_flexible=True)


def test_records_are_the_memory_of_the_frame() -> None:
    frame = bytearray(b"\4abc")
    records = WireReader(frame, 0, is_flexible=True).records()
    assert records is not None
    records[0] = ord("x")
    assert frame == b"\4xbc"


@pytest.mark.parametrize("size", [0, 1, 100, 1 << 21])
def test_a_new_frame_has_its_size(size: int) -> None:
    assert len(new_frame(size)) == size


def test_whole_frames_are_cut_up_to_the_first_that_is_not_whole() -> None:
    sizes = [0, 3, 70_000]
    data = b"".join(struct.pack(">i", size) + bytes([number]) * size for number, size in enumerate(sizes))
    for rest in (b"", b"\0\0\0", b"\0\0\0\5abcd", b"\xff\xff\xff\xff", struct.pack(">i", 70_001) + bytes(70_001)):
        frames, position = whole_frames(memoryview(data + rest), 70_000)
        assert frames == [bytes([number]) * size for number, size in enumerate(sizes)]
        assert position == len(data)


def _transactional() -> bytes:
    batch = bytearray(61)
    batch[16], batch[22] = 2, 0x10
    return bytes(batch)


@pytest.mark.parametrize("is_flexible", [False, True])
@pytest.mark.parametrize(
    ("given", "kept", "is_transactional"),
    [
        ([], {}, False),
        ([(0, None), (1, b"ab")], {0: None, 1: b"ab"}, False),
        ([(0, bytes(61)), (1, _transactional())], {0: bytes(61), 1: _transactional()}, True),
        ([(0, _transactional()), (0, b"ab")], {0: b"ab"}, False),
        ([(0, b"ab"), (0, _transactional())], {0: _transactional()}, True),
    ],
)
def test_of_a_partition_that_is_produced_to_twice_the_last_records_count(
    is_flexible: bool, given: list[tuple[int, bytes | None]], kept: dict[int, bytes | None], is_transactional: bool
) -> None:
    def size(count: int) -> bytes:
        return bytes([count + 1]) if is_flexible else struct.pack(">i", count)

    tags = b"\0" if is_flexible else b""
    frame = bytearray(size(1) + ID + size(len(given)))
    for number, records in given:
        frame += struct.pack(">i", number) + (size(-1) if records is None else size(len(records)) + records) + tags
    frame += tags
    reader = WireReader(frame, 0, is_flexible=is_flexible)
    topics, found = reader.produced(True)
    assert {key: {**value} for key, value in topics.items()} == {("", UUID(bytes=ID)): kept}
    assert found is is_transactional
    assert reader.position == len(frame)
    for end in range(len(frame)):
        with pytest.raises(ProtocolError):
            WireReader(frame[:end], 0, is_flexible=is_flexible).produced(True)
