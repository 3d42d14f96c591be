"""Positions where programs before Odradek kept theirs in Redis: a hash for each topic, its partitions the fields.

    offset:orders:kitchen                   0    20                        plain decimal, the next offset
                                            1    4
    odradek:hash:offset:{topic}:kitchen     known    {"version": "5f0c...", "positions": {"orders": {"0": ...}}}
                                            state    5f0c...               what the last commit has left

Instead of a hash there may be a text; `topic_keys` says which forms it may have, and what is there is written again in
its form. The second key is ours: what is known of positions beside their offsets, and what the last commit has left.
The version of the group is a digest of what is known and of all of the first keys, so a program that knows only these
causes a conflict too.

The address is `redis://[user:password@]host:port/db?hash=KEY&topic=TOPIC`, where KEY may have `{topic}` in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, cast

from odradek.errors import CommitConflictError, OffsetStoreError
from odradek.offsets.known_beside import Known, format_known, parse_known, positions_with
from odradek.offsets.redis_connection import StoreOfOlderPrograms
from odradek.offsets.store import Position, Positions, StoreAddress, decimal_offset, new_version, partition_of
from odradek.offsets.topic_keys import OffsetText, check_topics, keys_by_topic, parse_text, take_topics
from odradek.storage.names import TopicPartition

_MOST_BYTES = 16 << 20
_MOST_FIELDS = 200_000
"""The longest text, and the largest hash, that is read."""

# KEYS: what is known beside the others, and these. Gives a digest of their content, empty if there is none.
_STATE = """
local function state()
  local parts = {redis.call('HGET', KEYS[1], 'known') or ''}
  local any = parts[1] ~= ''
  for i = 2, #KEYS do
    local kind = redis.call('TYPE', KEYS[i]).ok
    local part = kind
    if kind == 'string' then
      part = part .. redis.call('GET', KEYS[i])
    elseif kind == 'hash' then
      local fields = redis.call('HGETALL', KEYS[i])
      local pairs = {}
      for j = 1, #fields, 2 do
        pairs[#pairs + 1] = fields[j] .. '=' .. fields[j + 1]
      end
      table.sort(pairs)
      part = part .. table.concat(pairs, ',')
    end
    any = any or kind ~= 'none'
    parts[i] = part
  end
  return any and redis.sha1hex(table.concat(parts, '\\n')) or ''
end
"""

# ARGV: the most bytes of a text, the most fields of a hash.
_READ = f"""{_STATE}
local found = {{}}
local all = true
for i = 2, #KEYS do
  local kind = redis.call('TYPE', KEYS[i]).ok
  local content = {{}}
  if kind == 'string' and redis.call('STRLEN', KEYS[i]) > tonumber(ARGV[1]) then
    kind = 'long'
  elseif kind == 'hash' and redis.call('HLEN', KEYS[i]) > tonumber(ARGV[2]) then
    kind = 'long'
  elseif kind == 'string' then
    content = {{redis.call('GET', KEYS[i])}}
  elseif kind == 'hash' then
    content = redis.call('HGETALL', KEYS[i])
  end
  all = all and kind ~= 'long'
  found[#found + 1] = kind
  found[#found + 1] = content
end
return {{all and state() or '', redis.call('HGET', KEYS[1], 'known') or '', found}}
"""

# ARGV: the expected digest or '', what is known beside from now on, then changes: the number of a key, its field, and
# the offset or '' to remove it; a text as a whole has the field ''.
_COMMIT = f"""{_STATE}
local current = state()
if redis.call('HGET', KEYS[1], 'known') == ARGV[2] then
  -- It was done, and its answer lost; another program may have written since.
  return {{current, current == redis.call('HGET', KEYS[1], 'state') and 1 or 0}}
end
if current ~= ARGV[1] then
  return {{current, 0}}
end
for i = 3, #ARGV, 3 do
  local key = KEYS[tonumber(ARGV[i])]
  if ARGV[i + 1] ~= '' then
    if ARGV[i + 2] == '' then
      redis.call('HDEL', key, ARGV[i + 1])
    else
      redis.call('HSET', key, ARGV[i + 1], ARGV[i + 2])
    end
  elseif ARGV[i + 2] == '' then
    redis.call('DEL', key)
  else
    redis.call('SET', key, ARGV[i + 2], 'KEEPTTL')
  end
end
redis.call('HSET', KEYS[1], 'known', ARGV[2])
local left = state()
redis.call('HSET', KEYS[1], 'state', left)
return {{left, 1}}
"""


class _Held(NamedTuple):
    """What the keys hold; a topic that has a text is in `texts`."""

    version: str | None
    known: Known
    offsets: dict[TopicPartition, int | bytes]
    texts: dict[str, OffsetText]


class RedisHashStore(StoreOfOlderPrograms):
    """The positions of a hash, or a text, for each topic.

    Args:
        address: `redis://[user:password@]host:port/db?hash=KEY&topic=TOPIC[,TOPIC]`.
    """

    option = "hash"

    def __init__(self, address: StoreAddress) -> None:
        topics = take_topics(address)
        super().__init__(address)
        template = self._connection.name
        self.address = self._connection.address = f"{self._connection.address}&topic={','.join(topics)}"
        self._topics = keys_by_topic(template, topics, self.address)
        self._keys = [f"odradek:hash:{template}", *self._topics.values()]
        self._read = self._connection.client.register_script(_READ)
        self._replace = self._connection.client.register_script(_COMMIT)

    def load(self) -> Positions:
        """Return the offsets of all topics."""
        held = self._held()
        return positions_with(held.known, held.offsets, self.address, held.version)

    def commit(self, positions: Mapping[TopicPartition, Position], *, expected: Positions) -> Positions:
        """Set fields of the hashes, or replace the texts."""
        return expected.merged(positions, self._change(positions, expected))

    def delete(self, partitions: Collection[TopicPartition], *, expected: Positions) -> Positions:
        """Remove fields of the hashes, or parts of the texts; a key of which nothing is left goes."""
        there = [name for name in partitions if name.topic in self._topics]
        return expected.without(partitions, self._change(dict.fromkeys(there), expected))

    def _change(self, positions: Mapping[TopicPartition, Position | None], expected: Positions) -> str:
        """Set positions, and delete those that are None; return the new version."""
        check_topics(self._topics, self.address, positions)
        held = self._held()
        if held.version != expected.version:
            raise CommitConflictError(self.address, expected.version, held.version)
        arguments: list[Any] = [expected.version or "", format_known(new_version(), held.known, positions)]
        for number, topic in enumerate(self._topics, 2):
            changes = {
                name.partition: None if position is None else position.offset
                for name, position in positions.items()
                if name.topic == topic
            }
            if topic not in held.texts:
                for partition, offset in changes.items():
                    arguments += [number, partition, "" if offset is None else offset]
            elif changes:
                arguments += [number, "", held.texts[topic].changed(changes)]
        answer = self._connection.within_timeout(lambda: self._replace(keys=self._keys, args=arguments))
        found, is_done = cast("tuple[bytes, int]", answer)
        if not is_done:
            raise CommitConflictError(self.address, expected.version, found.decode() or None)
        return found.decode()

    def _held(self) -> _Held:
        limits = [_MOST_BYTES, _MOST_FIELDS]
        answer = self._connection.within_timeout(lambda: self._read(keys=self._keys, args=limits))
        version, known, found = cast("tuple[bytes, bytes, list[Any]]", answer)
        offsets: dict[TopicPartition, int | bytes] = {}
        texts: dict[str, OffsetText] = {}
        for topic, kind, content in zip(self._topics, found[::2], found[1::2], strict=True):
            where = f"{self.address}: {self._topics[topic]}"
            if kind == b"string":
                texts[topic] = parse_text(content[0], where)
                offsets.update({TopicPartition(topic, key): offset for key, offset in texts[topic].offsets.items()})
            elif kind == b"hash":
                for field, value in zip(content[::2], content[1::2], strict=True):
                    partition = partition_of(field.decode(errors="replace"))
                    if partition is None:
                        raise OffsetStoreError(f"{where}: the hash has a field {field!r:.100}, which is no partition")
                    offsets[TopicPartition(topic, partition)] = decimal_offset(value)
            elif kind == b"long":
                raise OffsetStoreError(
                    f"{where} has more than {_MOST_BYTES >> 20} MB, or {_MOST_FIELDS:,} fields: these are no offsets"
                )
            elif kind != b"none":
                raise OffsetStoreError(
                    f"{where}: a {kind.decode()} holds no offsets by partition: a hash does, or a text"
                )
        beside = parse_known(known, f"{self.address}: {self._keys[0]}")[1] if known else {}
        return _Held(version.decode() or None, beside, offsets, texts)
