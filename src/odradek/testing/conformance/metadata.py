"""Metadata: brokers and topics, by name and by id."""

from __future__ import annotations

from typing import Any

from odradek.testing.conformance.administration import BROKER, delete, settings
from odradek.testing.conformance.target import UNUSED_ID, Target, expect, expect_error

_NOT_ASKED = -(1 << 31)
_BROKER = 4


def _named(*names: str) -> dict[str, Any]:
    return {"topics": [{"name": name, "topic_id": None} for name in names]}


def null_is_all_topics(target: Target) -> None:
    """From v1 on, null asks for all topics."""
    topic = target.topic()
    names = [one.name for one in target.call("Metadata", 1, topics=None).topics]
    expect("the topic is there", topic.name in names, True)


def empty_is_no_topic(target: Target) -> None:
    """From v1 on, an empty list asks for no topics."""
    target.topic()
    expect("topics", target.call("Metadata", 1, topics=[]).topics, ())


def empty_is_all_topics_in_v0(target: Target) -> None:
    """In v0 an empty list asks for all topics."""
    topic = target.topic()
    names = [one.name for one in target.call("Metadata", 0, topics=[]).topics]
    expect("the topic is there", topic.name in names, True)


def unknown_topic(target: Target) -> None:
    """A topic that does not exist, and may not be created, is UNKNOWN_TOPIC_OR_PARTITION, with its name."""
    name = target.name()
    (topic,) = target.call("Metadata", 12, **_named(name)).topics
    expect_error("error", topic.error_code, "UNKNOWN_TOPIC_OR_PARTITION")
    expect("name and partitions", (topic.name, topic.partitions), (name, ()))


def invalid_topic(target: Target) -> None:
    """A name that no topic may have is INVALID_TOPIC_EXCEPTION."""
    (topic,) = target.call("Metadata", 12, **_named("no/topic")).topics
    expect_error("error", topic.error_code, "INVALID_TOPIC_EXCEPTION")


def topic_by_id(target: Target) -> None:
    """From v12 on, a topic may be asked for by its id."""
    topic = target.topic()
    (found,) = target.call("Metadata", 12, topics=[{"topic_id": topic.id, "name": None}]).topics
    expect_error("error", found.error_code, "NONE")
    expect("name and id", (found.name, found.topic_id), (topic.name, topic.id))


def unknown_topic_id(target: Target) -> None:
    """An id that no topic has is UNKNOWN_TOPIC_ID, and has no name."""
    (found,) = target.call("Metadata", 12, topics=[{"topic_id": UNUSED_ID, "name": None}]).topics
    expect_error("error", found.error_code, "UNKNOWN_TOPIC_ID")
    expect("name and id", (found.name, found.topic_id), (None, UNUSED_ID))


def topic_named_twice(target: Target) -> None:
    """A topic that is named twice is answered once."""
    topic = target.topic()
    expect("topics", len(target.call("Metadata", 9, **_named(topic.name, topic.name)).topics), 1)


def known_and_unknown_together(target: Target) -> None:
    """An unknown topic does not spoil the others."""
    topic, unknown = target.topic(), target.name()
    found = {one.name: one.error_code.name for one in target.call("Metadata", 9, **_named(topic.name, unknown)).topics}
    expect("errors", found, {topic.name: "none", unknown: "unknown_topic_or_partition"})


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


def the_controller_is_a_broker(target: Target) -> None:
    """The controller in the answer is one of the brokers."""
    answer = target.call("Metadata", 9, topics=[])
    expect("it is a broker", answer.controller_id in {one.node_id for one in answer.brokers}, True)


def the_cluster_has_an_id(target: Target) -> None:
    """The cluster's id is 22 characters."""
    expect("length", len(target.call("Metadata", 9, topics=[]).cluster_id or ""), 22)


def the_broker_can_be_reached_where_it_says(target: Target) -> None:
    """Clients can connect to the address in the answer."""
    (broker, *_) = target.call("Metadata", 9, topics=[]).brokers
    with Target(broker.host, broker.port) as other:
        expect("cluster", *(one.call("Metadata", 9, topics=[]).cluster_id for one in (other, target)))


def operations_are_told_if_asked(target: Target) -> None:
    """The operations that are allowed on a topic are shown only to clients that ask."""
    topic = target.topic()
    (found,) = target.call("Metadata", 12, **_named(topic.name)).topics
    expect("not asked for", found.topic_authorized_operations, _NOT_ASKED)
    asked = target.call("Metadata", 12, **_named(topic.name), include_topic_authorized_operations=True)
    # Read, write, create, delete, alter, describe, describe configs, alter configs.
    expect("asked for", asked.topics[0].topic_authorized_operations, 0b110111111000)


def operations_on_the_cluster(target: Target) -> None:
    """The operations that are allowed on the cluster are shown to clients that ask, in v8 to v10."""
    asked = target.call("Metadata", 9, topics=[], include_cluster_authorized_operations=True)
    # Create, alter, describe, cluster action, describe configs, alter configs, idempotent write.
    expect("operations", asked.cluster_authorized_operations, 0b1111110100000 | 1 << 7 | 1 << 8)


def a_topic_may_be_created_by_asking(target: Target) -> None:
    """A topic is created when its metadata is asked for, if the client and the broker allow it."""
    (broker, *_) = target.call("Metadata", 9, topics=[]).brokers
    setting = "auto.create.topics.enable"
    is_off = settings(target, BROKER, str(broker.node_id), setting)[setting].value == "false"
    target.skip_if(is_off, f"{setting} is false")
    name = target.name()
    target.owns(name)
    target.call("Metadata", 9, **_named(name), allow_auto_topic_creation=True)
    target.until("the topic is there", lambda: target.has_topic(name))


def a_deleted_topic_is_gone(target: Target) -> None:
    """After DeleteTopics a topic is UNKNOWN_TOPIC_OR_PARTITION, and its id UNKNOWN_TOPIC_ID."""
    topic = target.topic()
    delete(target, topic)
    target.until("it is gone", lambda: not target.has_topic(topic.name))
    (found,) = target.call("Metadata", 12, topics=[{"topic_id": topic.id, "name": None}]).topics
    expect_error("its id", found.error_code, "UNKNOWN_TOPIC_ID")


def a_deleted_topic_is_told_once_before_it_is_created_again(target: Target) -> None:
    """A topic that was just deleted is UNKNOWN_TOPIC_OR_PARTITION, also to a client that may create it."""
    topic = target.topic()
    delete(target, topic)

    def asked() -> Any | None:
        # The broker may learn of the deletion a little later than the controller that answered.
        (found,) = target.call("Metadata", 10, **_named(topic.name), allow_auto_topic_creation=True).topics
        return None if not found.error_code and found.topic_id == topic.id else found

    found = target.until("the topic is deleted", asked)
    expect_error("error", found.error_code, "UNKNOWN_TOPIC_OR_PARTITION")


def internal_topics_say_so(target: Target) -> None:
    """The topic of committed offsets is internal."""
    target.call("OffsetCommit", 8, group_id=target.group(), topics=[])
    (topic,) = target.call("Metadata", 9, **_named("__consumer_offsets")).topics
    expect("is internal", topic.is_internal, True)
