"""DescribeQuorum: the controllers, and how far each has the metadata: this node is the only one.

v1 (KIP-836) adds when a controller was last caught up; v2 (KIP-853) the nodes and their folders. This node has no
listener for controllers: clients get the one that they use.

Source in Kafka: `KafkaRaftClient.handleDescribeQuorumRequest`.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message
from odradek.broker.turns import Work, each_partition
from odradek.storage.names import CLUSTER_METADATA_TOPIC


@api(55, "DescribeQuorum", range(3))
def describe_quorum(request: Request) -> Work[Message]:
    """Answer who the controllers are."""
    broker = request.broker
    asked = [(topic.topic_name, one.partition_index) for topic in request.body.topics for one in topic.partitions]
    if asked != [(CLUSTER_METADATA_TOPIC, 0)]:
        code = int(ErrorCode.unknown_topic_or_partition)
        return (yield from _answer(request, lambda _, one: _partition(one.partition_index, code), nodes=[]))
    endpoint = broker.endpoint(request.connection.listener)
    offset = broker.logs.metadata.offset
    now_ms = broker.clock.now_ms()
    voter = {
        "replica_id": broker.node_id,
        "replica_directory_id": None,
        "log_end_offset": offset,
        "last_fetch_timestamp_ms": now_ms,
        "last_fetch_timestamp": now_ms,
        "last_caught_up_timestamp": now_ms,
    }
    # Before there is a log, this is the epoch that Apache Kafka's first election would have.
    epoch = max(broker.logs.metadata.leader_epoch, 1)
    state = {"leader_id": broker.node_id, "leader_epoch": epoch, "high_watermark": offset}
    listener = {"name": endpoint.name, "host": endpoint.host, "port": endpoint.port}
    return (
        yield from _answer(
            request,
            lambda _, one: _partition(one.partition_index, NO_ERROR, **state, current_voters=[voter]),
            nodes=[{"node_id": broker.node_id, "listeners": [listener]}],
        )
    )


def _answer(request: Request, partition: Any, nodes: list[Message]) -> Work[Message]:
    found = yield from each_partition(request.body.topics, "partitions", partition)
    return {
        "error_code": NO_ERROR,
        "error_message": "",
        "topics": [{"topic_name": topic.topic_name, "partitions": partitions} for topic, partitions in found],
        "nodes": nodes,
    }


def _partition(number: int, code: int, **state: Any) -> Message:
    text = ApiError(ErrorCode(code)).reason if code else ""
    empty = {"leader_id": 0, "leader_epoch": 0, "high_watermark": 0, "current_voters": [], "observers": []}
    return {**empty, "partition_index": number, "error_code": code, "error_message": text, **state}
