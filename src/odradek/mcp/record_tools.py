"""The tools that show records: find, get, tail and aggregate."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from odradek.errors import OptionError
from odradek.mcp.answer import Answer, place_number
from odradek.mcp.scan import (
    FILTER_FIELDS,
    ISOLATION,
    PARTITION_FIELDS,
    RANGE_FIELDS,
    TIME,
    Query,
    Scan,
    given_ms,
    query,
)
from odradek.mcp.tool import CONTENT, COUNT, RECORD, TEXT, Call, Schema, several, shape, tool, untrusted
from odradek.mcp.untrusted import content, record_item
from odradek.sources.condition import Expression, Row, Value, expression, text_of
from odradek.sources.redaction import Redaction
from odradek.sources.tail import Choice, Tail

_FIELD_BYTES = 400
_MOST_RECORDS = 200
_MOST_TAILED = 64
_MOST_GROUPS = 10_000
_MOST_DISTINCT = 1_000_000
_MOST_TOP = 200
_LONGEST_GROUP = 200

_SHOWN: dict[str, Schema] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": _MOST_RECORDS, "default": 20},
    "field_bytes": {
        "type": "integer",
        "minimum": 0,
        "maximum": 24_000,
        "default": _FIELD_BYTES,
        "description": "how many bytes of a key, a value or a header are shown",
    },
}


def _show(answer: Answer, scan: Scan, arguments: dict[str, Any], shown: Callable[[Row, int], Any]) -> Row | None:
    """Add records to an answer, as many as are wanted and fit; return the first one."""
    limit, most_bytes = arguments.get("limit", 20), arguments.get("field_bytes", _FIELD_BYTES)
    first: Row | None = None
    for row in scan.rows():
        assert scan.cursor is not None
        if len(answer.items) == limit:
            answer.leave_out(f"perhaps more after these {limit}: repeat the call with this cursor", scan.cursor)
            break
        if not answer.add_cut(lambda size, row=row: shown(row, size), most_bytes):  # type: ignore[misc]
            answer.full("more records", scan.cursor)
            break
        first = first or row
    return first


@tool(
    "find",
    "Find records of a topic by a regular expression, a condition on columns, offsets and times; in the order of "
    "partitions and offsets. Says how many offsets it looked at.",
    {**PARTITION_FIELDS, **FILTER_FIELDS, **RANGE_FIELDS, **_SHOWN},
    RECORD,
    ("topic",),
)
def _find(call: Call, arguments: dict[str, Any], answer: Answer) -> None:
    with call.place() as place:
        wanted = query(call, place, arguments)
        scan = Scan(call, place, wanted, answer, arguments.get("cursor"))
        first = _show(answer, scan, arguments, record_item)
        answer.note(f"{scan.searched} offsets of {len(wanted.chosen)} partitions were looked at")
        if first is not None:
            _hint_at_explain(answer, first)
        elif scan.cursor is None and arguments.get("cursor") is None:
            _hint_at_what_is_not_found(answer, wanted, arguments)


def _hint_at_explain(answer: Answer, row: Row) -> None:
    answer.hint(
        "explain", "where it lies, which transaction it is in, and who is given it",
        topic=row.owner.topic, partition=row.owner.partition, offset=row.record.offset,
    )  # fmt: skip


def _hint_at_what_is_not_found(answer: Answer, wanted: Query, arguments: dict[str, Any]) -> None:
    if wanted.isolation == "read_committed":
        kept = {name: value for name, value in arguments.items() if name not in ("isolation", "cursor")}
        answer.hint("find", "it may be in a transaction that was aborted or is open", **kept)
    topic = arguments["topic"]
    if topic != "*" and arguments.get("pattern"):
        answer.hint("find", "it may be in another topic", topic="*", pattern=arguments["pattern"])
    answer.hint("describe", "whether retention or compaction deleted records, and since when", topic=topic)
    answer.hint("verify", "whether bytes are damaged or offsets are missing", topic=topic)
    answer.hint("transactions", "whether transactions were aborted, or are open", topic=topic)


@tool(
    "get",
    "Show the records of one partition from an offset or a time on, or those with a key.",
    {
        "topic": TEXT,
        "partition": {**COUNT, "description": "needed, except with a key"},
        "offset": COUNT,
        "time": TIME,
        "key": TEXT,
        "isolation": ISOLATION,
        "from_byte": {
            **COUNT,
            "description": "the first byte of the value that is shown: next_byte of a cut one",
        },
        **_SHOWN,
        "limit": {**_SHOWN["limit"], "default": 1},
    },
    RECORD,
    ("topic",),
)
def _get(call: Call, arguments: dict[str, Any], answer: Answer) -> None:
    key, offset = arguments.get("key"), arguments.get("offset")
    if (key is None) + (offset is None) + (arguments.get("time") is None) != 2:
        raise OptionError("get: give one of offset, time and key")
    if key is None and "partition" not in arguments:
        raise OptionError("get: an offset or a time needs a partition")
    if key is not None and "key" in call.served.redact:
        raise OptionError("get: keys are redacted")
    given: dict[str, Any] = {"topic": arguments["topic"], "isolation": arguments.get("isolation", "read_uncommitted")}
    if "partition" in arguments:
        given["partitions"] = [arguments["partition"]]
    if key is not None:
        # By the literal, as fast as grep; then exactly.
        given |= {"pattern": re.escape(key), "fields": ["key"]} if key and key.isascii() else {}
    given |= {"start_offset": offset, "since": given_ms(arguments.get("time"))}
    with call.place() as place:
        wanted = query(call, place, given)
        if key is not None:
            wanted = replace(wanted, wants=lambda row: text_of(row.key) == key)
        scan = Scan(call, place, wanted, answer, arguments.get("cursor"))
        shown = {"limit": 1 if key is None else 20, **arguments}
        first = _show(answer, scan, shown, lambda row, size: record_item(row, size, arguments.get("from_byte", 0)))
        partition = arguments.get("partition")
        if first is not None and (offset is None or first.record.offset == offset or "cursor" in arguments):
            _hint_at_explain(answer, first)
        elif offset is not None and partition is not None:
            answer.note(f"no record with offset {offset} is given to this consumer")
            answer.hint("explain", "why", topic=arguments["topic"], partition=partition, offset=offset)
        elif first is None and scan.cursor is None:
            _hint_at_what_is_not_found(answer, wanted, given | ({} if key is None else {"pattern": re.escape(key)}))


@tool(
    "tail",
    "Show the last records of each partition of a topic, in the order of their times.",
    {
        **PARTITION_FIELDS,
        "count": {"type": "integer", "minimum": 1, "maximum": 100, "default": 3, "description": "of each partition"},
        "isolation": ISOLATION,
        "field_bytes": _SHOWN["field_bytes"],
    },
    RECORD,
    ("topic",),
)
def _tail(call: Call, arguments: dict[str, Any], answer: Answer) -> None:
    with call.place() as place:
        chosen = place.choose(arguments["topic"], arguments.get("partitions"))
    if len(chosen) > _MOST_TAILED:
        raise OptionError(f"tail: these are {len(chosen)} partitions; name at most {_MOST_TAILED}")
    choice = Choice(
        tuple({name.topic for name in chosen}),
        tuple(arguments.get("partitions") or ()),
        arguments.get("isolation", "read_uncommitted"),
    )
    redaction, most = Redaction(call.served.redact), arguments.get("field_bytes", _FIELD_BYTES)
    with Tail([call.served.address], choice, report=answer.note, config=call.served.config) as tail:
        found = tail.last(arguments.get("count", 3))
    skipped = min(place_number(arguments.get("cursor")), len(found))
    # The newest ones are wanted most: those before them go into the answer after this one.
    for number, one in enumerate(reversed(found[: len(found) - skipped])):
        row = redaction.row(*one)
        if not answer.add_cut(lambda size, row=row: record_item(row, size), most):  # type: ignore[misc]
            answer.full("earlier ones", f"#{skipped + number}")
            break
    answer.items.reverse()
    if found:
        last = found[-1]
        answer.hint("groups_and_lag", "who has read so far", topic=last.topic_partition.topic)
        answer.hint("find", "earlier records", topic=last.topic_partition.topic, limit=5)


# -- aggregates

_VALUE = re.compile(r"(count|min|max|sum|avg|distinct)(?:\((.+)\))?", re.DOTALL)


@dataclass
class _Group:
    """What is known of one group of records."""

    count: int = 0
    values: dict[str, Any] = field(default_factory=dict)


def _min(before: Any, value: Any) -> Any:
    return value if before is None or _order(value) < _order(before) else before


def _max(before: Any, value: Any) -> Any:
    return value if before is None or _order(value) > _order(before) else before


def _order(value: Any) -> tuple[bool, Any]:
    return isinstance(value, str), value


def _sum(before: Any, value: Any) -> Any:
    return (before or 0) + value if isinstance(value, int | float) else before


def _avg(before: Any, value: Any) -> Any:
    total, count = before or (0, 0)
    return (total + value, count + 1) if isinstance(value, int | float) else before


def _distinct(before: Any, value: Any) -> Any:
    found: set[Any] = set() if before is None else before
    found.add(value)
    return found


_STEPS = {"min": _min, "max": _max, "sum": _sum, "avg": _avg, "distinct": _distinct}


def _result(function: str, found: Any) -> Any:
    if function == "distinct":
        return len(found or ())
    if function == "avg":
        return None if found is None else found[0] / found[1]
    return found


def _value(text: str) -> tuple[str, Expression | None]:
    match = _VALUE.fullmatch(text.strip())
    if match is None or (match[1] == "count") != (match[2] is None):
        raise OptionError(f"aggregate: {text!r} is not count, or min, max, sum, avg or distinct of a column")
    return match[1], None if match[2] is None else expression(match[2])


def _short(value: Value) -> Value:
    """Return a value to keep; a long text stays apart from others by its hash."""
    if (isinstance(value, float) and not math.isfinite(value)) or (isinstance(value, int) and abs(value) >> 256):
        value = str(value)
    if not isinstance(value, str) or len(value) <= _LONGEST_GROUP:
        return value
    digest = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{value[:_LONGEST_GROUP]}... #{digest}"


_GROUP = CONTENT | {"type": ["string", "null", "object", "number", "boolean"]}


@tool(
    "aggregate",
    "Count records, and compute min, max, sum, avg and distinct of columns, of all records that a filter takes or by "
    "groups; the groups with the greatest value come first.",
    {
        **PARTITION_FIELDS,
        "group_by": {
            **several(TEXT),
            "maxItems": 3,
            "description": "columns, fields or functions: partition, value.user.id, is_json(value)",
        },
        "values": {
            **several(TEXT),
            "maxItems": 8,
            "description": "count, or min, max, sum, avg or distinct of a column: min(timestamp); count without it",
        },
        "order_by": {**TEXT, "description": "one of the values; count without it"},
        "top": {"type": "integer", "minimum": 1, "maximum": _MOST_TOP, "default": 20},
        **FILTER_FIELDS,
        **RANGE_FIELDS,
    },
    shape("count:count untrusted:part", part=untrusted("group:group values:object", group=several(_GROUP))),
    ("topic",),
)
def _aggregate(call: Call, arguments: dict[str, Any], answer: Answer) -> None:
    texts = arguments.get("group_by") or []
    by = [expression(text) for text in texts]
    named = {text: _value(text) for text in arguments.get("values") or ()}
    computed = {text: (function, inner) for text, (function, inner) in named.items() if inner is not None}
    order_by = arguments.get("order_by", "count")
    if order_by not in computed and order_by != "count":
        raise OptionError(f"aggregate: order_by={order_by!r} is none of the values")
    groups: dict[tuple[Value, ...], _Group] = {}
    others, kept = 0, 0
    with call.place() as place:
        scan = Scan(call, place, query(call, place, arguments, *texts, *computed), answer, arguments.get("cursor"))
        for row in scan.rows():
            name = tuple(_short(one(row)) for one in by)
            group = groups.get(name)
            if group is None:
                if len(groups) == _MOST_GROUPS:
                    others += 1
                    continue
                group = groups[name] = _Group()
            group.count += 1
            for text, (function, inner) in computed.items():
                value = _short(inner(row))
                if value is None:
                    continue
                if function == "distinct" and value not in group.values.get(text, ()):
                    kept += 1
                    if kept > _MOST_DISTINCT:
                        continue
                group.values[text] = _STEPS[function](group.values.get(text), value)
    part = ", of a part only" if scan.cursor else ""
    answer.note(f"{scan.searched} offsets were looked at; {len(groups)} groups{part}")
    if others:
        answer.leave_out(f"{others} records of more than {_MOST_GROUPS} groups: narrow the filter or group by less")
    if kept > _MOST_DISTINCT:
        answer.leave_out(f"what distinct would have found after {_MOST_DISTINCT} values: narrow the filter")
    rows = [
        (group.count, name, {text: _result(one[0], group.values.get(text)) for text, one in computed.items()})
        for name, group in groups.items()
    ]
    rows.sort(key=lambda row: _rank(row[0] if order_by == "count" else row[2][order_by]), reverse=True)
    _show_groups(answer, rows, arguments)


def _rank(value: Any) -> tuple[bool, bool, Any]:
    return value is not None, isinstance(value, str), value if value is not None else 0


def _show_groups(
    answer: Answer, rows: list[tuple[int, tuple[Value, ...], dict[str, Any]]], arguments: dict[str, Any]
) -> None:
    top = arguments.get("top", 20)
    for number, (count, name, values) in enumerate(rows):
        shown = {
            "group": [_content(one) for one in name],
            "values": {text: _content(value) for text, value in values.items()},
        }
        if number == top or not answer.add({"count": count, "untrusted": shown}):
            answer.leave_out(f"{len(rows) - number} more groups: raise top or limit_bytes, or filter by a condition")
            break


def _content(value: Any) -> Any:
    shown = _short(value)
    return content(shown, _LONGEST_GROUP * 8) if isinstance(shown, str) else shown
