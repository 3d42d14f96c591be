from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.records.builder import build_batch
from odradek.records.kernels.objects import Record
from odradek.storage.log.retention import DelayedDeletes, DeletionReason, age_timestamp, deletable_segments
from odradek.storage.topic_config import TopicConfig
from peers.folder_log import FolderLog

START, SIZE, TIME = DeletionReason.START_OFFSET, DeletionReason.SIZE, DeletionReason.TIME
FOREVER: dict[str, Any] = {"retention_ms": -1}


def log_of(directory: Path, timestamps: list[int | None]) -> FolderLog:
    """Make a log of segments of ten offsets in batches of equal size, one a timestamp; None makes an empty segment."""
    log = FolderLog(directory / "t-0")
    for number, timestamp in enumerate(timestamps):
        batches = []
        if timestamp is not None:
            records = [Record(b"k", b"v" * 50, (), timestamp)] * 10
            batches.append(build_batch(records, base_offset=number * 10))
        log.write(number * 10, *batches, modified_ms=5000)
    return log


# Timestamps of the segments, configs, log start offset, high watermark, time, and what goes.
CASES: dict[str, tuple[list[int | None], dict[str, Any], int, int, int, list[tuple[int, DeletionReason]]]] = {
    "nothing": ([1000, 2000], {"retention_ms": 5000}, 0, 20, 6000, []),
    "by time": ([1000, 2000, 3000], {"retention_ms": 5000}, 0, 30, 7001, [(0, TIME), (10, TIME)]),
    "not at the very time": ([1000, 2000], {"retention_ms": 5000}, 0, 20, 6000, []),
    "a younger one shields those behind it": ([9000, 1000, 1000], {"retention_ms": 5000}, 0, 30, 10000, []),
    "the active one too": ([1000, 2000], {"retention_ms": 100}, 0, 20, 9000, [(0, TIME), (10, TIME)]),
    "but not where it is empty": ([1000, None], {"retention_ms": 100}, 0, 10, 9000, [(0, TIME)]),
    "an empty one in the middle goes by its file's time": (
        [1000, None, 3000],
        {"retention_ms": 100},
        0,
        30,
        5101,
        [(0, TIME), (10, TIME), (20, TIME)],
    ),
    "without timestamps the file's time counts": ([-1, -1], {"retention_ms": 100}, 0, 20, 5100, []),
    "the future keeps": ([1 << 50, 1000], {"retention_ms": 100}, 0, 20, 9000, []),
    "by size": ([1, 1, 1, 1], {"retention_bytes": 2, **FOREVER}, 0, 40, 0, [(0, SIZE), (10, SIZE)]),
    "only while enough is left": ([1, 1, 1], {"retention_bytes": 2.5, **FOREVER}, 0, 30, 0, []),
    "to nothing": ([1, 1], {"retention_bytes": 0, **FOREVER}, 0, 20, 0, [(0, SIZE), (10, SIZE)]),
    "by size, then by time": (
        [1000, 1000, 1000, 9000],
        {"retention_bytes": 3, "retention_ms": 100},
        0,
        40,
        9000,
        [(0, SIZE), (10, TIME), (20, TIME)],
    ),
    "a deleted head": ([1, 1, 1], FOREVER, 20, 30, 0, [(0, START), (10, START)]),
    "the segment that holds the start stays": ([1, 1, 1], FOREVER, 19, 30, 0, [(0, START)]),
    "the active one stays then": ([1, 1], FOREVER, 20, 20, 0, [(0, START)]),
    "not past the high watermark": ([1000, 1000, 1000], {"retention_ms": 1}, 0, 15, 9000, [(0, TIME)]),
    "a compacted log keeps all but the head": (
        [1000, 1000, 1000],
        {"cleanup_policy": ("compact",), "retention_ms": 1, "retention_bytes": 0},
        10,
        30,
        9000,
        [(0, START)],
    ),
    "both policies": (
        [1000, 9000],
        {"cleanup_policy": ("compact", "delete"), "retention_ms": 100},
        0,
        20,
        9000,
        [(0, TIME)],
    ),
    "no policy": ([1000, 1000], {"cleanup_policy": (), "retention_ms": 1}, 10, 20, 9000, [(0, START)]),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_what_goes(name: str, tmp_path: Path) -> None:
    timestamps, settings, start, high_watermark, now_ms, expected = CASES[name]
    log = log_of(tmp_path, timestamps)
    size = max(segment.size_bytes for segment in log.segments)
    settings = {"cleanup_policy": ("delete",), **settings}
    if "retention_bytes" in settings:
        settings["retention_bytes"] = int(float(str(settings["retention_bytes"])) * size)
    found = deletable_segments(
        log.segments,
        TopicConfig(**settings),
        log_start_offset=start,
        log_end_offset=len(timestamps) * 10,
        high_watermark=high_watermark,
        now_ms=now_ms,
    )
    assert [(deletion.segment.base_offset, deletion.reason) for deletion in found] == expected


def test_the_age_timestamp(tmp_path: Path) -> None:
    log = log_of(tmp_path, [1000, None, -1])
    assert [age_timestamp(segment) for segment in log.segments] == [1000, 5000, 5000]


def test_files_wait_for_their_time(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abcd"]
    for path in paths:
        path.touch()
    deletes = DelayedDeletes()
    deletes.schedule(paths[:2], 1000)
    deletes.schedule(paths[2:3], 500)
    deletes.schedule(paths[3:], 2000)
    paths[3].unlink()
    assert deletes.run(499) == 0
    assert deletes.run(999) == 1
    assert [path.exists() for path in paths[:3]] == [True, True, False]
    assert deletes.run(1000) == 2
    assert len(deletes) == 1
    # One that is gone already is no error.
    assert deletes.run(2000) == 1
    assert deletes.run(2000) == 0
