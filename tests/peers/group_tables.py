"""What Kafka's tools print of groups, as rows, and the same rows of what `odradek groups describe` prints.

kafka-consumer-groups, kafka-share-groups, kafka-streams-groups:   --describe   [--members] [--state]   --verbose
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from peers.kafka_tools import KafkaTools

_TOOLS = {
    "consumer": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "share": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "streams": "org.apache.kafka.tools.streams.StreamsGroupCommand",
}
_VIEWS = {"offsets": (), "members": ("--members", "--verbose"), "state": ("--state", "--verbose")}
_HEADING = re.compile(r"\S+(?: \(ID\))?")
_SHOWN = {
    "consumer offsets": ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID"),
    "consumer members": (
        *("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "CURRENT-EPOCH", "CURRENT-ASSIGNMENT"),
        *("TARGET-EPOCH", "TARGET-ASSIGNMENT"),
    ),
    "consumer state": ("GROUP", "STATE", "GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"),
    "share offsets": ("GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"),
    "share members": ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "MEMBER-EPOCH", "ASSIGNMENT"),
    "share state": ("GROUP", "STATE", "GROUP-EPOCH", "ASSIGNMENT-EPOCH", "#MEMBERS"),
    "streams offsets": ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "OFFSET-LAG"),
    "streams members": (
        *("GROUP", "TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH", "MEMBER", "MEMBER-PROTOCOL", "MEMBER-EPOCH"),
        *("PROCESS", "CLIENT-ID", "ASSIGNMENTS"),
    ),
    "streams state": ("GROUP", "STATE", "GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"),
}
"""The columns that are compared, by kind and view."""

Tables = dict[str, list[list[str]]]


def tables_of_tools(tools: KafkaTools, servers: str) -> Tables:
    """Returns the rows that Kafka's tools print of all groups, sorted, by kind and view."""
    found = {}
    for kind, main in _TOOLS.items():
        for view, flags in _VIEWS.items():
            more = ("--verbose",) if kind == "streams" and view == "offsets" else flags
            printed = tools.run(main, "--bootstrap-server", servers, "--describe", "--all-groups", *more).check().stdout
            name = f"{kind} {view}"
            found[name] = sorted([row.get(column, "") for column in _SHOWN[name]] for row in _rows(printed))
    return found


def _rows(printed: str) -> Iterator[dict[str, str]]:
    headings: list[tuple[str, int, int | None]] = []
    for line in printed.splitlines():
        if line.startswith("GROUP "):
            starts = [(match[0], match.start()) for match in _HEADING.finditer(line)]
            ends: list[int | None] = [start for _, start in starts[1:]]
            headings = [(name, start, end) for (name, start), end in zip(starts, [*ends, None], strict=True)]
        elif not line.strip():
            headings = []
        elif headings:
            yield {name: line[start:end].strip() for name, start, end in headings}


def tables_of(described: Iterable[Mapping[str, Any]]) -> Tables:
    """Returns the same rows of the JSON lines of `odradek groups describe`."""
    found: dict[str, list[list[object]]] = {name: [] for name in _SHOWN}
    for group in described:
        kind = "consumer" if group["type"] == "classic" else group["type"]
        name = group["group"]
        owners = {(*one,): member["member_id"] for member in group["members"] for one in member["partitions"]}
        for one in group["offsets"]:
            place = (one["topic"], one["partition"])
            if kind == "share":
                found["share offsets"].append([name, *place, one["start_offset"], one["lag"]])
                continue
            row = [name, *place, one["offset"], one["log_end_offset"], one["lag"]]
            found[f"{kind} offsets"].append([*row, owners.get(place)] if kind == "consumer" else row)
        for member in group["members"]:
            found[f"{kind} members"].append(list(_member(kind, group, member)))
        epochs = (group.get("epoch"), group.get("assignment_epoch"))
        found[f"{kind} state"].append([name, group["state"], *epochs, len(group["members"])])
    return {
        view: sorted(["-" if cell is None else str(cell) for cell in row] for row in lines)
        for view, lines in found.items()
    }


def _member(kind: str, group: Mapping[str, Any], member: Mapping[str, Any]) -> Iterator[object]:
    name, member_id, client = group["group"], member["member_id"], member["client_id"]
    if kind == "share":
        yield from (name, member_id, member["client_host"], client, member["epoch"], _partitions(member["partitions"]))
    elif kind == "streams":
        yield from (name, group["assignment_epoch"], member["topology_epoch"], member_id, member["protocol"])
        yield from (member["epoch"], member["process_id"], client)
        texts = [("ACTIVE", member["tasks"]["active"]), ("TARGET-ACTIVE", member["target_tasks"]["active"])]
        yield " ".join(f"{heading}: {_tasks(tasks)}" for heading, tasks in texts)
    else:
        target = member.get("target")
        yield from (name, member_id, member["group_instance_id"] or "", member["client_host"], client)
        yield from (member.get("epoch"), _partitions(member["partitions"]))
        yield from (None, None) if target is None else (group["assignment_epoch"], _partitions(target))


def _partitions(names: Iterable[Any]) -> str:
    topics: dict[str, list[str]] = {}
    for topic, number in names:
        topics.setdefault(topic, []).append(str(number))
    return ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in topics.items())


def _tasks(tasks: Iterable[Any]) -> str:
    parts: dict[str, list[str]] = {}
    for part, number in tasks:
        parts.setdefault(part, []).append(str(number))
    return " ".join(f"{part}:[{','.join(numbers)}];" for part, numbers in parts.items())
