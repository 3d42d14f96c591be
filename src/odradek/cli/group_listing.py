"""How `odradek groups` shows a group to people: tables of its partitions, its members and its topology."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odradek.cli.listing import counted, show_line, show_table
from odradek.coordination.lag import beyond_end

_DESCRIBED = ("TOPIC", "PARTITION", "OFFSET", "LOG_END", "LAG", "MEMBER", "HOST", "CLIENT")
_SHARED = ("TOPIC", "PARTITION", "START", "LOG_END", "LAG", "IN_FLIGHT", "DONE", "DELIVERIES")
_MEMBERS = ("MEMBER", "HOST", "CLIENT", "EPOCH", "PARTITIONS", "TO_GET", "SUBSCRIPTION")
_TASKS = ("MEMBER", "HOST", "CLIENT", "EPOCH", "TOPOLOGY", "ACTIVE", "STANDBY", "WARMUP", "TO_GET")
_OF_MEMBER = ("member_id", "client_host", "client_id")
_MOST_SUBSCRIPTION = 60


def show_group(row: Mapping[str, Any]) -> None:
    """Print a group for people."""
    protocol = f", {row['protocol']}" if row["protocol"] else ""
    members = row["members"]
    count = "" if members is None else f", {counted(len(members), 'member')}"
    epochs = f", epoch {row['epoch']}, assignment {row['assignment_epoch']}" if "epoch" in row else ""
    lag = "-" if row["lag"] is None else row["lag"]
    show_line(f"{row['group']}  {row['state']}, {row['type']}{protocol}{count}{epochs}, lag {lag}")
    if "topology" in row:
        _show_topology(row["topology"])
    if row["type"] == "share":
        _show_table(_SHARED, (list(fields.values())[: len(_SHARED)] for fields in row["offsets"]), {0})
    else:
        _show_offsets(row)
    if row["type"] == "streams":
        _show_table(_TASKS, map(_task_cells, members or ()), {0, 1, 2, 5, 6, 7, 8})
    elif row["type"] != "classic":
        _show_table(_MEMBERS, map(_member_cells, members or ()), {0, 1, 2, 4, 5, 6})


def _show_topology(topology: Mapping[str, Any]) -> None:
    show_line(f"topology, epoch {topology['epoch']}")
    for part in topology["subtopologies"] or ():
        sources = ", ".join((*part["source_topics"], *part["source_regexes"]))
        sinks = ", ".join(part["repartition_sinks"])
        changelogs = ", ".join(part["changelog_topics"])
        text = f"  {part['subtopology_id']}: {sources}"
        show_line(text + (f" -> {sinks}" if sinks else "") + (f" (state in {changelogs})" if changelogs else ""))


def _show_offsets(row: Mapping[str, Any]) -> None:
    members = row["members"] or ()
    owners = {tuple(name): member for member in members for name in member["partitions"]}
    lines: list[Sequence[object]] = []
    for fields in row["offsets"]:
        owner = owners.get((fields["topic"], fields["partition"]))
        lines.append((*fields.values(), *((owner or {}).get(name) for name in _OF_MEMBER)))
    idle = (member for member in members if not member["partitions"])
    lines.extend((*[None] * 5, *(member[name] for name in _OF_MEMBER)) for member in idle)
    _show_table(_DESCRIBED, lines, {0, 5, 6, 7})
    for fields in row["offsets"]:
        if fields["lag"] is not None and fields["lag"] < 0:
            place = f"{fields['topic']}-{fields['partition']}"
            show_line(f"{place}: {beyond_end(fields['offset'], fields['log_end_offset'])}")


def _show_table(headings: Sequence[str], lines: Iterable[Sequence[object]], left: set[int]) -> None:
    shown = [headings, *lines]
    if len(shown) > 1:
        show_table(shown, left=frozenset(left))


def _member_cells(member: Mapping[str, Any]) -> list[object]:
    subscription = ", ".join(member.get("topics", ()))
    if "topic_regex" in member:
        subscription = f"{subscription}, /{member['topic_regex']}/" if subscription else f"/{member['topic_regex']}/"
    if len(subscription) > _MOST_SUBSCRIPTION:
        subscription = f"{subscription[:_MOST_SUBSCRIPTION]}..."
    partitions = (_partitions(member[name]) if name in member else None for name in ("partitions", "target"))
    return [*(member[name] for name in _OF_MEMBER), member.get("epoch"), *partitions, subscription]


def _task_cells(member: Mapping[str, Any]) -> list[object]:
    tasks = [_tasks(member["tasks"][kind]) for kind in ("active", "standby", "warmup")]
    target = sorted({task for kind in member["target_tasks"].values() for task in kind})
    names = (member[name] for name in _OF_MEMBER)
    return [*names, member["epoch"], member["topology_epoch"], *tasks, _tasks(target)]


def _tasks(tasks: Iterable[Sequence[object]]) -> str | None:
    return " ".join(f"{part}_{number}" for part, number in tasks) or None


def _partitions(names: Iterable[Sequence[Any]]) -> str | None:
    """Return partitions by topic: `events:0-2,5 other:1`."""
    topics: dict[str, list[int]] = {}
    for topic, number in names:
        topics.setdefault(topic, []).append(number)
    return " ".join(f"{topic}:{_ranges(numbers)}" for topic, numbers in topics.items()) or None


def _ranges(numbers: Sequence[int]) -> str:
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
