"""The producers of a log: of its snapshot, and of the batches after it, as far as they are looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import odradek
from odradek.inspection.log_files import partition_folder
from odradek.inspection.producers import last_producers
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.storage.formats.producer_snapshot import format_snapshot


def test_only_the_end_of_a_long_log_is_looked_at(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t")
        for _ in range(6):
            logs["t", 0].append([Record(None, bytes(1_000_000))])
    folder = tmp_path / "data" / "t-0"
    (folder / f"{6:020}.snapshot").unlink()

    def append(offset: int, **options: Any) -> None:
        with (folder / f"{0:020}.log").open("ab") as file:
            file.write(build_batch([Record(b"k", b"v", offset=offset)], base_offset=offset, **options))

    append(6, producer_id=7, producer_epoch=2, base_sequence=0, is_transactional=True)
    append(7, producer_id=7, producer_epoch=2, base_sequence=1, is_transactional=True)
    append(8, producer_id=5, producer_epoch=0, base_sequence=9)
    found = last_producers(partition_folder(folder))
    assert not found.is_whole
    assert [(one.producer_id, one.last_sequence, one.current_transaction_first_offset) for one in found.producers] == [
        (5, 9, -1),
        (7, 1, 6),
    ]
    # A snapshot knows what came before it, and a damaged one is not believed.
    (folder / f"{8:020}.snapshot").write_bytes(format_snapshot(found.producers[1:]))
    (folder / f"{9:020}.snapshot").write_bytes(b"\0" * 100)
    again = last_producers(partition_folder(folder))
    assert again.is_whole
    assert again.producers == found.producers
