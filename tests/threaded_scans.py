"""What a scan gave, so that two of them can be compared: the rows, and the error that ended it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import odradek
from odradek.errors import OdradekError
from odradek.records import scan_batches
from odradek.storage.names import LOG_SUFFIX, segment_file_name


def write_log(path: Path, batches: Sequence[bytes], *, batches_per_segment: int) -> Path:
    """Write the log of the partition `t-0`, without indexes; the v2 batches follow each other's offsets."""
    (path / "t-0").mkdir(parents=True)
    offset = 0
    for start in range(0, len(batches), batches_per_segment):
        with (path / "t-0" / segment_file_name(offset, LOG_SUFFIX)).open("wb") as file:
            for batch in batches[start : start + batches_per_segment]:
                # The base offset is not part of what the checksum covers.
                file.write(offset.to_bytes(8, "big") + batch[8:])
                offset += next(iter(scan_batches(batch))).last_offset_delta + 1
    return path


class Outcome(NamedTuple):
    """The rows that came, and the error after them: its type, text, path and position."""

    rows: list[dict[str, Any]]
    error: str


def outcome(path: Path, *arguments: Any, **options: Any) -> Outcome:
    """Read a log directory and tell what came."""
    rows: list[dict[str, Any]] = []
    error = ""
    try:
        for batch in odradek.scan(path, *arguments, **options):
            batch.validate(full=True)
            assert 0 < batch.num_rows <= options.get("rows", 65_536)
            rows += batch.to_pylist()
    except OdradekError as caught:
        error = f"{type(caught).__name__}: {caught} {vars(caught)}"
    return Outcome(rows, error)
