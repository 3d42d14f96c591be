"""Records that make the views of a batch fail: a function raises, a cast has no result, a value cannot be decoded.

Spark does not say which row failed, so ranges of offsets are halved until one record is left:

    [0, 8)  fails      [0, 4)  works      [4, 8)  fails      [4, 6)  fails      [4, 5)  works      [5, 6)  fails

A record may also end the Python worker, such as by a crash of a library. A worker may end for other reasons, too: such
a range has to fail twice.

What is found depends on the records and the views alone. After a crash the same records are found again, and the
transactions of the dead letters say which of them were sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from odradek.errors import JobError, OdradekError
from odradek.spark.pipeline.batch import Batch, is_one_of
from odradek.spark.pipeline.forwarding import DEAD_LETTER_HEADER, forwarded, plan_nodes
from odradek.spark.pipeline.letters import LETTER_HEADERS
from odradek.spark.pipeline.restarts import WorkerEndedError, WorkerLostError
from odradek.spark.pipeline.session import explain, explained, own_error
from odradek.spark.pipeline.sink import Sink
from odradek.spark.pipeline.sink_specs import LETTERS_VIEW, ORIGIN_COLUMNS, ConsoleSinkSpec, TopicSinkSpec
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition

MOST_RECORDS = 500
"""The most records of one batch that are put aside: to find each takes some runs of the views."""
_MOST_CHARACTERS = 2000
"""The longest reason that a dead letter has."""
_OF_A_FUNCTION = re.compile(r"MALFORMED_RECORD_IN_PARSING|^ *Traceback \(most recent call last\)", re.MULTILINE)
"""What Spark says if a function, or a decoder, fails."""
_HEADERS = "array<struct<key: string, value: binary>>"


class PoisonRecord(NamedTuple):
    """A record that makes a view fail.

    Attributes:
        topic_partition: Its partition.
        offset: Its offset.
        reason: What Spark says.
        is_of_a_function: Whether it is a function, or a decoder, that fails.
    """

    topic_partition: TopicPartition
    offset: int
    reason: str
    is_of_a_function: bool


def may_be_of_a_record(error: Exception, *, ends_worker: bool = False) -> bool:
    """Whether an error may come from a record: Spark raised it while it computed rows, and nothing of ours did.

    A worker that was lost says nothing of the records that it had: the batch is repeated, see `restarts`.

    Args:
        error: The error.
        ends_worker: Whether a record may have ended the Python worker, as it has ended so often.
    """
    if ends_worker and isinstance(error, WorkerEndedError):
        return True
    cause = error.__cause__
    if not isinstance(cause, Py4JJavaError | PySparkException) or isinstance(cause, AnalysisException):
        return False
    if isinstance(error, WorkerLostError):
        return False
    return own_error(cause) is None


def put_aside(
    error: OdradekError,
    batch: Batch,
    letters: Sink | None,
    on_step: Callable[[str], None],
    *,
    ends_worker: bool = False,
) -> list[PoisonRecord]:
    """Return the records for which the views of a batch fail, after they went to the dead letters.

    For a job with state these are the views up to that of the state, run over this batch alone. Then only an error of a
    function or a decoder is certain to come from a record; any other may come from a group that lacks the rows of other
    batches.

    Args:
        error: Why the batch has failed.
        batch: The batch.
        letters: The sink of the dead letters, if the job has one.
        on_step: Called with a few words before each step.
        ends_worker: Whether a record may have ended the Python worker, this one or another.

    Raises:
        OdradekError: A record is an error, or the cause is not single records.
    """
    job = batch.job
    on_step("looking for the record that fails ...")
    if job.state is not None:
        transforms, _ = job.stateful_transforms()
        view = ConsoleSinkSpec(f"SELECT * FROM {transforms[-1].view}")  # noqa: S608 - its name is checked
        batch = replace(batch, job=replace(job, state=None, transforms=transforms, sinks=(view,)))
    found: list[PoisonRecord] = []
    for each in find_poison(batch, 1 if job.on_invalid == "error" else MOST_RECORDS + 1, ends_worker=ends_worker):
        found.append(each)
        # Each takes some runs of the views, so many of them take long.
        last = f"the last at offset {each.offset} of {each.topic_partition}"
        on_step(f"looking for more records that fail: {len(found):,} found, {last} ...")
    if not found or (job.state is not None and _takes_groups(batch)):
        raise error
    kept = [each for each in found if job.state is not None and not each.is_of_a_function]
    name, offset, reason, _ = (kept or found)[0]
    told = f"the record at offset {offset} of {name} cannot be processed: {reason}"
    if kept or job.on_invalid == "error":
        hint = 'Say what becomes of such records: on_invalid = "skip" or "dead-letter"'
        if kept:
            hint = "In a job with state only a decoder or a udf may fail: let SQL give null, such as by try_cast"
        raise JobError(f"{told}. {hint}", getattr(error, "key", None)) from error.__cause__
    if len(found) > MOST_RECORDS:
        raise JobError(f"{told}; and {MOST_RECORDS:,} more of this batch, so no record is left out") from error
    if letters is not None:
        on_step(f"{len(found):,} records to {letters.description} ...")
        with explained("dead_letters"):
            write_letters(batch, letters, found)
    return found


def _takes_groups(batch: Batch) -> bool:
    """Whether a function is given what an aggregate makes of several records; these alone may not be what fails."""
    with batch.views():
        (frame,) = _frames(batch)
        nodes = plan_nodes(frame)
    calls = [place for place, node in enumerate(nodes) if node.endswith("EvalPython")]
    groups = [place for place, node in enumerate(nodes) if "Aggregate" in node]
    # A node comes before those that it takes its rows from.
    return bool(calls and groups) and calls[0] < groups[-1]


def find_poison(batch: Batch, most: int, *, ends_worker: bool = False) -> Iterator[PoisonRecord]:
    """Yield the records that make the views of a batch fail, up to a limit; none if the cause is not single records.

    Args:
        batch: The batch.
        most: The limit.
        ends_worker: Whether a record may have ended the Python worker; else the loss of one is an error.
    """
    return islice(_search(partial(_failure, ends_worker=ends_worker), batch, list(batch.ranges), fails=True), most)


def _search(
    failure_of: Callable[[Batch], tuple[str, bool] | None], batch: Batch, ranges: list[OffsetRange], *, fails: bool
) -> Generator[PoisonRecord, None, bool]:
    """Yield the records among ranges of a batch that make it fail; return whether the ranges fail.

    Args:
        failure_of: Returns why a batch fails.
        batch: The batch.
        ranges: The ranges.
        fails: Whether they are known to fail, so that their halves are tried at once.
    """
    first, second = _halves(ranges)
    if not (fails and first):
        failure = failure_of(replace(batch, ranges=ranges))
        if failure is None:
            return False
        if not first:
            (name, offset, _), *_ = second
            yield PoisonRecord(name, offset, *failure)
            return True
    first_fails = yield from _search(failure_of, batch, first, fails=False)
    yield from _search(failure_of, batch, second, fails=not first_fails)
    return True


def write_letters(batch: Batch, sink: Sink, found: Sequence[PoisonRecord]) -> None:
    """Send records as they were read to a sink of dead letters, with where they come from and why as headers.

    Args:
        batch: The batch, of which they are a part.
        sink: The sink, whose view is `LETTERS_VIEW`.
        found: The records.
    """
    source = {name: value for name, value in batch.job.source.items() if name.lower() != "includeheaders"}
    job = replace(batch.job, source={**source, "includeHeaders": "true"})
    offsets = by_partition(found)
    ranges = [OffsetRange(name, min(at), max(at) + 1) for name, at in offsets.items()]
    letters = replace(batch, job=job, ranges=ranges, whole_partitions=True, columns=None, excluded={})
    records = letters.records()
    places = sql.concat_ws("-", *(sql.col(name).cast("string") for name in ORIGIN_COLUMNS))
    pairs = ((sql.lit(f"{each.topic_partition}-{each.offset}"), sql.lit(each.reason)) for each in found)
    reasons = sql.create_map(*(part for pair in pairs for part in pair))
    origin = (sql.col(name) for name in ORIGIN_COLUMNS)
    told = zip(LETTER_HEADERS, (*origin, sql.element_at(reasons, places), sql.lit(batch.job.name)), strict=True)
    headers = sql.array(
        *(
            sql.struct(
                sql.lit(DEAD_LETTER_HEADER + name).alias("key"), value.cast("string").cast("binary").alias("value")
            )
            for name, value in told
        )
    )
    before = sql.coalesce(sql.col("headers"), sql.array().cast(_HEADERS))
    frame = records.where(is_one_of(offsets)).withColumn("headers", sql.concat(before, headers))
    frame.createOrReplaceTempView(LETTERS_VIEW)
    # The sink is asked only for batches with such records, so its position may be far behind.
    parts = [part for part in batch.ranges if part.topic_partition in offsets]
    sink.write(replace(letters, ranges=parts, stored_offsets=dict.fromkeys(offsets, 0)))


def by_partition(found: Sequence[PoisonRecord]) -> dict[TopicPartition, frozenset[int]]:
    """Return the offsets of records, by partition."""
    names = sorted({each.topic_partition for each in found})
    return {name: frozenset(each.offset for each in found if each.topic_partition == name) for name in names}


def _halves(ranges: list[OffsetRange]) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Cut ranges in two; the first is empty if there is only one offset."""
    if len(ranges) > 1:
        middle = len(ranges) // 2
        return ranges[:middle], ranges[middle:]
    ((name, start, end),) = ranges
    middle = (start + end) // 2
    return [OffsetRange(name, start, middle)] if middle > start else [], [OffsetRange(name, middle, end)]


def _failure(batch: Batch, *, ends_worker: bool) -> tuple[str, bool] | None:
    """Compute what the sinks read of a batch, and write it nowhere.

    Args:
        batch: The batch.
        ends_worker: Whether it may end the Python worker.

    Returns:
        Why it fails, and whether in a function, or a decoder; None if it does not fail.
    """
    told = _error_of(batch)
    if ends_worker and isinstance(told, WorkerEndedError):
        told = _error_of(batch)
    if told is None:
        return None
    if not may_be_of_a_record(told, ends_worker=ends_worker):
        # Otherwise every record would be put aside, for example while the source's broker cannot be reached.
        raise told
    of_a_function = isinstance(told, WorkerEndedError) or _OF_A_FUNCTION.search(str(told.__cause__)) is not None
    return shortened(told.reason), of_a_function


def _error_of(batch: Batch) -> JobError | None:
    try:
        with batch.views():
            for frame in _frames(batch):
                frame.write.format("noop").mode("overwrite").save()
    except (Py4JError, PySparkException) as error:
        told = explain(error)
        told.__cause__ = error
        return told
    except JobError as error:
        return error
    return None


def shortened(reason: str) -> str:
    """Return what Spark says without most of a long value that it quotes: a letter has to fit the topic too."""
    left_out = len(reason) - _MOST_CHARACTERS
    if left_out <= 0:
        return reason
    half = _MOST_CHARACTERS // 2
    return f"{reason[:half]} ... ({left_out} characters) ... {reason[-half:]}"


def _frames(batch: Batch) -> Iterator[DataFrame]:
    for spec in batch.job.sinks:
        if isinstance(spec, TopicSinkSpec):
            yield forwarded(batch.spark, spec, spec.topics, is_by_record=True)
        elif isinstance(spec, ConsoleSinkSpec):
            try:
                yield batch.spark.sql(spec.sql)
            except AnalysisException:
                # It reads what another sink holds.
                continue
        else:
            yield batch.spark.table(spec.view)
