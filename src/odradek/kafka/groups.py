"""The groups of a cluster, as all of its coordinators have them.

`group_descriptions` has the requests that describe them, `share_offsets` those about the offsets of share groups.

Source in Kafka: `KafkaAdminClient`.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any

from kafka import errors
from kafka.protocol.admin import DeleteGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.metadata import CoordinatorType

from odradek.kafka.client import BrokerClient
from odradek.kafka.cluster import check
from odradek.kafka.committed_offset import CommittedOffset
from odradek.kafka.group import check_commit, commit_request, fetch_offsets
from odradek.storage.names import TopicPartition


def list_groups(client: BrokerClient) -> dict[str, Any]:
    """Return what ListGroups says of each group that the client may describe."""

    def ask() -> dict[str, Any]:
        found = {}
        for node_id in client.nodes():
            response = client.ask(ListGroupsRequest(min_version=0, max_version=5), node_id)
            check(response.error_code, "groups")
            found.update({group.group_id: group for group in response.groups})
        return found

    return client.attempt("listing groups", ask)


def committed_offsets(
    client: BrokerClient, groups: Collection[str], *, require_stable: bool = False
) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    """Return the offsets of groups; one in an open transaction is not committed yet.

    Args:
        client: The cluster.
        groups: The groups.
        require_stable: Whether to wait for an open transaction that is about to replace an offset.

    Raises:
        BrokerUnavailableError: The broker did not answer in time, or a transaction was open all the time.
    """

    def ask() -> dict[str, dict[TopicPartition, CommittedOffset]]:
        found = {}
        for node_id, ids in client.by_coordinator(groups, CoordinatorType.GROUP).items():
            version = client.newest_version(OffsetFetchRequest)
            asked = functools.partial(client.ask, node_id=node_id)
            found.update(fetch_offsets(ids, asked, version, require_stable=require_stable))
        return found

    return client.attempt("offsets of groups", ask)


def commit_offsets(client: BrokerClient, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
    """Commit offsets of a group without members.

    Raises:
        BrokerUnavailableError: The broker did not answer in time, or the coordinator refuses it.
    """

    def ask() -> None:
        node_id = client.coordinator(group, CoordinatorType.GROUP)
        check_commit(client.ask(commit_request(group, offsets), node_id))

    client.attempt(f"position of {group}", ask)


def delete_group(client: BrokerClient, group: str) -> None:
    """Delete a group and its offsets.

    Raises:
        BrokerUnavailableError: The coordinator refuses it: it has members, or does not exist.
    """

    def ask() -> None:
        node_id = client.coordinator(group, CoordinatorType.GROUP)
        (result,) = client.ask(DeleteGroupsRequest(groups_names=[group]), node_id).results
        if result.error_code:
            raise errors.for_code(result.error_code)

    client.attempt(f"group {group}", ask)
