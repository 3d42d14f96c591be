"""Reads the requests of Fetch, by hand: the reader of all messages makes an object of each partition first.

    limits, isolation level, session, topics: (name or id, partitions: (number, offset, limit, epochs)), forgotten ones

Tests compare what is read with what kio reads, in all versions.

Source in Kafka: `FetchRequest.json`.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple
from uuid import UUID

from odradek.broker.fetch_sessions import FINAL_EPOCH, NO_SESSION, WantedPartition
from odradek.broker.protocol import FETCH_KEY, RequestHeader, is_flexible
from odradek.records.kernels.frames import WireReader

_CONSUMER = -1
FIRST_WITH_IDS = 13
_FIRST_WITH_LOG_START = 5
_FIRST_WITH_SESSIONS = 7
_FIRST_WITH_EPOCH = 9
_FIRST_WITH_RACK = 11
_FIRST_WITH_LAST_EPOCH = 12
_FIRST_WITHOUT_REPLICA = 15
_REPLICA_STATE_TAG = 1


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
    replica_id: int = _CONSUMER


@cache
def _layouts(version: int) -> tuple[struct.Struct, struct.Struct, bool]:
    """Return the fields before the topics, those of a partition, and whether lengths are compact.

    What is not used is padding.
    """
    replica = "" if version >= _FIRST_WITHOUT_REPLICA else "i"
    session = "ii" if version >= _FIRST_WITH_SESSIONS else ""
    epoch = "i" if version >= _FIRST_WITH_EPOCH else ""
    last_epoch = "4x" if version >= _FIRST_WITH_LAST_EPOCH else ""
    start = "8x" if version >= _FIRST_WITH_LOG_START else ""
    head, partition = f">{replica}iiib{session}", f">i{epoch}q{last_epoch}{start}i"
    return struct.Struct(head), struct.Struct(partition), is_flexible(FETCH_KEY, version)


def decode(frame: bytearray, header: RequestHeader) -> FetchBody:
    """Read the body of a request.

    Raises:
        ProtocolError: It does not follow its schema.
    """
    version = header.version
    head, partition, flexible = _layouts(version)
    reader = WireReader(frame, header.body_position, is_flexible=flexible)
    fields = reader.unpack(head)
    replicas = [_CONSUMER if version >= _FIRST_WITHOUT_REPLICA else fields[0]]
    if version < _FIRST_WITHOUT_REPLICA:
        fields = fields[1:]
    max_wait_ms, min_bytes, max_bytes, isolation_level, *session = fields
    session_id, session_epoch = session or (NO_SESSION, FINAL_EPOCH)
    uses_ids, has_epoch = version >= FIRST_WITH_IDS, version >= _FIRST_WITH_EPOCH
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

    def read_replica_state(reader: WireReader) -> None:
        replicas.append(reader.int32())
        reader.int64()  # its epoch
        reader.tags()

    reader.tags({_REPLICA_STATE_TAG: read_replica_state} if version >= _FIRST_WITHOUT_REPLICA else None)
    return FetchBody(
        max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, wanted, forgotten, replicas[-1]
    )
