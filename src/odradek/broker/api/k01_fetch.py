"""Fetch: gives batches from an offset on, and waits for them where there are none yet.

What is answered are parts of log files, which go from the page cache to the socket. A part begins with the whole batch
that holds the offset; the batch at its end may be cut short, which clients drop. The first partition that has records
gives at least one batch, even if it is larger than the client wants.

    enough (min_bytes), an error, the end of a segment, or no time left? -> answered
    otherwise                                                            -> waits for appends, or max_wait

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
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.data_responses import encode_fetch
from odradek.broker.errors import NO_ERROR, ApiError, code_of
from odradek.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    WantedPartition,
)
from odradek.broker.partitions import Partition
from odradek.broker.protocol import Message, RequestHeader
from odradek.errors import OdradekError
from odradek.records.kernels.frames import WireReader
from odradek.records.upconvert import to_v2
from odradek.storage.segment.file_records import FileRecords

_FIRST_WITH_IDS = 13
_FIRST_WITH_SESSIONS = 7
_FIRST_WITH_LOG_START = 5
_FIRST_WITH_EPOCH = 9
_FIRST_WITH_RACK = 11
_FIRST_WITH_LAST_EPOCH = 12
_FIRST_FLEXIBLE = 12
_FIRST_WITHOUT_REPLICA = 15
_FIRST_MISREAD = 12
_READS_OLD_FORMATS = "apache-kafka-java"
_CURRENT_MAGIC = 2
_READ_COMMITTED = 1
_QUICKLY_READ_BYTES = 1 << 20
"""So many bytes may be scanned for transactions while other requests wait; more are scanned in another thread."""


class _Read(NamedTuple):
    """What a partition gives.

    Attributes:
        answer: The fields of the answer.
        size_bytes: How many bytes of records.
        failed: Whether it is an error.
        has_more: Whether there are further records, in another segment's file, or in a batch that does not fit.
    """

    answer: Mapping[str, Any]
    size_bytes: int
    failed: bool
    has_more: bool = False


class FetchBody(NamedTuple):
    """The body of a request; what its version does not have has Kafka's default."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    wanted: list[WantedPartition]
    forgotten: list[tuple[str | UUID, int]]


@cache
def _layouts(version: int) -> tuple[struct.Struct, struct.Struct]:
    """Return the fields before the topics, and those of a partition, with padding in the place of what is not used."""
    replica = "" if version >= _FIRST_WITHOUT_REPLICA else "4x"
    session = "ii" if version >= _FIRST_WITH_SESSIONS else ""
    epoch = "i" if version >= _FIRST_WITH_EPOCH else ""
    last_epoch = "4x" if version >= _FIRST_WITH_LAST_EPOCH else ""
    start = "8x" if version >= _FIRST_WITH_LOG_START else ""
    return struct.Struct(f">{replica}iiib{session}"), struct.Struct(f">i{epoch}q{last_epoch}{start}i")


def decode(frame: bytearray, header: RequestHeader) -> FetchBody:
    """Read the body of a request.

    Raises:
        ProtocolError: It does not follow its schema.
    """
    version = header.version
    head, partition = _layouts(version)
    reader = WireReader(frame, header.body_position, is_flexible=version >= _FIRST_FLEXIBLE)
    max_wait_ms, min_bytes, max_bytes, isolation_level, *session = reader.unpack(head)
    session_id, session_epoch = session or (NO_SESSION, FINAL_EPOCH)
    uses_ids, has_epoch = version >= _FIRST_WITH_IDS, version >= _FIRST_WITH_EPOCH
    wanted, forgotten = [], []
    for _ in range(reader.count()):
        name, topic_id = (None, reader.uuid()) if uses_ids else (reader.text(), None)
        for _ in range(reader.count()):
            if has_epoch:
                number, epoch, offset, limit = reader.unpack(partition)
            else:
                (number, offset, limit), epoch = reader.unpack(partition), -1
            wanted.append(WantedPartition(name, topic_id, number, offset, limit, epoch))
            reader.tags()
        reader.tags()
    if version >= _FIRST_WITH_SESSIONS:
        for _ in range(reader.count()):
            topic = reader.uuid() if uses_ids else reader.text()
            forgotten += [(topic, reader.int32()) for _ in range(reader.count())]
            reader.tags()
    if version >= _FIRST_WITH_RACK:
        reader.skip_text()
    reader.tags()
    return FetchBody(max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, wanted, forgotten)


@api(
    1,
    "Fetch",
    range(4, 19),
    failed=lambda request, code, text: _failed_as_whole(request, code, text),
    decode=decode,
    encode=encode_fetch,
    ends_with_client=True,
    counts_errors=True,
)
def fetch(request: Request) -> Message | Awaitable[Message]:
    """Give batches."""
    partitions = request.broker.partitions
    named = ((one.topic, one.topic_id, one.number) for one in request.body.wanted)
    return partitions.when_open(partitions.closed(named), lambda: _fetch(request))


def _fetch(request: Request) -> Message | Awaitable[Message]:
    body: FetchBody = request.body
    session_id, epoch = body.session_id, body.session_epoch
    # If a partition is named twice, the last one counts, as in Kafka.
    wanted = list({one.key: one for one in body.wanted}.values())
    uses_ids = request.version >= _FIRST_WITH_IDS
    sessions = request.broker.fetch_sessions
    session: FetchSession | None = None
    is_first = True
    if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        if session_id != NO_SESSION:
            sessions.end(session_id)
        if epoch == INITIAL_EPOCH and wanted:
            session = sessions.begin(uses_ids=uses_ids)
            if session is not None:
                session.update(wanted, ())
    else:
        session = sessions.go_on(session_id, epoch, uses_ids=uses_ids)
        session.update(wanted, body.forgotten)
        is_first = False
    pending = _Fetch(request, session, wanted, is_first=is_first)
    if pending.has_to_read:
        return pending.read_first(body.max_wait_ms)
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
        self._min_bytes = min(request.body.min_bytes, self._max_bytes)
        self._partitions: dict[WantedPartition, Partition] = {}
        self._done: asyncio.Future[None] | None = None
        self._to_read: list[tuple[WantedPartition, Callable[[], object]]] = []
        self._read_before: set[WantedPartition] = set()
        self._reads = self._read()

    def _looked_at(self) -> list[WantedPartition]:
        """Return the partitions that are to be looked at: of a session those that may have news, after its first."""
        if self._session is not None and not self._is_first:
            for wanted in self._wanted:
                # They were read before the wait, but are not answered yet.
                self._session.keep(wanted)
            self._wanted = self._session.take_news()
        return self._wanted

    @property
    def is_enough(self) -> bool:
        """Whether there is as much as the client wants, an error, or nothing that could be waited for."""
        return (
            not (self._wanted if self._session is None else len(self._session))
            or any(read.failed or read.has_more for read in self._reads)
            or sum(read.size_bytes for read in self._reads) >= self._min_bytes
        )

    def _read(self) -> list[_Read]:
        left, at_least_one = self._max_bytes, True
        reads = []
        for wanted in self._looked_at():
            read = self._read_one(wanted, left, at_least_one=at_least_one)
            if read.size_bytes:
                at_least_one = False
                left = max(0, left - read.size_bytes)
            reads.append(read)
        if self._session is not None:
            for wanted, read in zip(self._wanted, reads, strict=True):
                if read.size_bytes or read.failed or read.has_more or not left:
                    self._session.keep(wanted)
        return reads

    def _read_one(self, wanted: WantedPartition, max_bytes: int, *, at_least_one: bool) -> _Read:
        try:
            partition = self._request.broker.partitions.named(wanted.topic, wanted.topic_id, wanted.number)
            partition.check_leader_epoch(wanted.leader_epoch)
            if self._session is None:
                self._partitions[wanted] = partition
            else:
                self._session.watch(wanted, partition)
            return self._records(partition, wanted, max_bytes, at_least_one=at_least_one)
        except (OdradekError, OSError) as error:
            return _Read(_error(wanted, code_of(error)), 0, failed=True)

    def _records(self, partition: Partition, wanted: WantedPartition, max_bytes: int, *, at_least_one: bool) -> _Read:
        log = partition.log
        end, stable, start = log.log_end_offset, log.last_stable_offset, log.log_start_offset
        offset = wanted.offset
        if not start <= offset <= end:
            return _Read(_error(wanted, int(ErrorCode.offset_out_of_range)), 0, failed=True)
        is_committed = self._request.body.isolation_level == _READ_COMMITTED
        last = stable if is_committed else end
        most = min(max_bytes, max(0, wanted.max_bytes))
        records: FileRecords | None = None
        aborted: list[Message] | None = [] if is_committed else None
        if offset < last and (most > 0 or at_least_one):
            if is_committed:
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
            # The first batch is larger than what other partitions leave of the answer.
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

    async def read_first(self, max_wait_ms: int) -> Message:
        """Read the transactions, then answer."""
        await self._read_transactions()
        if max_wait_ms > 0 and not self.is_enough:
            return await self.wait(max_wait_ms)
        return await self.converted() if self.is_to_convert else self.answer()

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
            self._reads = self._read()

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
                    self._reads[number] = _Read(_error(self._wanted[number], code_of(error)), 0, failed=True)
        return self.answer()

    def wait(self, max_wait_ms: int) -> Awaitable[Message]:
        """Wait until there is enough, or the time is over; what is appended from now on counts."""
        done = self._done = asyncio.get_running_loop().create_future()
        timer = self._request.broker.clock.after(max_wait_ms, self._finish)
        sizes = {wanted: read.size_bytes for wanted, read in zip(self._wanted, self._reads, strict=True)}
        session, partitions = self._session, list(self._partitions.items())
        if session is not None:
            on_change = session.on_change = lambda wanted: self._woken(wanted, sizes)
        for wanted, partition in partitions:
            partition.wait((self, wanted), lambda wanted=wanted: self._woken(wanted, sizes))  # type: ignore[misc]

        def forget(_: asyncio.Future[None]) -> None:
            timer.cancel()
            if session is not None and session.on_change is on_change:
                session.on_change = None
            for wanted, partition in partitions:
                partition.forget((self, wanted))

        # On the future, not in the task: if the client goes at once, the task does not even begin.
        done.add_done_callback(forget)
        return self._waited(done)

    async def _waited(self, done: asyncio.Future[None]) -> Message:
        await done
        self._reads = self._read()
        await self._read_transactions()
        return await self.converted() if self.is_to_convert else self.answer()

    def _woken(self, wanted: WantedPartition, sizes: dict[WantedPartition, int]) -> None:
        read = self._read_one(wanted, self._max_bytes, at_least_one=True)
        sizes[wanted] = read.size_bytes
        if read.failed or read.has_more or self._to_read or sum(sizes.values()) >= self._min_bytes:
            self._finish()

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def answer(self) -> Message:
        """Return the answer."""
        session = self._session
        responses: list[dict[str, Any]] = []
        for wanted, read in zip(self._wanted, self._reads, strict=True):
            if read.failed:
                self._request.broker.metrics.failed("Fetch", read.answer["error_code"])
            if session is not None:
                told = read.answer["high_watermark"], read.answer["log_start_offset"]
                has_news = read.size_bytes > 0 or read.failed
                if not self._is_first and not session.is_news(wanted, *told, has_more=has_news):
                    continue
                session.answered(wanted, *told, failed=read.failed)
            if not responses or (responses[-1]["topic"], responses[-1]["topic_id"]) != (wanted.topic, wanted.topic_id):
                responses.append({"topic": wanted.topic, "topic_id": wanted.topic_id, "partitions": []})
            responses[-1]["partitions"].append(read.answer)
        return {
            "error_code": NO_ERROR,
            "session_id": NO_SESSION if session is None else session.id,
            "responses": responses,
        }


def _is_old(read: _Read) -> bool:
    records = read.answer["records"]
    return isinstance(records, FileRecords) and records.magic < _CURRENT_MAGIC


def _error(wanted: WantedPartition, code: int) -> Message:
    return {
        "partition_index": wanted.number,
        "error_code": code,
        "high_watermark": -1,
        "last_stable_offset": -1,
        "log_start_offset": -1,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": b"",
    }


def _failed_as_whole(request: Request, code: int, text: str) -> Message:
    """Return the answer that has an error for all of it: only sessions have one."""
    request.broker.metrics.failed("Fetch", code)
    if request.version >= _FIRST_WITH_SESSIONS:
        return {"error_code": code, "session_id": NO_SESSION, "responses": []}
    raise ApiError(ErrorCode(code), text)
