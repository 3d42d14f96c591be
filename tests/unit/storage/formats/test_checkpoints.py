from pathlib import Path

import pytest

from odradek.errors import CheckpointError
from odradek.storage.formats.checkpoints import (
    EpochEntry,
    format_leader_epochs,
    format_offset_checkpoint,
    parse_leader_epochs,
    parse_offset_checkpoint,
    read_leader_epochs,
    read_offset_checkpoint,
    write_leader_epochs,
    write_offset_checkpoint,
)
from odradek.storage.names import TopicPartition
from peers.kafka_fixture import KafkaFixture

TEXT = "0\n2\norders 0 1200\na-b.c 11 9223372036854775807\n"
OFFSETS = {TopicPartition("orders", 0): 1200, TopicPartition("a-b.c", 11): 2**63 - 1}


def test_both_ways(tmp_path: Path) -> None:
    assert parse_offset_checkpoint(TEXT) == OFFSETS
    assert format_offset_checkpoint(OFFSETS) == TEXT.encode()
    assert format_leader_epochs([EpochEntry(0, 0)]) == bytes.fromhex("300a310a3020300a")
    for offsets in (OFFSETS, {}):
        write_offset_checkpoint(tmp_path / "o", offsets)
        assert read_offset_checkpoint(tmp_path / "o") == offsets
    for entries in ([EpochEntry(0, 0), EpochEntry(2, 17)], []):
        write_leader_epochs(tmp_path / "e", entries)
        assert read_leader_epochs(tmp_path / "e") == entries
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e", "o"]


def test_an_absent_or_empty_file_holds_nothing(tmp_path: Path) -> None:
    assert read_offset_checkpoint(tmp_path / "none") == {}
    (tmp_path / "empty").touch()
    assert read_offset_checkpoint(tmp_path / "empty") == {}
    assert read_leader_epochs(tmp_path / "empty") == []


def test_what_a_cut_leaves_is_the_whole_or_an_error() -> None:
    for cut in range(len(TEXT)):
        try:
            found = parse_offset_checkpoint(TEXT[:cut])
        except CheckpointError:
            continue
        # A cut within the last number is not to be seen: that is why the file is written aside and renamed.
        assert found == {} or cut > TEXT.rindex(" ")
        assert cut < 3 or cut > TEXT.rindex(" ")


@pytest.mark.parametrize(
    "text",
    [
        "1\n0\n",
        "0\n1\n",
        "0\n0\norders 0 1\n",
        "0\n1\norders 0\n",
        "0\n1\norders 0 1 2\n",
        "0\n1\n\n",
        "x",
        "0\n1\norders 0 0x1\n",
        "0\n1\norders 0 1_0\n",
        "\0\0\0\0",
        "0\n" + "9" * 5000 + "\n",
    ],
)
def test_what_kafka_refuses_is_refused(text: str) -> None:
    with pytest.raises(CheckpointError):
        parse_offset_checkpoint(text)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0\n1\n\xff 0 1\n")
    with pytest.raises(CheckpointError) as caught:
        read_offset_checkpoint(tmp_path / "x")
    assert caught.value.path == str(tmp_path / "x")
    with pytest.raises(CheckpointError):
        parse_leader_epochs("0\n1\n0 0 0\n")


def test_real_files_are_read_and_written_alike(kafka_fixture: KafkaFixture) -> None:
    seen = 0
    for log_dir in (kafka_fixture.log_dir, kafka_fixture.log_dir_unclean):
        for path in log_dir.glob("*-checkpoint"):
            assert format_offset_checkpoint(read_offset_checkpoint(path)) == path.read_bytes()
            seen += 1
        for path in log_dir.glob("*/leader-epoch-checkpoint"):
            assert format_leader_epochs(read_leader_epochs(path)) == path.read_bytes() or path.stat().st_size == 0
            seen += 1
    assert seen > 30
