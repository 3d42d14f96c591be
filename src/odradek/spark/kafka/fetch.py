"""Fetching: batches as the broker's segments hold them, ahead of whoever decodes them.

    thread   Fetch [offset, ...)  ->  | batch | batch | torn |        two answers wait at most
    task     decodes the whole batches; the next fetch begins behind them

For `read_committed` the broker says which producers have aborted transactions in what it sends, by producer and first
offset. Where one ends, its abort marker says, so the headers are looked through for that.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa
from kafka import errors
from kafka.protocol.consumer import FetchRequest

from odradek.columnar.decode import decode_slices
from odradek.records.kernels.batches import walk_batches
from odradek.records.scan import scan_batches
from odradek.spark.kafka.client import EARLIEST_TIMESTAMP, BrokerClient, BrokerUnavailableError, check
from odradek.spark.kafka.settings import BrokerSettings
from odradek.spark.options import Isolation
from odradek.spark.ranges import Bounds, DataLossError, Loss, OffsetRange, Split

BATCH_ROWS = 32_768
MAX_OFFSET = (1 << 63) - 1
ISOLATION_LEVELS: dict[Isolation, int] = {"read_uncommitted": 0, "read_committed": 1}
_WALK_BATCHES = 1 << 16
_AHEAD = 2


class Chunk(NamedTuple):
    """What one fetch brought: whole batches, as the decoder takes them.

    Attributes:
        path: Where they come from, for errors.
        data: The bytes.
        position: Where the first batch starts.
        end_position: Where the last whole one ends.
        next_offset: The offset to fetch from next.
        aborted: Transactions to leave out: producer id, first offset, last offset.
    """

    path: str
    data: Any
    position: int
    end_position: int
    next_offset: int
    aborted: tuple[tuple[int, int, int], ...]


class BrokerSplit(Split):
    """A range of offsets of one partition of a broker."""

    def __init__(
        self, wanted: OffsetRange, settings: BrokerSettings, isolation: Isolation, fail_on_data_loss: bool
    ) -> None:
        super().__init__(str(wanted.topic_partition))
        self.wanted = wanted
        self.settings = settings
        self.isolation = isolation
        self.fail_on_data_loss = fail_on_data_loss

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Fetch and decode the records of the split into batches of a schema."""
        (topic, partition), start, end = self.wanted
        with _Fetcher(self) as fetcher:
            for chunk in fetcher:
                yield from decode_slices(
                    [chunk],
                    schema,
                    topic=topic,
                    partition=partition,
                    start_offset=start,
                    end_offset=end,
                    aborted=chunk.aborted,
                    start_timestamp=self.start_timestamp,
                    end_timestamp=self.end_timestamp,
                    rows=BATCH_ROWS,
                )


class _Fetcher:
    """Fetches a split in a thread of its own; iterating gives the chunks."""

    def __init__(self, split: BrokerSplit) -> None:
        self._split = split
        self._client = BrokerClient(split.settings)
        self._chunks: queue.Queue[Chunk | BaseException | None] = queue.Queue(_AHEAD)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"fetch {split.wanted.topic_partition}", daemon=True)

    def __enter__(self) -> _Fetcher:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        while self._thread.is_alive():
            # The thread may be waiting for room.
            with suppress(queue.Empty):
                self._chunks.get(timeout=0.05)
        self._thread.join()

    def __iter__(self) -> Iterator[Chunk]:
        while True:
            chunk = self._chunks.get()
            if chunk is None:
                return
            if isinstance(chunk, BaseException):
                raise chunk
            yield chunk

    def _run(self) -> None:
        try:
            try:
                offset = self._split.wanted.start_offset
                while offset < self._split.wanted.end_offset and not self._stopping.is_set():
                    chunk = self._fetch(offset)
                    offset = chunk.next_offset
                    if chunk.end_position > chunk.position:
                        self._chunks.put(chunk)
                self._chunks.put(None)
            finally:
                self._client.close()
        except BaseException as error:
            self._chunks.put(error)

    def _fetch(self, offset: int) -> Chunk:
        """Fetch until there are whole batches behind an offset, or the offset is behind a gap."""
        partition = self._split.wanted.topic_partition
        what = f"fetching {partition} from offset {offset}"
        deadline = time.monotonic() + self._split.settings.timeout_ms / 1000
        while not self._stopping.is_set():
            try:
                response = self._client.attempt(what, lambda: self._ask(offset))
            except BrokerUnavailableError as error:
                if not isinstance(error.__cause__, errors.OffsetOutOfRangeError):
                    raise
                return self._behind_the_gap(offset)
            chunk = self._chunk(response, offset)
            if chunk.end_position > chunk.position:
                return chunk
            if time.monotonic() > deadline:
                raise BrokerUnavailableError(
                    f"{self._client.name}: {what}: no records came, though it does not end there"
                )
        return Chunk("", b"", 0, 0, offset, ())

    def _behind_the_gap(self, offset: int) -> Chunk:
        partition = self._split.wanted.topic_partition
        found = self._client.attempt(
            f"offsets of {partition}", lambda: self._client.list_offsets({partition: EARLIEST_TIMESTAMP}, 0)
        )
        first = found[partition]
        if self._split.fail_on_data_loss or first <= offset:
            end = self._split.wanted.end_offset
            loss = Loss.RETENTION if first > offset else Loss.TRUNCATION
            raise DataLossError(loss, OffsetRange(partition, offset, end), Bounds(first, end))
        return Chunk("", b"", 0, 0, first, ())

    def _ask(self, offset: int) -> Any:
        (topic, number), _, _ = self._split.wanted
        settings = self._split.settings
        kind = FetchRequest.FetchTopic
        wanted = kind.FetchPartition(
            partition=number,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=settings.fetch_bytes,
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=settings.fetch_wait_ms,
            min_bytes=1,
            max_bytes=settings.fetch_bytes,
            isolation_level=ISOLATION_LEVELS[self._split.isolation],
            session_id=0,
            session_epoch=-1,
            topics=[kind(topic=topic, partitions=[wanted])],
            forgotten_topics_data=[],
            rack_id="",
            min_version=4,
            max_version=12,
        )
        response = self._client.ask(request, self._client.leader(self._split.wanted.topic_partition))
        check(getattr(response, "error_code", 0) or 0, "fetch")
        part = response.responses[0].partitions[0]
        check(part.error_code, f"fetch of {self._split.wanted.topic_partition}")
        return part

    def _chunk(self, part: Any, offset: int) -> Chunk:
        path = f"{self._split.wanted.topic_partition} of {self._client.name}"
        data = part.records
        if not data:
            return Chunk(path, b"", 0, 0, offset, ())
        position, next_offset = 0, offset
        while True:
            table = walk_batches(data, position, len(data), _WALK_BATCHES, False)
            if not len(table):
                break
            last = table.row(len(table) - 1)
            position, next_offset = table.stop_position, _next_offset(last)
        aborted = _aborted(part.aborted_transactions or (), data, position)
        return Chunk(path, data, 0, position, next_offset, aborted)


def _next_offset(row: tuple[int, ...]) -> int:
    from odradek.records.header import BatchHeader

    return BatchHeader._make(row).next_offset


def _aborted(entries: Any, data: Any, end: int) -> tuple[tuple[int, int, int], ...]:
    """Find where aborted transactions end; one whose marker is further on ends nowhere in these bytes."""
    if not entries:
        return ()
    markers: dict[int, list[int]] = {}
    for header in scan_batches(data, 0, end, check_crc=False):
        if header.is_control:
            markers.setdefault(header.producer_id, []).append(header.base_offset)
    return tuple(
        (
            entry.producer_id,
            entry.first_offset,
            next((offset for offset in markers.get(entry.producer_id, ()) if offset >= entry.first_offset), MAX_OFFSET),
        )
        for entry in entries
    )
