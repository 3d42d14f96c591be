from pathlib import Path

import pytest

from odradek.errors import CorruptIndexError, LogError
from odradek.storage.formats.transaction_index import AbortedTransaction, TransactionIndex, WritableTransactionIndex
from odradek.storage.names import parse_segment_file
from peers.kafka_fixture import KafkaFixture

REAL = bytes.fromhex("00000000000000000001000000000000000300000000000000040000000000000005")


def test_the_bytes_of_a_broker(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(REAL)
    assert TransactionIndex(tmp_path / "x", 2).transactions == [AbortedTransaction(1, 3, 4, 5)]


def test_cut_at_every_byte(tmp_path: Path) -> None:
    for cut in range(2 * len(REAL)):
        (tmp_path / "x").write_bytes((REAL + REAL)[:cut])
        assert len(TransactionIndex(tmp_path / "x", 2).transactions) == cut // len(REAL)


def test_an_unknown_version_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\1" + REAL[1:])
    with pytest.raises(CorruptIndexError, match="version"):
        TransactionIndex(tmp_path / "x", 2)


def test_real_files_are_read_and_written_alike(kafka_fixture: KafkaFixture, tmp_path: Path) -> None:
    seen = 0
    for log_dir in (kafka_fixture.log_dir, kafka_fixture.log_dir_unclean):
        for path in sorted(log_dir.rglob("*.txnindex")):
            parsed = parse_segment_file(path.name)
            assert parsed is not None
            index = TransactionIndex(path, parsed.base_offset)
            index.check()
            copy = WritableTransactionIndex(tmp_path / str(seen), index.base_offset)
            for transaction in index.transactions:
                copy.append(transaction)
            copy.sync()
            copy.close()
            assert copy.path.read_bytes() == path.read_bytes() != b""
            seen += 1
    assert seen >= 4


def test_it_grows_and_shrinks(tmp_path: Path) -> None:
    index = WritableTransactionIndex(tmp_path / "x", 0)
    first, second, third = (
        AbortedTransaction(1, 0, 10, 5),
        AbortedTransaction(2, 5, 20, 21),
        AbortedTransaction(1, 30, 40, 41),
    )
    assert not index.path.exists()
    for transaction in (first, second, third):
        index.append(transaction)
    with pytest.raises(LogError, match="not above"):
        index.append(AbortedTransaction(3, 35, 40, 41))
    index.go_back(1)
    assert index.transactions == [first]
    assert TransactionIndex(index.path, 0).transactions == [first]
    index.append(second)
    index.close()
    assert TransactionIndex(index.path, 0).transactions == [first, second]
    with pytest.raises(CorruptIndexError, match="marker"):
        TransactionIndex(index.path, 11).check()
