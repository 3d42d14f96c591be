"""The parts of a log that are read: ranges of offsets of one partition, as the segments cut it.

    partition   [ 0 ........ 1000 ........ 2000 ........ 3000 )     segments
    filter      offset in (1500, 2999)
    fragments                     [1500 .. 2000 ........ 3000 )     clipped to the offsets that may pass

A segment without an offset that may pass gives no fragment.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.dataset as pds

from odradek.columnar import decode
from odradek.columnar.aborted_spans import aborted_spans
from odradek.columnar.dataset.counting import count_records
from odradek.columnar.dataset.pruning import (
    Expression,
    Pruning,
    Verdict,
    checked_expression,
    columns_of,
    not_later_than,
    offsets_in,
    place,
)
from odradek.columnar.dataset.pulled import PulledBatches
from odradek.columnar.decode import DEFAULT_ROWS, MIN_TIMESTAMP
from odradek.columnar.far_timestamps import FarTimestamps
from odradek.columnar.record_schema import SCHEMA, select
from odradek.records.isolation import Isolation
from odradek.records.timestamps import OnFarTimestamps
from odradek.storage.log.log import Log
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.timestamp_lookup import largest_timestamp

Columns: TypeAlias = Sequence[str] | dict[str, Expression] | None
"""Names of columns, in the order wanted, or expressions by the names of what they give; None for all."""

_SEGMENTS_AT_ONCE = 64
_CONSTANT = {"topic", "partition"}
_ROWS_OF_CONSTANTS = 1 << 20


class Reading(NamedTuple):
    """How the records of a dataset are read.

    Attributes:
        isolation: `read_uncommitted` or `read_committed`.
        check_crc: Whether each batch's checksum is verified.
        far_timestamps: What is done about timestamps outside of the years 1 to 9999.
    """

    isolation: Isolation
    check_crc: bool
    far_timestamps: OnFarTimestamps = "error"


class Range(NamedTuple):
    """Offsets of one log, half-open, which a segment's bounds or those of several neighbours cut out.

    Attributes:
        log: The log.
        start_offset: The first offset.
        end_offset: The offset after the last one.
        is_exact: Whether all of its rows are known to pass the filter that it was chosen by.
    """

    log: Log
    start_offset: int
    end_offset: int
    is_exact: bool

    @property
    def guarantee(self) -> Expression:
        """What is known of its rows."""
        return place(*self.log.topic_partition) & offsets_in(self.start_offset, self.end_offset)

    def _aborted(self, reading: Reading) -> list[tuple[int, int, int]]:
        return aborted_spans(self.log, self.start_offset, self.end_offset, reading.isolation)

    def count(self, reading: Reading) -> int:
        """Return how many records it has."""
        return count_records(self.log, self.start_offset, self.end_offset, self._aborted(reading))

    def batches(
        self,
        reading: Reading,
        schema: pa.Schema,
        rows: int,
        since_ms: int | None,
        far_timestamps: FarTimestamps | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Decode it: record batches of a schema; rows from before a time may be left out."""
        if _CONSTANT.issuperset(schema.names):
            yield from self._constants(schema, self.count(reading))
            return
        topic, partition = self.log.topic_partition
        yield from decode.decode_slices(
            self.log.slices(self.start_offset, self.end_offset),
            schema,
            topic=topic,
            partition=partition,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            start_timestamp=MIN_TIMESTAMP if since_ms is None else since_ms,
            aborted=self._aborted(reading),
            check_crc=reading.check_crc,
            rows=rows,
            may_have_gaps=self.log.may_have_gaps,
            far_timestamps=far_timestamps,
        )

    def _constants(self, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield a number of rows whose columns are the same in each."""
        if not rows:
            return
        said = self.log.topic_partition._asdict()
        largest = min(rows, _ROWS_OF_CONSTANTS)
        batch = pa.RecordBatch.from_arrays(
            [pa.repeat(pa.scalar(said[field.name], field.type), largest) for field in schema], schema=schema
        )
        for start in range(0, rows, largest):
            yield batch.slice(0, min(largest, rows - start))


def ranges(log: Log, pruning: Pruning, isolation: Isolation) -> Iterator[Range]:
    """Give the segments of a log that may have rows which pass a filter, clipped to the offsets that may.

    They are looked at one after the other, as they are asked for. Segments between two that are needed are left out,
    too: halves of the log are looked at first, then halves of those.
    """
    first, last = pruning.offsets
    start, end = log.bounds(None, None, isolation)
    start, end = max(start, first), min(end, last)
    segments = log.segments
    if start >= end or not segments:
        return
    bases = [segment.base_offset for segment in segments]
    lowest, highest = max(0, bisect_right(bases, start) - 1), max(1, bisect_left(bases, end))

    def part(low: int, high: int, verdict: Verdict = Verdict.SOME) -> Range:
        part_start = start if low == lowest else bases[low]
        return Range(log, part_start, end if high == highest else bases[high], verdict is Verdict.ALL)

    # Parts of the log that are still to be looked at, the first one last.
    parts = [(lowest, highest)]
    while parts:
        low, high = parts.pop()
        verdict = pruning.verdicts([part(low, high).guarantee])[0]
        if verdict is Verdict.SOME and high - low > _SEGMENTS_AT_ONCE:
            middle = (low + high) // 2
            parts += [(middle, high), (low, middle)]
            continue
        verdicts = [verdict] * (high - low)
        if verdict is Verdict.SOME and pruning.names_a_place:
            verdicts = pruning.verdicts([part(number, number + 1).guarantee for number in range(low, high)])
        for number, verdict in enumerate(verdicts, low):
            one = part(number, number + 1, verdict)
            if verdict is not Verdict.NONE and _may_be_in_time(segments[number], one, pruning):
                yield one


def _may_be_in_time(segment: Segment, part: Range, pruning: Pruning) -> bool:
    if "timestamp" not in pruning.columns:
        return True
    # Its writer may have put another one in its place: then it is read, and what it holds filtered.
    with suppress(FileNotFoundError):
        return pruning.may_match(part.guarantee & not_later_than(largest_timestamp(segment).timestamp))
    return True


def joined(parts: Iterable[Range]) -> Iterator[Range]:
    """Join neighbours, ever more of them: the first rows come early, the others in large batches."""
    most, count = 1, 0
    joint: Range | None = None
    for part in parts:
        if (
            joint is not None
            and count < most
            and joint == part._replace(start_offset=joint.start_offset, end_offset=part.start_offset)
        ):
            joint, count = joint._replace(end_offset=part.end_offset), count + 1
            continue
        if joint is not None:
            yield joint
            most = min(most * 2, _SEGMENTS_AT_ONCE)
        joint, count = part, 1
    if joint is not None:
        yield joint


def scanner_of(
    parts: Iterable[Range],
    reading: Reading,
    pruning: Pruning,
    columns: Columns,
    *,
    since_ms: int | None = None,
    batch_size: int = DEFAULT_ROWS,
    **options: Any,
) -> pds.Scanner:
    """Return a scanner over ranges, which decodes what the columns and the filter need, and filters exactly.

    Args:
        parts: What may have rows that pass the filter.
        reading: How to read it.
        pruning: The filter.
        columns: Names of columns, in the order wanted, or expressions by their names; all if None.
        since_ms: Before it no row passes the filter.
        batch_size: The most rows of a record batch.
        options: Those of `pyarrow.dataset.Scanner.from_batches`.

    Raises:
        ValueError: A column that does not exist.
        TypeError: A column of a dict is no expression.
    """
    if isinstance(columns, dict):
        needed = columns_of(checked_expression(f"column {name!r}", given) for name, given in columns.items())
    else:
        needed = {*select(columns).names}
    names = [name for name in SCHEMA.names if name in needed | pruning.columns]
    schema = select(names or ["partition"])
    rows = max(1, min(batch_size, DEFAULT_ROWS))

    far_timestamps = FarTimestamps(reading.far_timestamps)
    batches = (
        batch for part in joined(parts) for batch in part.batches(reading, schema, rows, since_ms, far_timestamps)
    )
    return pds.Scanner.from_batches(
        PulledBatches(far_timestamps.counted(batches)),
        schema=schema,
        columns=columns,
        filter=pruning.filter,
        batch_size=batch_size,
        **options,
    )


class LogFragment:
    """A segment of a log, or the part of it that a filter leaves: what a `pyarrow.dataset.Fragment` is, to be asked.

    Attributes:
        range: Its log and its offsets.
    """

    def __init__(self, part: Range, reading: Reading, within: Expression | None) -> None:
        self.range = part
        self._reading = reading
        self._within = within

    def __repr__(self) -> str:
        return f"<LogFragment {self.range.log.topic_partition} [{self.range.start_offset}, {self.range.end_offset})>"

    @property
    def physical_schema(self) -> pa.Schema:
        """The columns."""
        return SCHEMA

    @property
    def partition_expression(self) -> Expression:
        """What is true of all its rows."""
        return self.range.guarantee

    def _parts(self, pruning: Pruning) -> list[Range]:
        verdict = pruning.verdicts([self.range.guarantee])[0]
        return [] if verdict is Verdict.NONE else [self.range._replace(is_exact=verdict is Verdict.ALL)]

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: Columns = None,
        filter: Expression | None = None,  # noqa: A002 - as pyarrow has it
        batch_size: int = DEFAULT_ROWS,
        use_threads: bool = True,
    ) -> pds.Scanner:
        """Return a scanner over its rows; see `LogDataset.scanner`.

        Args:
            schema: That of the dataset; there is no other.
            columns: Names of columns, or expressions by their names; all if None.
            filter: Which rows are wanted; all if None.
            batch_size: The most rows of a record batch.
            use_threads: Whether several threads filter.

        Raises:
            ValueError: Another schema, or a column that does not exist.
        """
        if schema is not None and schema != SCHEMA:
            raise ValueError("the columns of a record have one schema: name those that are wanted")
        pruning = Pruning(both(self._within, filter))
        parts = self._parts(pruning)
        return scanner_of(parts, self._reading, pruning, columns, batch_size=batch_size, use_threads=use_threads)

    def to_batches(
        self,
        schema: pa.Schema | None = None,
        columns: Columns = None,
        filter: Expression | None = None,  # noqa: A002
        batch_size: int = DEFAULT_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Read it as record batches; the arguments are those of `scanner`."""
        found: Iterator[pa.RecordBatch] = self.scanner(schema, columns, filter, batch_size).to_batches()
        return found

    def to_table(
        self,
        schema: pa.Schema | None = None,
        columns: Columns = None,
        filter: Expression | None = None,  # noqa: A002
    ) -> pa.Table:
        """Read it as a table; the arguments are those of `scanner`."""
        return self.scanner(schema, columns, filter).to_table()

    def head(self, num_rows: int, columns: Columns = None, filter: Expression | None = None) -> pa.Table:  # noqa: A002
        """Read its first rows; the arguments are those of `scanner`."""
        return self.scanner(None, columns, filter).head(num_rows)

    def count_rows(self, filter: Expression | None = None) -> int:  # noqa: A002
        """Return how many rows it has, or how many of them pass a filter; see `LogDataset.count_rows`."""
        pruning = Pruning(both(self._within, filter))
        return count_rows(self._parts(pruning), self._reading, pruning)


def both(one: Expression | None, other: Expression | None) -> Expression | None:
    """Return the filter that two filters together are.

    Raises:
        TypeError: The other is no expression.
    """
    if other is not None:
        checked_expression("a filter", other)
    if one is None or other is None:
        return other if one is None else one
    return one & other


def count_rows(parts: Iterable[Range], reading: Reading, pruning: Pruning, since_ms: int | None = None) -> int:
    """Return how many rows of ranges pass a filter: by the headers of batches where it lets whole ranges pass."""
    total = 0
    others: list[Range] = []
    for part in joined(parts):
        if part.is_exact:
            total += part.count(reading)
        else:
            others.append(part)
    filtered: int = scanner_of(others, reading, pruning, ["partition"], since_ms=since_ms).count_rows()
    return total + filtered
