"""Merges the small files that many batches leave behind.

    events-0-...000-...120.parquet  events-0-...120-...240.parquet  ...   ->   events-0-...000-...960.parquet

Files of the same partition, folder and columns are merged in the order of their offsets, up to a target size. One
commit adds a merged file and removes the files that it replaces; a reader that lists the folder at that moment may see
both.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

from odradek.spark.pipeline.backfill_claim import joined
from odradek.spark.pipeline.folder_uri import FolderUri
from odradek.spark.pipeline.parquet_folder import (
    RANGES_KEY,
    ParquetFolder,
    file_name,
    files_of,
    footer_ranges,
    format_ranges,
    lives_of,
)
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition

DEFAULT_TARGET_BYTES = 128 << 20
_ROWS = 65_536


@dataclass(frozen=True)
class _Small:
    name: str
    size_bytes: int
    schema: pa.Schema
    offsets: tuple[str, int, int] | None
    """`topic-partition`, first offset, offset after the last; None for rows that do not come from one record."""

    @property
    def lives(self) -> int:
        return lives_of(self.name)

    @property
    def group(self) -> tuple[str, int, str]:
        return str(PurePosixPath(self.name).parent), self.lives, self.offsets[0] if self.offsets else ""


def compact(path: Path | FolderUri, target_bytes: int = DEFAULT_TARGET_BYTES) -> tuple[int, int]:
    """Merge the small files of a folder.

    Args:
        path: The folder of a Parquet sink. Its pipeline must not be running.
        target_bytes: About the most bytes of a merged file.

    Returns:
        How many files were merged, and into how many.

    Raises:
        SinkError: A pipeline writes here, or a file was not written by a pipeline.
    """
    folder = ParquetFolder(path)
    merged, made = 0, 0
    backfills = files_of(path, for_backfill=True) if isinstance(path, Path) else None
    try:
        if backfills is not None:
            # One that is killed in a commit has to finish it; and one that runs reads which files there are.
            backfills.claim()
        for files in list(_groups(folder, target_bytes)):
            staging = folder.files.stage()
            staged = f"{staging}/{uuid.uuid4().hex}.staged"
            _merge(folder, files, staged)
            final = PurePosixPath(files[0].name).with_name(_name(files))
            # A backfill fills gaps: the merged file may have the name of one that had the rows around a gap.
            removals = [file.name for file in files if file.name != str(final)]
            folder.commit(staging, [(staged, str(final))], {}, removals)
            merged += len(files)
            made += 1
    finally:
        if backfills is not None:
            backfills.release()
        folder.close()
    return merged, made


def _groups(folder: ParquetFolder, target_bytes: int) -> Iterator[list[_Small]]:
    groups: dict[tuple[str, int, str], list[_Small]] = {}
    for name in folder.files.names():
        with folder.files.errors(), folder.files.open_input(name) as file:
            size_bytes = file.size()
            schema = pq.read_schema(file).remove_metadata() if size_bytes < target_bytes else None
        if schema is not None:
            small = _Small(name, size_bytes, schema, _offsets(PurePosixPath(name).name))
            groups.setdefault(small.group, []).append(small)
    for files in groups.values():
        files.sort(key=lambda file: file.offsets[1] if file.offsets else 0)
        run: list[_Small] = []
        for file in files:
            full = sum(other.size_bytes for other in run) + file.size_bytes > target_bytes
            if run and (full or file.schema != run[0].schema):
                if len(run) > 1:
                    yield run
                run = []
            run.append(file)
        if len(run) > 1:
            yield run


def _offsets(name: str) -> tuple[str, int, int] | None:
    parts = name.removesuffix(file_name("", lives_of(name))).rsplit("-", 2)
    if len(parts) != 3 or not all(len(part) == 20 and part.isdigit() for part in parts[1:]):
        return None
    return parts[0], int(parts[1]), int(parts[2])


def _name(files: Sequence[_Small]) -> str:
    first, last = files[0].offsets, files[-1].offsets
    if first is not None and last is not None:
        end = max(file.offsets[2] for file in files if file.offsets)
        return file_name(f"{first[0]}-{first[1]:020d}-{end:020d}", files[0].lives)
    names = "\n".join(PurePosixPath(file.name).name for file in files)
    return file_name(f"batch-{hashlib.sha256(names.encode()).hexdigest()[:16]}-merged", files[0].lives)


def _merge(folder: ParquetFolder, files: Sequence[_Small], staged: str) -> None:
    # One range around all of them would claim gaps, which a backfill is to fill.
    ranges: dict[TopicPartition, list[tuple[int, int]]] = {}
    for file in files:
        for name, start, end in footer_ranges(folder, file.name):
            ranges[name] = joined([*ranges.get(name, ()), (start, end)])
    held = [OffsetRange(name, *span) for name, spans in ranges.items() for span in spans]
    with folder.files.errors():
        with folder.files.open_input(files[0].name) as first:
            compression = pq.read_metadata(first).row_group(0).column(0).compression.lower()
        output = folder.files.create(staged)
        try:
            with pq.ParquetWriter(output, files[0].schema, compression=compression) as writer:
                for file in files:
                    with folder.files.open_input(file.name) as source, pq.ParquetFile(source) as parquet:
                        for batch in parquet.iter_batches(_ROWS):
                            writer.write_batch(batch.cast(files[0].schema))
                writer.add_key_value_metadata({RANGES_KEY: format_ranges(held)})
            folder.files.seal(output)
        finally:
            output.close()
