"""Topics and groups of a broker.

Source in Kafka: `KafkaAdminClient`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from kafka.protocol.admin import DescribeLogDirsRequest, DescribeProducersRequest

from odradek.admin.admin import Admin, GroupIdNotFoundError
from odradek.admin.cluster import CONFIG_SOURCES
from odradek.admin.producer import timely
from odradek.errors import OptionError
from odradek.inspection.group_description import GroupDescription
from odradek.inspection.partitions import PartitionSummary
from odradek.kafka.client import MAX_TIMESTAMP, BrokerClient
from odradek.kafka.cluster import check
from odradek.kafka.committed_offset import CommittedOffset
from odradek.kafka.configs import TOPIC_RESOURCE, describe_configs
from odradek.kafka.group_descriptions import describe_groups
from odradek.kafka.groups import commit_offsets, delete_group, list_groups
from odradek.kafka.topic_changes import (
    BY_DEFAULT,
    alter_topic_config,
    create_partitions,
    create_topic,
    delete_records,
    delete_topic,
)
from odradek.kafka.topics import NOBODY, Bounds, TopicDescription
from odradek.places.address import BrokerAddress
from odradek.places.broker import HIDDEN, BrokerPlace
from odradek.records.header import NO_TIMESTAMP
from odradek.storage.formats.producer_snapshot import NONE, ProducerSnapshotEntry
from odradek.storage.names import TopicPartition


class BrokerAdmin(Admin):
    """Topics and groups of a broker.

    Args:
        address: `kafka://[user:password@]host:port[,host:port]`.
        config: Settings of the connection, by Kafka's names.

    Raises:
        BrokerUnavailableError: It does not answer.
        OptionError: The address or a setting is wrong.
    """

    def __init__(self, address: str, config: Mapping[str, str] | None = None) -> None:
        self._place = BrokerPlace(BrokerAddress.parse(address, timely(address, config)))
        self.address = self._place.address
        if self._place.topic is not None:
            raise OptionError(f"{self.address}: a broker's address is kafka://host:port here, without a topic")
        try:
            with self._place.client() as client:
                client.attempt("connecting", client.nodes)
        except BaseException:
            self._place.close()
            raise

    @property
    def place(self) -> BrokerPlace:
        """The broker, to be asked."""
        return self._place

    def summaries(self, topics: Collection[str] | None = None) -> list[PartitionSummary]:
        """Return what is known of each partition without reading it: bounds, the leader's bytes, the greatest time.

        Args:
            topics: The topics; all if None.
        """
        there = self._place.topics()
        leaders = _leaders({name: topic for name, topic in there.items() if topics is None or name in topics})
        unreadable = set[TopicPartition]()
        with self._place.client() as client:
            bounds = client.bounds(sorted(_led(leaders)), "read_uncommitted", unreadable)
            sizes = client.attempt("sizes of partitions", lambda: _sizes(client))
            asked = dict.fromkeys(bounds, MAX_TIMESTAMP)
            newest = client.attempt("looking up times", lambda: client.find_offsets(asked, 0, unreadable))
        found = []
        for name, leader in sorted(leaders.items()):
            start, end = bounds.get(name, (None, None))[:2]
            last = newest[name].timestamp if name in newest else NO_TIMESTAMP
            found.append(
                PartitionSummary(
                    name,
                    start,
                    end,
                    segments=None,
                    size_bytes=sizes.get((leader, name), 0),
                    readable=name not in unreadable,
                    last_timestamp=None if last == NO_TIMESTAMP else last,
                )
            )
        return found

    def settings(self, topic: str) -> list[tuple[str, str | None, str]]:
        """Return the settings of a topic, by name, each with its value (None for a secret) and its source.

        The list is empty if the client may not read them.
        """
        with self._place.client() as client:
            ask = partial(describe_configs, client, TOPIC_RESOURCE, [topic])
            (result,) = client.attempt(f"settings of {topic}", ask)
        if result.error_code in HIDDEN:
            return []
        check(result.error_code, f"settings of {topic}")
        return [
            (one.name, None if one.is_sensitive else one.value, CONFIG_SOURCES.get(one.config_source, "unknown"))
            for one in sorted(result.configs, key=lambda one: str(one.name))
        ]

    def producers(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, list[ProducerSnapshotEntry]]:
        """Return the producers of partitions, from the partitions' leaders; a partition that is refused is left out."""
        leaders = _leaders(self._place.topics())
        found: dict[TopicPartition, list[ProducerSnapshotEntry]] = {}
        with self._place.client() as client:
            if not client.supports(DescribeProducersRequest):
                return {}
            for leader in {leaders[name] for name in partitions if leaders.get(name, NOBODY) != NOBODY}:
                numbers: dict[str, list[int]] = {}
                for name in partitions:
                    if leaders.get(name) == leader:
                        numbers.setdefault(name.topic, []).append(name.partition)
                topics = [
                    DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=numbers[topic])
                    for topic in numbers
                ]
                ask = partial(client.ask, DescribeProducersRequest(topics=topics), leader)
                for answer in client.attempt("looking up producers", ask).topics:
                    for part in answer.partitions:
                        if not part.error_code:
                            found[TopicPartition(answer.name, part.partition_index)] = _entries(part)
        return found

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        config: Mapping[str, str] | None = None,
        replication_factor: int | None = None,
    ) -> None:
        """Create a topic, and wait until its partitions have leaders."""
        count, factor = (BY_DEFAULT if number is None else number for number in (partitions, replication_factor))
        with self._place.client() as client:
            create_topic(client, name, count, config, factor)

    def create_partitions(self, name: str, total: int) -> None:
        """Add partitions to a topic, and wait until they have leaders."""
        with self._place.client() as client:
            create_partitions(client, name, total)

    def alter_topic_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change settings of a topic; the broker itself says what is wrong with one."""
        with self._place.client() as client:
            alter_topic_config(client, name, changes)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics; the error names the first that could not be deleted."""
        self._place.require_topics(names)
        with self._place.client() as client:
            for name in dict.fromkeys(names):
                delete_topic(client, name)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records before an offset of each partition; the error names the first that was refused."""
        with self._place.client() as client:
            for partition, offset in before.items():
                delete_records(client, partition, offset)

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Return where partitions begin and end; those without a leader, or that it cannot read, are left out, too."""
        led = _led(_leaders(self._place.topics()))
        with self._place.client() as client:
            return client.bounds(sorted(led & set(partitions)), "read_uncommitted", set())

    def describe_groups(self, groups: Collection[str] | None = None) -> list[GroupDescription]:
        """Return groups; if a broker cannot describe one, its members are not known."""
        with self._place.client() as client:
            listed = list_groups(client)
            wanted = sorted(listed if groups is None else groups)
            for group_id in wanted:
                if group_id not in listed:
                    raise GroupIdNotFoundError(f"{self.address} has no group {group_id}")
            described = describe_groups(client, {group_id: _type_of(listed[group_id]) for group_id in wanted})
        return [described.get(group_id) or _undescribed(listed[group_id]) for group_id in wanted]

    def reset_offsets(self, group: GroupDescription, offsets: Mapping[TopicPartition, int], *, force: bool) -> None:
        """Commit offsets of a group, or set the start offsets of a share group; the coordinator checks its members."""
        self._check_not_forced(force)
        with self._place.client() as client:
            if group.type == "share":
                from odradek.kafka.share_offsets import set_share_offsets

                set_share_offsets(client, group.group_id, offsets)
            else:
                moved = {name: CommittedOffset(offset, None, "") for name, offset in offsets.items()}
                commit_offsets(client, group.group_id, moved)

    def delete_groups(self, groups: Sequence[str], *, force: bool = False) -> None:
        """Delete groups and their offsets; the error names the first that could not be deleted."""
        self._check_not_forced(force)
        with self._place.client() as client:
            for group_id in dict.fromkeys(groups):
                delete_group(client, group_id)

    def _check_not_forced(self, force: bool) -> None:
        if force:
            raise OptionError(f"{self.address}: --force is for a log directory; a broker knows which members are there")

    def close(self) -> None:
        """Close the connections."""
        self._place.close()


def _leaders(topics: Mapping[str, TopicDescription]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(name, number): part.leader
        for name, topic in topics.items()
        for number, part in topic.partitions.items()
    }


def _led(leaders: Mapping[TopicPartition, int]) -> set[TopicPartition]:
    return {name for name, leader in leaders.items() if leader != NOBODY}


def _sizes(client: BrokerClient) -> dict[tuple[int, TopicPartition], int]:
    """Return the bytes of each partition on each node."""
    return {
        (node_id, TopicPartition(topic.name, part.partition_index)): part.partition_size
        for node_id in client.nodes()
        for folder in client.ask(DescribeLogDirsRequest(topics=None), node_id).results
        for topic in folder.topics
        for part in topic.partitions
    }


def _entries(part: Any) -> list[ProducerSnapshotEntry]:
    """Return what DescribeProducers says of a partition."""
    return [
        ProducerSnapshotEntry(
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            NONE,
            NONE,
            one.last_timestamp,
            one.coordinator_epoch,
            one.current_txn_start_offset,
        )
        for one in part.active_producers
    ]


def _type_of(listed: Any) -> str:
    # Before version 5 of ListGroups there were only groups of the classic protocol.
    return str(listed.group_type or "classic")


def _undescribed(listed: Any) -> GroupDescription:
    state = listed.group_state or "Unknown"
    return GroupDescription(listed.group_id, _type_of(listed), listed.protocol_type, state, members=None)
