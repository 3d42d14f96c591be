from __future__ import annotations

from pathlib import Path

import pytest

from odradek.errors import CheckpointError
from odradek.storage.formats.checkpoints import EpochEntry
from odradek.storage.log.leader_epochs import LeaderEpochCache, end_offset_for, epoch_for_offset
from peers.kafka_fixture import KafkaFixture


def cache_of(directory: Path, *entries: tuple[int, int]) -> LeaderEpochCache:
    cache = LeaderEpochCache(directory)
    cache.assign_all(EpochEntry(*entry) for entry in entries)
    return cache


# What is assigned in turn, and what is left.
ASSIGNMENTS = [
    ([], []),
    ([(0, 0)], [(0, 0)]),
    ([(0, 0), (0, 10)], [(0, 0)]),
    ([(0, 5), (0, 3)], [(0, 3)]),
    ([(1, 0), (2, 10), (5, 20)], [(1, 0), (2, 10), (5, 20)]),
    ([(1, 5), (2, 5)], [(2, 5)]),
    ([(1, 0), (2, 10), (3, 20), (2, 15)], [(1, 0), (2, 15)]),
    ([(1, 0), (2, 10), (3, 20), (4, 10)], [(1, 0), (4, 10)]),
    ([(1, 0), (2, 10), (3, 20), (1, 30)], [(1, 30)]),
    ([(5, 10), (2, 2)], [(2, 2)]),
]


@pytest.mark.parametrize(("assigned", "left"), ASSIGNMENTS)
def test_assignments_keep_epochs_and_offsets_growing(
    tmp_path: Path, assigned: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    cache = LeaderEpochCache(tmp_path)
    for entry in assigned:
        cache.assign(*entry)
    assert cache.entries == left
    assert LeaderEpochCache(tmp_path).entries == left
    assert cache.latest_epoch == (left[-1][0] if left else None)


def test_only_news_is_written(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, (0, 0))
    cache.path.unlink()
    assert cache.assign(0, 7) is False
    assert not cache.path.exists()
    assert cache.assign(1, 7) is True
    assert cache.path.read_bytes() == b"0\n2\n0 0\n1 7\n"


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_negative_numbers_are_refused(tmp_path: Path, entry: tuple[int, int]) -> None:
    with pytest.raises(ValueError):
        LeaderEpochCache(tmp_path).assign(*entry)


END_OFFSETS = [
    (-1, None),
    (0, (0, 10)),
    (2, (2, 20)),
    (3, (2, 20)),
    (4, (2, 20)),
    (5, (5, 30)),
    (7, (7, 99)),
    (8, None),
]


@pytest.mark.parametrize(("epoch", "expected"), END_OFFSETS)
def test_where_an_epoch_ends(tmp_path: Path, epoch: int, expected: tuple[int, int] | None) -> None:
    assert end_offset_for(cache_of(tmp_path, (2, 10), (5, 20), (7, 30)).entries, epoch, 99) == expected
    assert end_offset_for([], epoch, 99) is None


@pytest.mark.parametrize(
    ("offset", "expected"), [(0, None), (9, None), (10, 2), (19, 2), (20, 5), (29, 5), (30, 7), (1 << 40, 7)]
)
def test_the_epoch_of_an_offset(tmp_path: Path, offset: int, expected: int | None) -> None:
    assert epoch_for_offset(cache_of(tmp_path, (2, 10), (5, 20), (7, 30)).entries, offset) == expected


FROM_END = [
    (31, [(2, 10), (5, 20), (7, 30)]),
    (30, [(2, 10), (5, 20)]),
    (25, [(2, 10), (5, 20)]),
    (20, [(2, 10)]),
    (10, []),
    (0, []),
    (-1, [(2, 10), (5, 20), (7, 30)]),
]
FROM_START = [
    (0, [(2, 10), (5, 20), (7, 30)]),
    (10, [(2, 10), (5, 20), (7, 30)]),
    (15, [(2, 15), (5, 20), (7, 30)]),
    (20, [(5, 20), (7, 30)]),
    (99, [(7, 99)]),
]


@pytest.mark.parametrize(("offset", "left"), FROM_END)
def test_truncating_the_end(tmp_path: Path, offset: int, left: list[tuple[int, int]]) -> None:
    cache = cache_of(tmp_path, (2, 10), (5, 20), (7, 30))
    cache.truncate_from_end(offset)
    assert cache.entries == LeaderEpochCache(tmp_path).entries == left


@pytest.mark.parametrize(("offset", "left"), FROM_START)
def test_truncating_the_start(tmp_path: Path, offset: int, left: list[tuple[int, int]]) -> None:
    cache = cache_of(tmp_path, (2, 10), (5, 20), (7, 30))
    cache.truncate_from_start(offset)
    assert cache.entries == LeaderEpochCache(tmp_path).entries == left


def test_clearing(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, (2, 10))
    cache.clear()
    assert cache.path.read_bytes() == b"0\n0\n"
    assert (cache.entries, cache.latest_epoch) == ([], None)


def test_a_file_that_kafka_would_refuse(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")
    with pytest.raises(CheckpointError):
        LeaderEpochCache(tmp_path)


def test_real_files(kafka_fixture: KafkaFixture) -> None:
    seen = 0
    for path in kafka_fixture.log_dir.rglob("leader-epoch-checkpoint"):
        cache = LeaderEpochCache(path.parent)
        seen += len(cache.entries)
        assert path.read_text() == "".join(
            f"{line}\n" for line in ["0", str(len(cache.entries)), *(f"{e} {o}" for e, o in cache.entries)]
        )
    assert seen > 5
