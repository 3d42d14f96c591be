"""Fetches a range of offsets of one partition from its current leader, as whole batches.

    send Fetch [offset, ...)                      the next request is on its way before the answer is used
    receive  ->  send the next  ->  use           the broker and the caller work at the same time

Offsets within a batch may be missing (compaction), whole batches may hold no record for a consumer (transaction
markers), and a log may end in such a gap. So progress is measured by the last offset of the last batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from functools import partial
from typing import NamedTuple

from kafka import errors

from odradek.errors import BrokerUnavailableError, ProtocolError
from odradek.kafka.client import EARLIEST_LOCAL_TIMESTAMP, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, BrokerClient
from odradek.kafka.cluster import check
from odradek.kafka.connection import BareConnection
from odradek.kafka.fetch import FetchAnswer, aborted_ranges, fetch_request, parse_response, whole_batches
from odradek.records.isolation import Isolation
from odradek.storage.names import TopicPartition

GUESSED_RECORD_BYTES = 1024.0
_LARGEST_FETCH_BYTES = 1 << 30
_SMALLEST_FETCH_BYTES = 1 << 16
_RETRY_S = 0.1


class Held(NamedTuple):
    """What a partition has, where it does not hold an offset that is wanted.

    Attributes:
        wanted_offset: The next offset that is wanted.
        start_offset: The first offset that the partition has.
        end_offset: The offset after its last one.
        topic_id: The id of its topic, if that is what differs; else None.
    """

    wanted_offset: int
    start_offset: int
    end_offset: int
    topic_id: str | None = None


class Chunk(NamedTuple):
    """Whole batches of one answer, most often all of them, as the decoder takes them.

    Attributes:
        path: The partition, its broker, and which answer it is, for errors.
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
    """Fetches a range of offsets of one partition, even if its leader changes meanwhile.

    Args:
        client: The brokers.
        topic_partition: The partition.
        start_offset: The first offset wanted.
        end_offset: The offset after the last one wanted.
        isolation: `read_uncommitted`, or `read_committed`, which names the aborted transactions.
        lost: Called when the partition does not hold what is wanted, or its topic was recreated. It raises an error;
            if it returns, the fetch continues with the remaining offsets.
        topic_id: The topic's id when the range was planned; None if it is not known.
        record_bytes: An estimate of the bytes for each offset.
        max_bytes: About the most bytes of one answer; `BrokerSettings.fetch_bytes` if that is less.
        ahead: Whether the next request is sent before an answer is used; not for a caller that takes one answer.

    Attributes:
        record_bytes: The bytes for each offset in the last answer.
    """

    def __init__(
        self,
        client: BrokerClient,
        topic_partition: TopicPartition,
        start_offset: int,
        end_offset: int,
        isolation: Isolation,
        *,
        lost: Callable[[Held], None],
        topic_id: str | None = None,
        record_bytes: float = GUESSED_RECORD_BYTES,
        max_bytes: int = _LARGEST_FETCH_BYTES,
        ahead: bool = True,
    ) -> None:
        self.record_bytes = record_bytes
        self._client = client
        self._name = topic_partition
        self._start, self._end = start_offset, end_offset
        self._isolation = isolation
        self._ahead = ahead
        self._lost = lost
        self._topic_id = topic_id
        self._settings = client.settings
        self._fetch_bytes = min(client.settings.fetch_bytes, max_bytes)
        self._connection: BareConnection | None = None
        self._version = -1
        self._smallest_bytes = min(_SMALLEST_FETCH_BYTES, self._fetch_bytes)
        self._least_bytes = self._smallest_bytes
        self._stalled_since: float | None = None

    def chunks(self) -> Generator[Chunk, None, None]:
        """Yield the batches that hold the range. Use each chunk before asking for the next, which overwrites it.

        The topic is looked at once more after the last chunk: `lost` may be called when all chunks have been yielded.
        A caller that takes only some of them calls `check_topic` itself.
        """
        offset = self._start
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
                parts, end_position, next_offset = whole_batches(answer.data, answer.position, answer.end_position)
                if end_position == answer.position:
                    offset = self._after_nothing(answer, offset, what)
                    continue
                if next_offset <= offset:
                    raise ProtocolError(f"{what}: the batches that came end at {next_offset}")
                self.record_bytes = (end_position - answer.position) / (next_offset - offset)
                self._least_bytes = self._smallest_bytes
                self._stalled_since = None
                if self._ahead and next_offset < self._end:
                    self._send_ahead(next_offset)
                aborted = aborted_ranges(answer.data, answer.position, end_position, answer.aborted)
                path = f"{self._name} of {self._client.name}, fetched from offset {offset}"
                for position, part_end in parts:
                    yield Chunk(path, answer.data, position, part_end, offset, aborted)
                offset = next_offset
            if self._start < self._end:
                self.check_topic()
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
        self._compare_topic_id()
        return self._client.take_connection(self._client.leader(self._name))

    def check_topic(self) -> None:
        """Compare the topic's id again: a broker may be behind its controller when the fetch connects to it.

        Raises:
            BrokerUnavailableError: The brokers did not answer in time.
        """
        if self._topic_id is not None:
            self._client.attempt(f"the id of {self._name.topic}", self._compare_topic_id)

    def _compare_topic_id(self) -> None:
        topic = self._client.topics([self._name.topic]).get(self._name.topic)
        if topic is not None and None not in (self._topic_id, topic.topic_id) and topic.topic_id != self._topic_id:
            try:
                start, end = self._bounds()
            except BrokerUnavailableError:
                # The new topic may have fewer partitions.
                start = end = 0
            self._lost(Held(self._start, start, end, topic.topic_id))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _request(self, offset: int) -> object:
        # Not much more than the rest of the range: what lies after it is for another task.
        left_bytes = int((self._end - offset) * self.record_bytes * 1.05) + _SMALLEST_FETCH_BYTES
        max_bytes = max(self._least_bytes, min(self._fetch_bytes, left_bytes))
        return fetch_request(
            self._name,
            offset,
            self._isolation,
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
        """Return the offset at which to continue if the partition does not have an offset."""
        start, end = self._bounds()
        if start <= offset <= end:
            self._stall(f"{self._name}: offset {offset} is out of range; the partition has [{start}, {end})")
            return offset
        self.check_topic()
        self._lost(Held(offset, start, end))
        return min(start, self._end) if offset < start else self._end

    def _after_nothing(self, answer: FetchAnswer, offset: int, what: str) -> int:
        """Return the offset at which to continue after an answer without a whole batch."""
        if answer.end_position > answer.position:
            # Brokers before 0.10.1 cut a batch that is larger than the size that was asked for.
            if self._least_bytes >= _LARGEST_FETCH_BYTES:
                raise ProtocolError(f"{what}: the batch there is larger than 1 GB")
            self._least_bytes = 4 * max(self._least_bytes, answer.end_position - answer.position)
            return offset
        self.check_topic()
        committed = self._isolation == "read_committed"
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
