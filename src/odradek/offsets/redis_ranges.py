"""Positions that programs before Odradek kept in Redis: one key, and in it the ranges of offsets that were done.

    RPUSH offsets  events,0,100,120          topic, partition, first offset, offset after the last
                   events:1:40:44            the same, with colons
                   {"topic": "events", "partition": 2, "fromOffset": 0, "untilOffset": 7}
                   OffsetRange(topic: 'events', partition: 3, range: [5 -> 9])

Spark's direct streams (DStreams) gave such ranges with each batch, and their users stored them as they liked: a list, a
set, or one text that is a JSON array or has a range on each line. A partition's position is where its furthest range
ends. The key is only read. The address is `redis://[user:password@]host:port/db?list=KEY`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

import redis

from odradek.errors import OffsetStoreError, OffsetStoreUnavailableError
from odradek.offsets.store import Position, StoreAddress, parse_address
from odradek.storage.names import TopicPartition, invalid_topic_name_reason

_LIST = "list"
_PLAIN = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+)(?P<mark>[,:;|\s])\s*(?P<partition>\d{1,10})(?P=mark)\s*\d{1,19}(?P=mark)\s*(?P<end>\d{1,19})"
)
_OF_SPARK = re.compile(
    r"OffsetRange\(topic: '?(?P<topic>[A-Za-z0-9._-]+)'?, partition: (?P<partition>\d{1,10}), "
    r"range: \[\d{1,19} -> (?P<end>\d{1,19})\]\)"
)
_ENDS = ("untilOffset", "until_offset", "until", "endOffset", "end")


def is_list_of_ranges(address: str) -> bool:
    """Whether an address names such a key."""
    parsed = parse_address(address)
    return parsed.scheme in ("redis", "rediss") and _LIST in parsed.options


def read_ranges(address: str) -> dict[TopicPartition, Position]:
    """Return the positions that a list of ranges stands for.

    Raises:
        OffsetStoreError: The address is wrong, Redis does not answer, or there is something else.
    """
    parsed = parse_address(address)
    key = parsed.take(_LIST) or ""
    texts = list(_texts(parsed, key))
    ends: dict[TopicPartition, int] = {}
    for text in texts:
        for name, end in _ranges(text, f"{parsed.text}, {key}"):
            ends[name] = max(end, ends.get(name, 0))
    return {name: Position(end) for name, end in sorted(ends.items())}


def _texts(address: StoreAddress, key: str) -> Iterator[str]:
    host, _, port = address.hosts.rpartition(":") if ":" in address.hosts else (address.hosts, "", "6379")
    db = address.path.strip("/") or "0"
    if not host or not key or not port.isdecimal() or not db.isdecimal():
        raise OffsetStoreError(f"{address.text}: the address of a list of ranges is redis://host:port/db?list=key")
    timeout_s = address.take_timeout_ms() / 1000
    address.refuse_the_rest()
    client = redis.Redis(
        host=host.strip("[]"),
        port=int(port),
        db=int(db),
        username=address.user,
        password=address.password,
        ssl=address.scheme == "rediss",
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
    )
    try:
        kind = cast("bytes", client.type(key)).decode()
        found: Any
        if kind == "list":
            found = client.lrange(key, 0, -1)
        elif kind in ("set", "zset"):
            found = client.smembers(key) if kind == "set" else client.zrange(key, 0, -1)
        elif kind == "string":
            found = [client.get(key)]
        else:
            reason = "there is no such key" if kind == "none" else f"a {kind} is no list of ranges"
            raise OffsetStoreError(f"{address.text}, {key}: {reason}")
        for text in found:
            yield text.decode(errors="replace")
    except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
        raise OffsetStoreUnavailableError(f"{address.text}: {error}") from error
    except redis.RedisError as error:
        raise OffsetStoreError(f"{address.text}: {error}") from error
    finally:
        client.close()


def _ranges(text: str, where: str) -> Iterator[tuple[TopicPartition, int]]:
    """Yield the partitions of a text, and where their ranges end."""
    text = text.strip()
    if text[:1] in ("{", "["):
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise OffsetStoreError(f"{where}: {text!r:.100} is neither a range nor JSON ({error})") from error
        for entry in _entries(content):
            yield _of_json(entry, where)
        return
    for line in text.splitlines():
        match = _PLAIN.fullmatch(line.strip()) or _OF_SPARK.fullmatch(line.strip())
        if match is None:
            raise OffsetStoreError(f"{where}: {line!r:.100} is no range, such as events,0,100,120")
        yield TopicPartition(match["topic"], int(match["partition"])), int(match["end"])


def _entries(content: Any) -> list[Any]:
    is_list_of_entries = isinstance(content, list) and all(isinstance(entry, (dict, list)) for entry in content)
    return content if is_list_of_entries else [content]


def _of_json(entry: Any, where: str) -> tuple[TopicPartition, int]:
    fields: list[Any] = []
    if isinstance(entry, dict):
        fields = [entry.get("topic"), entry.get("partition"), next((entry[n] for n in _ENDS if n in entry), None)]
    elif isinstance(entry, list) and len(entry) == 4:
        fields = [*entry[:2], entry[3]]
    is_range = len(fields) == 3 and isinstance(fields[0], str) and all(_is_number(field) for field in fields[1:])
    if not is_range or invalid_topic_name_reason(fields[0]):
        example = '{"topic": "events", "partition": 0, "fromOffset": 100, "untilOffset": 120}'
        raise OffsetStoreError(f"{where}: {entry!r:.100} is no range, such as {example}")
    return TopicPartition(fields[0], int(fields[1])), int(fields[2])


def _is_number(field: Any) -> bool:
    return isinstance(field, int | str) and re.fullmatch(r"\d{1,18}", str(field)) is not None
