"""Metadata: brokers and topics, by name and by id."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from odradek.testing.conformance.suite import check
from odradek.testing.conformance.target import Target, expect, expect_error

_NOT_ASKED = -(1 << 31)
_BROKER = 4
_UNUSED_ID = UUID("5a3f9c1e-22d4-4c8b-9f10-6f2d1f3f7a01")


def _named(*names: str) -> dict[str, Any]:
    return {"topics": [{"name": name, "topic_id": None} for name in names]}


@check
def null_is_all_topics(target: Target) -> None:
    """From v1 on, null asks for all topics."""
    topic = target.topic()
    names = [one.name for one in target.call("Metadata", 1, topics=None).topics]
    expect("the topic is there", topic.name in names, True)


@check
def empty_is_no_topic(target: Target) -> None:
    """From v1 on, an empty list asks for no topics."""
    target.topic()
    expect("topics", target.call("Metadata", 1, topics=[]).topics, ())


@check
def empty_is_all_topics_in_v0(target: Target) -> None:
    """In v0 an empty list asks for all topics."""
    topic = target.topic()
    names = [one.name for one in target.call("Metadata", 0, topics=[]).topics]
    expect("the topic is there", topic.name in names, True)


@check
def unknown_topic(target: Target) -> None:
    """A topic that does not exist, and may not be created, is UNKNOWN_TOPIC_OR_PARTITION, with its name."""
    name = target.name()
    (topic,) = target.call("Metadata", 12, **_named(name)).topics
    expect_error("error", topic.error_code, "UNKNOWN_TOPIC_OR_PARTITION")
    expect("name and partitions", (topic.name, topic.partitions), (name, ()))


@check
def invalid_topic(target: Target) -> None:
    """A name that no topic may have is INVALID_TOPIC_EXCEPTION."""
    (topic,) = target.call("Metadata", 12, **_named("no/topic")).topics
    expect_error("error", topic.error_code, "INVALID_TOPIC_EXCEPTION")


@check
def topic_by_id(target: Target) -> None:
    """From v12 on, a topic may be asked for by its id."""
    topic = target.topic()
    (found,) = target.call("Metadata", 12, topics=[{"topic_id": topic.id, "name": None}]).topics
    expect_error("error", found.error_code, "NONE")
    expect("name and id", (found.name, found.topic_id), (topic.name, topic.id))


@check
def unknown_topic_id(target: Target) -> None:
    """An id that no topic has is UNKNOWN_TOPIC_ID, and has no name."""
    (found,) = target.call("Metadata", 12, topics=[{"topic_id": _UNUSED_ID, "name": None}]).topics
    expect_error("error", found.error_code, "UNKNOWN_TOPIC_ID")
    expect("name and id", (found.name, found.topic_id), (None, _UNUSED_ID))


@check
def topic_named_twice(target: Target) -> None:
    """A topic that is named twice is answered once."""
    topic = target.topic()
    expect("topics", len(target.call("Metadata", 9, **_named(topic.name, topic.name)).topics), 1)


@check
def known_and_unknown_together(target: Target) -> None:
    """An unknown topic does not spoil the others."""
    topic, unknown = target.topic(), target.name()
    found = {one.name: one.error_code.name for one in target.call("Metadata", 9, **_named(topic.name, unknown)).topics}
    expect("errors", found, {topic.name: "none", unknown: "unknown_topic_or_partition"})


@check
def partitions_have_a_leader(target: Target) -> None:
    """Each partition has a leader that is among the brokers, its replicas and the in-sync ones."""
    topic = target.topic(3)
    answer = target.call("Metadata", 12, **_named(topic.name))
    brokers = {one.node_id for one in answer.brokers}
    partitions = sorted(answer.topics[0].partitions, key=lambda one: one.partition_index)
    expect("partitions", [one.partition_index for one in partitions], [0, 1, 2])
    for one in partitions:
        expect("leader is a broker", one.leader_id in brokers, True)
        expect("leader is a replica and in sync", {one.leader_id} <= {*one.replica_nodes} & {*one.isr_nodes}, True)
        expect("offline replicas", one.offline_replicas, ())


@check
def the_controller_is_a_broker(target: Target) -> None:
    """The controller that clients are told is one of the brokers."""
    answer = target.call("Metadata", 9, topics=[])
    expect("it is a broker", answer.controller_id in {one.node_id for one in answer.brokers}, True)


@check
def the_cluster_has_an_id(target: Target) -> None:
    """The cluster's id is 22 characters."""
    expect("length", len(target.call("Metadata", 9, topics=[]).cluster_id or ""), 22)


@check
def the_broker_can_be_reached_where_it_says(target: Target) -> None:
    """The address that clients are told is one that they can connect to."""
    (broker, *_) = target.call("Metadata", 9, topics=[]).brokers
    with Target(broker.host, broker.port) as other:
        expect("cluster", *(one.call("Metadata", 9, topics=[]).cluster_id for one in (other, target)))


@check
def operations_are_told_if_asked(target: Target) -> None:
    """The operations that are allowed on a topic are told only to who asks."""
    topic = target.topic()
    (found,) = target.call("Metadata", 12, **_named(topic.name)).topics
    expect("not asked for", found.topic_authorized_operations, _NOT_ASKED)
    asked = target.call("Metadata", 12, **_named(topic.name), include_topic_authorized_operations=True)
    # Read, write, create, delete, alter, describe, describe configs, alter configs.
    expect("asked for", asked.topics[0].topic_authorized_operations, 0b110111111000)


@check
def operations_on_the_cluster(target: Target) -> None:
    """The operations that are allowed on the cluster are told to who asks, in v8 to v10."""
    asked = target.call("Metadata", 9, topics=[], include_cluster_authorized_operations=True)
    # Create, alter, describe, cluster action, describe configs, alter configs, idempotent write.
    expect("operations", asked.cluster_authorized_operations, 0b1111110100000 | 1 << 7 | 1 << 8)


@check
def a_topic_may_be_created_by_asking(target: Target) -> None:
    """A topic is created when its metadata is asked for, if the client and the broker allow it."""
    (broker, *_) = target.call("Metadata", 9, topics=[]).brokers
    asked = {"resource_type": _BROKER, "resource_name": str(broker.node_id)}
    found = target.call(
        "DescribeConfigs", 1, resources=[{**asked, "configuration_keys": ["auto.create.topics.enable"]}]
    )
    target.skip_if(found.results[0].configs[0].value == "false", "auto.create.topics.enable is false")
    name = target.name()
    target.owns(name)
    target.call("Metadata", 9, **_named(name), allow_auto_topic_creation=True)
    target.until("the topic is there", lambda: True if target.has_topic(name) else None)


@check
def a_deleted_topic_is_gone(target: Target) -> None:
    """After DeleteTopics a topic is UNKNOWN_TOPIC_OR_PARTITION, and its id UNKNOWN_TOPIC_ID."""
    topic = target.topic()
    target.call("DeleteTopics", 1, topic_names=[topic.name])
    target.until("it is gone", lambda: None if target.has_topic(topic.name) else True)
    (found,) = target.call("Metadata", 12, topics=[{"topic_id": topic.id, "name": None}]).topics
    expect_error("its id", found.error_code, "UNKNOWN_TOPIC_ID")


@check
def internal_topics_say_so(target: Target) -> None:
    """The topic of committed offsets is internal."""
    target.call("OffsetCommit", 8, group_id=target.group(), topics=[])
    (topic,) = target.call("Metadata", 9, **_named("__consumer_offsets")).topics
    expect("is internal", topic.is_internal, True)
