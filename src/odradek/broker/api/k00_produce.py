"""Produce: appends batches to partitions.

A batch is checked and numbered in the memory that it was received into, and written as it is, unless the topic wants
another codec, or an old client did not number its records 0, 1, 2 ... With `acks=0` there is no answer: if something is
wrong, the connection is closed, as Apache Kafka does. `acks=1` and `acks=all` mean the same here, as there are no
replicas: the batch is in the log, and on the disk if `flush.messages` says so.

A request takes one of two ways. If it asks for nothing special, a kernel reads and answers it (`produce_at_once`):
making objects of the request and its answer would take as long as the append. All others go through `produce`. If a
batch of the first kind is refused, or has to wait, the code of `produce` answers, so each error is handled once.

v5 (KIP-112) tells the log start offset, v8 (KIP-467) which records are wrong; v12 (KIP-890) adds partitions to the
transaction by producing to them; v13 (KIP-516) names topics by their ids. Versions 0 to 2 are advertised for old
clients of librdkafka, and refused, as Apache Kafka does (KIP-896).

Source in Kafka: `KafkaApis.handleProduceRequest`, `ReplicaManager.handleProduceAppend`, `ProduceRequest`.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.data_responses import encode_produce
from odradek.broker.errors import NO_ERROR, ApiError, code_of, message_of
from odradek.broker.partitions import Partition
from odradek.broker.protocol import Encoded, Message, RequestHeader, decode_header, is_flexible
from odradek.broker.transactions.verification import ClientLevel, is_verified
from odradek.broker.turns import each
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.coordination.transactions.rules import ProducerIdAndEpoch
from odradek.errors import BrokerError, CorruptMessageError, OdradekError, ProtocolError, RecordRefusedError
from odradek.records.append.batching import AppendResult
from odradek.records.compression import Codec
from odradek.records.header import (
    LOG_OVERHEAD,
    MAGIC_POSITION,
    SIZE_POSITION,
    V2_HEADER_BYTES,
    base_sequence_of,
    codec_of,
    is_transactional,
    producer_of,
)
from odradek.records.kernels.frames import WireReader
from odradek.records.kernels.plain_produce import PlainProduce, plain_produce
from odradek.storage.names import is_internal

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.connection import Connection

_FIRST_WITH_IDS = 13
_FIRST_WITH_ZSTD = 7
_SIZE = struct.Struct(">i")
_SMALLEST_MESSAGE = 14
_ADMIN_CLIENT = "__admin_client"
_MOST_AT_ONCE = 50
"""So many batches are appended in one turn of the loop."""

_STEP = 16
"""After so many batches others may have their turn."""

_WITHOUT_START = (
    ErrorCode.corrupt_message,
    ErrorCode.kafka_storage_error,
    ErrorCode.message_too_large,
    ErrorCode.record_list_too_large,
)
"""The errors of an append which Kafka answers without the log's first offset."""


class _Batch(NamedTuple):
    """A batch, and where it goes."""

    partition: Partition
    number: int
    records: memoryview


class ProduceBody(NamedTuple):
    """The body of a request; the records are the memory that they were received into.

    `topics` has them by topic, a name and an id or None, and by partition; `is_transactional` says whether there is a
    batch of a transaction.
    """

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: dict[tuple[str, UUID | None], dict[int, memoryview | None]]
    is_transactional: bool


def decode(frame: bytearray, header: RequestHeader) -> ProduceBody:
    """Read the body of a request without copying the records.

    Raises:
        ProtocolError: It does not follow its schema.
    """
    reader = WireReader(frame, header.body_position, is_flexible=is_flexible(header.api_key, header.version))
    transactional_id = reader.nullable_text()
    acks, timeout_ms = reader.int16(), reader.int32()
    topics, is_transactional = reader.produced(header.version >= _FIRST_WITH_IDS)
    reader.tags()
    return ProduceBody(transactional_id, acks, timeout_ms, topics, is_transactional)


def _failed(request: Request, code: int, text: str) -> Message:
    if request.body.acks == 0:
        # The client would take this answer for the one to its next request.
        raise ProtocolError(f"a Produce request that wants no answer failed: {text}")
    responses = [
        _topic(topic, [_partition(number, code, text) for number in partitions])
        for topic, partitions in request.body.topics.items()
    ]
    return {"responses": responses}


def _topic(topic: tuple[str, UUID | None], partitions: Sequence[Message]) -> Message:
    return {"name": topic[0], "topic_id": topic[1], "partition_responses": partitions}


def _partition(number: int, code: int = NO_ERROR, text: str | None = None, **fields: Any) -> Message:
    return {
        "index": number,
        "error_code": code,
        "base_offset": -1,
        "log_append_time_ms": -1,
        "record_errors": [],
        "error_message": text,
        **fields,
    }


# -- requests that ask for nothing special


def produce_at_once(
    broker: Broker, connection: Connection, frame: bytearray
) -> Encoded | Awaitable[Encoded | None] | None:
    """Append the batches of a request that asks for nothing special, if no partition keeps them waiting.

    Returns:
        The answer; None if nothing was done, so that `produce` has to answer.
    """
    plain = plain_produce(frame)
    if plain is None:
        return None
    authorization = broker.authorization
    batches: list[_Batch] = []
    for topic, number, records in plain.batches:
        partition = broker.partitions.in_use(topic, number)
        if partition is None or not partition.takes_at_once(records) or is_internal(partition.topic_partition.topic):
            return None
        if authorization is not None and not authorization.may_write(connection, partition.topic_partition.topic):
            return None
        batches.append(_Batch(partition, number, records))
    if len(batches) > _MOST_AT_ONCE:
        # The producer's next batches must not overtake these between the turns.
        connection.hold_others()
        return _append_in_turns(plain, broker, connection, frame, batches)
    unsynced: list[asyncio.Future[None]] = []
    results = [_result(batch, unsynced) for batch in batches]
    return _answered(plain, broker, connection, frame, batches, results, unsynced)


async def _append_in_turns(
    plain: PlainProduce, broker: Broker, connection: Connection, frame: bytearray, batches: Sequence[_Batch]
) -> Encoded | None:
    unsynced: list[asyncio.Future[None]] = []
    results = await broker.turns.finish(each(batches, lambda batch: _result(batch, unsynced), _STEP))
    answer = _answered(plain, broker, connection, frame, batches, results, unsynced)
    return answer if isinstance(answer, Encoded) else await answer


def _result(batch: _Batch, unsynced: list[asyncio.Future[None]]) -> Any:
    """Append a batch; return the result, None if it has to wait, or the error. Add the sync that it waits for."""
    partition = batch.partition
    try:
        result: AppendResult | Exception | None = partition.append_at_once(batch.records)
    except (OdradekError, OSError) as error:
        result = error
    if (sync := partition.commits.unsynced) is not None:
        unsynced.append(sync)
    return result


def _answered(
    plain: PlainProduce,
    broker: Broker,
    connection: Connection,
    frame: bytearray,
    batches: Sequence[_Batch],
    results: Sequence[Any],
    unsynced: Sequence[asyncio.Future[None]],
) -> Encoded | Awaitable[Encoded | None]:
    if not all(isinstance(result, AppendResult) for result in results):
        return _answer_one_by_one(broker, connection, frame, batches, results)
    places = [_place(batch.partition, result) for batch, result in zip(batches, results, strict=True)]
    if not unsynced:
        return Encoded(plain.answer(places))
    return _answer_synced(
        unsynced,
        lambda: Encoded(plain.answer(places)),
        lambda: _answer_one_by_one(broker, connection, frame, batches, results),
    )


async def _answer_synced(
    unsynced: Iterable[asyncio.Future[None]],
    answer: Callable[[], Encoded],
    answer_one_by_one: Callable[[], Encoded | Awaitable[Encoded | None]],
) -> Encoded | None:
    """Answer when everything that was appended is on the disk; if that fails, partition by partition."""
    try:
        for sync in unsynced:
            await asyncio.shield(sync)
    except (OdradekError, OSError):
        failed = answer_one_by_one()
        return failed if isinstance(failed, Encoded) else await failed
    return answer()


def _answer_one_by_one(
    broker: Broker,
    connection: Connection,
    frame: bytearray,
    batches: Sequence[_Batch],
    results: Sequence[Any],
) -> Encoded | Awaitable[Encoded | None]:
    """Answer a request of which not every batch was appended, or brought to the disk."""
    header = decode_header(frame)
    request = Request(broker, connection, header, decode(frame, header))
    outcomes = (_outcome(batch, result) for batch, result in zip(batches, results, strict=True))
    appended = [[next(outcomes) for _ in numbers] for numbers in request.body.topics.values()]
    if any(not isinstance(one, dict) for topic in appended for one in topic):
        return _encode_later(header, _answer_later(request, appended))
    answer = _answer(request, appended)
    assert answer is not None
    return encode_produce(header, answer)


def _outcome(batch: _Batch, result: AppendResult | Exception | None) -> Message | Awaitable[Message]:
    """Return the answer to an append, given its result, its error, or None if it could not be made at once."""
    if isinstance(result, Exception):
        return _refused(batch.partition, batch.number, result)
    if result is None:
        return _append_later(batch, batch.partition.append_in_order(batch.records))
    return _append_later(batch, _synced(batch.partition, result))


async def _encode_later(header: RequestHeader, answer: Awaitable[Message | None]) -> Encoded | None:
    message = await answer
    return None if message is None else encode_produce(header, message)


# -- all requests


@api(
    0,
    "Produce",
    range(3, 14),
    decode=decode,
    encode=encode_produce,
    at_once=produce_at_once,
    failed=_failed,
    overlaps=True,
    counts_errors=True,
)
def produce(request: Request) -> Message | Awaitable[Message | None] | None:
    """Append batches."""
    body: ProduceBody = request.body
    if body.is_transactional:
        if body.transactional_id is None:
            raise ApiError(ErrorCode.transactional_id_authorization_failed)
        request.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
    partitions = request.broker.partitions
    named = ((*topic, number) for topic, numbers in body.topics.items() for number in numbers)
    closed = list(partitions.closed(named))
    if not closed:
        return _produce(request)
    # The producer's next batches must not overtake these while logs are opened.
    request.connection.hold_others()
    return partitions.when_open(closed, lambda: _produce(request))


def _produce(request: Request) -> Message | Awaitable[Message | None] | None:
    body: ProduceBody = request.body
    if sum(map(len, body.topics.values())) > _MOST_AT_ONCE:
        # Nor must they between the turns.
        request.connection.hold_others()
        return _produce_in_turns(request)
    wanted = [
        [_checked(request, *topic, number, records) for number, records in partitions.items()]
        for topic, partitions in body.topics.items()
    ]
    producer = _transactional_producer(wanted) if body.is_transactional else None
    if producer is None:
        return _append_all(request, wanted, {})
    # The producer's next batches must not overtake these while the coordinator is asked.
    request.connection.hold_others()
    return _verify_and_append(request, producer, wanted)


async def _produce_in_turns(request: Request) -> Message | None:
    turns, topics = request.broker.turns, request.body.topics
    named = [(*topic, number, records) for topic, numbers in topics.items() for number, records in numbers.items()]
    checked = iter(await turns.finish(each(named, lambda one: _checked(request, *one), _STEP)))
    wanted = [[next(checked) for _ in numbers] for numbers in topics.values()]
    producer = _transactional_producer(wanted) if request.body.is_transactional else None
    verified = {} if producer is None else await _verified(request, producer, wanted)

    def append(one: _Batch | Message) -> Message | Awaitable[Message]:
        return _appended_or_refused(one, verified)

    appended = iter(await turns.finish(each([one for topic in wanted for one in topic], append, _STEP)))
    return await _answer_later(request, [[next(appended) for _ in topic] for topic in wanted])


async def _verify_and_append(
    request: Request, producer: ProducerIdAndEpoch, wanted: list[list[_Batch | Message]]
) -> Message | None:
    answer = _append_all(request, wanted, await _verified(request, producer, wanted))
    return await answer if isinstance(answer, Awaitable) else answer


async def _verified(
    request: Request, producer: ProducerIdAndEpoch, wanted: list[list[_Batch | Message]]
) -> dict[Partition, Exception | bool]:
    """Ask the coordinator about a transaction; the result is what `_append_all` takes."""
    level = ClientLevel.of_produce(request.version)
    sequences = {
        one.partition: base_sequence_of(one.records)
        for topic in wanted
        for one in topic
        if isinstance(one, _Batch) and is_transactional(one.records) and not is_verified(one.partition, producer)
    }
    verification = request.broker.verification
    refused = await verification.verify_batches(request.body.transactional_id, producer, sequences, level)
    return {
        partition: refused.get(partition.topic_partition, level is ClientLevel.ADDS_PARTITIONS)
        for partition in sequences
    }


def _transactional_producer(wanted: list[list[_Batch | Message]]) -> ProducerIdAndEpoch | None:
    """Return the producer of a transaction that is not open yet in each of the partitions.

    Raises:
        ApiError: There is more than one producer.
    """
    batches = [one for topic in wanted for one in topic if isinstance(one, _Batch) and is_transactional(one.records)]
    producers = [ProducerIdAndEpoch(*producer_of(one.records)) for one in batches]
    if len(set(producers)) > 1:
        raise ApiError(
            ErrorCode.invalid_producer_id_mapping, "Transactional records contained more than one producer ID"
        )
    unverified = any(not is_verified(one.partition, producers[0]) for one in batches)
    return producers[0] if unverified else None


def _append_all(
    request: Request, wanted: list[list[_Batch | Message]], verified: Mapping[Partition, Exception | bool]
) -> Message | Awaitable[Message | None] | None:
    """Append what is not refused yet.

    Args:
        request: The request.
        wanted: The batches, or why one is refused.
        verified: For the partitions that were verified, why not to append, or whether the epochs increase.
    """
    appended, waits = [], False
    for topic in wanted:
        answers = [_appended_or_refused(one, verified) for one in topic]
        for answer in answers:
            waits = waits or not isinstance(answer, dict)
        appended.append(answers)
    return _answer_later(request, appended) if waits else _answer(request, appended)


async def _answer_later(request: Request, appended: list[list[Any]]) -> Message | None:
    begun = [[one if isinstance(one, dict) else asyncio.ensure_future(one) for one in topic] for topic in appended]
    results = [[one if isinstance(one, dict) else await one for one in topic] for topic in begun]
    return _answer(request, results)


def _answer(request: Request, appended: list[list[Any]]) -> Message | None:
    failed = [partition for topic in appended for partition in topic if partition["error_code"]]
    for partition in failed:
        request.broker.metrics.failed("Produce", partition["error_code"])
        if partition["error_code"] == ErrorCode.kafka_storage_error:
            request.broker.disk_failed(partition["error_message"])
    if request.body.acks == 0:
        if failed:
            request.connection.close()
        return None
    return {
        "responses": [
            _topic(topic, partitions) for topic, partitions in zip(request.body.topics, appended, strict=True)
        ]
    }


def _checked(
    request: Request, name: str, topic_id: UUID | None, number: int, records: memoryview | None
) -> _Batch | Message:
    """Return a batch to be appended, or what is answered if it is refused."""
    try:
        if request.broker.authorization is not None:
            known = name if topic_id is None else request.broker.partitions.topic_name(topic_id)
            request.check(Operation.WRITE, ResourceType.TOPIC, known)
        partition = request.broker.partitions.named(name, topic_id, number)
        return _Batch(partition, number, _check(request, partition.topic_partition.topic, records))
    except OdradekError as error:
        return _refused(None, number, error)


def _appended_or_refused(
    one: _Batch | Message, verified: Mapping[Partition, Exception | bool]
) -> Message | Awaitable[Message]:
    return _append(one, verified) if isinstance(one, _Batch) else one


def _append(batch: _Batch, verified: Mapping[Partition, Exception | bool]) -> Message | Awaitable[Message]:
    """Append a batch to its partition; return what is answered, at once or later."""
    partition, number, data = batch
    bumps = verified.get(partition, False)
    if isinstance(bumps, Exception):
        return _refused(None, number, bumps)
    try:
        if partition in verified:
            partition.lowest_sequences.check(ProducerIdAndEpoch(*producer_of(data)), base_sequence_of(data))
        if not partition.takes_at_once(data):
            return _append_later(batch, partition.append_in_order(data, supports_epoch_bump=bumps))
        result = partition.append_at_once(data, supports_epoch_bump=bumps)
    except (OdradekError, OSError) as error:
        return _refused(partition, number, error)
    if result is None:
        return _append_later(batch, partition.append_in_order(data, supports_epoch_bump=bumps))
    if partition.commits.unsynced is None:
        return _written(batch, result)
    return _append_later(batch, _synced(partition, result))


async def _synced(partition: Partition, result: AppendResult) -> AppendResult:
    await partition.synced()
    return result


async def _append_later(batch: _Batch, appended: Awaitable[AppendResult]) -> Message:
    try:
        return _written(batch, await appended)
    except (OdradekError, OSError) as error:
        return _refused(batch.partition, batch.number, error)


def _written(batch: _Batch, result: AppendResult) -> Message:
    partition, number, data = batch
    if is_transactional(data):
        partition.lowest_sequences.forget(producer_of(data)[0])
    return _appended(number, _place(partition, result))


def _batch_size(records: memoryview) -> int | None:
    """Return how many bytes the first batch has, or None if there is no whole one.

    Raises:
        CorruptMessageError: It cannot be a batch; clients send it again.
    """
    if len(records) < LOG_OVERHEAD:
        return None
    (size,) = _SIZE.unpack_from(records, SIZE_POSITION)
    if size < _SMALLEST_MESSAGE:
        text = f"Record size {size} is less than the minimum record overhead ({_SMALLEST_MESSAGE})"
        raise CorruptMessageError(text)
    if len(records) <= MAGIC_POSITION:
        return None
    if records[MAGIC_POSITION] > 2:
        raise CorruptMessageError(f"Invalid magic found in record: {records[MAGIC_POSITION]}")
    return size + LOG_OVERHEAD if size + LOG_OVERHEAD <= len(records) else None


def _check(request: Request, topic: str, records: memoryview | None) -> memoryview:
    """Return the only batch of a partition's records; an incomplete batch after it is ignored, as in Kafka."""
    version = request.version
    size = None if records is None else _batch_size(records)
    if records is None or size is None:
        raise ApiError(
            ErrorCode.invalid_record, f"Produce requests with version {version} must have at least one record batch"
        )
    if records[MAGIC_POSITION] != 2:
        raise ApiError(
            ErrorCode.invalid_record,
            f"Produce requests with version {version} are only allowed to contain record batches with magic version 2",
        )
    if _batch_size(records[size:]) is not None:
        raise ApiError(
            ErrorCode.invalid_record,
            f"Produce requests with version {version} are only allowed to contain exactly one record batch",
        )
    if size < V2_HEADER_BYTES:
        raise CorruptMessageError(f"a batch of {size} bytes is smaller than its header")
    if version < _FIRST_WITH_ZSTD and codec_of(records) == Codec.ZSTD:
        raise ApiError(
            ErrorCode.unsupported_compression_type,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    if request.body.acks not in (-1, 0, 1):
        raise ApiError(ErrorCode.invalid_required_acks)
    if is_internal(topic) and request.client_id != _ADMIN_CLIENT:
        raise ApiError(ErrorCode.invalid_topic_exception, f"Cannot append to internal topic {topic}")
    return records[:size]


def _place(partition: Partition, result: AppendResult) -> tuple[int, int, int]:
    """Return what is answered to an append: the first offset, the append time or -1, and the log's first offset."""
    append_time_ms = -1 if result.append_time_ms is None else result.append_time_ms
    return result.first_offset, append_time_ms, partition.log.log_start_offset


def _appended(number: int, place: tuple[int, int, int]) -> Message:
    base_offset, append_time_ms, log_start_offset = place
    return {
        "index": number,
        "error_code": NO_ERROR,
        "base_offset": base_offset,
        "log_append_time_ms": append_time_ms,
        "log_start_offset": log_start_offset,
        "record_errors": [],
        "error_message": None,
    }


def _refused(partition: Partition | None, number: int, error: Exception) -> Message:
    wrong = error.record_errors if isinstance(error, RecordRefusedError) else ()
    answered = _partition(number, code_of(error), message_of(error))
    if wrong:
        answered = {
            **answered,
            "record_errors": [{"batch_index": index, "batch_index_error_message": reason} for index, reason in wrong],
        }
    has_start = isinstance(error, BrokerError) and error.error_code not in _WITHOUT_START
    if partition is not None and has_start and not partition.log.is_closed:
        answered = {**answered, "log_start_offset": partition.log.log_start_offset}
    return answered
