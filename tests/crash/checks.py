"""What must hold of a log after a crash: it is compared with the model, and its indexes with its batches."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from crash.model import FOREVER, PartitionModel, Producer, Row
from odradek.errors import MissingRecordsError, OffsetOutOfRangeError
from odradek.records.header import BatchHeader
from odradek.records.isolation import Isolation
from odradek.records.kernels.objects import Record
from odradek.records.scan import scan_batches
from odradek.storage.formats.transaction_index import parse_transaction_index
from odradek.storage.log.log import Log
from odradek.storage.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX


class Wrong(AssertionError):
    """Something that must hold of a log does not."""


def require(condition: object, *reason: object) -> None:
    if not condition:
        raise Wrong(" ".join(map(str, reason)))


def row_of(record: Record) -> Row:
    return Row(
        -1 if record.offset is None else record.offset,
        -1 if record.timestamp is None else record.timestamp,
        record.key,
        record.value,
        tuple((name, value) for name, value in record.headers),
    )


def rows_of(
    log: Log,
    start_offset: int | None = None,
    *,
    isolation: Isolation = "read_uncommitted",
    include_control: bool = False,
    may_have_holes: bool = False,
) -> list[Row]:
    """Return what a reader is given, also after the holes that a log may have."""
    rows: list[Row] = []
    start_offset = log.log_start_offset if start_offset is None else start_offset
    while True:
        try:
            records = log.read(start_offset, isolation=isolation, include_control=include_control)
            rows.extend(map(row_of, records))
            return rows
        except MissingRecordsError as error:
            require(may_have_holes, error)
            start_offset = error.end_offset


def first_difference(found: list[Row], expected: list[Row]) -> str:
    for number, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one != other:
            return f"record {number} is {one}, not {other}"
    return f"{len(found)} records, not {len(expected)}"


def check_log(
    log: Log, model: PartitionModel, operations: int, *, power_cut: bool, seed: int, may_have_holes: bool = False
) -> bool:
    """Compare a log that was recovered with what was appended to it.

    Args:
        log: The log.
        model: What was appended to it and acknowledged.
        operations: How many operations were done when the crash came.
        power_cut: Whether only what is durable must be there.
        seed: What decides the look-ups.
        may_have_holes: Whether a segment may have lost its end while the next one was there, as in Kafka: nothing that
            was acknowledged as durable, but what remains is no prefix of what was appended.

    Returns:
        Whether all that was appended up to the log's end is there.

    Raises:
        Wrong: Something does not hold.
    """
    start, end = log.log_start_offset, log.log_end_offset
    check_bounds(model, start, end, operations, power_cut=power_cut)
    require(not log.damage, "damage was left:", log.damage)
    headers, transactions = check_segments(log, model, may_have_holes=may_have_holes)
    rows = rows_of(log, may_have_holes=may_have_holes)
    committed = rows_of(log, isolation="read_committed", may_have_holes=may_have_holes)
    check_lookups(log, rows, random.Random(seed), may_have_holes=may_have_holes)
    if may_have_holes and (model.is_compacted or has_holes(headers, start, end)):
        check_remains(model, rows, committed, start, operations)
        return False
    check_transactions(log, model, transactions, end)
    check_contents(log, model, rows, committed)
    return True


def check_contents(log: Log, model: PartitionModel, rows: list[Row], committed: list[Row]) -> None:
    """Compare what is read of a log with what was appended to it up to its end."""
    start, end = log.log_start_offset, log.log_end_offset
    if model.is_compacted:
        check_compacted(model, rows, committed, start, end)
        return
    expected = model.rows(start, end)
    require(rows == expected, "uncommitted:", first_difference(rows, expected))
    found = log.last_stable_offset
    # What is deleted may be known, from a snapshot, or not.
    views = {max(start, model.last_stable_offset(end, origin)): origin for origin in origins(log)}
    require(found in views, "last stable offset", found, "not of", views)
    expected = model.committed_rows(start, end, views[found])
    require(committed == expected, "committed:", first_difference(committed, expected))


def check_live(log: Log, model: PartitionModel, producers: Mapping[int, Producer], seed: int) -> None:
    """Compare a log that is at work with what was appended to it.

    Args:
        log: The log.
        model: What was appended to it.
        producers: The producers that it knows.
        seed: What decides the look-ups.

    Raises:
        Wrong: Something does not hold.
    """
    end = log.log_end_offset
    require(end == model.end_offset, "the log ends at", end, "not at", model.end_offset)
    rows = rows_of(log, may_have_holes=False)
    committed = rows_of(log, isolation="read_committed", may_have_holes=False)
    check_contents(log, model, rows, committed)
    check_lookups(log, rows, random.Random(seed), may_have_holes=False)
    check_producers(log, producers, model)


def has_holes(headers: list[BatchHeader], start: int, end: int) -> bool:
    live = [header for header in headers if header.next_offset > start]
    if not live:
        return start < end
    is_whole = live[0].base_offset <= start and live[-1].next_offset == end
    return not is_whole or any(one.next_offset != other.base_offset for one, other in pairwise(live))


def check_remains(model: PartitionModel, rows: list[Row], committed: list[Row], start: int, operations: int) -> None:
    """Check a log with holes: what was acknowledged as durable is there, nothing was invented."""
    known = {row.offset: row for row in model.rows(0, model.end_offset)}
    invented = [row for row in rows if known.get(row.offset) != row]
    require(not invented, "these were never appended:", invented)
    require(rows == sorted(set(rows), key=lambda row: row.offset), "records are not in order")
    present = set(rows)
    require(present.issuperset(committed), "committed but not there:", set(committed) - present)
    durable = model.least_end(operations, power_cut=True)
    if model.is_compacted:
        newest = {row.key: row.offset for row in rows}
        for key, row in model.newest(start, durable).items():
            require(row.value is None or newest.get(key, -1) >= row.offset, "the record of", key, "is missing:", row)
    else:
        missing = [row for row in model.rows(start, durable) if row not in present]
        require(not missing, "acknowledged as durable and not there:", missing)


def check_among_ghosts(log: Log, model: PartitionModel, operations: int) -> bool:
    """Check a log after a power cut that kept a part of what an interrupted append left, amid what came after it.

    Its place was written to again, and the disk had either of the two: as after any crash nothing is promised of what
    was not durable, but nothing may be there that nobody asked for.

    Returns:
        Whether there is anything of an interrupted append.
    """
    ghosts = [row for ghost in model.ghosts for batch in ghost if batch.begun <= operations for row in batch.rows]
    rows = rows_of(log, may_have_holes=True)
    if not set(rows) & set(ghosts):
        return False
    require(rows == sorted(rows, key=lambda row: row.offset), "records are not in order")
    require(len(rows) == len({row.offset for row in rows}), "an offset is there twice")
    known = {*model.rows(0, model.end_offset), *ghosts}
    require(known.issuperset(rows), "these were never appended:", set(rows) - known)
    durable = model.rows(log.log_start_offset, model.least_end(operations, power_cut=True))
    require(model.is_compacted or set(rows).issuperset(durable), "acknowledged as durable and not there")
    return True


def origins(log: Log) -> list[int]:
    """Return from where on the log may have been read, where no snapshot told of what came before."""
    start = log.log_start_offset
    return [start, *(segment.base_offset for segment in reversed(log.segments) if segment.base_offset < start), 0]


def check_bounds(model: PartitionModel, start: int, end: int, operations: int, *, power_cut: bool) -> None:
    least = model.least_end(operations, power_cut=power_cut)
    require(end >= least, f"the log ends at {end}, below {least} which was acknowledged")
    require(end in model.ends(operations), f"the log ends at {end}, where no batch ends")
    require(start <= end, f"the log starts at {start}, behind its end {end}")
    require(start >= model.least_start(operations), f"the log starts at {start} again, below what was kept")
    most = max(model.starts(operations))
    require(start <= most, f"the log starts at {start}, above {most} which was asked for")


def check_segments(
    log: Log, model: PartitionModel, *, may_have_holes: bool
) -> tuple[list[BatchHeader], list[tuple[int, int, int]]]:
    """Read the segments' files as they are: batches without gaps, and every entry of every index."""
    found: list[BatchHeader] = []
    next_offset = 0
    transactions: list[tuple[int, int, int]] = []
    segments = log.segments
    for number, segment in enumerate(segments):
        data = segment.path.read_bytes()
        is_active = number + 1 == len(segments)
        scan = scan_batches(data, path=segment.path)
        headers = list(scan)
        require(scan.damage is None or (is_active and not data[scan.position :].strip(b"\0")), scan.damage)
        for header in headers:
            if not (model.is_compacted or may_have_holes) and header.base_offset > log.log_start_offset:
                gapless = header.base_offset == next_offset or not found
                require(gapless, segment.path.name, "offset", header.base_offset, "follows", next_offset - 1)
            require(header.base_offset >= next_offset, segment.path.name, "offsets go backwards at", header.base_offset)
            require(header.base_offset >= segment.base_offset, segment.path.name, "holds", header.base_offset)
            next_offset = header.next_offset
            found.append(header)
        if not is_active:
            require(next_offset <= segments[number + 1].base_offset, segment.path.name, "overlaps the next")
        check_offset_index(segment.path.with_suffix(INDEX_SUFFIX), segment.base_offset, headers)
        check_time_index(segment.path.with_suffix(TIME_INDEX_SUFFIX), segment.base_offset, headers)
        path = segment.path.with_suffix(TRANSACTION_INDEX_SUFFIX)
        if path.exists():
            transactions += [tuple(entry[:3]) for entry in parse_transaction_index(path.read_bytes())]  # type: ignore[misc]
    return found, transactions


def check_transactions(log: Log, model: PartitionModel, found: list[tuple[int, int, int]], end: int) -> None:
    if not log.segments:
        return
    first = log.segments[0].base_offset
    views = [{tuple(entry) for entry in model.aborted(end, origin)} for origin in origins(log)]
    if model.is_compacted:
        # The first records of an aborted transaction may have gone before the others.
        ends = {(entry[0], entry[2]): entry[1] for entry in views[-1]}
        invented = {entry for entry in found if entry[1] < ends.get((entry[0], entry[2]), FOREVER)}
        require(not invented, "transaction indexes hold", invented, "not of", views[-1])
    else:
        invented = set(found).difference(*views)
        require(not invented, "transaction indexes hold", invented, "not of", views)
        markers = [entry[2] for entry in found]
        least = [
            entry[2] for entry in sorted(set.intersection(*views), key=lambda entry: entry[2]) if entry[2] >= first
        ]
        require(markers == sorted(set(markers)), "transaction indexes are not in order:", markers)
        require(set(markers) >= set(least), "transaction indexes hold", markers, "but there are", least)


def _entries(path: Path, form: str) -> list[tuple[int, int]]:
    data = path.read_bytes() if path.exists() else b""
    entry = struct.Struct(form)
    require(len(data) % entry.size == 0, path.name, "has", len(data), "bytes")
    used = len(data.rstrip(b"\0"))
    return list(entry.iter_unpack(data[: -(-used // entry.size) * entry.size]))


def check_offset_index(path: Path, base_offset: int, headers: list[BatchHeader]) -> None:
    places = {(header.last_offset - base_offset, header.position) for header in headers}
    entries = _entries(path, ">ii")
    require(path.exists(), path.name, "is missing")
    require(entries == sorted(set(entries)), path.name, "is not in order:", entries)
    require(places.issuperset(entries), path.name, "points to no batch:", sorted(set(entries) - places))


def check_time_index(path: Path, base_offset: int, headers: list[BatchHeader]) -> None:
    largest: set[tuple[int, int]] = set()
    timestamp, offset = -1, base_offset
    for header in headers:
        if header.max_timestamp > timestamp:
            timestamp, offset = header.max_timestamp, header.last_offset
        largest.add((timestamp, offset - base_offset))
    entries = _entries(path, ">qi")
    require(path.exists(), path.name, "is missing")
    require(entries == sorted(set(entries)), path.name, "is not in order:", entries)
    require(largest.issuperset(entries), path.name, "has", sorted(set(entries) - largest), "not of", sorted(largest))


def check_lookups(log: Log, rows: list[Row], rng: random.Random, *, may_have_holes: bool) -> None:
    """Compare some look-ups by offset and by time with a scan."""
    start, end = log.log_start_offset, log.log_end_offset
    for offset in {start, end, *(rng.randint(start, end) for _ in range(4))}:
        expected = next((row for row in rows if row.offset >= offset), None)
        found = next(iter(rows_of(log, offset, may_have_holes=may_have_holes)), None)
        require(found == expected, "reading from", offset, "gives", found, "not", expected)
    for offset in (start - 1, end + 1):
        try:
            rows_of(log, offset, may_have_holes=may_have_holes)
        except OffsetOutOfRangeError:
            continue
        require(offset < 0, "reading from", offset, "of", start, end, "is no error")
    times = [row.timestamp for row in rows]
    # Markers have timestamps too: the scan is of the batches.
    with_markers = rows_of(log, include_control=True, may_have_holes=may_have_holes)
    for timestamp in {0, 1 << 60, *(rng.choice(times) + rng.choice((-1, 0, 1)) for _ in range(4) if times)}:
        expected = next((row for row in with_markers if row.timestamp >= timestamp), None)
        answer = log.find_timestamp(timestamp)
        found_at = None if answer is None else (answer.timestamp, answer.offset)
        expected_at = None if expected is None else (expected.timestamp, expected.offset)
        require(found_at == expected_at, "time", timestamp, "is at", found_at, "not", expected_at)


def check_compacted(model: PartitionModel, rows: list[Row], committed: list[Row], start: int, end: int) -> None:
    """Check that nothing was invented, and that the newest record of each key is there."""
    known = {row.offset: row for row in model.rows(0, end)}
    invented = [row for row in rows if known.get(row.offset) != row]
    require(not invented, "these were never appended:", invented)
    require(rows == sorted(rows, key=lambda row: row.offset), "records are not in order")
    known = {row.offset: row for row in model.committed_rows(0, end)}
    invented = [row for row in committed if known.get(row.offset) != row]
    require(not invented, "these were never committed:", invented)
    present = set(committed)
    for key, row in model.newest(start, end).items():
        require(row in present or row.value is None, "the newest record of", key, "is missing:", row)


def check_producers(log: Log, found: Mapping[int, Producer], model: PartitionModel) -> None:
    """Compare the producers that a log knows with a replay of everything that was appended."""
    start, end = log.log_start_offset, log.log_end_offset
    views = [model.producers(end, origin) for origin in origins(log)]
    for producer_id in views[-1]:
        if producer_id not in found:
            last = model.last_offset_of(producer_id, end)
            require(last < start or model.is_compacted, "producer", producer_id, "is forgotten, with offset", last)
            continue
        known = {view[producer_id] for view in views if producer_id in view}
        require(found[producer_id] in known, "producer", producer_id, "is", found[producer_id], "not of", known)
    require(found.keys() <= views[-1].keys(), "producers", set(found) - set(views[-1]), "are invented")
