"""Fetch: gives batches from an offset on, and waits for them where there are none yet.

What is answered are parts of log files, which go from the page cache to the socket. A part begins with the whole batch
that holds the offset; the batch at its end may be cut short, which clients drop. The first partition that has records
gives at least one batch, even if it is larger than the client wants.

    enough (min_bytes), an error, the end of a segment, or no time left? -> answered
    otherwise                                                            -> waits for appends, or max_wait

A topic or partition that was unknown when the request came is no such error: the request waits for the others, and
answers the unknown ones after them. Otherwise a deleted topic would make consumers of other topics ask without a pause.

Clients of librdkafka lose records of formats v0 and v1 in answers of version 12 and later
(confluentinc/librdkafka#5549). So these answers are converted to format v2, except for Kafka's own client, which reads
the old formats.

v7 (KIP-227) has sessions, v12 (KIP-595) leader epochs of the last record, v13 (KIP-516) topic ids, v15 (KIP-903) and
later what only replicas need. There are no other replicas here, so no preferred one to read from, no diverging epochs,
and replicas are refused.

Source in Kafka: `KafkaApis.handleFetchRequest`, `DelayedFetch`, `ReplicaManager.readFromLog`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.api.fetch_answers import answer_bytes, failed_as_whole, partition_error
from odradek.broker.data_responses import encode_fetch
from odradek.broker.errors import NO_ERROR, ApiError, code_of
from odradek.broker.fetch_requests import FIRST_WITH_IDS, FetchBody, decode
from odradek.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchSession, Key, WantedPartition
from odradek.broker.log_waits import LogPlace
from odradek.broker.partitions import Partition
from odradek.broker.protocol import Message
from odradek.broker.turns import Work
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.errors import FormatError, OdradekError
from odradek.records.upconvert import to_v2
from odradek.storage.segment.file_records import FileRecords

if TYPE_CHECKING:
    from odradek.broker.authorization import Authorization

_FIRST_WITH_STORAGE_ERROR = 6
"""Older clients do not try again after KAFKA_STORAGE_ERROR, as they do after NOT_LEADER_OR_FOLLOWER."""
_FIRST_MISREAD = 12
_READS_OLD_FORMATS = "apache-kafka-java"
_CURRENT_MAGIC = 2
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_UNKNOWN_ERRORS = frozenset({int(ErrorCode.unknown_topic_id), int(ErrorCode.unknown_topic_or_partition)})
_WITHOUT_WAIT = _UNKNOWN_ERRORS | {int(ErrorCode.topic_authorization_failed)}
"""The errors that are found before a request waits, and that do not keep it from waiting for other partitions."""
_QUICKLY_READ_BYTES = 1 << 20
"""Up to this many bytes are scanned for transactions while other requests wait; more in another thread."""


class _Read(NamedTuple):
    """What a partition gives.

    Attributes:
        answer: The fields of the answer.
        size_bytes: How many bytes of records.
        failed: Whether it is an error.
        has_more: Whether there are further records, in another segment's file, or in a batch that does not fit.
        is_unknown: Whether there was no such partition when the request came.
    """

    answer: Mapping[str, Any]
    size_bytes: int
    failed: bool
    has_more: bool = False
    is_unknown: bool = False

    @property
    def answers_at_once(self) -> bool:
        """Whether the request waits no longer, however few bytes there are."""
        return self.has_more or (self.failed and not self.is_unknown)


@dataclass(slots=True)
class _Growing:
    """A partition that had records when the request began to wait, or got some since.

    Attributes:
        partition: The partition.
        place: Where it ended when it was looked at last.
        size_bytes: How many bytes there were.
    """

    partition: Partition
    place: LogPlace
    size_bytes: int


@api(
    1,
    "Fetch",
    range(4, 19),
    failed=failed_as_whole,
    decode=decode,
    encode=encode_fetch,
    ends_with_client=True,
    counts_errors=True,
)
def fetch(request: Request) -> Message | Awaitable[Message]:
    """Give batches."""
    if request.body.isolation_level not in (_READ_UNCOMMITTED, _READ_COMMITTED):
        raise ApiError(ErrorCode.unknown_server_error)
    partitions = request.broker.partitions
    named = ((one.topic, one.topic_id, one.number) for one in request.body.wanted)
    return partitions.when_open(partitions.closed(named), lambda: _fetch(request))


def _fetch(request: Request) -> Message | Awaitable[Message]:
    body: FetchBody = request.body
    session_id, epoch = body.session_id, body.session_epoch
    # If a partition is named twice, the last one counts, as in Kafka.
    wanted = list({one.key: one for one in body.wanted}.values())
    uses_ids = request.version >= FIRST_WITH_IDS
    sessions = request.broker.fetch_sessions
    session: FetchSession | None = None
    is_first = True
    if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        if session_id != NO_SESSION:
            sessions.end(session_id)
        if epoch == INITIAL_EPOCH and wanted:
            session = sessions.begin(wanted, uses_ids=uses_ids)
    else:
        session = sessions.go_on(session_id, epoch, wanted, body.forgotten, uses_ids=uses_ids)
        is_first = False
    authorization, client = request.broker.authorization, request.connection
    if session is not None and authorization is not None:
        session.seen_with((authorization.version, client.principal, client.peer))
    pending = _Fetch(request, session, wanted, is_first=is_first)
    reading = request.broker.turns.take(pending.read())
    if isinstance(reading, Awaitable) or pending.has_to_read:
        return pending.read_first(reading, body.max_wait_ms)
    if body.max_wait_ms > 0 and not pending.is_enough:
        return pending.wait(body.max_wait_ms)
    return pending.converted() if pending.is_to_convert else pending.answer()


class _Fetch:
    """A request that is being answered."""

    def __init__(
        self, request: Request, session: FetchSession | None, wanted: list[WantedPartition], *, is_first: bool
    ) -> None:
        self._request = request
        self._session = session
        self._wanted = wanted
        self._is_first = is_first
        self._max_bytes = min(request.body.max_bytes, request.broker.config["fetch.max.bytes"])
        if request.loop_time is not None:
            # More would be throttled however long the client waited.
            most = request.broker.quotas.fetch.most(request.user, request.client_id)
            self._max_bytes = int(min(self._max_bytes, most))
        self._min_bytes = min(request.body.min_bytes, self._max_bytes)
        self._is_committed = request.body.isolation_level == _READ_COMMITTED
        self._partitions: dict[WantedPartition, tuple[Partition, LogPlace]] = {}
        self._growing: dict[WantedPartition, _Growing] = {}
        self._unknown: dict[Key, int] = {}
        self._has_waited = False
        self._done: asyncio.Future[None] | None = None
        self._to_read: list[tuple[WantedPartition, Callable[[], object]]] = []
        self._read_before: set[WantedPartition] = set()
        self._reads: list[_Read] = []

    def _looked_at(self) -> list[WantedPartition]:
        """Return the partitions to look at: after the first fetch of a session, only those that may have news."""
        if self._session is not None and not self._is_first:
            for wanted in self._wanted:
                # They were read before the wait, but are not answered yet.
                self._session.keep(wanted)
            self._wanted = self._session.take_news()
        return self._wanted

    @property
    def is_enough(self) -> bool:
        """Whether there are as many bytes as the client wants, an error, or nothing to wait for."""
        wanted = len(self._wanted if self._session is None else self._session)
        return (
            wanted <= len(self._unknown)
            or any(read.answers_at_once for read in self._reads)
            or sum(read.size_bytes for read in self._reads) >= self._min_bytes
        )

    def read(self) -> Work[None]:
        """Read what the partitions have, or may be given after a wait."""
        left, at_least_one = self._max_bytes, True
        reads = []
        for wanted in self._looked_at():
            read = self._read_one(wanted, left, at_least_one=at_least_one)
            if read.size_bytes:
                at_least_one = False
                left = max(0, left - read.size_bytes)
            reads.append(read)
            yield
        if self._session is not None:
            for wanted, read in zip(self._wanted, reads, strict=True):
                if read.size_bytes or read.failed or read.has_more or not left:
                    self._session.keep(wanted)
                yield
        self._reads = reads

    def _read_one(self, wanted: WantedPartition, max_bytes: int, *, at_least_one: bool) -> _Read:
        try:
            if (found := self._request.broker.authorization) is not None and not self._may_read(found, wanted):
                denied = int(ErrorCode.topic_authorization_failed)
                return self._failed(wanted, self._unknown.get(wanted.key, denied))
            partition = self._request.broker.partitions.named(wanted.topic, wanted.topic_id, wanted.number)
            partition.check_leader_epoch(wanted.leader_epoch)
            if self._request.body.replica_id >= 0:
                # There are no followers; without a leader epoch Kafka cannot tell whose knowledge is old.
                knows_epoch = wanted.leader_epoch >= 0
                raise ApiError(ErrorCode.unknown_leader_epoch if knows_epoch else ErrorCode.not_leader_or_follower)
            # Before the records: what is appended meanwhile may count twice, but not be missed.
            if self._session is None:
                place = partition.end(is_committed=self._is_committed)
            else:
                place = self._session.watch(wanted, partition, is_committed=self._is_committed)
            self._partitions[wanted] = partition, place
            return self._records(partition, wanted, max_bytes, at_least_one=at_least_one)
        except (OdradekError, OSError) as error:
            if isinstance(error, FormatError):
                self._request.broker.found_damage(error)
            elif isinstance(error, OSError):
                self._request.broker.disk_failed(str(error))
            return self._failed(wanted, code_of(error))

    def _may_read(self, authorization: Authorization, wanted: WantedPartition) -> bool:
        """Return whether the client may read a partition, before a wait and, unlike in Apache Kafka, also after it."""
        if self._has_waited and wanted.key in self._unknown:
            return False
        if self._request.body.replica_id >= 0:
            return self._request.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        partitions, topic_id = self._request.broker.partitions, wanted.topic_id
        name = wanted.topic if wanted.topic is not None else partitions.topic_name(topic_id)
        return authorization.may_read(self._request.connection, name)

    def _failed(self, wanted: WantedPartition, code: int) -> _Read:
        if code == ErrorCode.kafka_storage_error and self._request.version < _FIRST_WITH_STORAGE_ERROR:
            code = int(ErrorCode.not_leader_or_follower)
        if code not in _WITHOUT_WAIT:
            return _Read(partition_error(wanted, code), 0, failed=True)
        if not self._has_waited or code == ErrorCode.topic_authorization_failed:
            self._unknown[wanted.key] = code
        if wanted.key in self._unknown:
            return _Read({**partition_error(wanted, code), "aborted_transactions": []}, 0, failed=True, is_unknown=True)
        # Deleted while the request waited, so its id was known.
        return _Read(partition_error(wanted, int(ErrorCode.unknown_topic_or_partition)), 0, failed=True)

    def _records(self, partition: Partition, wanted: WantedPartition, max_bytes: int, *, at_least_one: bool) -> _Read:
        log = partition.log
        (end, stable), start = partition.commits.ends, log.log_start_offset
        offset = wanted.offset
        if not start <= offset <= end:
            return self._failed(wanted, int(ErrorCode.offset_out_of_range))
        last = stable if self._is_committed else end
        most = min(max_bytes, max(0, wanted.max_bytes))
        records: FileRecords | None = None
        aborted: list[Message] | None = [] if self._is_committed else None
        if offset < last and (most > 0 or at_least_one):
            if self._is_committed:
                aborted, records = self._committed(partition, wanted, last, most, at_least_one=at_least_one)
            else:
                records = partition.fetch(offset, last, most, at_least_one=at_least_one)
        answer = {
            "partition_index": wanted.number,
            "error_code": NO_ERROR,
            "high_watermark": end,
            "last_stable_offset": stable,
            "log_start_offset": start,
            "aborted_transactions": aborted,
            "preferred_read_replica": -1,
            "records": b"" if records is None else records,
        }
        size = 0 if records is None else records.size_bytes
        if records is not None and not size:
            # The first batch is larger than the room that other partitions leave in the answer.
            answer["records"] = b""
            return _Read(answer, 0, failed=False, has_more=True)
        has_more = 0 < size < self._min_bytes and partition.spans_segments(offset, last)
        return _Read(answer, size, failed=False, has_more=has_more)

    def _committed(
        self, partition: Partition, wanted: WantedPartition, end_offset: int, max_bytes: int, *, at_least_one: bool
    ) -> tuple[list[Message], FileRecords | None]:
        """Return the aborted transactions and the records of a segment, or of the next one that has records."""
        log, offset = partition.log, wanted.offset
        while offset < end_offset:
            end = partition.segment_end_offset(offset, end_offset)
            is_read = wanted in self._read_before
            if not is_read and log.unread_transactions_bytes(offset, end) > _QUICKLY_READ_BYTES:
                self._to_read.append((wanted, partial(log.aborted_transactions, offset, end)))
                break
            # Before the records: a compaction in between may remove aborted records, and then they are not listed.
            aborted: list[Message] = [
                {"producer_id": one.producer_id, "first_offset": one.first_offset}
                for one in log.aborted_transactions(offset, end)
            ]
            records = partition.fetch(offset, end, max_bytes, at_least_one=at_least_one)
            if records is not None:
                return aborted, records
            offset = end
        return [], None

    @property
    def has_to_read(self) -> bool:
        """Whether the transactions of a partition must be read in another thread first."""
        return bool(self._to_read)

    async def read_first(self, reading: Awaitable[None] | None, max_wait_ms: int) -> Message:
        """Read the rest and the transactions, then answer."""
        if reading is not None:
            await reading
        await self._read_transactions()
        if max_wait_ms > 0 and not self.is_enough:
            return await self.wait(max_wait_ms)
        return await self._answer()

    async def _read_transactions(self) -> None:
        while self._to_read:
            to_read, self._to_read = self._to_read, []
            for wanted, read in to_read:
                self._read_before.add(wanted)
                # An error is raised again when they are read for the answer.
                with suppress(OdradekError, OSError):
                    await self._request.broker.run(read)
                if self._session is not None:
                    self._session.keep(wanted)
            await self._request.broker.turns.finish(self.read())

    @property
    def is_to_convert(self) -> bool:
        """Whether there are records of old formats that the client may not be able to read."""
        if self._request.version < _FIRST_MISREAD or not any(read.size_bytes for read in self._reads):
            return False
        if not any(_is_old(read) for read in self._reads):
            return False
        software = self._request.connection.state.get("software")
        return not isinstance(software, tuple) or software[0] != _READS_OLD_FORMATS

    async def converted(self) -> Message:
        """Return the answer with all records in format v2."""
        for number, read in enumerate(self._reads):
            if _is_old(read):
                records: FileRecords = read.answer["records"]
                try:
                    data = await self._request.broker.run(lambda records=records: to_v2(records.read()))  # type: ignore[misc]
                    self._reads[number] = _Read({**read.answer, "records": data}, len(data), failed=False)
                except (OdradekError, OSError) as error:
                    self._reads[number] = _Read(partition_error(self._wanted[number], code_of(error)), 0, failed=True)
        return await self._request.broker.turns.finish(self._answered())

    def wait(self, max_wait_ms: int) -> Awaitable[Message]:
        """Wait until there is enough, or the time is over; what is appended from now on counts."""
        self._has_waited = True
        done = self._done = asyncio.get_running_loop().create_future()
        timer = self._request.broker.clock.after(max_wait_ms, self._finish)
        session, partitions = self._session, self._partitions
        for wanted, read in zip(self._wanted, self._reads, strict=True):
            if wanted not in partitions:
                continue
            if read.size_bytes:
                self._growing[wanted] = _Growing(*partitions[wanted], read.size_bytes)
            elif session is None:
                self._await_growth(wanted, *partitions[wanted], 1)
        on_growth = self._grew
        if session is not None:
            session.on_growth = on_growth
        if self._growing:
            self._count()

        def forget(_: asyncio.Future[None]) -> None:
            timer.cancel()
            if session is None:
                for wanted, (partition, _place) in partitions.items():
                    partition.forget((self, wanted))
            elif session.on_growth == on_growth:
                session.on_growth = None

        done.add_done_callback(forget)
        return self._waited(done)

    async def _waited(self, done: asyncio.Future[None]) -> Message:
        await done
        await self._request.broker.turns.finish(self.read())
        await self._read_transactions()
        return await self._answer()

    async def _answer(self) -> Message:
        if self.is_to_convert:
            return await self.converted()
        answer = self.answer()
        return await answer if isinstance(answer, Awaitable) else answer

    def _await_growth(self, wanted: WantedPartition, partition: Partition, place: LogPlace, size_bytes: int) -> None:
        if self._session is not None:
            self._session.await_growth(wanted, place, size_bytes, is_committed=self._is_committed)
            return
        wake = partial(self._grew, wanted, partition, place)
        partition.wait((self, wanted), place, size_bytes, wake, is_committed=self._is_committed)

    def _grew(self, wanted: WantedPartition, partition: Partition, place: LogPlace) -> None:
        if wanted not in self._growing:
            self._growing[wanted] = _Growing(partition, place, 0)
        self._count()

    def _count(self) -> None:
        """Answer if there is enough now; otherwise wait until one partition has grown by its part of what is missing.

        Bytes are counted by the ends of the logs: nothing is read.
        """
        missing = self._min_bytes
        try:
            for wanted, growing in self._growing.items():
                now = growing.partition.end(is_committed=self._is_committed)
                if now.base_offset == growing.place.base_offset:
                    growing.size_bytes += now.position - growing.place.position
                elif wanted.offset >= now.base_offset:
                    # It was at the end of the log when a segment was rolled.
                    growing.size_bytes = now.position
                else:
                    # The rest of an older segment is answered alone.
                    missing = 0
                growing.place = now
                missing -= min(growing.size_bytes, wanted.max_bytes)
        except (OdradekError, OSError):
            # The answer says why.
            missing = 0
        if missing <= 0:
            self._finish()
            return
        part = max(1, missing // len(self._growing))
        for wanted, growing in self._growing.items():
            self._await_growth(wanted, growing.partition, growing.place, part)

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def answer(self) -> Message | Awaitable[Message]:
        """Return the answer."""
        return self._request.broker.turns.take(self._answered())

    def _answered(self) -> Work[Message]:
        session = self._session
        responses: list[dict[str, Any]] = []
        answered: list[tuple[WantedPartition, _Read]] = []
        for wanted, read in sorted(zip(self._wanted, self._reads, strict=True), key=lambda one: one[1].is_unknown):
            yield
            if read.failed:
                self._request.broker.metrics.failed("Fetch", read.answer["error_code"])
            if session is not None and not self._is_first:
                told = read.answer["high_watermark"], read.answer["log_start_offset"]
                if not session.is_news(wanted, *told, has_more=read.size_bytes > 0 or read.failed):
                    continue
            answered.append((wanted, read))
            if not responses or (responses[-1]["topic"], responses[-1]["topic_id"]) != (wanted.topic, wanted.topic_id):
                responses.append({"topic": wanted.topic, "topic_id": wanted.topic_id, "partitions": []})
            responses[-1]["partitions"].append(read.answer)
        answer = {
            "error_code": NO_ERROR,
            "session_id": NO_SESSION if session is None else session.id,
            "responses": responses,
        }
        if self._request.loop_time is not None:
            throttle_ms = self._request.broker.throttling.fetched(
                self._request, partial(answer_bytes, self._request, answer)
            )
            if throttle_ms:
                return self._throttled(throttle_ms)
            answer["throttle_time_ms"] = 0
        if session is not None:
            for wanted, read in answered:
                told = read.answer["high_watermark"], read.answer["log_start_offset"]
                session.answered(wanted, *told, failed=read.failed)
                yield
        return answer

    def _throttled(self, throttle_ms: int) -> Message:
        """Return the answer to a client that has to wait: nothing, so that it asks for the same again."""
        session = self._session
        if session is not None and self._is_first:
            self._request.broker.fetch_sessions.end(session.id)
            session = None
        if session is not None:
            for wanted in self._wanted:
                session.keep(wanted)
        return {
            "throttle_time_ms": throttle_ms,
            "error_code": NO_ERROR,
            "session_id": NO_SESSION if session is None else session.id,
            "responses": [],
        }


def _is_old(read: _Read) -> bool:
    records = read.answer["records"]
    return isinstance(records, FileRecords) and records.magic < _CURRENT_MAGIC
