"""Topics and groups of a broker, through kafka-python's admin client.

kafka-python has no ConsumerGroupDescribe (KIP-848): of a group of that protocol the state, the offsets and the lag are
known, and its members are not.

Source in Kafka: `KafkaAdminClient`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar
from uuid import UUID

from kafka import errors
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.admin._configs import AlterConfigOp
from kafka.protocol.consumer import OffsetSpec
from kafka.structs import TopicPartition as KafkaTopicPartition

from odradek.admin.admin import (
    Admin,
    GroupIdNotFoundError,
    NonEmptyGroupError,
    PartitionDescription,
    TopicDescription,
)
from odradek.admin.producer import timely
from odradek.errors import BrokerError, BrokerUnavailableError, OptionError, UnknownTopicOrPartitionError
from odradek.inspection.groups import GroupDescription, GroupMember
from odradek.inspection.partitions import PartitionSummary
from odradek.kafka.cluster import check_hosts, connection_config
from odradek.kafka.error_names import error_name
from odradek.messages.uuids import ZERO_UUID, format_uuid
from odradek.sources.address import BrokerAddress
from odradek.sources.source import Bounds
from odradek.storage.names import TopicPartition

CLIENT_ID = "odradek"
_LOADING = (
    errors.CoordinatorLoadInProgressError.errno,
    errors.CoordinatorNotAvailableError.errno,
    errors.NotCoordinatorError.errno,
)
_RETRY_S = 0.1
T = TypeVar("T")
_NAMED_ERROR = re.compile(r"\[Error (-?\d+)\] \w+: (.*)", re.DOTALL)


def refusal(error_code: int, message: str | None) -> BrokerError:
    """Return the error for Kafka's error code and a broker's message."""
    known = errors.for_code(error_code)
    error = BrokerError(message or known.description)
    error.error_code, error.error_name = error_code, error_name(error_code)
    return error


@contextmanager
def telling(address: str) -> Iterator[None]:
    """Turn kafka-python's errors, and those of sockets, into ours."""
    try:
        yield
    except errors.BrokerResponseError as error:
        raise refusal(error.errno, f"{address}: {error.description}") from error
    except (errors.KafkaError, OSError) as error:
        raise BrokerUnavailableError(f"{address}: {error or type(error).__name__}") from error


class BrokerAdmin(Admin):
    """Topics and groups of a broker.

    Args:
        address: `kafka://[user:password@]host:port[,host:port]`.
        config: Settings of the connection, by Kafka's names.

    Attributes:
        connection: The settings of the connection, by kafka-python's names.

    Raises:
        BrokerUnavailableError: It does not answer.
        OptionError: The address or a setting is wrong.
    """

    def __init__(self, address: str, config: Mapping[str, str] | None = None) -> None:
        parsed = BrokerAddress.parse(address, timely(address, config))
        if parsed.topic is not None:
            raise OptionError(f"{parsed.text}: a broker's address is kafka://host:port here, without a topic")
        self.address = parsed.text
        self._timeout_s = parsed.settings.timeout_ms / 1000
        own = {"bootstrap_timeout_ms": parsed.settings.timeout_ms, **parsed.settings.connection}
        self.connection = connection_config(parsed.settings.bootstrap_servers, CLIENT_ID, own)
        with self._telling():
            check_hosts(self.connection)
            self._client = KafkaAdminClient(**self.connection)

    def _telling(self) -> AbstractContextManager[None]:
        return telling(self.address)

    def _loaded(self, action: Callable[[], T]) -> T:
        """Ask group coordinators, and again while one of them loads its state."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                with self._telling():
                    return action()
            except BrokerError as error:
                if error.error_code not in _LOADING or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)

    def topic_names(self) -> list[str]:
        """Return the names of the topics, sorted."""
        with self._telling():
            return sorted(self._client.list_topics())

    def _metadata(self, names: Collection[str] | None) -> list[dict[str, Any]]:
        with self._telling():
            topics = self._client.describe_topics(None if names is None else sorted(set(names)))
        for topic in topics:
            if topic["error_code"] == errors.UnknownTopicOrPartitionError.errno:
                raise UnknownTopicOrPartitionError(topic["name"], path=self.address)
            if topic["error_code"]:
                raise refusal(topic["error_code"], f"{self.address}: {topic['name']}")
        return sorted(topics, key=lambda topic: str(topic["name"]))

    def describe_topics(self, names: Collection[str] | None = None) -> list[TopicDescription]:
        """Return topics, each with the settings of its own."""
        topics = self._metadata(names)
        if not topics:
            return []
        with self._telling():
            asked = [ConfigResource(ConfigResourceType.TOPIC, topic["name"]) for topic in topics]
            configs = self._client.describe_configs(asked)["topic"]
        described = []
        for topic in topics:
            partitions = {
                part["partition_index"]: PartitionDescription(
                    part["leader_id"],
                    part.get("leader_epoch", -1),
                    tuple(part["replica_nodes"]),
                    tuple(part["isr_nodes"]),
                )
                for part in sorted(topic["partitions"], key=lambda part: int(part["partition_index"]))
            }
            topic_id = UUID(str(topic.get("topic_id") or ZERO_UUID))
            settings = {name: setting["value"] for name, setting in sorted(configs[topic["name"]].items())}
            described.append(
                TopicDescription(
                    topic["name"],
                    None if topic_id == ZERO_UUID else format_uuid(topic_id),
                    partitions,
                    settings,
                )
            )
        return described

    def summaries(self) -> list[PartitionSummary]:
        """Return what is known of each partition without reading it: bounds, the leader's bytes, the greatest time."""
        leaders = {
            TopicPartition(topic["name"], part["partition_index"]): part["leader_id"]
            for topic in self._metadata(None)
            for part in topic["partitions"]
        }
        bounds = self.bounds(leaders)
        with self._telling():
            sizes = {
                (broker["broker"], TopicPartition(topic["name"], part["partition_index"])): part["partition_size"]
                for broker in self._client.describe_log_dirs()
                for folder in broker["log_dirs"]
                for topic in folder["topics"]
                for part in topic["partitions"]
            }
            times = self._listed(leaders, OffsetSpec.MAX_TIMESTAMP)
        found = []
        for name, leader in sorted(leaders.items()):
            start, end = bounds.get(name, (None, None))
            newest = times.get(name)
            found.append(
                PartitionSummary(
                    name,
                    start,
                    end,
                    segments=None,
                    size_bytes=sizes.get((leader, name), 0),
                    readable=1,
                    last_timestamp=None if newest is None or newest.timestamp < 0 else newest.timestamp,
                )
            )
        return found

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        config: Mapping[str, str] | None = None,
        replication_factor: int | None = None,
    ) -> None:
        """Create a topic, and wait until its partitions have leaders."""
        asked = {
            "num_partitions": -1 if partitions is None else partitions,
            "replication_factor": -1 if replication_factor is None else replication_factor,
            "configs": dict(config or {}),
        }
        with self._telling():
            answer = self._client.create_topics({name: asked}, raise_errors=False)
        for topic in answer["topics"]:
            self._check(topic["error_code"], topic.get("error_message"))
        with self._telling():
            self._client.wait_for_topics([name])

    def create_partitions(self, name: str, total: int) -> None:
        """Add partitions to a topic, and wait until they have leaders."""
        with self._telling():
            answer = self._client.create_partitions({name: total}, raise_errors=False)
        for result in answer.results:
            self._check(result.error_code, result.error_message)
        with self._telling():
            self._client.wait_for_topics([name])

    def alter_topic_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change settings of a topic."""
        operations = {
            setting: (AlterConfigOp.DELETE if value is None else AlterConfigOp.SET, value)
            for setting, value in changes.items()
        }
        resource = ConfigResource(ConfigResourceType.TOPIC, name, operations)
        with self._telling():
            # The broker itself says what is wrong with a setting.
            result = self._client.alter_configs([resource], raise_on_unknown=False)["topic"][name]
        if result != "OK":
            named = _NAMED_ERROR.fullmatch(result)
            self._check(*((int(named[1]), named[2]) if named else (-1, result)))

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics; the error names the first that could not be deleted."""
        self._metadata(names)
        with self._telling():
            answer = self._client.delete_topics(list(dict.fromkeys(names)), raise_errors=False)
        for topic in answer["topics"]:
            self._check(topic["error_code"], f"{topic['name']}: {topic.get('error_message') or ''}")

    def _check(self, error_code: int, message: str | None) -> None:
        if error_code:
            raise refusal(error_code, message)

    def _listed(self, partitions: Collection[TopicPartition], spec: Any) -> dict[TopicPartition, Any]:
        """Return what ListOffsets answers for partitions; without those that have no leader. Raises their errors."""
        if not partitions:
            return {}
        asked = {KafkaTopicPartition(*partition): spec for partition in partitions}
        answered = self._client.list_partition_offsets(asked)
        return {TopicPartition(*partition): answer for partition, answer in answered.items()}

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Return where partitions begin and end."""
        names = {partition.topic for partition in partitions}
        if not names:
            return {}
        with self._telling():
            led = {
                TopicPartition(topic["name"], part["partition_index"])
                for topic in self._client.describe_topics(sorted(names))
                for part in topic["partitions"]
                if part["leader_id"] >= 0
            }
            known = led & set(partitions)
            starts, ends = self._listed(known, OffsetSpec.EARLIEST), self._listed(known, OffsetSpec.LATEST)
        return {partition: Bounds(starts[partition].offset, ends[partition].offset) for partition in sorted(known)}

    def describe_groups(self, groups: Collection[str] | None = None) -> list[GroupDescription]:
        """Return groups; of those that are not of the classic protocol the members are not known."""
        listed = {group["group_id"]: group for group in self._loaded(self._client.list_groups)}
        wanted = sorted(listed if groups is None else groups)
        for group_id in wanted:
            if group_id not in listed:
                raise GroupIdNotFoundError(f"{self.address} has no group {group_id}")
        classic = [group_id for group_id in wanted if _type_of(listed[group_id]) == "classic"]
        described = self._loaded(lambda: self._client.describe_groups(classic)) if classic else {}
        return [_description(listed[group_id], described.get(group_id)) for group_id in wanted]

    def committed(self, groups: Collection[str]) -> dict[str, dict[TopicPartition, int]]:
        """Return the offsets of groups."""
        if not groups:
            return {}
        answered = self._loaded(lambda: self._client.list_group_offsets(list(groups)))
        return {
            group_id: {
                TopicPartition(*partition): committed.offset
                for partition, committed in sorted(offsets.items())
                if committed.offset >= 0
            }
            for group_id, offsets in answered.items()
        }

    def delete_groups(self, groups: Sequence[str], *, force: bool = False) -> None:
        """Delete groups and their offsets; the error names the first that could not be deleted."""
        if force:
            raise OptionError(f"{self.address}: --force is for a log directory; a broker knows which members are there")
        with self._telling():
            answered = self._client.delete_groups(list(dict.fromkeys(groups)))
        for group_id, result in answered.items():
            if result == errors.GroupIdNotFoundError.__name__:
                raise GroupIdNotFoundError(f"{self.address} has no group {group_id}")
            if result == errors.NonEmptyGroupError.__name__:
                raise NonEmptyGroupError(f"group {group_id} has members: stop them first")
            if result != "OK":
                kind = getattr(errors, result, errors.UnknownError)
                raise refusal(kind.errno, f"{self.address}: group {group_id}: {kind.description}")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _type_of(listed: Mapping[str, Any]) -> str:
    # Before version 5 of ListGroups there were only groups of the classic protocol.
    return str(listed.get("group_type") or "classic")


def _description(listed: Mapping[str, Any], described: Mapping[str, Any] | None) -> GroupDescription:
    group_id, kind, protocol_type = listed["group_id"], _type_of(listed), listed["protocol_type"]
    if described is None or described["error"] is not None:
        return GroupDescription(group_id, kind, protocol_type, listed.get("group_state") or "Unknown", members=None)
    members = tuple(
        GroupMember(
            member["member_id"],
            member.get("group_instance_id"),
            member["client_id"],
            member["client_host"],
            tuple(_assigned(member["member_assignment"])),
        )
        for member in described["members"]
    )
    return GroupDescription(
        group_id, kind, described["protocol_type"], described["group_state"], described["protocol_data"], members
    )


def _assigned(assignment: object) -> Iterator[TopicPartition]:
    # kafka-python decodes what it can; what another protocol's members were given stays bytes.
    if isinstance(assignment, Mapping):
        for topic in assignment["assigned_partitions"]:
            for number in sorted(topic["partitions"]):
                yield TopicPartition(topic["topic"], number)
