"""A driver of a Parquet folder without Spark: batches of offsets, until one has this many; started again after kills.

python -m chaos.folder_driver s3://cafe/orders?... 60
"""

from __future__ import annotations

import sys
import uuid

import pyarrow as pa
import pyarrow.parquet as pq

from odradek.offsets.store import Position
from odradek.spark.pipeline.folder_uri import FolderUri
from odradek.spark.pipeline.parquet_folder import RANGES_KEY, ParquetFolder, format_ranges
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition

NAME = TopicPartition("t", 0)
BATCH = 10


def stage(folder: ParquetFolder, start: int, end: int) -> str:
    name = f"{folder.files.stage()}/{uuid.uuid4().hex}.staged"
    rows = pa.table({"offset": pa.array(range(start, end), pa.int64())})
    file = folder.files.create(name)
    pq.write_table(rows.replace_schema_metadata({RANGES_KEY: format_ranges([OffsetRange(NAME, start, end)])}), file)
    folder.files.seal(file)
    return name


def rows(folder: ParquetFolder) -> list[int]:
    found: list[int] = []
    for name in folder.files.names():
        with folder.files.open_input(name) as file, pq.ParquetFile(file) as parquet:
            found += parquet.read()["offset"].to_pylist()
    return sorted(found)


def drive(folder: ParquetFolder, last: int) -> None:
    """Commit batches: two files each or, each third one, all rows so far instead of the files before."""
    while (start := folder.positions[NAME].offset if folder.positions else 0) < last:
        end = start + BATCH
        first, removed = (0, folder.files.names()) if end % (3 * BATCH) == 0 else (start, [])
        middle = end - BATCH // 2
        moves = [
            (stage(folder, begin, stop), f"part={number}/t-0-{begin:020d}-{stop:020d}.parquet")
            for number, (begin, stop) in enumerate([(first, middle), (middle, end)])
        ]
        folder.commit(folder.files.stage(), moves, {NAME: Position(end)}, removed)


if __name__ == "__main__":
    drive(ParquetFolder(FolderUri.parse(sys.argv[1])), int(sys.argv[2]))
