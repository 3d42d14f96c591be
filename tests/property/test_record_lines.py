"""The compiled lines of records are those that Python writes, whatever the records hold."""

from __future__ import annotations

from array import array
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.kafka_dump import java_text
from odradek.errors import FormatError
from odradek.inspection.record_json import LineWriter
from odradek.inspection.record_lines import RecordLines
from odradek.inspection.selection import DumpSelection
from odradek.records import BatchHeader, Record, read_records, scan_batches
from odradek.records.builder import build_batch
from odradek.records.kernels.lines import LineFormatter
from odradek.records.large_section import open_section
from odradek.storage.names import TopicPartition
from odradek.testing.message_builder import build_message_set

# What is escaped, what is nearly escaped, and what is not UTF-8.
CHARACTERS = st.sampled_from(
    [
        *map(chr, range(0x20)),
        *'"\\/ aZ\x7f\x80\x9f\xa0\xc0é\u061b\u061c\u07ff\u0800\u200d\u200e\u200f\u2027\u2028\u2029\u202a\u202e\u202f',
        *"\u2065\u2066\u2069\u206a\ud7ff\ue000\ufeff\ufffd\uffff\U00010000\U0001f600\U0010ffff",
    ]
).map(str.encode)
BROKEN = st.sampled_from(
    [
        *[b"\x80", b"\xbf", b"\xc0\xaf", b"\xc2", b"\xe0\x80\xaf", b"\xe2\x80", b"\xed", b"\xed\xa0", b"\xed\xa0\x80"],
        *[
            b"\xed\xbf\xbf",
            b"\xf0\x80\x80\x80",
            b"\xf0\x9f",
            b"\xf0\x9f\x98",
            b"\xf4\x90\x80\x80",
            b"\xf5",
            b"\xfe\xff",
        ],
    ]
)
PLAIN = st.sampled_from([b"plain", b"01234567", b"a longer piece of text, without anything"])
TEXTS = st.lists(CHARACTERS | PLAIN, max_size=12).map(b"".join)
JSON = st.sampled_from([b"{}", b'{"a": [1, "b\\n"]}', b"[1 ,\n2]", b"[1", b'{"a":1}x', b'["\xff"]', b" {}", b"17"])

BYTES = TEXTS | JSON | st.lists(CHARACTERS | PLAIN | BROKEN, max_size=12).map(b"".join) | st.binary(max_size=20)
TIMES = st.none() | st.integers(0, 12) | st.just((1 << 62) - 1)
RECORD = st.builds(
    lambda key, value, headers, timestamp: Record(key, value, headers, timestamp),
    st.none() | BYTES,
    st.none() | BYTES,
    st.lists(st.tuples(BYTES.map(lambda name: name.decode("utf-8", "surrogateescape")), st.none() | BYTES), max_size=3),
    TIMES,
)
RECORDS = st.lists(RECORD, min_size=1, max_size=4)
OWNERS = st.sampled_from([None, TopicPartition("events", 0), TopicPartition("a.b_c-d", 2147483647)])


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Return batches of all formats and codecs, one after the other."""
    data, offset = b"", draw(st.sampled_from([0, 99, (1 << 62)]))
    for _ in range(draw(st.integers(0, 3))):
        records, magic, codec = (
            draw(RECORDS),
            draw(st.sampled_from([2, 2, 2, 1, 0])),
            draw(st.sampled_from([0, 0, 1, 3])),
        )
        if magic == 2:
            append_time = draw(st.none() | st.integers(0, 12))
            data += build_batch(
                records,
                base_offset=offset,
                codec=codec,
                producer_id=7,
                producer_epoch=0,
                base_sequence=0,
                timestamp_type="CreateTime" if append_time is None else "LogAppendTime",
                append_time_ms=append_time,
            )
        else:
            old = [Record(record.key, record.value, timestamp=record.timestamp) for record in records]
            data += build_message_set(old, magic=magic, base_offset=offset, codec=codec)
        offset += len(records) + draw(st.integers(0, 2))
    return data


def lines_of(lines: RecordLines, data: bytes) -> bytes:
    tables = scan_batches(data).tables()
    blocks = [bytes(memoryview(block)) for table in tables for block in lines.table(table, data)]
    return b"".join([*blocks, bytes(memoryview(lines.rest()))])


@pytest.mark.slow
@given(
    data=logs(),
    form=st.sampled_from(["text", "jsonl", "csv"]),
    owner=OWNERS,
    base64=st.booleans(),
    redact=st.sets(st.sampled_from(["key", "value", "headers"]), max_size=1),
    since=st.none() | st.integers(0, 12),
    until=st.none() | st.integers(0, 12),
    start=st.none() | st.integers(98, 102),
    limit=st.integers(0, 12),
)
def test_a_line_is_what_python_writes(
    data: bytes,
    form: str,
    owner: TopicPartition | None,
    base64: bool,
    redact: set[str],
    since: int | None,
    until: int | None,
    start: int | None,
    limit: int,
) -> None:
    selection = DumpSelection(start_offset=start, since=since, until=until)
    write = LineWriter(form, owner, base64=base64, redact=redact)
    wanted = [
        record
        for header in scan_batches(data)
        if not selection.skips_batch(header)
        for record in read_records(data, header)
        if selection.takes(record)
    ][:limit]
    lines = RecordLines(form, owner, selection=selection, base64=base64, redact=redact, limit=limit, block_bytes=64)
    assert lines_of(lines, data) == b"".join(map(write, wanted))
    assert lines.limit == limit - len(wanted)


@pytest.mark.slow
@given(data=logs(), seed=st.randoms(use_true_random=False))
def test_lines_of_some_records(data: bytes, seed: Random) -> None:
    lines, write = RecordLines("jsonl", None, block_bytes=64), LineWriter("jsonl", None)
    written, expected = b"", b""
    for table in scan_batches(data).tables():
        counts = [len(read_records(data, header)) for header in table.headers()]
        places = [(batch, index) for batch, count in enumerate(counts) for index in range(count)]
        some = [place for place in places if seed.random() < 0.5]
        marks = array("q", [batch << 32 | index for batch, index in some])
        written += b"".join(bytes(memoryview(block)) for block in lines.table(table, data, marks=marks))
        expected += b"".join(write(read_records(data, table.header(batch))[index]) for batch, index in some)
    assert written + bytes(memoryview(lines.rest())) == expected


@pytest.mark.slow
@given(data=BYTES)
def test_text_as_java_decodes_it(data: bytes) -> None:
    batch = build_batch([Record(data, None)])
    (table,) = scan_batches(batch).tables()
    formatter = LineFormatter(open_section, "kafka", b"", skips_metadata=True)
    formatter.format(table, 0, batch)
    lines = bytes(memoryview(formatter.take())).split(b"\n", 1)[1]
    assert lines.decode() == f"| key: {java_text(data)}\n"


@pytest.mark.slow
@given(data=logs(), position=st.integers(0, 1 << 16), byte=st.integers(0, 255))
def test_damaged_records_are_left_to_python(data: bytes, position: int, byte: int) -> None:
    if not data:
        return
    changed = bytearray(data)
    changed[position % len(data)] = byte
    refused: list[tuple[BatchHeader, FormatError]] = []
    lines = RecordLines("jsonl", None, report=lambda header, error: refused.append((header, error)))
    # No checksum is looked at, so that the records of a batch are what is damaged.
    scan = scan_batches(changed, check_crc=False)
    blocks = [bytes(memoryview(block)) for table in scan.tables() for block in lines.table(table, changed)]
    written = b"".join([*blocks, bytes(memoryview(lines.rest()))])
    expected, errors = b"", []
    write = LineWriter("jsonl", None)
    for header in scan_batches(changed, check_crc=False):
        if header.is_control:
            continue
        try:
            expected += b"".join(map(write, read_records(changed, header)))
        except FormatError as error:
            errors.append((header, str(error)))
    assert written == expected
    assert [(header, str(error)) for header, error in refused] == errors


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("user-1", [b"user-1"], [b"user-12", b"", b"User-1"]),
        ("user-*", [b"user-", b"user-12"], [b"user"]),
        ("*7?*", [b"7x", b"127abc", b"777"], [b"7", b"abc"]),
        ("a?c", ["aéc".encode(), b"abc"], [b"ac", b"abbc"]),
        ("*??", ["éé".encode(), b"ab", b"abc", b"\x80\x80"], ["日".encode(), b"a"]),
        (r"\*\?", [b"*?"], [b"ab"]),
        ("*", [b"", b"x"], []),
        ("", [b""], [b"x"]),
    ],
)
def test_a_pattern_of_keys(pattern: str, matching: list[bytes], others: list[bytes]) -> None:
    batch = build_batch([Record(key, b"") for key in [*matching, *others, None]])
    lines = lines_of(RecordLines("text", None, key=pattern), batch)
    write = LineWriter("text", None)
    assert lines == b"".join(map(write, read_records(batch, next(iter(scan_batches(batch))))[: len(matching)]))
