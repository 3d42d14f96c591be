"""What administrators ask of a broker, as checks use it: topics and groups are changed and deleted, settings made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.testing.conformance.target import Target, Topic, expect_error

TOPIC, BROKER, GROUP = 2, 4, 32
"""Kafka's numbers for what has settings."""
SET, DELETE, APPEND, SUBTRACT = range(4)
"""What IncrementalAlterConfigs does with a setting."""


def create(target: Target, name: str, partitions: int = 1, **fields: Any) -> int:
    """Create a topic; the error."""
    target.owns(name)
    made = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
    return int(target.call("CreateTopics", 5, topics=[{**made, **fields}]).topics[0].error_code)


def grow(target: Target, topic: str, count: int) -> int:
    """Give a topic more partitions, up to a number; the error."""
    asked = [{"name": topic, "count": count, "assignments": None}]
    return int(target.call("CreatePartitions", 3, topics=asked).results[0].error_code)


def delete(target: Target, topic: Topic) -> None:
    """Delete a topic."""
    target.call("DeleteTopics", 1, topic_names=[topic.name])


def delete_group(target: Target, group: str) -> int:
    """Delete a group; the error."""
    return int(target.call("DeleteGroups", 2, groups_names=[group]).results[0].error_code)


def remove_members(target: Target, group: str, *members: tuple[str, str | None]) -> Any:
    """Remove members of a group by their ids and instance ids (LeaveGroup); the answer for each."""
    named = [{"member_id": member, "group_instance_id": instance, "reason": None} for member, instance in members]
    answer = target.call("LeaveGroup", 5, group_id=group, members=named)
    expect_error("LeaveGroup", answer.error_code, "NONE")
    return answer.members


def alter(
    target: Target, kind: int, name: str, settings: Mapping[str, str | None], operation: int = SET, **fields: Any
) -> int:
    """Change settings by IncrementalAlterConfigs; the error."""
    configs = [{"name": one, "config_operation": operation, "value": value} for one, value in settings.items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return int(target.call("IncrementalAlterConfigs", 1, resources=[resource], **fields).responses[0].error_code)


def described(target: Target, kind: int, name: str, *keys: str, **fields: Any) -> Any:
    """Return what DescribeConfigs answers about settings, all if none is named."""
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    return target.call("DescribeConfigs", 4, resources=[asked], **fields).results[0]


def settings(target: Target, kind: int, name: str, *keys: str, **fields: Any) -> dict[str, Any]:
    """Return settings by their names, all if none is named."""
    found = described(target, kind, name, *keys, **fields)
    expect_error("DescribeConfigs", found.error_code, "NONE")
    return {one.name: one for one in found.configs}


def set_group(target: Target, group: str, **config: str) -> None:
    """Set settings of a group, with underscores, and wait until they are told."""
    named = {name.replace("_", "."): value for name, value in config.items()}
    expect_error("settings", alter(target, GROUP, group, named), "NONE")

    def are_told() -> bool:
        return {name: one.value for name, one in settings(target, GROUP, group, *named).items()} == named

    target.until("the settings are told", are_told)
