"""Positions where programs before Odradek kept theirs in Redis: one key that holds ranges of offsets.

    wordcount                 [{'topic': 'events', 'partition': 0, 'fromOffset': 100, 'untilOffset': 120}]
    odradek:list:wordcount    {"version": "5f0c...", "positions": {"events": {"0": {"offset": 120, ...}}}}

`offset_ranges` says which forms a text may have. A partition's position is where its furthest range ends. A commit
replaces a text that is a list of Python, or of JSON, by one of the same form, so that a program of then and one of now
can take turns; a key of another form, or one that is a list or a set of Redis, is only read. The second key is ours:
the version of the last commit, and what is known of positions beside their offsets. The version of the group is a
digest of both keys, so a program that knows only the first one causes a conflict too.

The address is `redis://[user:password@]host:port/db?list=KEY`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, cast

from odradek.errors import CommitConflictError, OffsetStoreError
from odradek.offsets.known_beside import Known, format_known, parse_known, positions_with
from odradek.offsets.offset_ranges import OffsetSpan, TextForm, format_ranges, parse_ranges
from odradek.offsets.redis_connection import StoreOfOlderPrograms
from odradek.offsets.store import Position, Positions, StoreAddress, new_version
from odradek.storage.names import TopicPartition

_MOST_BYTES = 16 << 20
"""The longest text that is read: enough for more than 100,000 partitions."""

# KEYS: the list, what is known beside it. ARGV: the most bytes of the text.
_READ = """
local kind = redis.call('TYPE', KEYS[1]).ok
local texts = {}
if kind == 'string' then
  if redis.call('STRLEN', KEYS[1]) > tonumber(ARGV[1]) then
    return {'long', '', {}}
  end
  texts = {redis.call('GET', KEYS[1])}
elseif kind == 'list' then
  texts = redis.call('LRANGE', KEYS[1], 0, -1)
elseif kind == 'set' then
  texts = redis.call('SMEMBERS', KEYS[1])
elseif kind == 'zset' then
  texts = redis.call('ZRANGE', KEYS[1], 0, -1)
end
return {kind, redis.call('GET', KEYS[2]) or '', texts}
"""

# KEYS: as above. ARGV: the expected version or '', the new version, the new text or '', what is known beside it.
_COMMIT = """
local text = redis.call('GET', KEYS[1])
local known = redis.call('GET', KEYS[2])
local current = ''
if text or known then
  current = redis.sha1hex((known or '') .. '\\n' .. (text or ''))
end
if current ~= ARGV[1] then
  return current
end
if ARGV[3] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[3])
end
redis.call('SET', KEYS[2], ARGV[4])
return ARGV[2]
"""


class _Held(NamedTuple):
    """What the keys hold; the form is that of the text, `OTHER` if it cannot be replaced."""

    text: bytes
    form: TextForm
    ranges: dict[TopicPartition, OffsetSpan]
    known: Known
    version: str | None


class RedisRangesStore(StoreOfOlderPrograms):
    """The positions of one key that holds ranges.

    Args:
        address: `redis://[user:password@]host:port/db?list=KEY`.
    """

    option = "list"

    def __init__(self, address: StoreAddress) -> None:
        super().__init__(address)
        self._keys = [self._connection.name, f"odradek:list:{self._connection.name}"]
        self._read = self._connection.client.register_script(_READ)
        self._replace = self._connection.client.register_script(_COMMIT)

    def load(self) -> Positions:
        """Return where the furthest range of each partition ends."""
        held = self._held()
        ends = {name: span.end for name, span in held.ranges.items()}
        return positions_with(held.known, ends, self.address, held.version)

    def commit(self, positions: Mapping[TopicPartition, Position], *, expected: Positions) -> Positions:
        """Replace the text by one whose ranges end at the positions."""
        return expected.merged(positions, self._change(positions, expected))

    def delete(self, partitions: Collection[TopicPartition], *, expected: Positions) -> Positions:
        """Replace the text by one without the ranges of partitions; delete the key if none is left."""
        return expected.without(partitions, self._change(dict.fromkeys(partitions), expected))

    def _change(self, positions: Mapping[TopicPartition, Position | None], expected: Positions) -> str:
        """Set positions, and delete those that are None; return the new version."""
        held = self._held()
        if held.version != expected.version:
            raise CommitConflictError(self.address, expected.version, held.version)
        if held.form is TextForm.OTHER:
            raise OffsetStoreError(
                f"{self.address}: it has ranges in a form that is only read: a store that is written holds a text "
                f"such as {format_ranges({TopicPartition('events', 0): OffsetSpan(100, 120)}, TextForm.PYTHON)}. "
                "`odradek offsets copy` copies the positions to another store"
            )
        ranges = dict(held.ranges)
        for name, position in positions.items():
            if position is None:
                ranges.pop(name, None)
            else:
                start = ranges[name].end if name in ranges else position.offset
                ranges[name] = OffsetSpan(min(start, position.offset), position.offset)
        text = held.text
        if positions:
            text = format_ranges(ranges, held.form).encode() if ranges else b""
        known = format_known(new_version(), held.known, positions)
        version = _version(known, text)
        arguments: list[Any] = [expected.version or "", version, text, known]
        answer = self._connection.within_timeout(lambda: self._replace(keys=self._keys, args=arguments))
        found = cast("bytes", answer).decode()
        # The answer to an earlier attempt may have been lost.
        if found != version:
            raise CommitConflictError(self.address, expected.version, found or None)
        return version

    def _held(self) -> _Held:
        answer = self._connection.within_timeout(lambda: self._read(keys=self._keys, args=[_MOST_BYTES]))
        kind, known, texts = cast("tuple[bytes, bytes, list[bytes]]", answer)
        if kind == b"long" or sum(map(len, texts)) > _MOST_BYTES:
            raise OffsetStoreError(f"{self.address}: the key has more than {_MOST_BYTES >> 20} MB")
        if kind not in (b"none", b"string", b"list", b"set", b"zset"):
            raise OffsetStoreError(f"{self.address}: a {kind.decode()} is no list of ranges")
        form, ranges = TextForm.PYTHON, dict[TopicPartition, OffsetSpan]()
        for each in texts:
            found, form = parse_ranges(each.decode(errors="replace"), self.address)
            for name, span in found:
                ranges[name] = max(span, ranges.get(name, span), key=lambda one: one.end)
        text = b"\n".join(texts)
        version = None if kind == b"none" and not known else _version(known, text)
        beside = parse_known(known, f"{self.address}: {self._keys[1]}")[1] if known else {}
        return _Held(text, form if kind in (b"none", b"string") else TextForm.OTHER, ranges, beside, version)


def _version(known: bytes, text: bytes) -> str:
    return hashlib.sha1(known + b"\n" + text, usedforsecurity=False).hexdigest()
