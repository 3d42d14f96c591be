"""What an idempotent producer sends again after a crash of the log's process is known, however often that crashed."""

from __future__ import annotations

from pathlib import Path

import pytest

import odradek
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.records.timestamps import now_ms

BATCHES = 5


def batch(sequence: int) -> bytearray:
    return bytearray(
        build_batch([Record(b"k", b"v", timestamp=now_ms())], producer_id=7, producer_epoch=0, base_sequence=sequence)
    )


@pytest.mark.parametrize("crashes", [0, 1, 2, 3])
def test_each_of_the_last_five_batches_is_a_duplicate(tmp_path: Path, crashes: int) -> None:
    logs = odradek.open(tmp_path)
    logs.create_topic("t")
    for sequence in range(2 * BATCHES):
        logs["t", 0].append_batches(batch(sequence))
    for _ in range(crashes):
        logs.abandon()
        logs = odradek.open(tmp_path)
    with logs:
        for sequence in range(BATCHES, 2 * BATCHES):
            sent_again = logs["t", 0].append_batches(batch(sequence))
            assert (sent_again.is_duplicate, sent_again.first_offset) == (True, sequence)
        assert logs["t", 0].log_end_offset == 2 * BATCHES
