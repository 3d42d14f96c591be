from pathlib import Path

import pytest

from odradek.errors import FormatError
from odradek.storage.formats.producer_snapshot import (
    NONE,
    ProducerSnapshotEntry,
    format_snapshot,
    parse_snapshot,
    read_snapshot,
    write_snapshot,
)
from peers.kafka_fixture import KafkaFixture

REAL = bytes.fromhex(
    "00015aa061f80000000100000000000000030000000000480000000000000048000000000000018bcfe68140ffffffffffffffffffffffff"
)

ENTRY = ProducerSnapshotEntry(3, 0, 72, 72, 0, 1700000072000, NONE, NONE)


def test_the_bytes_of_a_broker() -> None:
    assert parse_snapshot(REAL) == [ENTRY]
    assert format_snapshot([ENTRY]) == REAL
    assert format_snapshot([]) == bytes.fromhex("000148674bc700000000")
    assert parse_snapshot(format_snapshot([])) == []


def test_real_files_are_read_and_written_alike(kafka_fixture: KafkaFixture) -> None:
    seen = 0
    for log_dir in (kafka_fixture.log_dir, kafka_fixture.log_dir_unclean):
        for path in log_dir.rglob("*.snapshot"):
            assert format_snapshot(read_snapshot(path)) == path.read_bytes()
            seen += 1
    assert seen > 50


def test_a_cut_or_a_flipped_bit_is_an_error() -> None:
    for cut in range(len(REAL)):
        with pytest.raises(FormatError):
            parse_snapshot(REAL[:cut])
    for bit in range(len(REAL) * 8):
        damaged = bytearray(REAL)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            parse_snapshot(damaged)
    with pytest.raises(FormatError):
        parse_snapshot(REAL + b"\0")


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "x", [ENTRY, ENTRY])
    write_snapshot(tmp_path / "x", [ENTRY])
    assert read_snapshot(tmp_path / "x") == [ENTRY]
