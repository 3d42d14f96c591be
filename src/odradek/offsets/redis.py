"""Positions in Redis: one hash a group, one atomic script a commit.

    odradek:offsets:GROUP      version              5f0c...
                               events:0             20                           plain decimal, for any reader
                               events:0:metadata    {"batch":"17"}               only if there is any
                               events:1             4

The address is `redis://[user:password@]host:port/db?group=g`; `rediss://` is the same over TLS.

A script compares the version and writes everything, and Redis runs nothing else meanwhile. It also recognises a commit
that has happened although its answer was lost, so a commit can be sent again without harm. Whether a commit survives a
crash of Redis depends on Redis's configuration: `appendonly yes` with `appendfsync always` keeps every acknowledged
commit, the default (snapshots) loses the last minutes. Replicas lag: after a failover the group may be at an older
version, and a commit of a reader that is ahead of it is a conflict.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Self, cast

from odradek.errors import CommitConflictError, OffsetStoreError
from odradek.offsets.redis_connection import RedisConnection
from odradek.offsets.store import (
    OffsetStore,
    Position,
    Positions,
    StoreAddress,
    decimal_offset,
    kept_partition,
    new_version,
)
from odradek.storage.names import TopicPartition

_METADATA_SUFFIX = ":metadata"

# ARGV: the expected version or '', the new version, then for each partition its field, its offset or '' to remove it,
# and its metadata or ''.
_COMMIT = """
local current = redis.call('HGET', KEYS[1], 'version') or ''
if current == ARGV[2] then
  return current
end
if current ~= ARGV[1] then
  return current
end
for i = 3, #ARGV, 3 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[i])
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
  if ARGV[i + 2] == '' then
    redis.call('HDEL', KEYS[1], ARGV[i] .. ':metadata')
  else
    redis.call('HSET', KEYS[1], ARGV[i] .. ':metadata', ARGV[i + 2])
  end
end
redis.call('HSET', KEYS[1], 'version', ARGV[2])
return ARGV[2]
"""


class RedisOffsetStore(OffsetStore):
    """The positions of one group in one Redis hash.

    Args:
        address: `redis://[user:password@]host:port/db?group=g`; the key is `odradek:offsets:GROUP`.
    """

    def __init__(self, address: StoreAddress) -> None:
        self._connection = RedisConnection(address, "group")
        self.address = self._connection.address
        self.key = f"odradek:offsets:{self._connection.name}"
        self._redis = self._connection.client
        self._commit = self._redis.register_script(_COMMIT)

    @classmethod
    def from_address(cls, address: StoreAddress) -> Self:
        """Open the store at an address."""
        return cls(address)

    def load(self) -> Positions:
        """Return the positions in the hash, all of the same commit."""
        return self._parse(
            cast("dict[bytes, bytes]", self._connection.within_timeout(lambda: self._redis.hgetall(self.key)))
        )

    def commit(self, positions: Mapping[TopicPartition, Position], *, expected: Positions) -> Positions:
        """Run the script: compare the version, write everything."""
        version = new_version()
        fields: list[str] = []
        for (topic, partition), position in positions.items():
            metadata = position.metadata()
            text = json.dumps(metadata, ensure_ascii=False, separators=(",", ":")) if metadata else ""
            fields += [f"{topic}:{partition}", str(position.offset), text]
        self._run(expected, version, fields)
        return expected.merged(positions, version)

    def delete(self, partitions: Collection[TopicPartition], *, expected: Positions) -> Positions:
        """Run the script: compare the version, remove the fields."""
        version = new_version()
        self._run(
            expected, version, [text for name in partitions for text in (f"{name.topic}:{name.partition}", "", "")]
        )
        return expected.without(partitions, version)

    def _run(self, expected: Positions, version: str, fields: list[str]) -> None:
        arguments = [expected.version or "", version, *fields]
        answer = self._connection.within_timeout(lambda: self._commit(keys=[self.key], args=arguments))
        found = cast("bytes", answer).decode()
        if found != version:
            raise CommitConflictError(self.address, expected.version, found or None)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _parse(self, fields: Mapping[bytes, bytes]) -> Positions:
        version: str | None = None
        offsets: dict[str, bytes] = {}
        metadata: dict[str, Any] = {}
        for name, value in fields.items():
            field = name.decode(errors="replace")
            if field == "version":
                version = value.decode(errors="replace")
            elif field.endswith(_METADATA_SUFFIX):
                metadata[field.removesuffix(_METADATA_SUFFIX)] = self._parse_metadata(field, value)
            else:
                offsets[field] = value
        return Positions(
            {
                self._topic_partition(field): Position.parse(
                    decimal_offset(value),
                    metadata.get(field, {}),
                    where=f"{self.address}, {field}",
                )
                for field, value in offsets.items()
            },
            version,
        )

    def _topic_partition(self, field: str) -> TopicPartition:
        topic, _, number = field.rpartition(":")
        return kept_partition(topic, number, f"{self.address}: the field {field!r:.100} of the hash {self.key}")

    def _parse_metadata(self, field: str, value: bytes) -> Any:
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            raise OffsetStoreError(f"{self.address}, {field}: {error}") from error
