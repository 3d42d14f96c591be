"""The tool that shows readers: groups, with their states, positions and lags."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from odradek.admin.group_rows import group_rows
from odradek.admin.opening import open_admin
from odradek.mcp.answer import Answer, place_number
from odradek.mcp.tool import COUNT, TEXT, Call, shape, tool, untrusted
from odradek.mcp.untrusted import visible_id
from odradek.places.place import Place
from odradek.storage.names import TopicPartition

_SIMPLE_ID = re.compile(r"[\w.-]{1,100}", re.ASCII)


@tool(
    "groups_and_lag",
    "List groups with their states and lags; with a group, its position in each partition and its members.",
    {
        "group": TEXT,
        "topic": {**TEXT, "description": "only groups with a position in this topic"},
        "min_lag": {**COUNT, "description": "only what is at least so far behind"},
    },
    shape(
        "kind:kind type:text? state:text|null? members:count|null? lag:int|null? topic:text? partition:count? "
        "offset:count|null? log_start_offset:count|null? log_end_offset:count|null? last_stable_offset:count|null? "
        "in_flight:count|null? untrusted:ids?",
        kind={"enum": ["group", "position", "member"]},
        ids=untrusted("group:text? member_id:text? client_id:text|null? client_host:text|null?"),
    ),
)
def _groups(call: Call, arguments: dict[str, Any], answer: Answer) -> None:
    group, topic, least = arguments.get("group"), arguments.get("topic"), arguments.get("min_lag")
    with open_admin(os.fspath(call.served.address), call.served.config) as admin:
        rows = group_rows(admin, admin.describe_groups(None if group is None else [group]))
        if group is not None:
            items = list(_of_group(admin.place, rows[0], topic, least, answer))
        else:
            items = [
                _group_item(row)
                for row in sorted(rows, key=lambda row: -(row["lag"] or 0))
                if topic is None or any(one["topic"] == topic for one in row["offsets"])
                if least is None or (row["lag"] or 0) >= least
            ]
            answer.note(f"{len(items)} groups, those with the most lag first")
            for name in (item["untrusted"]["group"] for item in items[:3]):
                # Other names may be anything, and a hint is not for what strangers wrote.
                if _SIMPLE_ID.fullmatch(name):
                    answer.hint("groups_and_lag", "its positions and members", group=name)
    first = place_number(arguments.get("cursor"))
    answer.add_all(items[first:], first, "groups" if group is None else "positions and members")
    if not items and topic is not None:
        answer.note(f"no group has a position in {topic}")


def _group_item(row: dict[str, Any]) -> dict[str, Any]:
    members = None if row["members"] is None else len(row["members"])
    shown = {"kind": "group", "type": row["type"], "state": row["state"], "members": members, "lag": row["lag"]}
    return shown | {"untrusted": {"group": visible_id(row["group"])}}


def _of_group(
    place: Place, row: dict[str, Any], topic: str | None, least: int | None, answer: Answer
) -> Iterator[dict[str, Any]]:
    members = row["members"] or []
    if not members:
        answer.note(f"the group has no members ({row['state']}): nobody reads for it now")
    names = [TopicPartition(one["topic"], one["partition"]) for one in row["offsets"]]
    bounds, stable = place.all_bounds(names), place.all_bounds(names, "read_committed")
    rows = sorted(row["offsets"], key=lambda one: -(one["lag"] or 0))
    if len(rows) > 1 and (rows[0]["lag"] or 0) > 4 * max(1, rows[1]["lag"] or 0) and rows[0].get("offset") is not None:
        most = rows[0]
        answer.hint(
            "aggregate", "which keys it has before it in the partition that is furthest behind",
            topic=most["topic"], partitions=[most["partition"]], group_by=["key"], start_offset=most["offset"], top=3,
        )  # fmt: skip
    for one in rows:
        name = TopicPartition(one["topic"], one["partition"])
        if topic in (None, name.topic) and (least is None or (one["lag"] or 0) >= least):
            item = {
                "kind": "position",
                "topic": name.topic,
                "partition": name.partition,
                "offset": one.get("offset", one.get("start_offset")),
                "lag": one["lag"],
                "log_start_offset": bounds[name].start_offset if name in bounds else None,
                "log_end_offset": one["log_end_offset"],
                "last_stable_offset": stable[name].end_offset if name in stable else None,
                "in_flight": one.get("in_flight"),
            }
            _note_position(answer, name, item)
            yield item
    for member in members:
        ids = {key: visible_id(member.get(key)) for key in ("member_id", "client_id", "client_host")}
        yield {"kind": "member", "untrusted": ids}


def _note_position(answer: Answer, name: TopicPartition, item: dict[str, Any]) -> None:
    where = {"topic": name.topic, "partition": name.partition}
    offset, start, end = item["offset"], item["log_start_offset"], item["log_end_offset"]
    stable = item["last_stable_offset"]
    if offset is None:
        return
    if end is None or start is None:
        answer.note(f"{name}: the partition does not exist any more")
    elif offset < start:
        answer.note(f"{name}: its position {offset} was deleted; auto.offset.reset decides where it goes on")
        answer.hint("describe", "what was deleted", topic=name.topic)
    elif offset > end:
        answer.note(f"{name}: its position {offset} is beyond the end {end}: the log was cut or made again")
        answer.hint("verify", "whether the log lost its end", **where)
    elif offset < end:
        if stable is not None and stable <= offset:
            answer.note(f"{name}: it waits for the transaction that is open since offset {stable}")
            answer.hint("transactions", "whose it is, and whether it hangs", **where)
        answer.hint("get", "the record that it reads next, and those after it", **where, offset=offset, limit=3)
        answer.hint("explain", "whether it is given the record at its position", **where, offset=offset)
