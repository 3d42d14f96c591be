"""Groups with their offsets, lag and members, as plain values: what listings, the console and programs show of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from odradek.admin.admin import Admin
from odradek.coordination.lag import total_lag
from odradek.inspection.group_description import GroupDescription, GroupMember, SharedPartition
from odradek.kafka.committed_offset import CommittedOffset
from odradek.kafka.topics import Bounds
from odradek.storage.names import TopicPartition


def group_rows(admin: Admin, described: Collection[GroupDescription]) -> list[dict[str, Any]]:
    """Return what can be told of each group, as JSON lines of `odradek groups describe` have it."""
    place = admin.place
    shared = place.shared_offsets([group.group_id for group in described if group.type == "share"])
    committed = place.group_offsets([group.group_id for group in described if group.type != "share"])
    known: list[Mapping[TopicPartition, Any]] = [*shared.values(), *committed.values()]
    partitions = {name for offsets in known for name in offsets}
    partitions.update(name for group in described for member in group.members or () for name in member.partitions)
    bounds = admin.bounds(partitions)
    return [
        _row(group, committed.get(group.group_id, {}), shared.get(group.group_id, {}), bounds) for group in described
    ]


def _row(
    group: GroupDescription,
    committed: Mapping[TopicPartition, CommittedOffset],
    shared: Mapping[TopicPartition, SharedPartition],
    bounds: Mapping[TopicPartition, Bounds],
) -> dict[str, Any]:
    """Return what is told of a group; `offsets` of a share group has the fields of its partitions."""

    def end_of(name: TopicPartition) -> int | None:
        known = bounds.get(name)
        return None if known is None else known.end_offset

    if group.type == "share":
        offsets = [_shared_fields(name, one, end_of(name)) for name, one in sorted(shared.items())]
    else:
        given = {name for member in group.members or () for name in member.partitions}
        offsets = [_offset_fields(name, committed.get(name), end_of(name)) for name in sorted(given | committed.keys())]
    lags = [fields["lag"] for fields in offsets if fields["lag"] is not None]
    row: dict[str, Any] = {
        "group": group.group_id,
        "type": group.type,
        "protocol_type": group.protocol_type,
        "state": group.state,
        "protocol": group.protocol,
        "lag": total_lag(lags) if lags else None,
    }
    if group.epoch is not None:
        row |= {"epoch": group.epoch, "assignment_epoch": group.assignment_epoch}
    if group.topology is not None:
        parts = group.topology.subtopologies
        row["topology"] = {
            "epoch": group.topology.epoch,
            "subtopologies": None if parts is None else [part._asdict() for part in parts],
        }
    row["offsets"] = offsets
    row["members"] = None if group.members is None else [_member_fields(member) for member in group.members]
    return row


def _offset_fields(name: TopicPartition, position: CommittedOffset | None, end: int | None) -> dict[str, Any]:
    offset = None if position is None else position.offset
    lag = None if offset is None or end is None else end - offset
    return {"topic": name.topic, "partition": name.partition, "offset": offset, "log_end_offset": end, "lag": lag}


def _shared_fields(name: TopicPartition, shared: SharedPartition, end: int | None) -> dict[str, Any]:
    batches = None if shared.batches is None else [one._asdict() for one in shared.batches]
    return {
        "topic": name.topic,
        "partition": name.partition,
        "start_offset": shared.start_offset,
        "log_end_offset": end,
        "lag": shared.lag,
        "in_flight": shared.in_flight,
        "done": shared.done,
        "deliveries": shared.deliveries,
        "batches": batches,
    }


def _member_fields(member: GroupMember) -> dict[str, Any]:
    """Return the fields that a member of its protocol has."""
    fields = {name: value for name, value in member._asdict().items() if value is not None or name in _ALWAYS}
    return fields | {name: [list(one) for one in fields[name]] for name in ("partitions", "target") if name in fields}


_ALWAYS = ("group_instance_id",)


def position_of(fields: Mapping[str, Any]) -> int | None:
    """Return the position of a group in a partition, one of its `offsets`: of a share group its start offset."""
    position: int | None = fields["offset"] if "offset" in fields else fields["start_offset"]
    return position


def owners_of(row: Mapping[str, Any]) -> dict[TopicPartition, str]:
    """Return the client id of the member that each partition of a group is assigned to."""
    members = row["members"] or ()
    return {TopicPartition(*name): member["client_id"] for member in members for name in member["partitions"]}
