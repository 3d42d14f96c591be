"""What decompresses to much is read window by window: records and errors are those of reading it whole."""

from __future__ import annotations

import contextlib
import functools
import random
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.cli.app import main
from odradek.columnar import decode as columnar_decode
from odradek.columnar import decode_slices, select
from odradek.errors import CorruptRecordError, FormatError
from odradek.inspection.explaining.fields import fields_of_batch
from odradek.records import BatchHeader, Record, compression, large_section, read_records, scan_batches
from odradek.records.batch import each_record
from odradek.records.builder import build_batch
from odradek.records.compression import Codec, compress
from odradek.records.kernels.encode import seal
from odradek.records.kernels.lines import LineFormatter
from odradek.records.kernels.search import RecordSearch
from odradek.records.large_section import LargeSection, Window
from odradek.records.scan import Status
from odradek.testing.message_builder import build_message_set

CODECS = [codec for codec in Codec if codec]
SOURCE = random.Random(5)
RECORDS = [
    Record(b"%d" % number, SOURCE.randbytes(number % 40) + bytes(number % 90), [("h", b"x")] * (number % 3), number)
    for number in range(60)
]
HUGE = [*RECORDS[:5], Record(value=bytes(3000), timestamp=1), *RECORDS[5:20]]


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes nearly every batch one that decompresses to much."""
    for module in (compression, large_section, columnar_decode):
        monkeypatch.setattr(module, "LARGE_BYTES", 100)
    for name in ("gzip", "zstd"):
        monkeypatch.setattr(f"odradek.records.compression.{name}.CHUNK_BYTES", 256)
    for module in (compression, large_section):
        monkeypatch.setattr(module, "CHUNK_BYTES", 256)


def batches(codec: Codec) -> Iterator[bytes]:
    yield bytes(build_batch(RECORDS, codec=codec, base_offset=7))
    yield bytes(build_batch(HUGE, codec=codec, timestamp_type="LogAppendTime", append_time_ms=9))
    if codec != Codec.ZSTD:
        plain = [Record(record.key, record.value, (), record.timestamp) for record in HUGE]
        for magic in (0, 1):
            yield bytes(build_message_set(plain, magic=magic, codec=codec, base_offset=7))


class Whole:
    """A slice of one batch."""

    path, position, origin, next_offset = "some.log", 0, 0, None

    def __init__(self, data: bytes) -> None:
        self.data, self.end_position = data, len(data)


def columns(data: bytes, limit: int, **options: Any) -> list[Any]:
    found = decode_slices([Whole(data)], select(**options), topic="t", partition=0, limit=limit)
    return [row for batch in found for row in batch.to_pylist()]


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except FormatError as error:
        return type(error), str(error)


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("codec", CODECS)
def test_windows_give_the_records_of_the_whole(codec: Codec) -> None:
    for data in batches(codec):
        (header,) = scan_batches(data)
        found = each_record(data, header)
        assert not isinstance(found, list)
        expected = read_records(data, header)
        assert list(found) == expected
        moved = each_record(data, header._replace(position=100), origin=100)
        assert list(moved) == expected
        for views in (False, True):
            rows = columns(data, 1 << 20, views=views)
            assert [row["value"] for row in rows] == [record.value for record in expected]
            assert [row["offset"] for row in rows] == [record.offset for record in expected]


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_the_fields_of_windows_are_those_of_the_whole(request: pytest.FixtureRequest, codec: Codec) -> None:
    sound = list(batches(codec))
    wrappers = () if codec == Codec.ZSTD else damaged_wrappers(codec)
    given = [*sound, *islice(damaged(codec), 0, None, 23), *islice(wrappers, 0, None, 23)]
    headers = [next(iter(scan_batches(data))) for data in given]
    whole = [list(fields_of_batch(data, header)) for data, header in zip(given, headers, strict=True)]
    request.getfixturevalue("small_windows")
    for number, (data, header, expected) in enumerate(zip(given, headers, whole, strict=True)):
        found = list(fields_of_batch(data, header))
        if number < len(sound):
            assert found == expected
            for wanted in (-1, 0, 5, header.records_count - 1):
                own = [one for one in expected if one.record in (None, wanted)]
                assert [one for one in fields_of_batch(data, header, wanted) if one.record in (None, wanted)] == own
        # What is unreadable need not be in memory as a whole.
        readable = [[one for one in fields if "unreadable" not in one.name] for fields in (found, expected)]
        assert readable[0] == readable[1]
        assert len(found) == len(expected)


def damaged_wrappers(codec: Codec) -> Iterator[bytes]:
    for magic in (0, 1):
        content = bytes(build_message_set([Record(b"k", bytes(90 * (n == 9)), (), n) for n in range(30)], magic=magic))
        for position in range(0, len(content), 5):
            yield wrapper(codec, magic, content[:position])
            yield wrapper(codec, magic, content[:position] + b"\x81" + content[position + 1 :])
        yield wrapper(codec, magic, content, last_offset=3)
        # The size field of the second message.
        second = 12 + struct.unpack_from(">i", content, 8)[0]
        for size in (-1, 0, 2, 4, 5, 13, 14, 22):
            yield wrapper(codec, magic, content[: second + 8] + struct.pack(">i", size) + content[second + 12 :])
        # Lengths within a message whose checksum is right.
        broken = bytearray(content)
        broken[17 + 8 * magic : 22 + 8 * magic] = b"\0\0\0\x7fk"
        struct.pack_into(">I", broken, 12, zlib.crc32(broken[16 : 12 + struct.unpack_from(">i", broken, 8)[0]]))
        yield wrapper(codec, magic, bytes(broken))
        yield wrapper(codec, magic, bytes(broken) + b"\0")


def wrapper(codec: Codec, magic: int, content: bytes, last_offset: int = 29) -> bytes:
    data = bytearray(build_message_set([Record(None, compress(codec, content, magic=magic))], magic=magic))
    data[17] = codec
    struct.pack_into(">q", data, 0, last_offset)
    struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    return bytes(data)


def damaged(codec: Codec) -> Iterator[bytes]:
    """Batches with a right checksum whose compressed, or decompressed, records are cut or changed."""
    header, content = bytes(build_batch(HUGE, codec=codec))[:61], bytes(build_batch(HUGE))[61:]
    block = compress(codec, content)
    for position in range(0, len(block), 7):
        yield seal(header, block[:position])
        yield seal(header, block[:position] + bytes([block[position] ^ 0x55]) + block[position + 1 :])
    for position in [*range(60), *range(60, len(content), 61)]:
        yield seal(header, compress(codec, content[:position]))
        changed = content[:position] + bytes([content[position] ^ 0x55]) + content[position + 1 :]
        yield seal(header, compress(codec, changed))
    for count in (0, 1, len(HUGE) - 1, len(HUGE) + 1, 511, 600, 4095, 5000):
        counted = header[:23] + (max(count, 1) - 1).to_bytes(4, "big") + header[27:57] + count.to_bytes(4, "big")
        yield seal(counted, block)
    if codec != Codec.ZSTD:
        yield from damaged_wrappers(codec)
    many = bytes(build_batch([Record(b"key", b"value %d" % (number % 10)) for number in range(4800)]))
    for count in (4799, 4801, 5000, 7000, 15_000):
        counted = many[:23] + (count - 1).to_bytes(4, "big") + many[27:57] + count.to_bytes(4, "big")
        counted = counted[:21] + bytes([0, codec]) + counted[23:]
        yield seal(counted, compress(codec, many[61:]))
        yield seal(counted, compress(codec, many[61:30_000] + b"\x7f\xff" + many[30_002:]))
    yield seal(header, compress(codec, content + b"\1"))
    yield seal(header, compress(codec, bytes(2000)))
    yield seal(header, compress(codec, content[:200] + b"\xff" * 800))


def outcomes(data: bytes, header: BatchHeader, limit: int) -> tuple[Any, Any]:
    """What reading a batch gives, as records and as rows."""
    return outcome(lambda: list(each_record(data, header, limit=limit))), outcome(lambda: len(columns(data, limit)))


def without_progress(found: Any) -> Any:
    """An error without the number of bytes that were fed or decompressed before it, and without zstd's words.

    These depend on the steps.
    """
    if isinstance(found, tuple):
        found = found[0], re.sub(r"(gzip: the member that holds byte) \d+", r"\1", found[1])
        return found[0], re.sub(r"(zstd: the block is damaged) .*", r"\1", found[1])
    return found


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("limit", [1 << 20, 2500])
def test_windows_raise_the_errors_of_the_whole(codec: Codec, limit: int, request: pytest.FixtureRequest) -> None:
    blocks = list(damaged(codec))
    headers = [next(iter(scan_batches(data, check_crc=False)), None) for data in blocks]
    pairs = [(data, header) for data, header in zip(blocks, headers, strict=True) if header is not None]
    expected = [outcomes(*pair, limit) for pair in pairs]
    request.getfixturevalue("small_windows")
    for (data, header), had in zip(pairs, expected, strict=True):
        has = outcomes(data, header, limit)
        assert without_progress(has[0]) == without_progress(had[0]), data
        assert without_progress(has[1]) == without_progress(had[1]), data
    assert sum(isinstance(item[0], tuple) for item in expected) > len(expected) // 2


def folder_of(path: Path, data: bytes) -> Path:
    with odradek.open(path) as logs:
        logs.create_topic("events", 1)
    (path / "events-0" / f"{0:020}.log").write_bytes(data)
    return path


def printed(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str) -> bytes:
    with pytest.raises(SystemExit):
        main(list(arguments))
    return capfdbinary.readouterr().out


COMMANDS = [
    ("dump",),
    ("dump", "--format", "jsonl"),
    ("dump", "--key", "1*", "--limit", "9"),
    ("grep", "x"),
    ("grep", "^1[0-9]$|[a-c]"),
    ("grep", "-v", "5"),
    ("dump", "--format", "csv"),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("arguments", COMMANDS, ids=map(" ".join, COMMANDS))
@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_commands_print_the_same(
    arguments: tuple[str, ...],
    codec: Codec,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    request: pytest.FixtureRequest,
) -> None:
    ordinary = bytes(build_batch(RECORDS, base_offset=1000))
    path = folder_of(tmp_path, b"".join(batches(codec)) + ordinary)
    segment = str(path / "events-0" / f"{0:020}.log")
    expected = printed(capfdbinary, *arguments, segment)
    request.getfixturevalue("small_windows")
    assert printed(capfdbinary, *arguments, segment) == expected
    assert expected


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", ["text", "jsonl", "csv"])
@pytest.mark.parametrize("bad", [0, 1, 50])
def test_a_value_that_is_no_json_leaves_no_line_twice(
    form: str, bad: int, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], request: pytest.FixtureRequest
) -> None:
    values = [b'{"number":%d,"text":"%s"}' % (number, b"x" * (number % 40)) for number in range(60)]
    values[bad] = b"no JSON"
    data = bytes(build_batch([Record(b"key", value, (), 1) for value in values], codec=Codec.LZ4))
    path = folder_of(tmp_path, data + bytes(build_batch(RECORDS[:3], base_offset=60)))
    segment = str(path / "events-0" / f"{0:020}.log")
    arguments = ["dump", "--values", "json", "--format", form]
    expected = printed(capfdbinary, *arguments, segment)
    request.getfixturevalue("small_windows")
    assert printed(capfdbinary, *arguments, segment) == expected
    assert expected.count(b"no JSON") == 1


class Interrupted:
    """A batch whose windows end in an error after the first, when they are read after the check."""

    inner_base = 0

    def __init__(self, section: LargeSection, error: BaseException | None) -> None:
        self._section, self._error = section, error

    def check(self) -> None:
        self._section.check()

    def windows(self) -> Iterator[Window]:
        windows = self._section.windows()
        yield next(windows)
        if self._error is not None:
            raise self._error
        yield from windows


def searched(error: list[BaseException | None], *of_table: Any) -> Iterator[Any]:
    search = RecordSearch(opener(error), [(b"0", False)], True, True, False)
    while True:
        yield *search.search(*of_table), bytes(search.take()[0])


def formatted(error: list[BaseException | None], *of_table: Any, form: str = "text") -> Iterator[Any]:
    formatter = LineFormatter(opener(error), form, b"t-0 ", is_deep=True)
    while True:
        yield *formatter.format(*of_table), bytes(formatter.take())


def opener(error: list[BaseException | None]) -> Callable[..., Interrupted]:
    return lambda data, header, *_: Interrupted(LargeSection(data[61:], header, 1 << 20), error.pop())


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("walk", [formatted, functools.partial(formatted, form="kafka"), searched])
def test_a_walk_that_ends_between_windows_leaves_nothing_and_can_be_repeated(
    walk: Callable[..., Iterator[Any]],
) -> None:
    data = bytes(build_batch(RECORDS, codec=Codec.LZ4))
    table = next(iter(scan_batches(data).tables()))
    (status, following, expected) = next(walk([None], table, 0, data))
    assert (status, following) == (Status.OK, 1)
    assert expected
    refused = walk([None, CorruptRecordError("changed")], table, 0, data)
    assert next(refused) == (Status.BAD_RECORD, 0, b"")
    assert next(refused) == (Status.OK, 1, expected)


@pytest.mark.usefixtures("small_windows")
def test_a_walk_that_is_interrupted_between_windows_can_be_repeated() -> None:
    data = bytes(build_batch(RECORDS, codec=Codec.LZ4))
    table = next(iter(scan_batches(data).tables()))
    errors: list[BaseException | None] = [None, KeyboardInterrupt(), None]
    formatter = LineFormatter(opener(errors), "text", b"t-0 ")
    assert formatter.format(table, 0, data) == (Status.OK, 1)
    expected = bytes(formatter.take())
    with pytest.raises(KeyboardInterrupt):
        formatter.format(table, 0, data)
    assert formatter.format(table, 0, data) == (Status.OK, 1)
    assert bytes(formatter.take()) == expected


class Changed:
    """A wrapper whose bytes are others after the check."""

    inner_base = 0

    def check(self) -> None:
        """Find nothing wrong."""

    def windows(self) -> Iterator[Window]:
        messages = bytearray(build_message_set([Record(b"key", b"value")] * 2, magic=1))
        messages[len(messages) // 2 + 16] = 9
        yield Window(memoryview(messages), 0, 2, True, len(messages))


def test_a_walk_trusts_no_message_that_was_checked_before() -> None:
    data = bytes(build_message_set([Record(b"key", b"value")], magic=1, codec=Codec.GZIP))
    table = next(iter(scan_batches(data).tables()))
    formatter = LineFormatter(lambda *_: Changed(), "text", b"t-0 ")
    assert formatter.format(table, 0, data) == (Status.BAD_RECORD, 0)
    assert bytes(formatter.take()) == b""


def two_blocks(magic: int) -> tuple[bytes, bytes]:
    """The content of 40 records, and one as long whose last half is other bytes."""
    records = [Record(b"key", b"value %02d" % number, (), 1) for number in range(40)]
    content = bytes(build_message_set(records, magic=magic)) if magic < 2 else bytes(build_batch(records))[61:]
    return content, content[: len(content) // 2] + bytes(b"\x7f" * (len(content) - len(content) // 2))


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_bytes_that_change_after_the_check_are_refused(magic: int) -> None:
    content, other = two_blocks(magic)
    records = [Record(b"key", b"value %02d" % number, (), 1) for number in range(40)]
    if magic < 2:
        whole = bytes(build_message_set(records, magic=magic, codec=Codec.SNAPPY, base_offset=0))
    else:
        whole = bytes(build_batch(records, codec=Codec.SNAPPY))
    (header,) = scan_batches(whole)
    for changed in (other, content[: len(content) // 2]):
        section = LargeSection(compress(Codec.SNAPPY, content, magic=magic), header, 1 << 20)
        section.check()
        section._compressed = compress(Codec.SNAPPY, changed, magic=magic)
        with pytest.raises(CorruptRecordError, match="changed while it was read"):
            list(section.windows())
        with pytest.raises(CorruptRecordError):
            list(section.records())


BOUNDED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_large_section import READERS, bomb, folder_of
from odradek.records import Record
from odradek.records.builder import build_batch

small, large = Path(sys.argv[3]), Path(sys.argv[4])
folder_of(small, bytes(build_batch([Record(b"k", b"v")] * 100, codec=4)))
folder_of(large, bomb(sys.argv[5]))
def megabytes(field):
    (line,) = [line for line in open("/proc/self/status") if line.startswith(field)]
    return int(line.split()[1]) >> 10
reader = READERS[sys.argv[2]]
reader(small)
Path("/proc/self/clear_refs").write_text("5")
before = megabytes("VmRSS")
reader(large)
print(megabytes("VmHWM") - before, file=sys.stderr)
"""


def bomb(kind: str) -> bytes:
    """A batch of 200 MB of records of 100 KB in some KB, or one whose records are zeros."""
    records = [Record(b"k", bytes(100_000), timestamp=0)] * 2000
    if kind == "wrapper":
        return bytes(build_message_set(records, magic=1, codec=Codec.GZIP))
    batch = bytes(build_batch(records, codec=Codec.ZSTD))
    return batch if kind == "records" else seal(batch[:61], compress(Codec.ZSTD, bytes(200 << 20)))


def command(*arguments: str) -> Callable[[Path], object]:
    def run(path: Path) -> None:
        with contextlib.suppress(SystemExit):
            main([*arguments, str(path)])

    return run


def read(path: Path) -> None:
    with odradek.open(path, "r") as logs, contextlib.suppress(FormatError):
        for _ in logs["events", 0].read():
            pass


def consume(path: Path) -> None:
    options: Any = {"auto_offset_reset": "earliest", "follow": False}
    with odradek.consume(path, "events", **options) as consumer, contextlib.suppress(FormatError):
        for _ in consumer:
            pass


def scan(path: Path, **options: Any) -> None:
    with contextlib.suppress(FormatError):
        for _ in odradek.scan(path, "events", **options):
            pass


READERS: dict[str, Callable[[Path], object]] = {
    "read": read,
    "consume": consume,
    "scan": scan,
    "views": lambda path: scan(path, views=True, threads=1),
    "text": command("dump"),
    "jsonl": command("dump", "--format", "jsonl"),
    "grep": command("grep", "nothing"),
    "verify": command("verify", "--records"),
}


KINDS = ["records", "wrapper", "zeros"]


# `verify` reads wrappers as a whole, to compare their offsets with the indexes.
@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in READERS for kind in KINDS if (name, kind) != ("verify", "wrapper")]
)
def test_what_decompresses_to_much_takes_little_memory(name: str, kind: str, tmp_path: Path) -> None:
    """200 MB; the pool of memory that Arrow and lines are written into keeps up to 64 MB."""
    arguments = [str(Path(__file__).parent), name, str(tmp_path / "small"), str(tmp_path / "large"), kind]
    found = subprocess.run([sys.executable, "-c", BOUNDED, *arguments], capture_output=True, text=True, check=True)
    assert int(found.stderr.splitlines()[-1]) < 130
