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
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Self, TypeVar, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from odradek.errors import CommitConflictError, OffsetStoreError, OffsetStoreUnavailableError
from odradek.offsets.store import (
    DEFAULT_TIMEOUT_MS,
    OffsetStore,
    Position,
    Positions,
    StoreAddress,
    new_version,
)
from odradek.storage.names import TopicPartition

_RETRY_S = 0.1
_ATTEMPTS = 5
"""How many attempts have time at least, where Redis says nothing."""
_POSITION_FIELD = re.compile(r"(?P<topic>.+):(?P<partition>[0-9]{1,10})", re.ASCII | re.DOTALL)
_METADATA_SUFFIX = ":metadata"
T = TypeVar("T")
_OFFSET = re.compile(rb"[0-9]{1,19}")

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
        self._timeout_s = timeout_ms / 1000
        attempt_s = self._timeout_s / _ATTEMPTS
        self._redis = redis.Redis(
            host=host,
            port=port,
            db=db,
            username=user,
            password=password,
            ssl=tls,
            socket_timeout=attempt_s,
            socket_connect_timeout=attempt_s,
            retry=Retry(NoBackoff(), 0),
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
        return self._parse(cast("dict[bytes, bytes]", self._within_timeout(lambda: self._redis.hgetall(self.key))))

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
        answer = self._within_timeout(lambda: self._commit(keys=[self.key], args=arguments))
        found = cast("bytes", answer).decode()
        if found != version:
            raise CommitConflictError(self.address, expected.version, found or None)

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()

    def _within_timeout(self, attempt: Callable[[], T]) -> T:
        """Repeat an attempt while Redis cannot be reached, until the time is over."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return attempt()
            except redis.AuthenticationError as error:
                raise OffsetStoreError(f"{self.address}: {error}") from error
            except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
                # The last attempt may take as long as the others.
                if time.monotonic() + self._timeout_s / _ATTEMPTS > deadline:
                    raise OffsetStoreUnavailableError(f"{self.address}: {error}") from error
                time.sleep(_RETRY_S)
            except redis.RedisError as error:
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
