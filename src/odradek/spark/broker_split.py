"""What a task reads from a broker: a range of offsets of one partition, from its current leader.

    send Fetch [offset, ...)                      the next request is on its way before the answer is decoded
    receive  ->  send the next  ->  decode        the broker and this task work at the same time

A split holds settings, never a connection. A Spark worker keeps its connections for later tasks: only the first task
pays for TLS, login and finding the brokers.

Offsets within a batch may be missing (compaction), whole batches may hold no record for a consumer (transaction
markers), and a log may end in such a gap. So progress is measured by the last offset of the last batch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from kafka import errors

from odradek.columnar.decode import decode_slices
from odradek.errors import BrokerUnavailableError, ProtocolError
from odradek.kafka.client import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    BrokerClient,
)
from odradek.kafka.cluster import check
from odradek.kafka.connection import BareConnection
from odradek.kafka.fetch import FetchAnswer, aborted_ranges, fetch_request, parse_response, whole_batches
from odradek.kafka.settings import BrokerSettings
from odradek.offsets.store import is_same_topic
from odradek.records.isolation import Isolation
from odradek.spark.ranges import Bounds, DataLossError, OffsetRange, Split, find_loss

BATCH_ROWS = 32_768
GUESSED_RECORD_BYTES = 1024.0
_LARGEST_FETCH_BYTES = 1 << 30
_SMALLEST_FETCH_BYTES = 1 << 16
_RETRY_S = 0.1

_kept_clients: dict[tuple[object, ...], BrokerClient] = {}


def kept_client(settings: BrokerSettings) -> BrokerClient:
    """Return the client that this process keeps for a broker."""
    # A forked worker must not speak on its parent's sockets.
    key = (os.getpid(), repr(settings))
    if key not in _kept_clients:
        _kept_clients[key] = BrokerClient(settings)
    return _kept_clients[key]


def close_kept_clients() -> None:
    """Close the connections that this process keeps for its next tasks."""
    while _kept_clients:
        _kept_clients.popitem()[1].close()


class BrokerSplit(Split):
    """A range of offsets of one partition of a broker.

    Attributes:
        wanted: The range.
        settings: How to reach the broker.
        isolation: `read_uncommitted` or `read_committed`.
        fail_on_data_loss: Whether records that are gone are an error.
        topic_id: The topic's id when the range was planned; None if the broker has no topic ids.
        record_bytes: An estimate of the bytes for each offset.
    """

    def __init__(
        self,
        wanted: OffsetRange,
        settings: BrokerSettings,
        isolation: Isolation,
        *,
        fail_on_data_loss: bool,
        topic_id: str | None = None,
        record_bytes: float = GUESSED_RECORD_BYTES,
    ) -> None:
        super().__init__(str(wanted.topic_partition))
        self.wanted = wanted
        self.settings = settings
        self.isolation = isolation
        self.fail_on_data_loss = fail_on_data_loss
        self.topic_id = topic_id
        self.record_bytes = record_bytes

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Fetch and decode the records of the split into batches of a schema.

        Raises:
            DataLossError: Some of them are gone, and `fail_on_data_loss` is true.
            BrokerUnavailableError: No leader returned them in time.
        """
        (topic, partition), _, end = self.wanted
        with closing(PartitionFetch(kept_client(self.settings), self).chunks()) as chunks:
            for chunk in chunks:
                yield from decode_slices(
                    [chunk],
                    schema,
                    topic=topic,
                    partition=partition,
                    # The log start offset may lie within a batch that is still there.
                    start_offset=chunk.start_offset,
                    end_offset=end,
                    aborted=chunk.aborted,
                    start_timestamp=self.start_timestamp,
                    end_timestamp=self.end_timestamp,
                    rows=BATCH_ROWS,
                )


class Chunk(NamedTuple):
    """The whole batches of one answer, as the decoder takes them.

    Attributes:
        path: The partition and its broker, for errors.
        data: The answer.
        position: The position of the first batch.
        end_position: The position after the last whole batch.
        start_offset: The offset that was asked for, which may lie within the first batch.
        aborted: Transactions to leave out: producer id, first offset, last offset.
        origin: The position at which the answer starts.
        next_offset: None: what follows is not known.
    """

    path: str
    data: memoryview
    position: int
    end_position: int
    start_offset: int
    aborted: tuple[tuple[int, int, int], ...]
    origin: int = 0
    next_offset: int | None = None


class PartitionFetch:
    """Fetches a split, even if the partition's leader changes meanwhile.

    Args:
        client: The brokers.
        split: What to fetch.

    Attributes:
        record_bytes: The bytes for each offset in the last answer.
    """

    def __init__(self, client: BrokerClient, split: BrokerSplit) -> None:
        self.record_bytes = split.record_bytes
        self._client = client
        self._split = split
        self._name, _, self._end = split.wanted
        self._settings = split.settings
        self._connection: BareConnection | None = None
        self._version = -1
        self._smallest_bytes = min(_SMALLEST_FETCH_BYTES, self._settings.fetch_bytes)
        self._least_bytes = self._smallest_bytes
        self._stalled_since: float | None = None

    def chunks(self) -> Generator[Chunk, None, None]:
        """Yield the batches that hold the range. Use each chunk before asking for the next, which overwrites it."""
        offset = self._split.wanted.start_offset
        path = f"{self._name} of {self._client.name}"
        try:
            while offset < self._end:
                what = f"fetching {self._name} from offset {offset}"
                try:
                    answer = self._client.attempt(what, partial(self._ask, offset))
                except BrokerUnavailableError as error:
                    if not isinstance(error.__cause__, errors.OffsetOutOfRangeError):
                        raise
                    offset = self._out_of_range(offset)
                    continue
                if answer is None:
                    self._stall(f"{what}: the broker throttles this client")
                    continue
                end_position, next_offset = whole_batches(answer.data, answer.position, answer.end_position)
                if end_position == answer.position:
                    offset = self._after_nothing(answer, offset, what)
                    continue
                if next_offset <= offset:
                    raise ProtocolError(f"{what}: the batches that came end at {next_offset}")
                self.record_bytes = (end_position - answer.position) / (next_offset - offset)
                self._least_bytes = self._smallest_bytes
                self._stalled_since = None
                if next_offset < self._end:
                    self._send_ahead(next_offset)
                aborted = aborted_ranges(answer.data, answer.position, end_position, answer.aborted)
                yield Chunk(path, answer.data, answer.position, end_position, offset, aborted)
                offset = next_offset
        finally:
            if self._connection is not None:
                self._client.give_back(self._connection)
                self._connection = None

    def _ask(self, offset: int) -> FetchAnswer | None:
        try:
            if self._connection is None:
                self._connection = self._connect()
            if not self._connection.awaited:
                self._version = self._connection.send(self._request(offset))
            answer = parse_response(self._connection.receive(), self._version, self._name)
            if answer is not None:
                check(answer.error_code, str(self._name))
        except errors.OffsetOutOfRangeError:
            raise
        except BaseException:
            # Whether the leader changed or not, the next round asks for it again.
            self._disconnect()
            raise
        return answer

    def _connect(self) -> BareConnection:
        topic = self._client.topics([self._name.topic]).get(self._name.topic)
        planned = self._split.topic_id
        if topic is not None and not is_same_topic(planned, topic.topic_id):
            held = Bounds(*self._bounds(), topic.topic_id)
            loss = find_loss(self._split.wanted, held, planned)
            assert loss is not None
            raise loss
        return self._client.take_connection(self._client.leader(self._name))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _request(self, offset: int) -> object:
        # Not much more than the rest of the range: what lies after it is for another task.
        left_bytes = int((self._end - offset) * self.record_bytes * 1.05) + _SMALLEST_FETCH_BYTES
        max_bytes = max(self._least_bytes, min(self._settings.fetch_bytes, left_bytes))
        return fetch_request(
            self._name,
            offset,
            self._split.isolation,
            max_bytes=max_bytes,
            max_wait_ms=self._settings.fetch_wait_ms,
        )

    def _send_ahead(self, offset: int) -> None:
        """Send the next request: the broker works on it while the last answer is decoded."""
        assert self._connection is not None
        try:
            self._version = self._connection.send(self._request(offset))
        except OSError:
            # The answer that came is good; the next round connects again.
            self._disconnect()

    def _bounds(self) -> tuple[int, int]:
        name = self._name

        def ask() -> tuple[int, int]:
            first = self._client.list_offsets({name: EARLIEST_TIMESTAMP}, 0)
            return first[name], self._client.list_offsets({name: LATEST_TIMESTAMP}, 0)[name]

        return self._client.attempt(f"offsets of {name}", ask)

    def _out_of_range(self, offset: int) -> int:
        """Return the offset at which to continue if the partition does not have an offset.

        Raises:
            DataLossError: The partition had it once, and `fail_on_data_loss` is true.
        """
        start, end = self._bounds()
        if start <= offset <= end:
            self._stall(f"{self._name}: offset {offset} is out of range; the partition has [{start}, {end})")
            return offset
        loss = find_loss(OffsetRange(self._name, offset, self._end), Bounds(start, end))
        if self._split.fail_on_data_loss and loss is not None:
            raise loss
        return min(start, self._end) if offset < start else self._end

    def _after_nothing(self, answer: FetchAnswer, offset: int, what: str) -> int:
        """Return the offset at which to continue after an answer without a whole batch."""
        if answer.end_position > answer.position:
            # Brokers before 0.10.1 cut a batch that is larger than the size that was asked for.
            if self._least_bytes >= _LARGEST_FETCH_BYTES:
                raise ProtocolError(f"{what}: the batch there is larger than 1 GB")
            self._least_bytes = 4 * max(self._least_bytes, answer.end_position - answer.position)
            return offset
        committed = self._split.isolation == "read_committed"
        readable = answer.last_stable_offset if committed else answer.high_watermark
        if readable >= self._end and not answer.throttled and self._is_local(offset):
            # Compaction left nothing from here to the end of the log.
            return self._end
        self._stall(f"{what}: no records came, although the partition is readable up to {readable}")
        return offset

    def _is_local(self, offset: int) -> bool:
        """Return whether an offset is on the broker's own disk: then an answer without records means there are none.

        A broker may also answer without records while it waits for old segments in remote storage.
        """
        times = {self._name: EARLIEST_LOCAL_TIMESTAMP}
        try:
            local = self._client.attempt(f"offsets of {self._name}", lambda: self._client.list_offsets(times, 0))
        except BrokerUnavailableError as error:
            if isinstance(error.__cause__, errors.IncompatibleBrokerVersion):
                return True
            raise
        return offset >= local[self._name]

    def _stall(self, reason: str) -> None:
        """Wait a little; fail if nothing has come for as long as a request is retried."""
        now = time.monotonic()
        if self._stalled_since is None:
            self._stalled_since = now
        if now - self._stalled_since > self._settings.timeout_ms / 1000:
            raise BrokerUnavailableError(f"{self._client.name}: {reason}")
        time.sleep(_RETRY_S)


def sample_record_bytes(client: BrokerClient, split: BrokerSplit) -> float:
    """Return the bytes for each offset at the start of a split, measured by one small fetch."""
    fetch = PartitionFetch(client, split)
    # The reader reports records that are gone.
    with suppress(DataLossError):
        for _ in fetch.chunks():
            pass
    return fetch.record_bytes
