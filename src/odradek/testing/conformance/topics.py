"""Topics and their settings: CreateTopics, CreatePartitions, DeleteTopics, DeleteRecords, and the APIs of settings."""

from __future__ import annotations

from typing import Any

from odradek.testing.conformance.administration import APPEND, DELETE, SUBTRACT, TOPIC, alter, described, grow
from odradek.testing.conformance.target import UNUSED_ID, Target, Topic, batch, expect, expect_error

_UNKNOWN_RESOURCE = 99
_DYNAMIC, _DEFAULT = 1, 5


def _create(target: Target, name: str, *, version: int = 7, validate_only: bool = False, **fields: Any) -> Any:
    asked = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": [], **fields}
    if not validate_only:
        target.owns(name)
    return target.call("CreateTopics", version, topics=[asked], validate_only=validate_only).topics[0]


def _code_of_create(target: Target, wanted: str, **fields: Any) -> None:
    name = fields.pop("name", None) or target.name()
    expect_error("error", _create(target, name, **fields).error_code, wanted)


def real_counts_and_settings_are_told(target: Target) -> None:
    """From v5 on the answer tells how many partitions and replicas there are, and the topic's settings."""
    configs = [{"name": "retention.ms", "value": "1234"}]
    found = _create(target, target.name(), num_partitions=3, configs=configs)
    expect_error("error", found.error_code, "NONE")
    expect("partitions and replicas", (found.num_partitions, found.replication_factor), (3, 1))
    told = {one.name: one.value for one in found.configs}
    expect("retention.ms and cleanup.policy", (told["retention.ms"], told.get("cleanup.policy")), ("1234", "delete"))


def defaults_are_applied(target: Target) -> None:
    """From v4 on -1 stands for the broker's numbers of partitions and replicas."""
    found = _create(target, target.name(), num_partitions=-1, replication_factor=-1)
    expect_error("error", found.error_code, "NONE")
    expect("partitions and replicas", (found.num_partitions > 0, found.replication_factor > 0), (True, True))


def validate_only_makes_nothing(target: Target) -> None:
    """With `validate_only` a topic is not created."""
    name = target.name()
    expect_error("error", _create(target, name, validate_only=True).error_code, "NONE")
    expect("it exists", target.has_topic(name), False)


def a_topic_that_exists(target: Target) -> None:
    """A topic that exists is TOPIC_ALREADY_EXISTS."""
    _code_of_create(target, "TOPIC_ALREADY_EXISTS", name=target.topic().name)


def a_name_that_collides(target: Target) -> None:
    """A name that differs from another one only by a dot for an underscore is INVALID_TOPIC_EXCEPTION."""
    name = target.name()
    _create(target, f"{name}.a")
    _code_of_create(target, "INVALID_TOPIC_EXCEPTION", name=f"{name}_a")


def an_invalid_name(target: Target) -> None:
    """A name with a slash is INVALID_TOPIC_EXCEPTION."""
    _code_of_create(target, "INVALID_TOPIC_EXCEPTION", name="no/topic")


def no_partitions(target: Target) -> None:
    """A topic of no partitions is INVALID_PARTITIONS."""
    _code_of_create(target, "INVALID_PARTITIONS", num_partitions=0)


def no_replicas(target: Target) -> None:
    """A topic of no replicas is INVALID_REPLICATION_FACTOR."""
    _code_of_create(target, "INVALID_REPLICATION_FACTOR", replication_factor=0)


def too_many_replicas(target: Target) -> None:
    """More replicas than brokers are INVALID_REPLICATION_FACTOR."""
    _code_of_create(target, "INVALID_REPLICATION_FACTOR", replication_factor=1000)


def an_unknown_setting(target: Target) -> None:
    """A setting that topics do not have is INVALID_CONFIG."""
    _code_of_create(target, "INVALID_CONFIG", configs=[{"name": "no.such.setting", "value": "1"}])


def a_wrong_value(target: Target) -> None:
    """A value that a setting cannot have is INVALID_CONFIG."""
    _code_of_create(target, "INVALID_CONFIG", configs=[{"name": "retention.ms", "value": "long"}])


def an_assignment_to_an_unknown_broker(target: Target) -> None:
    """An assignment to a broker that does not exist is INVALID_REPLICA_ASSIGNMENT."""
    assignments = [{"partition_index": 0, "broker_ids": [99_999]}]
    fields = {"num_partitions": -1, "replication_factor": -1, "assignments": assignments}
    _code_of_create(target, "INVALID_REPLICA_ASSIGNMENT", **fields)


def a_topic_named_twice(target: Target) -> None:
    """A topic that is named twice in one request is an INVALID_REQUEST."""
    one = {"name": target.name(), "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    found = target.call("CreateTopics", 7, topics=[one, one]).topics
    expect("errors", {topic.error_code.name for topic in found}, {"invalid_request"})


# -- deleting


def an_unknown_topic_is_not_deleted(target: Target) -> None:
    """A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""
    (found,) = target.call("DeleteTopics", 5, topic_names=[target.name()]).responses
    expect_error("error", found.error_code, "UNKNOWN_TOPIC_OR_PARTITION")


def an_unknown_topic_id_is_not_deleted(target: Target) -> None:
    """From v6 on an id that no topic has is UNKNOWN_TOPIC_ID."""
    (found,) = target.call("DeleteTopics", 6, topics=[{"name": None, "topic_id": UNUSED_ID}]).responses
    expect_error("error", found.error_code, "UNKNOWN_TOPIC_ID")


def a_topic_is_deleted_by_its_id(target: Target) -> None:
    """From v6 on a topic may be deleted by its id, and the answer has its name."""
    topic = target.topic()
    (found,) = target.call("DeleteTopics", 6, topics=[{"name": None, "topic_id": topic.id}]).responses
    expect_error("error", found.error_code, "NONE")
    expect("name", found.name, topic.name)


# -- partitions and records


def fewer_partitions_are_invalid(target: Target) -> None:
    """As many partitions as there are, or fewer, are INVALID_PARTITIONS."""
    topic = target.topic(2)
    for count in (2, 1, 0):
        expect_error(f"error of {count}", grow(target, topic.name, count), "INVALID_PARTITIONS")


def partitions_of_an_unknown_topic(target: Target) -> None:
    """CreatePartitions of a topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""
    expect_error("error", grow(target, target.name(), 2), "UNKNOWN_TOPIC_OR_PARTITION")


def all_records_are_deleted(target: Target) -> None:
    """Offset -1 deletes all records."""
    topic = target.topic()
    target.produced(topic, batch(b"a", b"b"))
    expect("low watermark", target.delete_records(topic, -1).low_watermark, 2)


def records_beyond_the_end_are_not_deleted(target: Target) -> None:
    """An offset after the high watermark is OFFSET_OUT_OF_RANGE."""
    expect_error("error", target.delete_records(target.topic(), 9).error_code, "OFFSET_OUT_OF_RANGE")


def records_of_an_unknown_topic(target: Target) -> None:
    """DeleteRecords of a topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""
    expect_error(
        "error", target.delete_records(Topic(target.name(), UNUSED_ID), 0).error_code, "UNKNOWN_TOPIC_OR_PARTITION"
    )


# -- settings


def only_the_settings_asked_for(target: Target) -> None:
    """DescribeConfigs gives only the settings that are asked for, and none that does not exist."""
    found = described(target, TOPIC, target.topic().name, "cleanup.policy", "no.such.setting")
    expect("settings", [one.name for one in found.configs], ["cleanup.policy"])


def all_settings(target: Target) -> None:
    """Null asks for all settings; each has a value, a source and a type."""
    configs = {one.name: one for one in described(target, TOPIC, target.topic().name).configs}
    expect("missing", {"cleanup.policy", "retention.ms", "max.message.bytes"} - set(configs), set())
    policy = configs["cleanup.policy"]
    # A list by default.
    expect("cleanup.policy", (policy.value, policy.config_source, policy.config_type), ("delete", _DEFAULT, 7))


def where_a_setting_comes_from(target: Target) -> None:
    """A setting of the topic itself has the source 1, and its synonyms the default."""
    found = described(
        target, TOPIC, target.topic(retention_ms=5000).name, "retention.ms", include_synonyms=True
    ).configs[0]
    expect("value and source", (found.value, found.config_source), ("5000", _DYNAMIC))
    expect("first synonym", (found.synonyms[0].name, found.synonyms[0].source), ("retention.ms", _DYNAMIC))


def settings_of_an_unknown_topic(target: Target) -> None:
    """The settings of a topic that does not exist are UNKNOWN_TOPIC_OR_PARTITION."""
    expect_error("error", described(target, TOPIC, target.name()).error_code, "UNKNOWN_TOPIC_OR_PARTITION")


def settings_of_something_unknown(target: Target) -> None:
    """A resource of a type that does not exist is an INVALID_REQUEST."""
    expect_error("error", described(target, _UNKNOWN_RESOURCE, "a").error_code, "INVALID_REQUEST")


def a_setting_is_set_and_deleted(target: Target) -> None:
    """A setting can be set, and deleted, after which it has its default."""
    name = target.topic().name
    expect_error("set", alter(target, TOPIC, name, {"retention.ms": "5000"}), "NONE")
    target.until("it is set", lambda: described(target, TOPIC, name, "retention.ms").configs[0].value == "5000")
    expect_error("delete", alter(target, TOPIC, name, {"retention.ms": None}, DELETE), "NONE")
    target.until("it is gone", lambda: described(target, TOPIC, name, "retention.ms").configs[0].value != "5000")


def a_list_grows_and_shrinks(target: Target) -> None:
    """To a setting that is a list, values can be added and taken away."""
    name = target.topic().name
    expect_error("append", alter(target, TOPIC, name, {"cleanup.policy": "compact"}, APPEND), "NONE")
    target.until("it is added", lambda: "compact" in described(target, TOPIC, name, "cleanup.policy").configs[0].value)
    expect_error("subtract", alter(target, TOPIC, name, {"cleanup.policy": "delete"}, SUBTRACT), "NONE")
    target.until(
        "it is taken away", lambda: described(target, TOPIC, name, "cleanup.policy").configs[0].value == "compact"
    )


def what_is_no_list_does_not_grow(target: Target) -> None:
    """To append to a setting that is no list is INVALID_CONFIG."""
    code = alter(target, TOPIC, target.topic().name, {"retention.ms": "5"}, APPEND)
    expect_error("error", code, "INVALID_CONFIG")


def a_wrong_value_is_not_set(target: Target) -> None:
    """A value that a setting cannot have is INVALID_CONFIG."""
    expect_error("error", alter(target, TOPIC, target.topic().name, {"retention.ms": "long"}), "INVALID_CONFIG")


def a_setting_that_does_not_exist_is_not_set(target: Target) -> None:
    """A setting that topics do not have is INVALID_CONFIG."""
    expect_error("error", alter(target, TOPIC, target.topic().name, {"no.such.setting": "1"}), "INVALID_CONFIG")


def a_setting_of_an_unknown_topic_is_not_set(target: Target) -> None:
    """A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""
    expect_error("error", alter(target, TOPIC, target.name(), {"retention.ms": "1"}), "UNKNOWN_TOPIC_OR_PARTITION")
