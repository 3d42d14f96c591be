"""Small splits that one task reads together: a task of Spark takes longer than reading a few thousand records.

    t-0 [0, 10)  t-1 [0, 12)  ...  t-99 [0, 9)        ->        two tasks, of 50 splits each, on two cores

A task reads its splits one after another, so the records of each partition stay in order.
"""

from __future__ import annotations

import base64
import os
import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from odradek.spark.options import SourceOptions
from odradek.spark.ranges import Split

PLANNED_SPLITS = "odradek.secret.splits"
"""The option by which a pipeline hands over its splits: Spark's planner then need not open every log again.

They have a broker's settings, passwords too. Spark redacts options with `secret` in their names wherever it shows any.
"""

_SMALL_TASK_BYTES = 4 << 20
_BATCH_ROWS = 32_768
_BATCH_BYTES = 4 << 20


class SplitGroup(Split):
    """Splits that one task reads, one after another.

    Attributes:
        splits: The splits.
    """

    def __init__(self, splits: Sequence[Split]) -> None:
        super().__init__(" ".join(str(split.value) for split in splits))
        self.splits = list(splits)

    @property
    def size_bytes(self) -> int:
        """About how many bytes are read."""
        return sum(split.size_bytes for split in self.splits)

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Decode the records of the splits into batches of a schema."""
        return _joined(batch for split in self.splits for batch in split.read(schema))


def grouped(splits: Sequence[Split], options: SourceOptions, tasks: int | None = None) -> list[Split]:
    """Let one task read several small splits.

    Args:
        splits: The splits, those of a partition in order.
        options: How large splits may be. If they say how many there should be, splits are left as they are.
        tasks: How many tasks run at the same time; by default as many as this machine has cores.
    """
    if options.min_partitions is not None or options.max_split_records is not None:
        return list(splits)
    sizes = [split.size_bytes for split in splits]
    total_bytes = max(1, sum(sizes))
    most_bytes = min(_SMALL_TASK_BYTES, options.max_split_bytes)
    count = max(tasks or os.cpu_count() or 1, -(-total_bytes // most_bytes))
    groups: dict[int, list[Split]] = {}
    shared_bytes = 0
    for split, size_bytes in zip(splits, sizes, strict=True):
        # A split goes to the group that its middle falls into.
        groups.setdefault((shared_bytes + size_bytes // 2) * count // total_bytes, []).append(split)
        shared_bytes += size_bytes
    return [group[0] if len(group) == 1 else SplitGroup(group) for group in groups.values()]


def format_splits(splits: Sequence[Split]) -> str:
    """Format splits for the option."""
    return base64.b64encode(zlib.compress(pickle.dumps(list(splits)), 1)).decode()


def parse_splits(text: str) -> list[Split]:
    """Return the splits of the option."""
    # Spark pickles splits too; who sets options of a source can run code anyway.
    splits: list[Split] = pickle.loads(zlib.decompress(base64.b64decode(text)))  # noqa: S301
    return splits


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches: Spark takes about a millisecond for each, however small it is."""
    pending: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if pending and (rows + batch.num_rows > _BATCH_ROWS or size_bytes + batch.nbytes > _BATCH_BYTES):
            yield _one(pending)
            pending, rows, size_bytes = [], 0, 0
        pending.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
    if pending:
        yield _one(pending)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
