"""Reading the batches of a file past damage: whatever the size of a window, and where the disk does not give a page."""

from __future__ import annotations

import mmap
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from flips.breakage import THINGS
from odradek.errors import FormatError
from odradek.records import BatchHeader, Record, scan_batches
from odradek.records.builder import build_batch
from odradek.storage.readable_bytes import ReadableBytes
from odradek.storage.regular_files import read_file
from odradek.storage.segment import batch_reader
from odradek.storage.segment.batch_reader import UNREADABLE, BatchReader, Damage, mapped
from peers.kafka_fixture import KafkaFixture


def read(path: Path) -> tuple[list[BatchHeader], list[Damage]]:
    damages: list[Damage] = []
    with mapped(path) as data:
        return list(BatchReader(path, data, damages.append)), damages


def batches(count: int, value_bytes: int = 300) -> bytes:
    return b"".join(
        build_batch([Record(None, bytes([number % 256]) * value_bytes)], base_offset=number) for number in range(count)
    )


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_reader, "WINDOW_BYTES", 2 * mmap.PAGESIZE)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(10))
def test_windows_change_nothing(
    fixture_2_8_2: KafkaFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    source = random.Random(seed)
    segment = source.choice(sorted(fixture_2_8_2.log_dir.glob("*/*.log")))
    data = bytearray(segment.read_bytes() * 3 + batches(40, 1000))
    for _ in range(source.randrange(4)):
        start = source.randrange(len(data))
        data[start : start + source.choice((1, 100, 9000))] = b""
    path = tmp_path / segment.name
    path.write_bytes(data)
    expected = read(path)
    monkeypatch.setattr(batch_reader, "WINDOW_BYTES", mmap.PAGESIZE)
    assert read(path) == expected


@pytest.mark.usefixtures("small_windows")
def test_a_batch_may_be_longer_than_windows(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    for before in (0, 1, 5, 30):
        long = build_batch([Record(None, b"v" * 50 * mmap.PAGESIZE)], base_offset=before)
        path.write_bytes(batches(before) + b"damage" + long + batches(3))
        headers, damages = read(path)
        assert (len(headers), len(damages)) == (before + 4, 1)
        path.write_bytes(batches(before) + long[:-1])
        headers, [damage] = read(path)
        assert len(headers) == before
        assert damage.is_truncation
        assert damage.reason.endswith(f"{len(long) - 1} are left")


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("bad", [[0], [3], [3, 4, 9], [19], list(range(20))], ids=str)
def test_what_the_disk_does_not_give_is_stepped_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: list[int]
) -> None:
    def is_readable(self: ReadableBytes, start: int, end: int) -> bool:
        return not any(start < (page + 1) * mmap.PAGESIZE and page * mmap.PAGESIZE < end for page in bad)

    data = batches(20 * mmap.PAGESIZE // 200)[: 20 * mmap.PAGESIZE]
    path = tmp_path / "0.log"
    path.write_bytes(data)
    expected = [
        header
        for header in scan_batches(data)
        if not any(
            header.position < (page + 1) * mmap.PAGESIZE and page * mmap.PAGESIZE < header.end_position for page in bad
        )
    ]
    monkeypatch.setattr(ReadableBytes, "_is_readable", is_readable)
    headers, damages = read(path)
    assert headers == expected
    assert UNREADABLE in {damage.reason for damage in damages}
    covered = sorted([(header.position, header.end_position) for header in headers])
    covered += [(damage.position, damage.position + damage.size_bytes) for damage in damages]
    assert sum(end - start for start, end in covered) == len(data)


CUT = """
import sys
from pathlib import Path
from odradek.storage.segment.batch_reader import BatchReader, mapped
path = Path(sys.argv[1])
with mapped(path) as data:
    path.open("r+b").truncate(path.stat().st_size // 2)
    damages = []
    print(len(list(BatchReader(path, data, damages.append))), len(damages), damages[0].reason)
"""


@pytest.mark.slow
def test_a_file_that_is_cut_while_it_is_read_is_damage_and_no_bus_error(tmp_path: Path) -> None:
    data = batches(400)
    path = tmp_path / "0.log"
    path.write_bytes(data)
    environment = os.environ | {"PYTHONPATH": ":".join(sys.path), "PYTHONWARNINGS": "ignore"}
    result = subprocess.run([sys.executable, "-c", CUT, path], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    found, damaged, reason = result.stdout.split(maxsplit=2)
    # What is left of the last page reads as zeros.
    assert int(found) == len(data) // 2 * 400 // len(data)
    assert int(damaged) >= 1
    assert reason


def test_a_wrong_base_offset_hides_nothing_after_later_damage(tmp_path: Path) -> None:
    data = bytearray(batches(10))
    headers = list(scan_batches(bytes(data)))
    # It is taken for offset 2^20 and more, and the batch after next is damaged.
    data[headers[3].position + 5] ^= 0x10
    data[headers[5].position + 80] ^= 1
    path = tmp_path / "0.log"
    path.write_bytes(data)
    found, damages = read(path)
    assert [header.base_offset for header in found] == [0, 1, 2, 3 | 1 << 20, 4, 6, 7, 8, 9]
    assert [damage.position for damage in damages] == [headers[5].position]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("thing", THINGS)
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, thing: str) -> None:
    path = tmp_path / "0.log"
    THINGS[thing](path)
    expected = FileNotFoundError if thing == "a link that leads nowhere" else FormatError
    with pytest.raises(expected, match=r"0\.log"), mapped(path):
        pass
    with pytest.raises(expected, match=r"0\.log"):
        read_file(path, 100)


def test_a_file_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FormatError, match="1099511627776 bytes are more"):
        read_file(path, 1 << 20)
