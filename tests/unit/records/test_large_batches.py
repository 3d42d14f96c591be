"""Large batches are read some hundred records at a time, and checked whole before the first is given."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.cli.app import main
from odradek.errors import CorruptRecordError
from odradek.records import Record, read_records, scan_batches
from odradek.records.batch import each_record
from odradek.records.builder import build_batch
from odradek.records.compression import Codec, compress
from odradek.records.kernels.encode import seal
from odradek.records.kernels.objects import MOST_OBJECTS

RECORDS = [Record(key=b"%d" % number, timestamp=number) for number in range(MOST_OBJECTS + 600)]


def large(codec: Codec = Codec.NONE, records: list[Record] = RECORDS, **options: Any) -> bytes:
    return bytes(build_batch(records, codec=codec, **options))


def broken_at_its_end(codec: Codec) -> bytes:
    """A batch with a right checksum, whose last record is none."""
    header, content = large(codec)[:61], large()[61:-1] + b"\x7f"
    return seal(header, compress(codec, content) if codec else content)


def folder_of(path: Path, batch: bytes) -> Path:
    with odradek.open(path) as logs:
        logs.create_topic("events", 1)
    (path / "events-0" / f"{0:020}.log").write_bytes(batch)
    return path


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("options", [{}, {"timestamp_type": "LogAppendTime", "append_time_ms": 9}])
def test_each_record_is_what_all_of_them_are(codec: Codec, options: dict[str, Any]) -> None:
    data = b"before" + large(codec, base_offset=70, **options)
    (header,) = scan_batches(data[6:])
    found = each_record(data, header._replace(position=106), origin=100)
    assert not isinstance(found, list)
    assert list(found) == read_records(data[6:], header)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_large_batch_that_is_damaged_gives_no_record(codec: Codec, tmp_path: Path) -> None:
    batch = broken_at_its_end(codec)
    (header,) = scan_batches(batch)
    with pytest.raises(CorruptRecordError) as expected:
        read_records(batch, header)
    with pytest.raises(CorruptRecordError) as refused:
        each_record(batch, header)
    assert str(refused.value) == str(expected.value)
    good = large(records=RECORDS[:1])
    moved = (1).to_bytes(8, "big") + batch[8:]
    given: list[int | None] = []
    with odradek.open(folder_of(tmp_path, good + moved), "r") as logs:
        records = logs["events", 0].read()
        with pytest.raises(CorruptRecordError, match=rf"0\.log, position {len(good)}"):
            given.extend(record.offset for record in records)
    assert given == [0]


def read(path: Path) -> int:
    with odradek.open(path, "r") as logs:
        return sum(1 for _ in logs["events", 0].read())


def consume(path: Path) -> int:
    with odradek.consume(path, "events", auto_offset_reset="earliest", follow=False) as consumer:
        return sum(1 for _ in consumer)


def scan(path: Path) -> int:
    return sum(batch.num_rows for batch in odradek.scan(path, "events"))


def dump(path: Path) -> int:
    main(["dump", str(path)])
    return 0


READERS: dict[str, Callable[[Path], int]] = {"read": read, "consume": consume, "scan": scan, "dump": dump}


@pytest.mark.parametrize("reader", READERS.values(), ids=list(READERS))
def test_more_records_than_bytes_can_hold_are_refused(
    reader: Callable[[Path], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    most = (1 << 31) - 1
    # Compressed, so that the header alone does not show it.
    batch = large(Codec.GZIP, RECORDS[:1])
    counted = batch[:23] + (most - 1).to_bytes(4, "big") + batch[27:57] + most.to_bytes(4, "big")
    path = folder_of(tmp_path, seal(counted, batch[61:]))
    if reader is dump:
        with pytest.raises(SystemExit):
            reader(path)
        assert f"{most} records in 8 bytes" in capsys.readouterr().err
    else:
        with pytest.raises(CorruptRecordError, match=f"{most} records in 8 bytes"):
            reader(path)


BOUNDED = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_large_batches import READERS, Codec, compress, folder_of, large, RECORDS, seal

COUNT = 1_500_000
def record(number):
    delta, rest = b"", number * 2
    while rest > 127:
        delta += bytes([rest & 127 | 128])
        rest >>= 7
    body = b"\\0\\0" + delta + bytes([rest]) + b"\\x01\\x01\\0"
    return bytes([len(body) * 2]) + body
header = large(Codec.ZSTD, RECORDS[:1])[:61]
header = header[:23] + (COUNT - 1).to_bytes(4, "big") + header[27:57] + COUNT.to_bytes(4, "big")
content = compress(Codec.ZSTD, b"".join(map(record, range(COUNT))))
big, small = Path(sys.argv[3]), Path(sys.argv[4])
folder_of(big, seal(header, content))
folder_of(small, large())
def megabytes(field):
    (line,) = [line for line in open("/proc/self/status") if line.startswith(field)]
    return int(line.split()[1]) >> 10
reader = READERS[sys.argv[2]]
try:
    reader(small)
except SystemExit:
    pass
Path("/proc/self/clear_refs").write_text("5")
before = megabytes("VmRSS")
try:
    count = reader(big)
except SystemExit:
    count = 0  # the command has ended
print(count, megabytes("VmHWM") - before, file=sys.stderr)
"""


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("name", list(READERS))
def test_a_batch_of_many_records_takes_little_memory(name: str, tmp_path: Path) -> None:
    """15 MB of records in one batch; as objects they take 160 MB, as lines 140."""
    arguments = [str(Path(__file__).parent), name, str(tmp_path / "big"), str(tmp_path / "small")]
    found = subprocess.run([sys.executable, "-c", BOUNDED, *arguments], capture_output=True, text=True, check=True)
    count, most = map(int, found.stderr.split())
    assert count == (0 if name == "dump" else 1_500_000)
    assert most < 60
