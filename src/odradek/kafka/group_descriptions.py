"""Groups as their coordinators describe them: a request for each kind.

    classic     DescribeGroups 15              kafka-python's
    consumer    ConsumerGroupDescribe 69       by kio's schemas, as the next two
    share       ShareGroupDescribe 77
    streams     StreamsGroupDescribe 89

Source in Kafka: `DescribeConsumerGroupsHandler`, `DescribeClassicGroupsHandler`, `DescribeShareGroupsHandler`,
`DescribeStreamsGroupsHandler`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.metadata import CoordinatorType

from odradek.inspection.group_description import GroupDescription, GroupMember
from odradek.inspection.groups import assigned_partitions
from odradek.inspection.streams_groups import partitions_of_tasks, tasks_of, topology_of
from odradek.kafka.client import BrokerClient
from odradek.storage.names import TopicPartition

_KEYS = {"consumer": (69, (0, 1)), "share": (77, (1, 1)), "streams": (89, (0, 0))}
"""The number of a kind's request, and its versions."""
_CLASSIC_MEMBER = 0


def describe_groups(client: BrokerClient, kinds: Mapping[str, str]) -> dict[str, GroupDescription]:
    """Return groups as their coordinators describe them; those that cannot be described are left out.

    Args:
        client: The cluster.
        kinds: The kind of each group: `classic`, `consumer`, `share` or `streams`.

    Raises:
        BrokerUnavailableError: The broker did not answer in time.
    """
    found = {}
    for kind in sorted(set(kinds.values())):
        groups = sorted(group_id for group_id, one in kinds.items() if one == kind)
        if kind == "classic":
            found.update(_described(client, groups, lambda ids: DescribeGroupsRequest(groups=ids), _classic))
        elif kind in _KEYS:
            found.update(_described_by_kio(client, kind, groups))
    return found


def _described(
    client: BrokerClient,
    groups: Collection[str],
    request: Callable[[list[str]], Any],
    description: Callable[[Any], GroupDescription],
) -> dict[str, GroupDescription]:
    def ask() -> dict[str, GroupDescription]:
        return {
            str(group.group_id): description(group)
            for node_id, ids in client.by_coordinator(groups, CoordinatorType.GROUP).items()
            for group in client.ask(request(ids), node_id).groups
            if not group.error_code
        }

    return client.attempt("describing groups", ask)


def _described_by_kio(client: BrokerClient, kind: str, groups: Collection[str]) -> dict[str, GroupDescription]:
    # It takes long to import.
    from odradek.kafka.kio_request import KioRequest

    key, versions = _KEYS[kind]
    name = f"{kind.capitalize()}GroupDescribe"

    def request(ids: list[str]) -> KioRequest:
        def build(kio: Any) -> Any:
            message = getattr(kio, f"{name}Request")
            return message(group_ids=tuple(ids), include_authorized_operations=False)

        return KioRequest(name, key, versions, build)

    if not client.supports(request([])):
        return {}
    return _described(client, groups, request, _streams if kind == "streams" else lambda group: _assigned(group, kind))


def _classic(group: Any) -> GroupDescription:
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            assigned_partitions(group.protocol_type, member.member_assignment),
        )
        for member in group.members
    )
    kind, state, protocol = group.protocol_type, group.group_state, group.protocol_data
    return GroupDescription(group.group_id, "classic", kind, state, protocol, members)


def _assigned(group: Any, kind: str) -> GroupDescription:
    """Return a consumer group or a share group."""
    members = tuple(_assigned_member(member, kind) for member in sorted(group.members, key=lambda one: one.member_id))
    assignor = group.assignor_name if members else ""
    epochs = int(group.group_epoch), int(group.assignment_epoch)
    return GroupDescription(str(group.group_id), kind, kind, group.group_state, assignor, members, *epochs)


def _assigned_member(member: Any, kind: str) -> GroupMember:
    is_classic = kind == "consumer" and getattr(member, "member_type", None) == _CLASSIC_MEMBER
    return GroupMember(
        member.member_id,
        getattr(member, "instance_id", None),
        member.client_id,
        member.client_host,
        _partitions(member.assignment),
        protocol="classic" if is_classic else kind,
        epoch=int(member.member_epoch),
        target=_partitions(member.target_assignment) if kind == "consumer" else None,
        topics=tuple(sorted(map(str, member.subscribed_topic_names))),
        topic_regex=getattr(member, "subscribed_topic_regex", None) or None,
    )


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    given = (
        TopicPartition(str(topic.topic_name), int(number))
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )
    return tuple(sorted(given))


def _streams(group: Any) -> GroupDescription:
    topology = topology_of(group.topology)
    members = []
    for member in sorted(group.members, key=lambda one: one.member_id):
        tasks = tasks_of(member.assignment)
        members.append(
            GroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                tuple(partitions_of_tasks(tasks["active"], topology)),
                protocol="classic" if member.is_classic else "streams",
                epoch=int(member.member_epoch),
                topology_epoch=int(member.topology_epoch),
                process_id=member.process_id,
                tasks=tasks,
                target_tasks=tasks_of(member.target_assignment),
            )
        )
    epochs = int(group.group_epoch), int(group.assignment_epoch)
    group_id = str(group.group_id)
    return GroupDescription(
        group_id, "streams", "streams", group.group_state, "", tuple(members), *epochs, topology=topology
    )
