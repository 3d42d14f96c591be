"""What a filter can be told of rows that nobody has read: which offsets, partitions and times may pass it.

    filter       (offset >= 500) and (value == "x")
    guarantee    (topic == "events") and (partition == 0) and (offset >= 0) and (offset < 400)
    pyarrow      the filter is false wherever the guarantee holds: nothing there has to be read

The expression is never taken apart here. pyarrow simplifies it by the guarantee, as it does for the row groups of a
Parquet file by their statistics: it is asked whether a file of which the guarantee is known, and which is not there,
would have to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
from pyarrow.fs import LocalFileSystem

from odradek.arguments import given_text
from odradek.columnar.decode import MAX_OFFSET
from odradek.columnar.record_schema import COLUMNS, SCHEMA

Expression: TypeAlias = Any
"""A `pyarrow.compute.Expression`."""

NOT_READ_THIS_WAY = "a dataset of odradek is read by its methods: scanner, to_batches, to_table, get_fragments"

_FORMAT = pds.IpcFileFormat()
_FILES = LocalFileSystem()
_OFFSET, _TIMESTAMP = pc.field("offset"), pc.field("timestamp")
_TIMESTAMP_TYPE = SCHEMA.field("timestamp").type
_MAX_TIMESTAMP = (1 << 63) - 1
_NEVER_NULL = {"topic", "partition", "offset"}


def checked_expression(name: str, value: object) -> Expression:
    """Return an expression that a caller gives.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(value, pc.Expression):
        raise TypeError(f"{name} must be a pyarrow.compute.Expression, not {given_text(value)}")
    return value


def unread(guarantees: Iterable[Expression]) -> pds.FileSystemDataset:
    """Return a dataset of numbered files that are not there, of the rows of each of which a guarantee is known."""
    fragments = [
        _FORMAT.make_fragment(f"{number}: {NOT_READ_THIS_WAY}", _FILES, partition_expression=guarantee)
        for number, guarantee in enumerate(guarantees)
    ]
    return pds.FileSystemDataset(fragments, SCHEMA, _FORMAT, _FILES)


def _is_bound(expression: Expression, schema: pa.Schema) -> bool:
    """Whether an expression says something of rows of a schema; else it names a column that it lacks."""
    try:
        list(pds.FileSystemDataset([], schema, _FORMAT, _FILES).get_fragments(expression.is_null()))
    except pa.ArrowInvalid:
        return False
    return True


def columns_of(expressions: Iterable[Expression]) -> set[str]:
    """Return the names of the columns that expressions are computed from.

    Raises:
        ValueError: A column that does not exist.
    """
    found: set[str] = set()
    for expression in expressions:
        if "FieldPath(" in str(expression):
            # By its number: without the column before it, it would be another one.
            return set(COLUMNS)
        for name in COLUMNS:
            if name not in found and not _is_bound(expression, SCHEMA.remove(SCHEMA.get_field_index(name))):
                found.add(name)
    return found


def place(topic: str, partition: int | None = None) -> Expression:
    """Return the guarantee that rows are of a topic, or of one partition of it."""
    of_topic = pc.field("topic") == topic
    if partition is None:
        return of_topic
    return of_topic & (pc.field("partition") == pa.scalar(partition, pa.int32()))


def offsets_in(start: int, end: int) -> Expression:
    """Return the guarantee that offsets are of `[start, end)`."""
    # Inclusive at both ends: pyarrow does not know that there is no offset between two.
    return (pa.scalar(start) <= _OFFSET) & (pa.scalar(end - 1) >= _OFFSET)


def not_later_than(timestamp: int) -> Expression:
    """Return the guarantee that no timestamp is above one, in ms; a record may have none."""
    return (_moment(timestamp) >= _TIMESTAMP) | _TIMESTAMP.is_null()


def _moment(timestamp: int) -> pa.Scalar:
    return pa.scalar(timestamp, _TIMESTAMP_TYPE)


def _first(is_so: Callable[[int], bool], after: int, limit: int) -> int:
    """Return the first number of (after, limit] from which on something is so; the limit where it is nowhere before.

    Bounds that are asked for are small beside the limit, so the steps grow until there is one.
    """
    low, high, step = after, min(after + 1, limit), 1
    while high < limit and not is_so(high):
        step *= 32
        low, high = high, min(after + step, limit)
    while high - low > 1:
        middle = (low + high) // 2
        if is_so(middle):
            high = middle
        else:
            low = middle
    return high


class Verdict(Enum):
    """How many rows pass a filter, as far as a guarantee tells."""

    NONE = "none"
    SOME = "perhaps some"
    ALL = "all"


class Pruning:
    """A filter, and what it says of rows that are not read yet.

    Args:
        filter: A boolean expression over the columns of a record; None lets every row pass.

    Attributes:
        columns: The names of the columns that it is computed from.

    Raises:
        ValueError: A column that does not exist.
    """

    def __init__(self, filter: Expression | None) -> None:  # noqa: A002 - pyarrow's word for it
        self.filter = filter
        self.columns = set() if filter is None else columns_of([filter])

    @property
    def names_a_place(self) -> bool:
        """Whether it asks for the topic, the partition or the offset."""
        return not self.columns.isdisjoint(_NEVER_NULL)

    def may_match(self, guarantee: Expression) -> bool:
        """Whether a row of which a guarantee is known may pass the filter."""
        return self.verdicts([guarantee])[0] is not Verdict.NONE

    def verdicts(self, guarantees: Sequence[Expression]) -> list[Verdict]:
        """Return for each of some guarantees how many of the rows pass of which it is known."""
        if self.filter is None:
            return [Verdict.ALL] * len(guarantees)
        files = unread(guarantees)
        found = [Verdict.NONE] * len(guarantees)
        for number in _left(files, self.filter):
            found[number] = Verdict.SOME
        if Verdict.SOME in found and self.columns <= _NEVER_NULL:
            fails = set(_left(files, ~self.filter | self.filter.is_null()))
            for number, verdict in enumerate(found):
                if verdict is Verdict.SOME and number not in fails:
                    found[number] = Verdict.ALL
        return found

    @cached_property
    def offsets(self) -> tuple[int, int]:
        """The range outside of which no offset passes the filter."""
        if "offset" not in self.columns:
            return 0, MAX_OFFSET
        start = _first(lambda end: self.may_match(offsets_in(0, end)), 0, MAX_OFFSET) - 1
        return start, _first(lambda end: not self.may_match(pa.scalar(end) <= _OFFSET), start, MAX_OFFSET)

    @cached_property
    def since_ms(self) -> int | None:
        """The time before which no record passes the filter; None where one may, and where one without a time may."""
        if "timestamp" not in self.columns or self.may_match(_TIMESTAMP.is_null()):
            return None
        return _first(lambda end: self.may_match(_moment(end - 1) >= _TIMESTAMP), 0, _MAX_TIMESTAMP) - 1 or None


def _left(files: pds.FileSystemDataset, expression: Expression) -> list[int]:
    """Return the numbers of the files that would have to be read for the rows that an expression is true of."""
    try:
        return [int(fragment.path.partition(":")[0]) for fragment in files.get_fragments(expression)]
    except pa.ArrowInvalid:
        # A number of the guarantee does not fit the type of the filter: offsets are compared with a float, say.
        return [*range(len(files.files))]
