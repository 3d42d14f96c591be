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
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self, cast

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from odradek.errors import CommitConflictError, OffsetStoreError
from odradek.offsets.store import (
    DEFAULT_TIMEOUT_MS,
    OffsetStore,
    Position,
    Positions,
    StoreAddress,
    new_version,
)
from odradek.storage.names import TopicPartition

_RETRIES = 3
_POSITION_FIELD = re.compile(r"(?P<topic>.+):(?P<partition>[0-9]{1,10})", re.ASCII | re.DOTALL)
_METADATA_SUFFIX = ":metadata"
_OFFSET = re.compile(rb"[0-9]{1,19}")

# ARGV: the expected version or '', the new version, then for each partition its field, offset and metadata or ''.
_COMMIT = """
local current = redis.call('HGET', KEYS[1], 'version') or ''
if current == ARGV[2] then
  return current
end
if current ~= ARGV[1] then
  return current
end
for i = 3, #ARGV, 3 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
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
        host: Where Redis listens.
        port: Its port.
        group: The group's name; the key is `odradek:offsets:GROUP`.
        db: The number of the database.
        user: For Redis's access lists.
        password: The password of that user, or of the server.
        tls: Whether the connection is encrypted.
        timeout_ms: How long a call may take, including attempts to reconnect.
    """

    def __init__(
        self,
        host: str,
        port: int,
        group: str,
        *,
        db: int = 0,
        user: str | None = None,
        password: str | None = None,
        tls: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        self.address = f"{'rediss' if tls else 'redis'}://{host}:{port}/{db}?group={group}"
        self.key = f"odradek:offsets:{group}"
        attempt_s = timeout_ms / 1000 / (_RETRIES + 2)
        self._redis = redis.Redis(
            host=host,
            port=port,
            db=db,
            username=user,
            password=password,
            ssl=tls,
            socket_timeout=attempt_s,
            socket_connect_timeout=attempt_s,
            retry=Retry(ExponentialBackoff(cap=attempt_s / 2, base=0.02), _RETRIES),
        )
        self._commit = self._redis.register_script(_COMMIT)

    @classmethod
    def from_address(cls, address: StoreAddress) -> Self:
        """Open `redis://[user:password@]host:port/db?group=g`."""
        host, _, port = address.hosts.rpartition(":") if ":" in address.hosts else (address.hosts, "", "6379")
        db = address.path.strip("/") or "0"
        group = address.take("group")
        if not host or not group or not port.isdecimal() or not db.isdecimal():
            raise OffsetStoreError(f"{address.text}: Redis's address is redis://host:port/db?group=name")
        timeout_ms = address.take_timeout_ms()
        address.refuse_the_rest()
        return cls(
            host.strip("[]"),
            int(port),
            group,
            db=int(db),
            user=address.user,
            password=address.password,
            tls=address.scheme == "rediss",
            timeout_ms=timeout_ms,
        )

    def load(self) -> Positions:
        """Return the positions in the hash, all of the same commit."""
        with self._errors():
            fields = cast("dict[bytes, bytes]", self._redis.hgetall(self.key))
        return self._parse(fields)

    def commit(self, positions: Mapping[TopicPartition, Position], *, expected: Positions) -> Positions:
        """Run the script: compare the version, write everything."""
        version = new_version()
        arguments = [expected.version or "", version]
        for (topic, partition), position in positions.items():
            metadata = position.metadata()
            text = json.dumps(metadata, ensure_ascii=False, separators=(",", ":")) if metadata else ""
            arguments += [f"{topic}:{partition}", str(position.offset), text]
        with self._errors():
            found = cast("bytes", self._commit(keys=[self.key], args=arguments)).decode()
        if found != version:
            raise CommitConflictError(self.address, expected.version, found or None)
        return expected.merged(positions, version)

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (redis.RedisError, OSError) as error:
            raise OffsetStoreError(f"{self.address}: {error}") from error

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
                    int(value) if _OFFSET.fullmatch(value) else value,
                    metadata.get(field, {}),
                    where=f"{self.address}, {field}",
                )
                for field, value in offsets.items()
            },
            version,
        )

    def _topic_partition(self, field: str) -> TopicPartition:
        match = _POSITION_FIELD.fullmatch(field)
        if match is None:
            raise OffsetStoreError(
                f"{self.address}: the hash {self.key} has a field {field!r:.100}, not topic:partition"
            )
        return TopicPartition(match["topic"], int(match["partition"]))

    def _parse_metadata(self, field: str, value: bytes) -> Any:
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            raise OffsetStoreError(f"{self.address}, {field}: {error}") from error
