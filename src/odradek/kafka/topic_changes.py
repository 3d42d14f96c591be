"""What a cluster is asked to change: topics are created, extended, deleted, and set otherwise.

Source in Kafka: `KafkaAdminClient`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka import errors
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
)

from odradek.errors import UnknownTopicOrPartitionError
from odradek.kafka.client import BrokerClient
from odradek.kafka.cluster import check
from odradek.kafka.configs import TOPIC_RESOURCE
from odradek.kafka.topics import NOBODY
from odradek.storage.names import TopicPartition

BY_DEFAULT = -1
_SET, _DELETE = 0, 1


def create_topic(
    client: BrokerClient,
    name: str,
    partitions: int = BY_DEFAULT,
    config: Mapping[str, str] | None = None,
    replication_factor: int = BY_DEFAULT,
) -> None:
    """Create a topic, and wait until its partitions have leaders.

    Raises:
        BrokerUnavailableError: The broker refuses it; because it exists, for example.
    """
    kind = CreateTopicsRequest.CreatableTopic
    made = kind(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[kind.CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()],
    )
    timeout_ms = client.settings.timeout_ms
    request = CreateTopicsRequest(topics=[made], timeout_ms=timeout_ms, validate_only=False)
    _change(client, name, f"creating {name}", request, lambda answer: answer.topics)
    _wait_for_leaders(client, name, partitions)


def create_partitions(client: BrokerClient, name: str, total: int) -> None:
    """Add partitions to a topic, up to a total, and wait until they have leaders.

    Raises:
        BrokerUnavailableError: The broker refuses it.
    """
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=total, assignments=None)
    timeout_ms = client.settings.timeout_ms
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=timeout_ms, validate_only=False)
    _change(client, name, f"adding partitions to {name}", request, lambda answer: answer.results)
    _wait_for_leaders(client, name, total)


def alter_topic_config(client: BrokerClient, name: str, changes: Mapping[str, str | None]) -> None:
    """Change settings of a topic; None resets one to its default.

    Raises:
        UnknownTopicOrPartitionError: There is no such topic.
        BrokerUnavailableError: The broker refuses it.
    """
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        kind.AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        for key, value in changes.items()
    ]
    resource = kind(resource_type=TOPIC_RESOURCE, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    _change(client, name, f"settings of {name}", request, lambda answer: answer.responses)


def delete_topic(client: BrokerClient, name: str) -> None:
    """Delete a topic.

    Raises:
        BrokerUnavailableError: The broker refuses it.
    """
    gone = DeleteTopicsRequest.DeleteTopicState(name=name)
    request = DeleteTopicsRequest(topics=[gone], timeout_ms=client.settings.timeout_ms)
    _change(client, name, f"deleting {name}", request, lambda answer: answer.responses)


def delete_records(client: BrokerClient, partition: TopicPartition, before_offset: int) -> None:
    """Delete the records of a partition before an offset.

    Raises:
        BrokerUnavailableError: The broker refuses it.
    """
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    asked = kind.DeleteRecordsPartition(partition_index=partition.partition, offset=before_offset)
    topics = [kind(name=partition.topic, partitions=[asked])]
    request = DeleteRecordsRequest(topics=topics, timeout_ms=client.settings.timeout_ms)
    what = f"deleting records of {partition}"

    def ask() -> None:
        # The leader may be another one than before.
        client.topics([partition.topic])
        check(client.ask(request, client.leader(partition)).topics[0].partitions[0].error_code, what)

    client.attempt(what, ask)


def _change(client: BrokerClient, topic: str, what: str, request: Any, results: Callable[[Any], Iterable[Any]]) -> None:
    def ask() -> None:
        # The controller may be another one than before.
        client.topics(())
        for result in results(client.ask(request, client.controller())):
            if result.error_code == errors.UnknownTopicOrPartitionError.errno:
                # For a question this is worth another attempt.
                raise UnknownTopicOrPartitionError(topic, path=client.name)
            if result.error_code:
                kind = errors.for_code(result.error_code)
                raise kind(f"{what}: {result.error_message or kind.description}")

    client.attempt(what, ask)


def _wait_for_leaders(client: BrokerClient, name: str, partitions: int) -> None:
    def wait() -> None:
        found = client.topics([name]).get(name)
        leaders = [] if found is None else [part.leader for part in found.partitions.values()]
        if len(leaders) < max(1, partitions) or NOBODY in leaders:
            raise errors.LeaderNotAvailableError(name)

    client.attempt(f"waiting for leaders of {name}", wait)
